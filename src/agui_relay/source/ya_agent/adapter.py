"""AG-UI events of a ya-agent-sdk stream, under an application's own names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from agui_relay.source.ya_agent.public import Event, Json, make_event, public_value
from agui_relay.source.ya_agent.tool_keys import ToolKeys

if TYPE_CHECKING:
    from agui_relay.source.ya_agent.parts import AgentParts


class StreamEvent(Protocol):
    """What is needed of a ``ya_agent_sdk.context.StreamEvent``."""

    agent_id: str
    agent_name: str
    event: Any


@dataclass(slots=True)
class AguiAdapterConfig:
    """The names an application gives to what is its own.

    ``run_event_prefix`` and ``agent_event_prefix`` stand before the names of CUSTOM events: those of the application,
    and those of the SDK's lifecycle (``ya_agent.subagent_start``). With ``stream_metadata_prefix`` every event of an
    agent carries its id and name: ``app`` gives ``appAgentId`` and ``appAgentName``.
    """

    run_event_prefix: str
    agent_event_prefix: str = "ya_agent"
    stream_metadata_prefix: str | None = None


class AguiEventAdapter:
    """Turns the stream of one display run into AG-UI events, as JSON objects.

    A display run may be several segments of an agent's execution, with deferred tool results between them: use one
    adapter for all. Tool events carry ``toolCallKey`` beside the provider's ``toolCallId``; it names the invocation.
    What is not listed in ``lifecycle.ALLOWED`` is dropped, and events of unknown classes give nothing.
    """

    def __init__(self, *, session_id: str, run_id: str, config: AguiAdapterConfig) -> None:
        self._session_id = session_id
        self._run_id = run_id
        self._config = config
        self._tool_keys = ToolKeys(run_id)
        self._agents: dict[str, AgentParts] = {}

    def build_run_started_event(self, *, input_parts: list[dict[str, Any]] | None = None) -> Event:
        """Return RUN_STARTED. `input_parts` are accepted and never shown."""
        return make_event("RUN_STARTED", threadId=self._session_id, runId=self._run_id)

    def build_run_finished_event(self, result: Json = None) -> Event:
        """Return RUN_FINISHED with the run's result, which the application decides to show."""
        return make_event("RUN_FINISHED", threadId=self._session_id, runId=self._run_id, result=public_value(result))

    def build_run_error_event(self, *, message: str, code: str | None = None) -> Event:
        """Return RUN_ERROR."""
        return make_event("RUN_ERROR", message=message, code=code)

    def build_run_custom_event(self, event_name: str, payload: object) -> Event:
        """Return a CUSTOM event of the application, with any payload of its own."""
        return _custom_event(f"{self._config.run_event_prefix}.{event_name}", public_value(payload))

    def adapt_stream_event(self, stream_event: StreamEvent) -> list[Event]:
        """Return the events that a client may see of one stream event, in order; often none."""
        # They load pydantic_ai, which whoever made the event has loaded already.
        from agui_relay.source.ya_agent.lifecycle import public_lifecycle
        from agui_relay.source.ya_agent.parts import AgentParts

        agent_id, name, event = stream_event.agent_id, stream_event.agent_name, stream_event.event
        parts = self._agents.get(agent_id)
        if parts is None:
            parts = self._agents[agent_id] = AgentParts(agent_id, self._run_id, self._tool_keys)
        events, remark = parts.read(event, name) or ([], public_lifecycle(event, run_id=self._run_id))
        if remark is not None:
            events.append(self._agent_event(stream_event, *remark))
            if remark[0] == "model_request_start":
                parts.loop_index = event.loop_index
        prefix = self._config.stream_metadata_prefix
        if prefix is not None:
            for made in events:
                made[f"{prefix}AgentId"] = agent_id
                made[f"{prefix}AgentName"] = name
        return events

    def _agent_event(self, stream_event: StreamEvent, name: str, payload: Json) -> Event:
        value = {
            "run_id": self._run_id,
            "session_id": self._session_id,
            "agent_id": stream_event.agent_id,
            "agent_name": stream_event.agent_name,
            "payload": payload,
        }
        return _custom_event(f"{self._config.agent_event_prefix}.{name}", value)


def _custom_event(name: str, value: Json) -> Event:
    event = make_event("CUSTOM", name=name, value=value)
    # AG-UI wants a value, and null is one.
    event.setdefault("value", None)
    return event
