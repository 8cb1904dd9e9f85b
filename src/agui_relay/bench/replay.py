"""Compact replay and the ya-agent-sdk adapter, beside ya-agent-stream-protocol's, on one run of 36,000 events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agui_relay.bench.data import WORDS
from agui_relay.bench.measure import Comparison, compare

EVENTS = 36_000
PER_PART = 300
AGENT = {"yaacliAgentId": "main", "yaacliAgentName": "Main"}

type Event = dict[str, Any]


def stored_events(count: int = EVENTS) -> list[Event]:
    """Return the events of a run as the adapter gives them: messages and tool calls, each in as many chunks."""

    def events() -> Iterator[Event]:
        number = 0
        while True:
            message = {"messageId": f"run-1:main:{number}:text:0"}
            said = {**message, "role": "assistant", "name": "Main"}
            yield {"type": "TEXT_MESSAGE_START", **said}
            for index in range(PER_PART):
                yield {"type": "TEXT_MESSAGE_CHUNK", **said, "delta": WORDS[index % len(WORDS)] + " "}
            yield {"type": "TEXT_MESSAGE_END", **message}
            call = {"toolCallId": f"call-{number}", "toolCallKey": f"run-1:tool:{number}"}
            yield {"type": "TOOL_CALL_START", **call, "toolCallName": "search"}
            for index in range(PER_PART):
                delta = WORDS[index % len(WORDS)] + '\\"'
                yield {"type": "TOOL_CALL_CHUNK", **call, "toolCallName": "search", "delta": delta}
            yield {"type": "TOOL_CALL_END", **call}
            yield {"type": "TOOL_CALL_RESULT", **call, "content": "found", "role": "tool", "outcome": "success"}
            number += 1

    started: Event = {"type": "RUN_STARTED", "threadId": "thread-1", "runId": "run-1"}
    source = events()
    rest = [{**next(source), "timestamp": 1_700_000_000_000 + index, **AGENT} for index in range(count - 1)]
    return [started, *rest]


def compact(replay: Any, events: list[Event]) -> int:
    """Compact a run; `replay` is either module."""
    replay.compact_agui_events(events)
    return len(events)


def watched(replay: Any, events: list[Event]) -> int:
    """Append a run event by event, and look at a snapshot a hundred times on the way."""
    buffer = replay.AguiReplayBuffer()
    for number, event in enumerate(events):
        buffer.append(event)
        if number % (len(events) // 100) == 0:
            buffer.snapshot()
    return len(events)


def adapt(module: Any, stream: list[Any]) -> int:
    """Adapt a stream of the SDK; `module` is either adapter's."""
    config = module.AguiAdapterConfig(run_event_prefix="app", stream_metadata_prefix="yaacli")
    adapter = module.AguiEventAdapter(session_id="thread-1", run_id="run-1", config=config)
    for event in stream:
        adapter.adapt_stream_event(event)
    return len(stream)


def sdk_stream(count: int) -> list[Any]:
    """Return a stream of the SDK with as many text deltas."""
    from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
    from ya_agent_sdk.context import StreamEvent  # type: ignore[import-untyped]

    pieces = [PartDeltaEvent(index=0, delta=TextPartDelta(WORDS[index % len(WORDS)] + " ")) for index in range(count)]
    events = [PartStartEvent(index=0, part=TextPart("")), *pieces]
    return [StreamEvent("main", "Main", event) for event in events]


def run() -> list[Comparison]:
    """Measure compaction, a buffer that is looked at, and the adapter."""
    from ya_agent_stream_protocol import agui, sdk  # type: ignore[import-untyped]

    from agui_relay import replay
    from agui_relay.source import ya_agent

    events = stored_events()
    assert replay.compact_agui_events(events) == agui.compact_agui_events(events)
    stream = sdk_stream(10_000)
    return [
        compare(
            f"compact replay of {EVENTS:,} events",
            lambda: compact(replay, events),
            lambda: compact(agui, events),
            peer_name="ya-agent-stream-protocol",
            unit="events/s",
            goal=1,
        ),
        compare(
            "replay buffer, a snapshot every 1 %",
            lambda: watched(replay, events),
            lambda: watched(agui, events),
            peer_name="ya-agent-stream-protocol",
            unit="events/s",
            goal=1,
        ),
        compare(
            "SDK stream to AG-UI events, text deltas",
            lambda: adapt(ya_agent, stream),
            lambda: adapt(sdk, stream),
            peer_name="ya-agent-stream-protocol",
            unit="events/s",
            goal=1,
        ),
    ]
