"""The boundary is closed: of everything that ya-agent-sdk can say, only what is listed here reaches a client.

Each field of each event class, and of each record in it, gets a canary of its own. The list below is written by hand
and not taken from the code: what it does not name must not be found in any output.
"""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai import DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import (
    BinaryImage,
    CapabilityEvent,
    CustomEvent,
    DeferredToolRequestsEvent,
    DeferredToolResultsEvent,
    EnqueuedMessagesEvent,
    FilePart,
    FinalResultEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelRequest,
    OutputToolCallEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RunUsage
from ya_agent_sdk import events as sdk  # type: ignore[import-untyped]
from ya_agent_sdk.context import StreamEvent  # type: ignore[import-untyped]
from ya_agent_sdk.usage import (  # type: ignore[import-untyped]
    CostEstimate,
    UsageAgentTotal,
    UsageSnapshot,
    UsageSnapshotEntry,
)

from agui_relay.replay import compact_agui_events
from agui_relay.source.ya_agent import AguiAdapterConfig, AguiEventAdapter
from agui_relay.sse import build_buffered_stream_event, encode_sse_event

SUBAGENT = "execution_id mode agent_id agent_name"
MAY_LEAVE: dict[str, str] = {
    "AgentExecutionCompleteEvent": "total_loops total_duration_seconds final_message_count attempt_index",
    "AgentExecutionFailedEvent": "error error_type total_loops total_duration_seconds attempt_index recoverable",
    "AgentExecutionResumeEvent": "attempt_index previous_attempt_index error error_type message_history_count",
    "AgentExecutionStartEvent": "message_history_count attempt_index is_resume_attempt",
    "BackgroundShellCompleteEvent": "process_id exit_code",
    "BackgroundShellKilledEvent": "process_id",
    "BackgroundShellStartEvent": "process_id",
    "CompactCompleteEvent": "original_message_count compacted_message_count",
    "CompactFailedEvent": "error message_count",
    "CompactStartEvent": "message_count",
    "FileChangeEvent": "tool_name changes.path changes.action changes.destination",
    "HandoffCompleteEvent": "original_message_count",
    "HandoffFailedEvent": "error message_count",
    "HandoffStartEvent": "message_count",
    "ModelRequestCompleteEvent": "loop_index duration_seconds context_tokens context_window_size",
    "ModelRequestStartEvent": "loop_index message_count",
    "NamespaceStatusEvent": "namespace_status.key namespace_status.value",
    "NoteEvent": "entries.key entries.value",
    "SubagentCompleteEvent": f"{SUBAGENT} success request_count result_preview error duration_seconds",
    "SubagentStartEvent": f"{SUBAGENT} prompt_preview",
    "TaskEvent": "tasks.id tasks.subject tasks.status tasks.active_form tasks.owner tasks.blocked_by tasks.blocks",
    "ToolCallsCompleteEvent": "loop_index duration_seconds",
    "ToolCallsStartEvent": "loop_index",
    "UsageSnapshotEvent": "snapshot.total_usage snapshot.total_cost_estimate snapshot.model_cost_estimates",
}
RECORDS: dict[tuple[str, str], Any] = {
    ("FileChangeEvent", "changes"): sdk.FileChange,
    ("FileChange", "replacements"): sdk.TextReplacement,
    ("TaskEvent", "tasks"): sdk.TaskInfo,
}
MAPPINGS = {("NoteEvent", "entries"), ("NamespaceStatusEvent", "namespace_status")}
LISTS = {("TaskInfo", "blocked_by"), ("TaskInfo", "blocks")}


def event_classes() -> list[type]:
    """Return every event class of the SDK, however deep."""
    found: list[type] = []
    pending: list[type] = [sdk.AgentEvent]
    while pending:
        subclasses: list[type] = pending.pop().__subclasses__()
        below = [kind for kind in subclasses if kind.__module__.startswith("ya_agent_sdk")]
        found += below
        pending += below
    return sorted(found, key=lambda kind: kind.__name__)


def canary(path: str) -> str:
    return f"<canary {path}>"


def planted(kind: type, path: str, canaries: dict[str, str]) -> Any:
    """Return an instance with a canary in every field, and collect the canaries by path."""

    def leaf(name: str) -> str:
        canaries[name] = canary(name)
        return canaries[name]

    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        where = f"{path}.{field.name}" if path else field.name
        key = (kind.__name__, field.name)
        if key in RECORDS:
            values[field.name] = [planted(RECORDS[key], where, canaries)]
        elif key in MAPPINGS:
            values[field.name] = {leaf(f"{where}.key"): leaf(f"{where}.value")}
        elif key in LISTS:
            values[field.name] = [leaf(where)]
        elif key == ("UsageSnapshotEvent", "snapshot"):
            values[field.name] = usage_snapshot(where, leaf)
        else:
            # Whatever its type: dataclasses do not check, and neither may the boundary rely on it.
            values[field.name] = leaf(where)
    return kind(**values)


def usage_snapshot(path: str, leaf: Any) -> Any:
    usage: Any = RunUsage(details={leaf(f"{path}.total_usage.details.key"): 7}, cost=Decimal(3))
    usage.added_by_an_application = leaf(f"{path}.added")
    inner = RunUsage(details={leaf(f"{path}.inner.details"): 8})
    cost = CostEstimate.model_construct(total_amount=Decimal(4), hidden=leaf(f"{path}.cost.hidden"))
    names = {name: leaf(f"{path}.{name}") for name in ("agent_name", "model_id", "usage_id", "source")}
    return UsageSnapshot(
        run_id=leaf(f"{path}.run_id"),
        total_usage=usage,
        total_cost_estimate=cost,
        entries=[UsageSnapshotEntry(agent_id=leaf(f"{path}.entry_agent"), usage=inner, **names)],
        agent_usages={leaf(f"{path}.agent"): UsageAgentTotal(usage=inner, **names)},
        model_usages={leaf(f"{path}.model"): inner},
        model_cost_estimates={leaf(f"{path}.model_cost_estimates.key"): cost},
    )


def outputs(event: Any) -> str:
    """Return all that a client could be sent because of an event: live, compact, and as server-sent events."""
    adapter = AguiEventAdapter(
        session_id="session", run_id="run", config=AguiAdapterConfig("app", stream_metadata_prefix="app")
    )
    events = adapter.adapt_stream_event(StreamEvent("main", "Main", event))
    compact = compact_agui_events(events)
    frames = [encode_sse_event(build_buffered_stream_event(number, one)).decode() for number, one in enumerate(compact)]
    return json.dumps([events, compact], ensure_ascii=False) + "".join(frames)


def found(output: str, canaries: dict[str, str]) -> set[str]:
    return {path for path, text in canaries.items() if text in output or json.dumps(text)[1:-1] in output}


def test_the_list_names_every_class_of_the_sdk() -> None:
    assert [kind.__name__ for kind in event_classes()] == sorted(MAY_LEAVE)


@pytest.mark.parametrize("kind", event_classes(), ids=lambda kind: kind.__name__)
def test_only_what_is_listed_leaves(kind: type) -> None:
    canaries: dict[str, str] = {}
    event = planted(kind, "", canaries)
    assert {"event_id", "timestamp"} <= canaries.keys()
    listed = set(MAY_LEAVE[kind.__name__].split())
    expected = {path for path in canaries if any(path == name or path.startswith(f"{name}.") for name in listed)}
    assert found(outputs(event), canaries) == expected
    assert {name for name in listed if not name.startswith("snapshot.")} <= expected


@pytest.mark.parametrize("kind", event_classes(), ids=lambda kind: kind.__name__)
def test_an_object_in_a_listed_field_says_nothing_of_itself(kind: type) -> None:
    class Secret:
        def __repr__(self) -> str:
            return canary("repr")

        __str__ = __repr__

    for inside in (
        Secret(),
        {"a": canary("nested")},
        [canary("nested")],
        ModelRequest([UserPromptPart(canary("nested"))]),
    ):
        names = [field.name for field in dataclasses.fields(kind)]
        mappings = {name for name in names if (kind.__name__, name) in MAPPINGS}
        event = kind(**{name: inside for name in names if name not in mappings})
        assert "<canary" not in outputs(event)


def test_times_do_not_leave_in_any_form() -> None:
    when = datetime(1999, 7, 6, tzinfo=UTC) + timedelta(seconds=5)
    for kind in event_classes():
        output = outputs(kind(event_id="id", timestamp=when))
        assert "1999" not in output
        assert str(int(when.timestamp())) not in output


def test_a_long_prompt_leaves_only_as_its_preview() -> None:
    output = outputs(
        sdk.SubagentStartEvent("id", prompt_preview="p" * 150 + canary("beginning") + "p" * 150 + canary("rest"))
    )
    assert canary("beginning") in output
    assert canary("rest") not in output


@dataclasses.dataclass
class FutureEvent(sdk.AgentEvent):  # type: ignore[misc]
    message_count: str = canary("message_count")
    error: str = canary("error")


@dataclasses.dataclass
class GrownEvent(sdk.CompactStartEvent):  # type: ignore[misc]
    prompt: str = canary("prompt")


@dataclasses.dataclass
class FutureCustomEvent(CustomEvent):
    text: str = canary("custom")


@dataclasses.dataclass
class FutureCapabilityEvent(CapabilityEvent, namespace="agui_relay_test"):
    text: str = canary("capability")


@dataclasses.dataclass
class LookAlike:
    """Has the name of a class that is shown, and is another one."""

    message_count: str = canary("message_count")


LookAlike.__name__ = LookAlike.__qualname__ = "CompactStartEvent"

CALL = ToolCallPart("tool", {"a": canary("arguments")}, "call-1")


@pytest.mark.parametrize(
    "event",
    [
        FutureEvent("id"),
        sdk.AgentEvent(canary("event_id")),
        FutureCustomEvent(),
        FutureCapabilityEvent(),
        LookAlike(),
        {"message_count": canary("mapping")},
        canary("text"),
        None,
        FunctionToolCallEvent(CALL),
        OutputToolCallEvent(CALL),
        DeferredToolRequestsEvent(requests=DeferredToolRequests(approvals=[CALL])),
        DeferredToolResultsEvent(results=DeferredToolResults(approvals={canary("call"): True})),
        PartStartEvent(index=0, part=FilePart(BinaryImage(b"<canary>", media_type="image/png"))),
        PartEndEvent(index=0, part=FilePart(BinaryImage(b"<canary>", media_type="image/png"))),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_is_unknown_is_dropped(event: Any) -> None:
    adapter = AguiEventAdapter(session_id="session", run_id="run", config=AguiAdapterConfig("app"))
    assert adapter.adapt_stream_event(StreamEvent("main", "Main", event)) == []


def test_a_class_that_grows_shows_what_its_base_does() -> None:
    output = outputs(GrownEvent("id", message_count=3))
    assert '"message_count": 3' in output
    assert "<canary" not in output


def test_injected_messages_leave_as_their_number() -> None:
    prompt = UserPromptPart(canary("prompt"))
    event = EnqueuedMessagesEvent(
        enqueue_id=canary("enqueue_id"), messages=(ModelRequest([prompt]), ModelRequest([prompt])), parts=(prompt,)
    )
    output = outputs(event)
    assert '"payload": {"message_count": 2}' in output
    assert "<canary" not in output


def test_a_final_result_names_its_tool() -> None:
    output = outputs(FinalResultEvent(tool_name="answer", tool_call_id="call-1"))
    assert '"payload": {"tool_name": "answer", "tool_call_id": "call-1"}' in output


def test_what_only_the_application_knows_of_parts_and_results_stays() -> None:
    details = {"provider_details": {"a": canary("provider_details")}, "provider_name": canary("provider_name")}
    text = TextPart("text", id="m", **details)  # type: ignore[arg-type]
    call = ToolCallPart("tool", "{}", "call-1", id=canary("part_id"), **details)  # type: ignore[arg-type]
    answer = ToolReturnPart("tool", "content", "call-1", metadata={"a": canary("metadata")})
    for event in (
        PartStartEvent(index=0, part=text),
        PartEndEvent(index=0, part=text),
        PartStartEvent(index=0, part=call),
        PartEndEvent(index=0, part=call),
        FunctionToolResultEvent(part=answer),
    ):
        assert "<canary" not in outputs(event)
