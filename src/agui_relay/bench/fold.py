"""Folding events into a display, beside the reference's fold, and beside itself as messages and items grow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from agui_relay.bench.data import START, WORDS, Run, harness_missing, runs
from agui_relay.bench.measure import Case, Goal, at_least, at_most, timed
from agui_relay.bench.peers import REFERENCE
from agui_relay.bench.session import Session, Step
from agui_relay.display import DisplayFold
from agui_relay.events import encode_event
from agui_relay.projection.projector import Projector
from agui_relay.source import decode_item

type Payload = dict[str, Any]

AT = int(START.timestamp() * 1000)
BATCH = 256
FLAT = at_most(1.3)


def messages(count: int, deltas: int) -> list[Payload]:
    """Return the events of so many text messages, one after the other, of so many deltas each."""
    events: list[Payload] = []
    for number in range(count):
        own = {"timestamp": AT, "messageId": f"run-1:request-{number}:part-0:text"}
        events.append({"type": "TEXT_MESSAGE_START", **own, "role": "assistant"})
        events += [
            {"type": "TEXT_MESSAGE_CONTENT", **own, "delta": WORDS[index % len(WORDS)] + " "} for index in range(deltas)
        ]
        events.append({"type": "TEXT_MESSAGE_END", **own})
    return events


def projected(encoded: Sequence[bytes]) -> tuple[str, list[Payload]]:
    """Return the id of a run in wire form, and its events."""
    root = decode_item(encoded[0])
    projector = Projector(run_id=root.run_id, thread_id=root.thread_id)
    events = (event for data in encoded for event in projector.project(decode_item(data)))
    return root.run_id, [msgspec.json.decode(encode_event(event)) for event in events]


def fold(kind: Callable[[str], Any], run_id: str, events: Sequence[Payload]) -> int:
    """Fold events one by one, as they come; `kind` is either fold."""
    display = kind(run_id)
    for event in events:
        display.fold([event])
    return len(events)


def chain(kind: Callable[[str], Any], items: Sequence[Any]) -> int:
    """Convert live items and fold their events."""
    display = kind(items[0].run_id)
    for item in items:
        display.fold(display.events(item), item)
    return len(items)


def frames(run_id: str, encoded: Sequence[bytes]) -> int:
    """Fold encoded frames in batches, as a worker does."""
    display = DisplayFold(run_id)
    for start in range(0, len(encoded), BATCH):
        display.fold_frames(encoded[start : start + BATCH])
    return len(encoded)


async def beside_reference(
    session: Session, name: str, unit: str, ours: Callable[[], int], peer: Callable[[Any], int], goal: Goal
) -> Case:
    """Measure a case; `peer` gets the reference's fold."""
    missing = REFERENCE.missing
    kind = None if missing else REFERENCE.load("display").DisplayFold
    return await session.compare(
        name,
        timed(ours, at_least=session.at_least),
        None if kind is None else timed(lambda: peer(kind), at_least=session.at_least),
        peer_name=REFERENCE.distribution,
        unit=unit,
        goal=goal,
        missing=missing,
    )


async def text(count: int, deltas: int, session: Session) -> list[Case]:
    """Measure text messages, as events and, one long one, as frames."""
    events = messages(count, deltas)
    # The reference takes longer with each delta of a message; half a minute at 100,000.
    theirs = events[:10_000]
    what = f"{deltas:,} deltas in a message" if count == 1 else f"{count:,} messages of {deltas} deltas"
    run_id = "run-1"
    rows = [
        await beside_reference(
            session,
            f"text, {what}",
            "events/s",
            partial(fold, DisplayFold, run_id, events),
            lambda kind: fold(kind, run_id, theirs),
            at_least(8),
        )
    ]
    if count == 1:
        encoded = [msgspec.json.encode(event) for event in events]
        rows.append(
            await beside_reference(
                session,
                f"text, {what}: encoded frames in batches",
                "events/s",
                partial(frames, run_id, encoded),
                lambda kind: fold(kind, run_id, theirs),
                at_least(8),
            )
        )
    return rows


async def of_run(run: Run, session: Session) -> list[Case]:
    """Measure the fold of a run's events, and the whole way from its live items."""
    # The text deltas' own events are measured by `text`.
    rows: list[Case] = []
    if run.name != "text deltas":
        run_id, events = projected(run.encoded())
        rows.append(
            await beside_reference(
                session,
                f"{run.name}, as events",
                "events/s",
                partial(fold, DisplayFold, run_id, events),
                lambda kind: fold(kind, run_id, events),
                at_least(1 if run.recorded else 8),
            )
        )
    name, goal = f"{run.name}: live item to display", at_least(1 if run.recorded else 8)
    if missing := harness_missing():
        return [*rows, Case(name, "items/s", None, REFERENCE.distribution, None, goal, missing)]
    items = await run.live()
    rows.append(
        await beside_reference(
            session, name, "items/s", partial(chain, DisplayFold, items), lambda kind: chain(kind, items), goal
        )
    )
    return rows


async def flat(what: str, small: tuple[int, int], large: tuple[int, int], session: Session) -> list[Case]:
    """Measure ours beside ours, with more messages or longer ones; each size is of messages and of deltas in one."""
    small_events, large_events = messages(*small), messages(*large)
    return [
        await session.compare(
            f"{max(large):,} {what}",
            timed(partial(fold, DisplayFold, "run-1", large_events), at_least=session.at_least),
            timed(partial(fold, DisplayFold, "run-1", small_events), at_least=session.at_least),
            peer_name=f"ours, {max(small):,}",
            unit="µs an event",
            goal=FLAT,
            value=lambda sample: sample.cost,
        )
    ]


def steps(session: Session) -> list[Step]:
    """Return the cases beside the reference, then those of growth."""
    size = session.size
    return [
        Step("a message", partial(text, 1, size(1_000, 50))),
        Step("a long message", partial(text, 1, size(10_000, 100))),
        Step("many messages", partial(text, size(1_000, 10), 10)),
        *(Step(run.name, partial(of_run, run)) for run in runs(session, size(2_000, 50))),
        Step("longer messages", partial(flat, "deltas in a message", (1, size(1_000, 50)), (1, size(100_000, 500)))),
        Step("more items", partial(flat, "items of 10 deltas", (10, 10), (size(10_000, 50), 10))),
    ]
