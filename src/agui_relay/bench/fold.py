"""Folding events into a display, beside the reference's fold: deltas, long messages, many items, whole chains."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from a13n_stream_protocol.display import DisplayFold as Reference

from agui_relay.bench.data import START, WORDS, arguments_run, text_run
from agui_relay.bench.measure import Comparison, compare
from agui_relay.display import DisplayFold

type Payload = dict[str, Any]

GOAL = 8
AT = int(START.timestamp() * 1000)


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


def fold(kind: Callable[[str], Any], events: Sequence[Payload]) -> int:
    """Fold events one by one, as they come."""
    display = kind("run-1")
    for event in events:
        display.fold([event])
    return len(events)


def chain(kind: Callable[[str], Any], items: Sequence[Any]) -> int:
    """Convert live items and fold their events."""
    display = kind("run-1")
    for item in items:
        display.fold(display.events(item), item)
    return len(items)


def frames(encoded: Sequence[bytes]) -> int:
    """Fold encoded frames in batches, as a worker does."""
    display = DisplayFold("run-1")
    for start in range(0, len(encoded), 256):
        display.fold_frames(encoded[start : start + 256])
    return len(encoded)


def run() -> list[Comparison]:
    """Measure against the reference, then ours against itself as messages become longer and items more."""

    def bound(function: Callable[..., int], *arguments: Any) -> Callable[[], int]:
        return lambda: function(*arguments)

    rows: list[Comparison] = []

    def beside_reference(
        name: str, function: Callable[..., int], mine: Sequence[Any], theirs: Sequence[Any], goal: float = GOAL
    ) -> None:
        rows.append(
            compare(
                name,
                bound(function, DisplayFold, mine),
                bound(function, Reference, theirs),
                peer_name="reference",
                unit="events/s" if function is fold else "items/s",
                goal=goal,
            )
        )

    for deltas in (1_000, 10_000, 100_000):
        # Short cases are folded again and again, the reference's share of long ones is cut: each takes a while.
        events, times = messages(1, deltas), max(1, 20_000 // deltas)
        rows.append(
            compare(
                f"text deltas, one message of {deltas:,}",
                bound(_repeated, DisplayFold, events, times),
                bound(_repeated, Reference, events[:20_000], max(1, times // 5)),
                peer_name="reference",
                unit="events/s",
                goal=GOAL,
            )
        )
    several = messages(1_000, 10)
    # A new item costs a hash, and its start and end a reference each: both have to pay for these.
    beside_reference("text, 1,000 messages of 10 deltas", fold, several, several, 5)
    display = Reference("run-1")
    arguments = [event for item in arguments_run(4_000) for event in display.events(item)]
    beside_reference("argument deltas, 200 a call", fold, arguments, arguments)
    for name, live in (("text deltas", text_run(3_000)), ("argument deltas", arguments_run(3_000))):
        items = list(live)
        beside_reference(f"{name}: live item to display", chain, items, items[:1_000])

    encoded = [json.dumps(event, separators=(",", ":")).encode() for event in messages(1, 20_000)]
    few = messages(1, 4_000)
    rows.append(
        compare(
            "text deltas: encoded frames in batches",
            bound(frames, encoded),
            bound(fold, Reference, few),
            peer_name="reference, decoded",
            unit="events/s",
            goal=GOAL,
        )
    )
    for name, large, small in (
        ("one message: 100,000 deltas beside 1,000", messages(1, 100_000), messages(1, 1_000)),
        ("10,000 items of 10 deltas beside 10", messages(10_000, 10), messages(10, 10)),
    ):
        rows.append(
            compare(
                name,
                bound(fold, DisplayFold, large),
                bound(_repeated, DisplayFold, small, len(large) // len(small)),
                peer_name="ours, small",
                unit="events/s",
                goal=0.8,
            )
        )
    return rows


def _repeated(kind: Callable[[str], Any], events: Sequence[Payload], times: int) -> int:
    return sum(fold(kind, events) for _ in range(times))
