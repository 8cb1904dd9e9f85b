"""One reader of one run: does with asyncio and Redis what the tracker says, at the pace of its consumer.

The calls of the feed, which it shares with the other readers of the run, go straight through the tracker into a bounded
queue. A task reads from the log and the display while there is something to read. When the queue is full the tracker is
paused, and what is announced meanwhile is read from the log later; the other readers do not notice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Final, Self, get_args

from redis.exceptions import RedisError

from agui_relay.broker.announcement import (
    VIEWS,
    Announcement,
    Cursor,
    Echo,
    Outcome,
    Report,
    View,
)
from agui_relay.broker.deliveries import Delivery, DisplayCheckpoint
from agui_relay.broker.errors import RunNotFound
from agui_relay.broker.faults import backoff, is_transient
from agui_relay.broker.feed import Feed
from agui_relay.broker.hub import Channels
from agui_relay.broker.keys import RunKeys
from agui_relay.broker.scripts import Scripts
from agui_relay.broker.settings import RelaySettings
from agui_relay.broker.tracker import (
    Deliver,
    DeliverDisplay,
    End,
    GapNotice,
    Output,
    ReadDisplay,
    ReadLog,
    Reconnect,
    Start,
    Tracker,
)

__all__ = ["Delivery", "DisplayCheckpoint", "GapNotice", "Subscription"]

QUEUE_BYTES: Final = 1024 * 1024
QUEUE_EVENTS: Final = 1024
"""What may wait for the consumer before the subscription pauses; one read of the log or a display may come on top."""
_PARKED_BYTES: Final = 256 * 1024
_STARTS: Final[tuple[Start, ...]] = get_args(Start)

_log = logging.getLogger("agui_relay.subscription")


class Subscription:
    """A reader of one run: an async context manager, and inside an async iterator that ends with the run.

    It gives each event once and in order, a `GapNotice` where the log does not hold it any more, and a
    `DisplayCheckpoint` in the place of events that were trimmed, or that `start` leaves out. Iterate from one task.
    Raises CursorError for a malformed `after`, ValueError for an unknown view or start; while iterating RunNotFound (on
    entering when `wait_for_run` is 0), or RedisError when the server refuses for good, or cannot be reached by a
    process that never was in contact with it. Lost connections are not errors.
    """

    def __init__(
        self,
        *,
        scripts: Scripts,
        keys: RunKeys,
        settings: RelaySettings,
        hub: Channels,
        after: str | None = None,
        view: str = "full",
        start: str = "log",
        wait_for_run: float = 30.0,
    ) -> None:
        if view not in VIEWS:
            raise ValueError(f"expected a view of {', '.join(VIEWS)}, got {view!r}")
        if start not in _STARTS:
            raise ValueError(f"expected a start of {', '.join(_STARTS)}, got {start!r}")
        if not wait_for_run >= 0:
            raise ValueError(f"wait_for_run must be seconds from 0 on, got {wait_for_run!r}")
        self._view: View = view
        self._scripts, self._keys, self._settings, self._hub = scripts, keys, settings, hub
        self._wait_for_run = wait_for_run
        self._feed: Feed | None = None
        self._tracker = Tracker(
            after=None if after is None else Cursor.parse(after),
            view=self._view,
            start=start,
            lease=settings.subscription_lease,
            assembler_bytes=settings.assembler_bytes,
            assembler_pending=settings.assembler_pending,
        )

        self._queue: deque[Deliver | DeliverDisplay | GapNotice] = deque()
        self._queued_bytes = 0
        self._paused = False
        # What the consumer waits for while there is nothing for it.
        self._waiter: asyncio.Future[None] | None = None
        self._handed: Cursor | str | None = after
        self._failure: BaseException | None = None
        self._deadline = 0.0

        self._joined = asyncio.Event()
        self._read: ReadLog | ReadDisplay | None = None
        self._reading: asyncio.Task[None] | None = None
        # Announcements that came while the log or the display is read.
        self._parked: list[Announcement] = []
        self._parked_bytes = 0

        self._state = "new"
        self._delivered = 0
        self._reconnects = 0

    @property
    def cursor(self) -> str | None:
        """Where to resume after what was handed out; moves on over events that the view hides. None: the start."""
        cursor = self._handed if self._queue else self._tracker.cursor
        return None if cursor is None else str(cursor)

    @property
    def outcome(self) -> Outcome | None:
        """How the run ended, once everything was handed out; None before."""
        return None if self._queue else self._tracker.outcome

    @property
    def backlog(self) -> int:
        """Events, displays and notices that wait for the consumer; bounded, whatever its pace."""
        return len(self._queue)

    @property
    def subscription_id(self) -> str:
        """Names the lease and the channel, those of all readers of this run and view in the process; `""` at first."""
        return "" if self._feed is None else self._feed.id

    @property
    def delivered(self) -> int:
        """Events handed out."""
        return self._delivered

    @property
    def repaired(self) -> int:
        """Frames taken from the log, after the first replay, because the channel had not brought them."""
        return self._tracker.repaired

    @property
    def reconnects(self) -> int:
        """How often the channel was subscribed again."""
        return self._reconnects

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise RuntimeError("a subscription is entered once; make another to read again")
        self._state = "open"
        self._deadline = asyncio.get_running_loop().time() + self._wait_for_run
        try:
            self._feed = Feed.of(self._scripts, self._keys, self._settings, self._hub, self._view)
            self._feed.attach(self)
            # The lease is in place when this returns.
            await self._joined.wait()
            if self._failure is not None:
                raise self._failure
            if not self._wait_for_run and not self._tracker.seen:
                raise self._not_found()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery | GapNotice | DisplayCheckpoint:
        while True:
            if self._queue:
                return self._hand_out()
            if self._failure is not None:
                raise self._failure
            if self._tracker.outcome is not None:
                raise StopAsyncIteration
            if self._state != "open":
                raise RuntimeError("the subscription is not open: iterate inside `async with`")
            if self._waiter is not None and not self._waiter.done():
                raise RuntimeError("another task iterates over the subscription; make one for each")
            self._waiter = asyncio.get_running_loop().create_future()
            if self._tracker.seen:
                await self._waiter
                continue
            try:
                async with asyncio.timeout_at(self._deadline):
                    await self._waiter
            except TimeoutError:
                if not self._tracker.seen:
                    raise self._not_found() from None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _not_found(self) -> RunNotFound:
        return RunNotFound(f"there is no run {self._keys.run_id!r}, waited {self._wait_for_run:g} s for it")

    def _hand_out(self) -> Delivery | GapNotice | DisplayCheckpoint:
        item = self._queue.popleft()
        self._handed = item.cursor
        # Readers share what they are given, so each makes its own of it.
        handed: Delivery | GapNotice | DisplayCheckpoint
        if isinstance(item, Deliver):
            self._delivered += 1
            self._queued_bytes -= len(item.data)
            handed = Delivery(item.position, item.data, item.cursor)
        elif isinstance(item, DeliverDisplay):
            self._queued_bytes -= len(item.data)
            handed = DisplayCheckpoint(item.position, item.data, item.cursor, self._keys.run_id)
        else:
            handed = item
        if self._paused and self._queued_bytes <= QUEUE_BYTES // 2 and len(self._queue) <= QUEUE_EVENTS // 2:
            self._paused = False
            self._do(self._tracker.resume())
        return handed

    async def _close(self) -> None:
        """Leave the feed and end the reading."""
        self._state = "closed"
        reading = self._reading
        if reading is not None:
            reading.cancel()
        if self._feed is not None:
            await self._feed.detach(self)
        if reading is not None:
            await asyncio.gather(reading, return_exceptions=True)

    # -- what the feed tells --------------------------------------------------------------------------------------

    def beat(self, nonce: str) -> None:
        """Take note that a heartbeat with this nonce is about to be sent."""
        self._tracker.beat(nonce)

    def joined(self, nonce: str, report: Report, now: float) -> None:
        """Take the direct answer to a heartbeat."""
        self._do(self._tracker.joined(nonce, report, now))
        self._joined.set()
        self._wake()

    def announcement(self, announcement: Announcement, whole: Sequence[Deliver] | None, size: int) -> None:
        """Take an announcement with frames of `size` bytes; `whole` are its events, if they may be taken as such."""
        if self._read is not None and self._parked_bytes + size <= _PARKED_BYTES:
            # What is being read ends, most likely, where this begins.
            self._parked_bytes += size
            self._parked.append(announcement)
        else:
            # Too many while the log is read: the tracker drops them and knows that they were.
            outputs = self._tracker.announcement(announcement, whole)
            if outputs is whole:
                self._queue.extend(whole)
                self._queued_bytes += size
                self._wake()
                self._pause_if_behind()
            else:
                self._do(outputs)

    def echo(self, echo: Echo) -> None:
        """Take the answer to a heartbeat that came through the channel."""
        self._do(self._tracker.echo(echo))

    def damaged(self) -> None:
        """Take note that the channel gave a message that cannot be read."""
        self._do(self._tracker.damaged())

    def lost(self) -> None:
        """Take note that the connection of the channel is lost."""
        self._tracker.lost()

    def back(self) -> None:
        """Take note that the channel is subscribed again."""
        self._reconnects += 1
        self._tracker.back()

    def tick(self, now: float) -> None:
        """Take note of the time."""
        self._do(self._tracker.tick(now))

    def fail(self, error: Exception) -> None:
        """End the iteration with an error."""
        self._failure = error
        self._wake()
        self._joined.set()
        if self._feed is not None:
            self._feed.dismiss(self)

    # -- what the tracker says ------------------------------------------------------------------------------------

    def _do(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            match output:
                case Deliver() | DeliverDisplay():
                    self._queue.append(output)
                    self._queued_bytes += len(output.data)
                    self._wake()
                case GapNotice():
                    self._queue.append(output)
                    self._wake()
                case ReadLog() | ReadDisplay():
                    self._read = output
                    if self._reading is None:
                        self._reading = asyncio.create_task(self._reads(), name=f"reader of {self._keys.run_id}")
                case Reconnect():
                    assert self._feed is not None
                    self._feed.suspect()
                case End():
                    assert self._feed is not None
                    self._feed.dismiss(self)
                    self._wake()
                    # The channel may bring all before the answer to the heartbeat, which nobody waits for now.
                    self._joined.set()
        self._pause_if_behind()

    def _pause_if_behind(self) -> None:
        if not self._paused and (self._queued_bytes > QUEUE_BYTES or len(self._queue) > QUEUE_EVENTS):
            self._paused = True
            self._tracker.pause()

    # -- reading --------------------------------------------------------------------------------------------------

    async def _reads(self) -> None:
        """Read what the tracker has asked for, until it asks for nothing more."""
        assert self._feed is not None
        delays = backoff()
        try:
            while (read := self._read) is not None:
                try:
                    answer = await self._answer(read, self._feed)
                except (RedisError, OSError) as error:
                    if not is_transient(error):
                        raise
                    _log.debug("trying again: %s: %s", type(error).__name__, error)
                    await asyncio.sleep(next(delays))
                    continue
                delays = backoff()
                if self._read is read:
                    self._read = None
                self._do(answer())
                if self._read is None:
                    self._unpark()
        except Exception as error:
            self.fail(error)
        finally:
            self._reading = None

    async def _answer(self, read: ReadLog | ReadDisplay, feed: Feed) -> Callable[[], Sequence[Output]]:
        """Read what was asked for; return how to tell the tracker."""
        if isinstance(read, ReadLog):
            return partial(self._tracker.rows, read, *await feed.read(read.first, read.count))
        return partial(self._tracker.display, read, *await feed.read_display(latest=not read.least))

    def _unpark(self) -> None:
        parked, self._parked, self._parked_bytes = self._parked, [], 0
        for announcement in parked:
            self._do(self._tracker.announcement(announcement))
