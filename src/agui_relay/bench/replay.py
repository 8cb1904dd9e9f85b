"""Compact replay and the ya-agent-sdk adapter, beside ya-agent-stream-protocol's, on one run of 36,000 events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from agui_relay import replay
from agui_relay.bench.data import WORDS
from agui_relay.bench.measure import Case, at_least, timed
from agui_relay.bench.peers import YA_AGENT, YA_AGENT_SDK
from agui_relay.bench.session import Session, Step

EVENTS = 36_000
PER_PART = 300
GOAL = at_least(1)
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


def compact(module: Any, events: list[Event]) -> int:
    """Compact a run; `module` is either replay."""
    module.compact_agui_events(events)
    return len(events)


def watched(module: Any, events: list[Event]) -> int:
    """Append a run event by event, and look at a snapshot a hundred times on the way."""
    buffer = module.AguiReplayBuffer()
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


def steps(session: Session) -> list[Step]:
    """Return compaction, a buffer that is looked at, and the adapter."""
    return [
        Step("compact replay", compaction),
        Step("replay buffer", looked_at),
        Step("SDK stream", adapter),
    ]


async def compaction(session: Session) -> list[Case]:
    """Measure the compaction of a whole run."""
    events = stored_events(session.size(EVENTS, 1_000))
    if not YA_AGENT.missing:
        theirs = YA_AGENT.load("agui")
        if replay.compact_agui_events(events) != theirs.compact_agui_events(events):
            raise RuntimeError("the two do not compact alike")
    return await beside_theirs(session, f"compact replay of {len(events):,} events", compact, replay, "agui", events)


async def looked_at(session: Session) -> list[Case]:
    """Measure a buffer that is looked at."""
    events = stored_events(session.size(EVENTS, 1_000))
    return await beside_theirs(session, "replay buffer, a snapshot every 1 %", watched, replay, "agui", events)


async def adapter(session: Session) -> list[Case]:
    """Measure the adapter of an SDK stream."""
    name = "SDK stream to AG-UI events, text deltas"
    if missing := YA_AGENT_SDK.missing:
        return [Case(name, "events/s", None, YA_AGENT.distribution, None, GOAL, missing)]
    from agui_relay.source import ya_agent

    return await beside_theirs(session, name, adapt, ya_agent, "sdk", sdk_stream(session.size(10_000, 100)))


async def beside_theirs(
    session: Session, name: str, function: Callable[[Any, list[Any]], int], ours: Any, theirs: str, events: list[Any]
) -> list[Case]:
    """Measure a function of either module on the events; `theirs` is a module of the peer."""
    missing = YA_AGENT.missing
    return [
        await session.compare(
            name,
            timed(partial(function, ours, events), at_least=session.at_least),
            None if missing else timed(partial(function, YA_AGENT.load(theirs), events), at_least=session.at_least),
            peer_name=YA_AGENT.distribution,
            unit="events/s",
            goal=GOAL,
            missing=missing,
        )
    ]
