"""How the readers of one run in one process share a subscription: one lease, one channel, one heartbeat for all.

A feed decodes what its channel brings once and hands it to each of its readers, who go on from there on their own. It
asks for an echo whenever readers have come, for just those, and at a third of the lease for all. Reads that are asked
for at the same moment become one. The last reader to leave ends it; the next one makes another.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Final, Protocol

import msgspec
from redis.exceptions import RedisError

from agui_relay.broker.announcement import (
    Announcement,
    Echo,
    MessageError,
    Report,
    Row,
    View,
    decode_message,
    decode_row,
)
from agui_relay.broker.faults import backoff, is_transient
from agui_relay.broker.hub import Channels
from agui_relay.broker.keys import RunKeys
from agui_relay.broker.latest import LatestDisplay
from agui_relay.broker.scripts import Scripts
from agui_relay.broker.settings import RelaySettings, milliseconds
from agui_relay.broker.tracker import Deliver, whole_events

_log = logging.getLogger("agui_relay.subscription")

_LEAVE_WITHIN: Final = 2.0


class Reader(Protocol):
    """One reader of a feed. All calls come from the event loop and must return at once."""

    def beat(self, nonce: str) -> None:
        """Take note that a heartbeat with this nonce is about to be sent."""

    def joined(self, nonce: str, report: Report, now: float) -> None:
        """Take the direct answer to it: from here on the lease is in place."""

    def announcement(self, announcement: Announcement, whole: Sequence[Deliver] | None, size: int) -> None:
        """Take an announcement with frames of `size` bytes; `whole` are its events, if they may be taken as such."""

    def echo(self, echo: Echo) -> None:
        """Take the answer to a heartbeat that came through the channel."""

    def damaged(self) -> None:
        """Take note that the channel gave a message that cannot be read."""

    def lost(self) -> None:
        """Take note that the link to the channel is lost."""

    def back(self) -> None:
        """Take note that the channel is subscribed again."""

    def tick(self, now: float) -> None:
        """Take note of the time."""

    def fail(self, error: Exception) -> None:
        """Take note that nothing more will come, and why."""


class Feed:
    """The subscription that all readers of a run and view share; `of` finds it, or makes it for the first of them."""

    def __init__(self, scripts: Scripts, keys: RunKeys, settings: RelaySettings, hub: Channels, view: View) -> None:
        self.id = secrets.token_hex(16)
        """Names the lease and the channel; it cannot be guessed."""
        self._scripts = scripts
        self._keys = keys
        self._settings = settings
        self._hub = hub
        self._view: View = view
        self._lease = settings.subscription_lease
        self._latest = LatestDisplay(scripts, keys, view)
        self._channel = keys.channel(self.id)

        # Those who are told; and how many are there, with those who need nothing more.
        self._readers: dict[Reader, None] = {}
        self._attached: set[Reader] = set()
        # Who waits for an echo before anything that the channel says counts.
        self._newcomers: dict[Reader, None] = {}
        self._all_due = False
        self._may_have_lease = False
        self._beats: dict[str, tuple[Reader, ...]] = {}
        self._wake = asyncio.Event()
        self._silent = False
        # What is about to be read: (first, count) of the log, (latest,) of the display.
        self._asked: dict[tuple[int, ...], asyncio.Task[Any]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    @classmethod
    def of(cls, scripts: Scripts, keys: RunKeys, settings: RelaySettings, hub: Channels, view: View) -> Feed:
        """Return the feed of a run that the readers of `hub` share; whoever asks attaches at once."""
        feed = hub.feeds.get((keys.channel_prefix, view))
        if not isinstance(feed, Feed):
            feed = hub.feeds[keys.channel_prefix, view] = Feed(scripts, keys, settings, hub, view)
        return feed

    def attach(self, reader: Reader) -> None:
        """Begin to tell a reader, `Reader.joined` first."""
        if not self._attached:
            self._start(self._run(), f"subscription to {self._channel}")
        self._attached.add(reader)
        self._readers[reader] = self._newcomers[reader] = None
        self._wake.set()

    def dismiss(self, reader: Reader) -> None:
        """Tell a reader nothing more; it has all."""
        self._readers.pop(reader, None)
        self._newcomers.pop(reader, None)

    async def detach(self, reader: Reader) -> None:
        """Tell a reader nothing more; with the last one end the subscription, or let its lease end it."""
        self.dismiss(reader)
        if reader not in self._attached:
            return
        self._attached.remove(reader)
        if not self._attached:
            await self._end()

    def suspect(self) -> None:
        """Renew the link: the channel is silent. To be called by readers from within `Reader.tick`."""
        self._silent = True

    async def read(self, first: int, count: int) -> tuple[Report, tuple[Row, ...]]:
        """Read the run's state and its log from position `first` on, of one moment that is not before this call."""
        return await self._shared((first, count), partial(self._read, first, count))

    async def read_display(self, *, latest: bool) -> tuple[Report, int | None, bytes]:
        """Read the run's state and its display for the view, of one moment that is not before this call.

        The display is the last position it covers and its snapshot: what is stored, or, with `latest`, up to the head;
        None and no bytes when there is none.
        """
        return await self._shared((int(latest),), partial(self._read_display, latest))

    async def _shared[T](self, key: tuple[int, ...], read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        task: asyncio.Task[T] | None = self._asked.get(key)
        if task is None:
            task = self._asked[key] = self._start(read(), f"read of {self._channel}")
        # Who is cancelled does not cut the others off.
        return await asyncio.shield(task)

    # -- what the hub tells ---------------------------------------------------------------------------------------

    def message(self, data: bytes) -> None:
        """Take a message of the channel."""
        try:
            message = decode_message(data)
        except MessageError as error:
            _log.warning("channel of run %r: %s", self._keys.run_id, error)
            self._tell(self._readers, lambda reader: reader.damaged())
            return
        if isinstance(message, Announcement):
            size, whole = sum(len(row.data) for row in message.rows or ()), whole_events(message)
            self._tell(self._readers, lambda reader: reader.announcement(message, whole, size))
        else:
            # Without a nonce it was sent because the run was removed, and is for all.
            asked = self._beats.pop(message.nonce, ()) if message.nonce else self._readers
            self._tell(asked, lambda reader: reader.echo(message))

    def lost(self) -> None:
        """Take note that the connection of the channel is lost."""
        self._beats.clear()
        self._tell(self._readers, lambda reader: reader.lost())

    def back(self) -> None:
        """Take note that the channel is subscribed again."""
        self._beats.clear()
        self._tell(self._readers, lambda reader: reader.back())
        self._all_due = True
        self._wake.set()

    def _tell(self, readers: Iterable[Reader], tell: Callable[[Reader], None]) -> None:
        """Tell each of those who are still here; the fault of one is its own."""
        for reader in tuple(readers):
            if reader in self._readers:
                try:
                    tell(reader)
                except Exception as error:
                    self.dismiss(reader)
                    reader.fail(error)

    # -- the tasks ------------------------------------------------------------------------------------------------

    def _start[T](self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = asyncio.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Whoever waits gets it; nobody may.
            task.exception()

    async def _run(self) -> None:
        """Subscribe, then send heartbeats; what passes by itself is waited for, the rest is handed to the readers."""
        try:
            await self._hub.subscribe(self._channel, self)
            await self._heartbeats()
        except Exception as error:
            failure = error
            self._forget()
            self._tell(self._readers, lambda reader: reader.fail(failure))

    async def _heartbeats(self) -> None:
        now = asyncio.get_running_loop().time
        delays = backoff()
        number = 0
        due = now()
        while True:
            self._wake.clear()
            if not self._readers:
                # All have their outcome; the lease may end.
                await self._wake.wait()
                continue
            is_for_all = self._all_due or now() >= due or len(self._newcomers) == len(self._readers)
            readers = tuple(self._readers if is_for_all else self._newcomers)
            if readers:
                number += 1
                if not await self._beat(readers, f"{self.id}.{number}", is_for_all):
                    await asyncio.sleep(next(delays))
                    continue
                delays = backoff()
                if is_for_all:
                    due = now() + self._lease / 3
            await self._watch(due)

    async def _beat(self, readers: tuple[Reader, ...], nonce: str, is_for_all: bool) -> bool:
        """Renew the lease and have the channel answer `readers`; False when the server cannot do so now."""
        now = asyncio.get_running_loop().time
        self._all_due = self._all_due and not is_for_all
        for reader in readers:
            self._newcomers.pop(reader, None)
        self._tell(readers, lambda reader: reader.beat(nonce))
        self._beats[nonce] = readers
        self._may_have_lease = True
        try:
            joined = await self._scripts.join(
                self._keys,
                view=self._view,
                subscription_id=self.id,
                lease_ms=milliseconds(self._lease),
                kept_ms=milliseconds(self._settings.live_run_kept),
                nonce=nonce,
            )
        except (RedisError, OSError) as error:
            self._beats.pop(nonce, None)
            if not is_transient(error):
                raise
            _log.debug("trying again: %s: %s", type(error).__name__, error)
            self._newcomers |= {reader: None for reader in readers if reader in self._readers}
            return False
        report = _report(joined.epoch, joined.head, joined.status)
        self._tell(readers, lambda reader: reader.joined(nonce, report, now()))
        return True

    async def _watch(self, due: float) -> None:
        """Look at the clock until the next heartbeat is due or asked for."""
        now = asyncio.get_running_loop().time
        while not self._wake.is_set() and (left := due - now()) > 0:
            until = now() + min(left, self._lease / 6)
            try:
                async with asyncio.timeout_at(until):
                    await self._wake.wait()
            except TimeoutError:
                # A loop that was itself held up has not yet read what has come meanwhile.
                if now() - until < self._lease / 12:
                    self._tick(now())

    def _tick(self, now: float) -> None:
        self._tell(self._readers, lambda reader: reader.tick(now))
        if self._silent:
            self._silent = False
            self._hub.suspect(self._channel, now - self._lease / 3)

    async def _read(self, first: int, count: int) -> tuple[Report, tuple[Row, ...]]:
        # Whoever asks from here on must get an answer of a later moment.
        del self._asked[first, count]
        log = await self._scripts.read_log(self._keys, first=first, most=count)
        rows = tuple(decode_row(entry, self._view) for entry in log.entries)
        return _report(log.epoch, log.head, log.status), rows

    async def _read_display(self, latest: bool) -> tuple[Report, int | None, bytes]:
        del self._asked[int(latest),]
        display = await self._latest.read(latest=latest)
        return _report(display.epoch, display.head, display.status), display.position, display.snapshot

    # -- the end --------------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        """Let whoever comes next make another feed."""
        key = (self._keys.channel_prefix, self._view)
        if self._hub.feeds.get(key) is self:
            del self._hub.feeds[key]

    async def _end(self) -> None:
        """Leave the channel, end the tasks and the lease; what cannot be said to the server ends with its lease."""
        self._forget()
        left = self._hub.leave(self._channel, self)
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not self._may_have_lease:
            return
        try:
            async with asyncio.timeout(_LEAVE_WITHIN):
                await self._scripts.leave(self._keys, view=self._view, subscription_id=self.id)
                if left is not None:
                    await left
        except (RedisError, OSError):
            _log.debug("left %s without telling the server", self._channel, exc_info=True)


def _report(epoch: str, head: int, status: str) -> Report:
    return msgspec.convert({"epoch": epoch, "head": head, "status": status}, Report)
