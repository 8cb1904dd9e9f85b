"""One reader of one run: does with asyncio and Redis what the tracker says, at the pace of its consumer.

The hub's calls go straight through the tracker into a bounded queue. One task sends the heartbeats, whatever the
consumer does; one reads from the log. When the queue is full the tracker is paused, and what is announced meanwhile
is read from the log later.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, cast

import msgspec
from redis.exceptions import RedisError

from agui_relay.broker.announcement import (
    VIEWS,
    Announcement,
    Cursor,
    Echo,
    MessageError,
    Outcome,
    Report,
    Row,
    View,
    decode_message,
    decode_row,
)
from agui_relay.broker.errors import RunNotFound
from agui_relay.broker.faults import backoff, is_transient
from agui_relay.broker.hub import Channels
from agui_relay.broker.keys import RunKeys
from agui_relay.broker.scripts import Scripts
from agui_relay.broker.settings import RelaySettings, milliseconds
from agui_relay.broker.tracker import Deliver, End, GapNotice, Output, ReadLog, Reconnect, Tracker

__all__ = ["Delivery", "GapNotice", "Subscription"]

_log = logging.getLogger("agui_relay.subscription")

QUEUE_BYTES: Final = 1024 * 1024
QUEUE_EVENTS: Final = 1024
"""What may wait for the consumer before the subscription pauses; one read of the log may come on top."""
_PARKED_BYTES: Final = 256 * 1024
_LEAVE_WITHIN: Final = 2.0

_decode_event = msgspec.json.Decoder().decode


class Delivery:
    """One AG-UI event, whole."""

    __slots__ = ("_cursor", "_event", "data", "position")

    def __init__(self, position: int, data: bytes, cursor: Cursor) -> None:
        self.position = position
        """Position of its last frame in the run's log."""
        self.data = data
        """The event as JSON; the very bytes of its frame when it was one."""
        self._cursor = cursor
        self._event: Mapping[str, Any] | None = None

    @property
    def cursor(self) -> str:
        """Where to resume once this is dealt with: `epoch:position`."""
        return str(self._cursor)

    @property
    def event(self) -> Mapping[str, Any]:
        """The event as a JSON mapping, decoded when first asked for."""
        if self._event is None:
            self._event = cast("Mapping[str, Any]", _decode_event(self.data))
        return self._event

    def __repr__(self) -> str:
        return f"Delivery(cursor={self.cursor!r}, data={self.data[:60]!r}, bytes={len(self.data)})"


