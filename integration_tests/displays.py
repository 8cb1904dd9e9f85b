"""Conversations whose display is known, checkpoints of them, and a reader that shows what it is given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

from agui_relay.broker.folded import FoldedViews
from agui_relay.broker.packed import pack, unpack
from agui_relay.broker.scripts import Scripts
from agui_relay.broker.subscription import Delivery, DisplayCheckpoint, GapNotice, Subscription
from agui_relay.display import DisplayFold
from integration_tests.frames import FrameWriter


def message(number: int, deltas: int = 3, size: int = 8) -> Iterator[bytes]:
    """Make the events of one message. Their times come from its number, so that every fold of them is the same.

    An event above 48 KiB would be fragmented by our writer, as no worker does it: only CUSTOM events are.
    """
    times = count(1000 * number)
    identity = {"messageId": f"message-{number}"}
    yield _event("TEXT_MESSAGE_START", next(times), **identity, role="assistant")
    for delta in range(deltas):
        yield _event("TEXT_MESSAGE_CONTENT", next(times), **identity, delta=f"{number}.{delta} ".ljust(size, "x"))
    yield _event("TEXT_MESSAGE_END", next(times), **identity)


def observation(number: int, size: int = 0) -> bytes:
    """Make one CUSTOM event; above 48 KiB it will be fragmented."""
    return _event("CUSTOM", 1000 * number, name="n", value={"n": number, "x": "x" * size})


def _event(kind: str, timestamp: int, **fields: Any) -> bytes:
    return json.dumps({"type": kind, "timestamp": timestamp, **fields}, separators=(",", ":")).encode()


async def store(scripts: Scripts, writer: FrameWriter, position: int, *, keep: bool = False) -> None:
    """Store the display checkpoint of a position, as a worker does, and drop the frames it covers unless `keep`."""
    stored = await scripts.uncovered(writer.keys, epoch=writer.epoch, log_bytes=0, tail_bytes=0)
    before = {view: unpack(snapshot) for view, snapshot in stored.stored.items()}
    views = FoldedViews(writer.keys.run_id, stored.covered, before)
    first = stored.covered + 1
    views.add(await scripts.read_frames(writer.keys, first=first, last=position, most=1 << 20))
    snapshots = views.export()
    word = await scripts.checkpoint(
        writer.keys,
        epoch=writer.epoch,
        covered=stored.covered,
        position=position,
        folded=views.folded,
        log_bytes=1 << 40 if keep else 0,
        shown=sum(map(len, snapshots.values())),
        snapshots={view: pack(snapshot) for view, snapshot in snapshots.items()},
    )
    assert word == "ok"


class Screen:
    """What a reader shows: checkpoints, and the events behind them."""

    def __init__(self, run_id: str = "run-1") -> None:
        self.fold = DisplayFold(run_id)
        self.events: list[bytes] = []
        """The events given since the last checkpoint, or the beginning."""
        self.notices: list[tuple[int, int]] = []
        self.checkpoints: list[int] = []
        """The positions of the checkpoints given."""
        self.bytes = 0
        self._due: int | None = None
        self._run_id = run_id
        self._position = 0

    def take(self, item: Delivery | GapNotice | DisplayCheckpoint) -> None:
        """Show one more thing."""
        match item:
            case GapNotice():
                assert self._due is None
                if item.restarts:
                    self.fold, self._position = DisplayFold(self._run_id), 0
                    self.events.clear()
                else:
                    self.notices.append((item.first, item.last))
                    self._due = item.last
            case DisplayCheckpoint():
                assert item.position == self._due or not (self._position or self.events)
                self._due, self._position = None, item.position
                self.checkpoints.append(item.position)
                self.fold = item.fold()
                self.events.clear()
                self.bytes += len(item.data)
            case Delivery():
                assert self._due is None, "a checkpoint follows every gap"
                assert item.position > self._position
                self._position = item.position
                self.events.append(item.data)
                # Frames count, as they do in a checkpoint; our reader is given whole events.
                self.fold.fold([dict(item.event)], position=item.position)
                self.bytes += len(item.data)

    def leave(self) -> None:
        """Forget what is due: who resumes is told of it again."""
        self._due = None

    async def follow(self, subscription: Subscription) -> Screen:
        """Show all that comes, to the end."""
        async for item in subscription:
            self.take(item)
            assert item.cursor == subscription.cursor or subscription.backlog == 0
        return self

    @property
    def items(self) -> list[dict[str, Any]]:
        """The items on display, without what depends on where the reader came in."""
        return items_of(self.fold)


def items_of(fold: DisplayFold) -> list[dict[str, Any]]:
    """Return the items without their stream ids, nor the ids of observations, which are made of them.

    These count frames; how many there are is not seen in the events, of which a view hides some.
    """
    places = {"first_stream_id", "last_stream_id"}
    return [
        item.model_dump(exclude=places | ({"id"} if item.kind == "observation" else set()))
        for item in fold.items.values()
    ]


def folded(events: list[bytes], run_id: str = "run-1") -> list[dict[str, Any]]:
    """Return the items of all of these events."""
    fold = DisplayFold(run_id)
    fold.fold([json.loads(event) for event in events])
    return items_of(fold)
