"""The runs that are measured: made here without any agent library, or recorded; and the same as live Harness items."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Literal, NamedTuple

import msgspec

from agui_relay.bench import recorded
from agui_relay.bench.peers import HARNESS
from agui_relay.bench.session import Session
from agui_relay.source import HarnessItem, decode_item, encode_item
from agui_relay.source.items import Projection

START = datetime(2026, 1, 1, tzinfo=UTC)
RUN_ID = "run-1"
THREAD_ID = "thread-1"
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "naïve", "reviewers", "watch"]

type Event = dict[str, Any]
type Source = Literal["harness", "pydantic_ai", "result"]

_NO_PROVIDER = {"provider_name": None, "provider_details": None}


def text_run(deltas: int, run_id: str = RUN_ID, *, ended: bool = False) -> Iterator[bytes]:
    """Yield a run in wire form whose answer streams in as many text deltas: two items more, three when it is ended."""
    return _written(run_id, _text_events(deltas, ended=ended))


def arguments_run(deltas: int, run_id: str = RUN_ID, per_call: int = 200) -> Iterator[bytes]:
    """Yield a run in wire form that streams the arguments of tool calls; no terminal item."""
    return _written(run_id, _arguments_events(deltas, per_call))


def live(encoded: Iterable[bytes]) -> list[Any]:
    """Return events of a made run, not a result, as live Harness items; needs a13n-harness."""
    from a13n_harness.events import HarnessEvent, HarnessExtensionEvent
    from pydantic import TypeAdapter
    from pydantic_ai.messages import AgentStreamEvent

    native: TypeAdapter[Any] = TypeAdapter(AgentStreamEvent)

    def event(item: HarnessItem) -> Any:
        data = bytes(item.event)
        if item.source == "harness":
            return HarnessExtensionEvent.model_validate_json(data)
        return native.validate_json(data)

    return [
        HarnessEvent(
            thread_id=item.thread_id,
            run_id=item.run_id,
            sequence=item.sequence,
            occurred_at=datetime.fromisoformat(item.occurred_at),
            event=event(item),
        )
        for item in map(decode_item, encoded)
    ]


class Run(NamedTuple):
    """A run to be measured."""

    name: str
    recorded: bool
    encoded: Callable[[], list[bytes]]
    """Its items in wire form."""
    make_live: Callable[[], list[Any]]
    """Its live items; needs a13n-harness, and no event loop that runs."""

    async def live(self) -> list[Any]:
        """Return its live items, inside of an event loop."""
        return await asyncio.to_thread(self.make_live)


def runs(session: Session, deltas: int) -> list[Run]:
    """Return the runs that conversion is measured with: text deltas, argument deltas, and those that are recorded."""

    def made(name: str, write: Callable[[int], Iterator[bytes]]) -> Run:
        return Run(name, False, lambda: list(write(deltas)), lambda: live(write(deltas)))

    def played(name: str) -> Run:
        return Run(f"recorded {name}", True, lambda: recorded.load(name), lambda: _played(name))

    return [
        made("text deltas", text_run),
        made("argument deltas", arguments_run),
        *(played(name) for name in (recorded.names()[:1] if session.quick else recorded.names())),
    ]


@cache
def _played(name: str) -> list[Any]:
    # It takes seconds, and several suites want it.
    return recorded.live(name)


def harness_missing() -> str:
    """Say why there can be no live items; empty when there can."""
    return HARNESS.missing


def _written(run_id: str, events: Iterator[tuple[Source, Event]]) -> Iterator[bytes]:
    for sequence, (source, event) in enumerate(events, 1):
        at = START + timedelta(milliseconds=sequence)
        raw = msgspec.Raw(msgspec.json.encode(event))
        content = {"result": raw} if source == "result" else {"event": raw}
        yield encode_item(
            HarnessItem(
                source=source,
                thread_id=THREAD_ID,
                run_id=run_id,
                sequence=sequence,
                occurred_at=at.isoformat(),
                projection=Projection(timestamp=int(at.timestamp() * 1000)),
                **content,
            )
        )


def _started() -> tuple[Source, Event]:
    return "harness", {"schema_version": "1", "kind": "lifecycle", "payload": {"type": "run_started"}}


def _text_events(deltas: int, *, ended: bool) -> Iterator[tuple[Source, Event]]:
    yield _started()
    part = {"content": "", "id": None, **_NO_PROVIDER, "citations": None, "part_kind": "text"}
    yield "pydantic_ai", {"index": 0, "part": part, "previous_part_kind": None, "event_kind": "part_start"}
    for number in range(deltas):
        content = {"content_delta": WORDS[number % len(WORDS)] + " ", **_NO_PROVIDER, "citations_delta": None}
        delta = {**content, "part_delta_kind": "text"}
        yield "pydantic_ai", {"index": 0, "delta": delta, "event_kind": "part_delta"}
    if ended:
        yield "result", {"status": "completed", "output": "", "usage": {}}


def _arguments_events(deltas: int, per_call: int) -> Iterator[tuple[Source, Event]]:
    yield _started()

    def part(call_id: str, arguments: str) -> Event:
        call = {"tool_name": "search", "args": arguments, "tool_call_id": call_id, "tool_kind": None, "id": None}
        return {**call, **_NO_PROVIDER, "part_kind": "tool-call"}

    for number in range(0, deltas, per_call):
        call_id = f"call-{number}"
        start = {"index": 0, "part": part(call_id, ""), "previous_part_kind": None, "event_kind": "part_start"}
        yield "pydantic_ai", start
        pieces = [WORDS[index % len(WORDS)] + '\\"' for index in range(min(per_call, deltas - number))]
        for piece in pieces:
            delta = {"tool_name_delta": None, "args_delta": piece, "tool_call_id": call_id, **_NO_PROVIDER}
            yield (
                "pydantic_ai",
                {"index": 0, "delta": {**delta, "part_delta_kind": "tool_call"}, "event_kind": "part_delta"},
            )
        end = {"index": 0, "part": part(call_id, "".join(pieces)), "next_part_kind": None, "event_kind": "part_end"}
        yield "pydantic_ai", end