class Subscription:
    """A reader of one run: an async context manager, and inside an async iterator that ends with the run.

    It gives each event once and in order, a `GapNotice` where the log does not hold it any more. Iterate from one task.
    Raises CursorError for a malformed `after`, ValueError for an unknown view; while iterating RunNotFound (on entering
    when `wait_for_run` is 0), or RedisError when the server refuses for good. Lost connections are not errors.
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
        wait_for_run: float = 30.0,
    ) -> None:
        if view not in VIEWS:
            raise ValueError(f"expected a view of {', '.join(VIEWS)}, got {view!r}")
        if not wait_for_run >= 0:
            raise ValueError(f"wait_for_run must be seconds from 0 on, got {wait_for_run!r}")
        self._view: View = view
        self._scripts, self._keys, self._settings, self._hub = scripts, keys, settings, hub
        self._wait_for_run = wait_for_run
        self._id = secrets.token_hex(8)
        self._channel = keys.channel(self._id)
        self._lease = settings.subscription_lease
        self._tracker = Tracker(
            after=None if after is None else Cursor.parse(after),
            view=self._view,
            lease=self._lease,
            assembler_bytes=settings.assembler_bytes,
            assembler_pending=settings.assembler_pending,
        )

        self._queue: deque[Delivery | GapNotice] = deque()
        self._queued_bytes = 0
        self._paused = False
        self._changed = asyncio.Event()
        self._handed: str | None = after
        self._failure: BaseException | None = None
        self._deadline = 0.0

        self._joined = asyncio.Event()
        self._beat_now = asyncio.Event()
        self._read: ReadLog | None = None
        self._read_wanted = asyncio.Event()
        # Announcements that came while the log is read.
        self._parked: list[Announcement] = []
        self._parked_bytes = 0

        self._tasks: list[asyncio.Task[None]] = []
        self._state = "new"
        self._delivered = 0
        self._reconnects = 0

    @property
    def cursor(self) -> str | None:
        """Where to resume after what was handed out; moves on over events that the view hides. None: the start."""
        if self._queue:
            return self._handed
        cursor = self._tracker.cursor
        return None if cursor is None else str(cursor)

    @property
    def outcome(self) -> Outcome | None:
        """How the run ended, once everything was handed out; None before."""
        return None if self._queue else self._tracker.outcome

    @property
    def backlog(self) -> int:
        """Events and notices that wait for the consumer; bounded, whatever its pace."""
        return len(self._queue)

    @property
    def subscription_id(self) -> str:
        """Names the lease and the channel of this subscription."""
        return self._id

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
            await self._hub.subscribe(self._channel, self)
            self._tasks = [
                asyncio.create_task(self._guard(self._heartbeats()), name=f"heartbeats of {self._channel}"),
                asyncio.create_task(self._guard(self._reads()), name=f"reads of {self._channel}"),
            ]
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

    async def __anext__(self) -> Delivery | GapNotice:
        while True:
            if self._queue:
                return self._hand_out()
            if self._failure is not None:
                raise self._failure
            if self._tracker.outcome is not None:
                raise StopAsyncIteration
            if self._state != "open":
                raise RuntimeError("the subscription is not open: iterate inside `async with`")
            self._changed.clear()
            if self._tracker.seen:
                await self._changed.wait()
                continue
            try:
                async with asyncio.timeout_at(self._deadline):
                    await self._changed.wait()
            except TimeoutError:
                if not self._tracker.seen:
                    raise self._not_found() from None

    def _not_found(self) -> RunNotFound:
        return RunNotFound(f"there is no run {self._keys.run_id!r}, waited {self._wait_for_run:g} s for it")

    def _hand_out(self) -> Delivery | GapNotice:
        item = self._queue.popleft()
        self._handed = item.cursor
        if isinstance(item, Delivery):
            self._delivered += 1
            self._queued_bytes -= len(item.data)
        if self._paused and self._queued_bytes <= QUEUE_BYTES // 2 and len(self._queue) <= QUEUE_EVENTS // 2:
            self._paused = False
            self._do(self._tracker.resume())
        return item

    async def _close(self) -> None:
        """Leave the channel, end the tasks and the lease; what cannot be said to the server ends with its lease."""
        self._state = "closed"
        left = self._hub.leave(self._channel, self)
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not tasks:
            return
        try:
            async with asyncio.timeout(_LEAVE_WITHIN):
                await self._scripts.leave(self._keys, view=self._view, subscription_id=self._id)
                if left is not None:
                    await left
        except (RedisError, OSError):
            _log.debug("left %s without telling the server", self._channel, exc_info=True)

    # -- what the hub tells ---------------------------------------------------------------------------------------

    def message(self, data: bytes) -> None:
        """Take a message of the channel."""
        try:
            self._take(data)
        except Exception as error:
            self._fail(error)

    def _take(self, data: bytes) -> None:
        try:
            message = decode_message(data)
        except MessageError as error:
            _log.warning("channel of run %r: %s", self._keys.run_id, error)
            self._do(self._tracker.damaged())
            return
        if isinstance(message, Echo):
            self._do(self._tracker.echo(message))
        elif self._read is not None and self._parked_bytes + len(data) <= _PARKED_BYTES:
            # What is being read ends, most likely, where this begins.
            self._parked_bytes += len(data)
            self._parked.append(message)
        else:
            # Too many while the log is read: the tracker drops them and knows that they were.
            self._do(self._tracker.announcement(message))

    def lost(self) -> None:
        """Take note that the connection of the channel is lost."""
        self._tracker.lost()

    def back(self) -> None:
        """Take note that the channel is subscribed again."""
        self._reconnects += 1
        self._tracker.back()
        self._beat_now.set()

    # -- what the tracker says ------------------------------------------------------------------------------------

    def _do(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            match output:
                case Deliver(position, data, cursor):
                    self._queue.append(Delivery(position, data, cursor))
                    self._queued_bytes += len(data)
                    self._changed.set()
                case GapNotice():
                    self._queue.append(output)
                    self._changed.set()
                case ReadLog():
                    self._read = output
                    self._read_wanted.set()
                case Reconnect():
                    self._hub.suspect(self._channel, asyncio.get_running_loop().time() - self._lease / 3)
                case End():
                    self._changed.set()
        if not self._paused and (self._queued_bytes > QUEUE_BYTES or len(self._queue) > QUEUE_EVENTS):
            self._paused = True
            self._tracker.pause()

    # -- the tasks ------------------------------------------------------------------------------------------------

    async def _guard(self, task: Coroutine[Any, Any, None]) -> None:
        """Hand what a task cannot deal with to the consumer."""
        try:
            await task
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._changed.set()
        self._joined.set()

    async def _heartbeats(self) -> None:
        """Renew the lease at its third, at once when the channel is back; look at the clock in between."""
        now = asyncio.get_running_loop().time
        delays = backoff()
        number = 0
        while self._tracker.outcome is None:
            number += 1
            nonce = f"{self._id}.{number}"
            self._beat_now.clear()
            self._tracker.beat(nonce)
            try:
                joined = await self._scripts.join(
                    self._keys,
                    view=self._view,
                    subscription_id=self._id,
                    lease_ms=milliseconds(self._lease),
                    kept_ms=milliseconds(self._settings.live_run_kept),
                    nonce=nonce,
                )
            except (RedisError, OSError) as error:
                self._passing(error)
                due = now() + next(delays)
            else:
                delays = backoff()
                due = now() + self._lease / 3
                self._do(self._tracker.joined(nonce, _report(joined.epoch, joined.head, joined.status), now()))
                self._joined.set()
                self._changed.set()
            while not self._beat_now.is_set() and (left := due - now()) > 0:
                until = now() + min(left, self._lease / 6)
                try:
                    async with asyncio.timeout_at(until):
                        await self._beat_now.wait()
                except TimeoutError:
                    # A loop that was itself held up has not yet read what has come meanwhile.
                    if now() - until < self._lease / 12:
                        self._do(self._tracker.tick(now()))

    async def _reads(self) -> None:
        """Read from the log whenever the tracker asks for it."""
        delays = backoff()
        while True:
            await self._read_wanted.wait()
            self._read_wanted.clear()
            while (read := self._read) is not None:
                try:
                    report, rows = await self._ask(read)
                except (RedisError, OSError) as error:
                    self._passing(error)
                    await asyncio.sleep(next(delays))
                    continue
                delays = backoff()
                if self._read is read:
                    self._read = None
                self._do(self._tracker.rows(read, report, rows))
                if self._read is None:
                    self._unpark()

    async def _ask(self, read: ReadLog) -> tuple[Report, list[Row]]:
        """Read the run's state and log in one transaction: only so do they tell of the same moment."""
        log = await self._scripts.read_log(self._keys, first=read.first, most=read.count)
        return _report(log.epoch, log.head, log.status), [decode_row(entry, self._view) for entry in log.entries]

    def _unpark(self) -> None:
        parked, self._parked, self._parked_bytes = self._parked, [], 0
        for announcement in parked:
            self._do(self._tracker.announcement(announcement))

    @staticmethod
    def _passing(error: RedisError | OSError) -> None:
        if not is_transient(error):
            raise error
        _log.debug("trying again: %s: %s", type(error).__name__, error)


def _report(epoch: str, head: int, status: str) -> Report:
    return msgspec.convert({"epoch": epoch, "head": head, "status": status}, Report)
