"""Every case as frames through the tracker, however they are cut into announcements and reads."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from agui_relay.broker.announcement import (
    VIEWS,
    Announcement,
    Cursor,
    Echo,
    Report,
    View,
    decode_message,
    decode_row,
    encode_announcement,
    encode_body,
    is_hidden,
)
from agui_relay.broker.drain import Batch, project_batch
from agui_relay.broker.scripts import Fetched, Frame
from agui_relay.broker.tracker import Deliver, End, Output, ReadLog, Tracker, whole_events
from agui_relay.projection.projector import Projector
from agui_relay.source import ItemError, canonical_item
from tests.case_files import Case, load_cases

CASES = load_cases()
EPOCH = "e1"


def frames_of(case: Case) -> list[Frame]:
    """Return the frames that a worker would write, the items that publishing refuses left out."""
    items = []
    for data in case.encoded():
        try:
            items.append(canonical_item(data)[1])
        except ItemError:
            continue
    fetched = Fetched("items", epoch=EPOCH, thread_id=case.thread_id, items=items)
    batch: Batch
    batch, _ = project_batch(fetched, lambda: Projector(run_id=case.run_id, thread_id=case.thread_id), None)
    return batch.frames


def cut(count: int, way: str, chance: random.Random) -> list[tuple[int, int]]:
    """Cut the positions 1 to `count` into ranges."""
    if way == "one by one":
        return [(position, position) for position in range(1, count + 1)]
    if way == "all in one":
        return [(1, count)]
    ends = sorted({*chance.sample(range(1, count + 1), min(count, chance.randint(1, 12))), count})
    return list(zip([1, *(end + 1 for end in ends[:-1])], ends, strict=True))


class Reading:
    """A tracker, the log it reads and what it has delivered."""

    def __init__(self, frames: Sequence[Frame], view: View, after: Cursor | None = None) -> None:
        self.frames = frames
        self.view: View = view
        self.tracker = Tracker(view=view, after=after)
        self.delivered: list[Deliver] = []
        self.outcome: str | None = None
        self.head = 0
        self.reads = 0

    def do(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            match output:
                case Deliver():
                    self.delivered.append(output)
                case ReadLog(first, count):
                    self.reads += 1
                    entries = list(enumerate(self.frames[: self.head], 1))[first - 1 : first - 1 + count]
                    rows = [
                        decode_row((b"%d-0" % position, {b"frame": data, b"meta": meta}), self.view)
                        for position, (data, meta) in entries
                    ]
                    self.do(self.tracker.rows(output, Report(EPOCH, self.head, "live"), rows))
                case End(outcome):
                    self.outcome = outcome
                case _:
                    raise AssertionError(output)

    def beat(self, head: int) -> None:
        self.head = head
        self.tracker.beat("nonce")
        self.do(self.tracker.echo(Echo(Report(EPOCH, head, "live"), "nonce")))

    def announce(self, first: int, last: int, *, body: bool = True) -> None:
        self.head = max(self.head, last)
        shown = [
            (position, meta[0] - ord("0"), data)
            for position, (data, meta) in enumerate(self.frames, 1)
            if first <= position <= last and not is_hidden(self.view, meta)
        ]
        told = decode_message(encode_announcement(EPOCH, first, last, "live", encode_body(shown) if body else None))
        assert isinstance(told, Announcement)
        # As one of many readers does it, or on its own.
        self.do(self.tracker.announcement(told, whole_events(told) if first % 2 else None))

    def end(self) -> None:
        head = len(self.frames)
        self.do(self.tracker.announcement(Announcement(EPOCH, head + 1, head, "finished")))

    @property
    def events(self) -> list[Any]:
        return [json.loads(delivery.data) for delivery in self.delivered]


def wanted(case: Case, view: View) -> list[Any]:
    """Return the events of a case that a view shows, judged without the log's meta."""
    return [event for event in case.events if not is_hidden(view, meta_of(event))]


def meta_of(event: dict[str, Any]) -> bytes:
    hidden = event["type"] == "CUSTOM" and event.get("metadata", {}).get("display") is False
    name = f":{event['name']}" if event["type"] == "CUSTOM" else ""
    return f"{7 if hidden else 3}{event['type']}{name}".encode()


by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
by_view = pytest.mark.parametrize("view", VIEWS)


@by_case
@by_view
@pytest.mark.parametrize("way", ["one by one", "all in one", *(f"random {seed}" for seed in range(8))])
def test_a_case_in_announcements(case: Case, view: View, way: str) -> None:
    frames = frames_of(case)
    reading = Reading(frames, view)
    reading.beat(0)
    for first, last in cut(len(frames), way, random.Random(f"{case.name} {way}")):
        reading.announce(first, last)
    reading.end()
    assert reading.events == wanted(case, view)
    assert (reading.outcome, reading.reads) == ("finished", 0)
    assert reading.tracker.cursor == Cursor(EPOCH, len(frames))


@by_case
@by_view
@pytest.mark.parametrize("seed", range(8))
def test_a_case_with_announcements_that_are_lost_doubled_or_without_frames(case: Case, view: View, seed: int) -> None:
    frames = frames_of(case)
    chance = random.Random(f"{case.name} {seed}")
    reading = Reading(frames, view)
    reading.beat(chance.randint(0, len(frames)))
    for first, last in cut(len(frames), "random", chance):
        if last <= reading.head:
            continue
        fault = chance.choice(["none", "lost", "doubled", "bare"])
        for _ in range({"none": 1, "lost": 0, "doubled": 2, "bare": 1}[fault]):
            reading.announce(first, last, body=fault != "bare")
    reading.beat(len(frames))
    reading.end()
    assert reading.events == wanted(case, view)
    assert reading.outcome == "finished"


@by_case
@by_view
def test_a_case_resumed_from_each_of_its_cursors(case: Case, view: View) -> None:
    frames = frames_of(case)
    reading = Reading(frames, view)
    reading.beat(len(frames))
    assert reading.events == wanted(case, view)
    for number, delivery in enumerate(reading.delivered, 1):
        again = Reading(frames, view, after=delivery.cursor)
        again.beat(len(frames))
        again.end()
        assert again.events == reading.events[number:]
        assert again.outcome == "finished"
