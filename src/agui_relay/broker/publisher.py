"""The publishing side of a run: what is buffered, sent, sent again, and how the run is left."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterable
from types import TracebackType
from typing import Any, Self

import msgspec
from redis.exceptions import RedisError

from agui_relay.broker.errors import ItemTooLarge, RelayError, RunBusy, RunEnded, RunLost
from agui_relay.broker.faults import backoff, is_transient
from agui_relay.broker.keys import RunKeys
from agui_relay.broker.scripts import Appended, AppendItem, Opened, Scripts
from agui_relay.broker.settings import RelaySettings, milliseconds
from agui_relay.source import HarnessItem, encode_item
from agui_relay.source.items import Terminal
from agui_relay.source.wire import WireItem, wire_item

_log = logging.getLogger("agui_relay.publisher")

_TURNS_TO_SEND = 3
"""Turns of the event loop from an answer in the socket to the next append: it is read, the sender wakes, and writes."""


class Publisher:
    """Leases one run and stores its items, in order and each once.

    `publish` only buffers; a task of its own sends what has gathered while the last call was on its way, so that one
    item alone leaves at once and many leave together. A call that failed without an answer is repeated: an item that is
    stored already is skipped by the server, by its run_id and sequence.
    """

    def __init__(
        self, scripts: Scripts, keys: RunKeys, settings: RelaySettings, *, thread_id: str | None, token: str | None
    ) -> None:
        self._scripts = scripts
        self.keys = keys
        """The run's keys in Redis."""
        self._settings = settings
        self._thread_id = thread_id or ""
        self.token = token or secrets.token_hex(16)
        """Fences the run; a restarted process gives it to `relay.publisher` to take the run up again."""
        self.epoch = ""
        """Names this life of the run."""
        self.stored = 0
        """Ordinal of the last item that the server has acknowledged."""
        self.outcome: Terminal | None = None
        """How the run ends, as soon as its terminal item was given to `publish`."""
        self._buffer: deque[AppendItem] = deque()
        self._buffered_bytes = 0
        self._window: deque[tuple[int, list[AppendItem], int]] = deque()
        self._window_bytes = 0
        self._window_base = 0
        self._ended = False
        self._failure: RelayError | None = None
        self._told = False
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._sender: asyncio.Task[None] | None = None
        self._renew_after = settings.publisher_lease / 3
        self._renewing: asyncio.Task[None] | None = None
        self._down = False

    @property
    def run_id(self) -> str:
        """The run that is published."""
        return self.keys.run_id

    async def __aenter__(self) -> Self:
        opened = await self._open()
        match opened.word:
            case "opened" | "resumed":
                self.epoch = opened.epoch
                self.stored = self._window_base = opened.last
                self._thread_id = opened.thread_id or self._thread_id
                self._ended = opened.status != "live"
            case "busy":
                raise RunBusy(f"run {self.run_id!r} is live and held by another publisher; its token is needed")
            case "thread":
                raise RunBusy(f"run {self.run_id!r} belongs to thread {opened.thread_id!r}, not to {self._thread_id!r}")
            case _:
                raise RunEnded(f"run {self.run_id!r} is over ({opened.status}); delete it to use its id again")
        self._sender = asyncio.create_task(self._send(), name=f"publisher of {self.run_id}")
        return self

    async def _open(self) -> Opened:
        """Open the run; wait `settle_timeout` for a server that cannot be reached. To open it again has no effect."""
        epoch, delays = secrets.token_hex(8), backoff()
        give_up = asyncio.get_running_loop().time() + self._settings.settle_timeout
        while True:
            try:
                opened = await self._scripts.open(
                    self.keys,
                    token=self.token,
                    epoch=epoch,
                    thread_id=self._thread_id,
                    lease_ms=milliseconds(self._settings.publisher_lease),
                    kept_ms=milliseconds(self._settings.live_run_kept),
                )
            except (RedisError, OSError) as error:
                if not is_transient(error) or asyncio.get_running_loop().time() > give_up:
                    raise
                self._lost_contact(error)
                await asyncio.sleep(next(delays))
            else:
                self._has_contact()
                return opened

    def _lost_contact(self, error: Exception) -> None:
        if not self._down:
            self._down = True
            _log.warning("run %r: cannot reach Redis, publishing waits: %s", self.run_id, error)

    def _has_contact(self) -> None:
        if self._down:
            self._down = False
            _log.info("run %r: publishing goes on", self.run_id)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        told = self._told
        try:
            async with asyncio.timeout(self._settings.settle_timeout):
                await self.flush()
        except TimeoutError:
            failure = RunLost(
                f"{len(self._buffer)} items of run {self.run_id!r} could not be stored within"
                f" {self._settings.settle_timeout:g} s"
            )
            if kind is None:
                raise failure from None
            _log.warning("%s", failure)
        except RelayError:
            # Once is enough for whoever has caught it inside the block.
            if kind is None and not told:
                raise
        finally:
            await self._stop()

    async def _stop(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)
            self._sender = None
        if not self._ended and self._failure is None:
            try:
                await self._scripts.abandon(
                    self.keys,
                    token=self.token,
                    kept_ms=milliseconds(self._settings.ended_run_kept),
                    epoch=self.epoch,
                )
            except (RedisError, OSError) as error:
                _log.warning("run %r is left to its lease: %s", self.run_id, error)

    async def publish(self, item: HarnessItem | bytes | Any) -> None:
        """Take one item: a `HarnessItem`, a live `a13n_harness` item, or the JSON of one.

        Returns when the item is buffered; waits while more than `publisher_buffer_bytes` are. Publishing an item again
        has no effect, so that whoever is in doubt may repeat it.

        Raises:
            ItemError: the item is not valid; the message says where.
            ItemTooLarge: above `item_bytes` (a terminal item is sent without its output instead).
            RunEnded: the run had its terminal item before, or was declared abandoned.
            RunLost: the run's keys are gone, or acknowledged items are lost and no longer at hand.
            TypeError: not an item at all.
            RuntimeError: outside of the publisher's block.

        """
        self._check()
        item, data = wire_item(item)
        terminal = item.terminal if item.run_id == self.run_id else None
        if len(data) > self._settings.item_bytes:
            if terminal is not None and isinstance(item, HarnessItem):
                data = encode_item(_without_output(item))
            if len(data) > self._settings.item_bytes:
                raise ItemTooLarge(self._too_large(item, data))
        if not self._thread_id and item.run_id == self.run_id:
            self._thread_id = item.thread_id
        self.outcome = terminal or self.outcome
        self._buffer.append(AppendItem(item.run_id, item.sequence, terminal or "", data))
        self._buffered_bytes += len(data)
        self._wake.set()
        if self._buffered_bytes > self._settings.publisher_buffer_bytes:
            self._room.clear()
            await self._room.wait()
            self._check()
        elif len(self._buffer) % self._settings.batch_items == 0:
            # A caller that never waits for anything else must not keep the sender from running.
            for _ in range(_TURNS_TO_SEND):
                await asyncio.sleep(0)

    async def publish_all(self, items: AsyncIterable[Any]) -> None:
        """Publish what an async iterable gives, until it ends."""
        async for item in items:
            await self.publish(item)

    async def flush(self) -> None:
        """Wait until everything published so far is stored. Raises as `publish` does."""
        while self._buffer and self._failure is None:
            self._room.clear()
            self._wake.set()
            await self._room.wait()
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            self._told = True
            raise type(self._failure)(*self._failure.args) from self._failure
        if self._sender is None:
            raise RuntimeError("the publisher is not open: use it inside `async with relay.publisher(...)`")

    def _too_large(self, item: WireItem, data: bytes) -> str:
        return (
            f"item {item.sequence} of run {item.run_id!r} has {len(data)} bytes,"
            f" at most {self._settings.item_bytes} are allowed"
        )

    async def _send(self) -> None:
        try:
            while True:
                if not self._buffer:
                    self._wake.clear()
                    try:
                        async with asyncio.timeout(self._renew_after):
                            await self._wake.wait()
                    except TimeoutError:
                        if self._ended:
                            continue
                await self._store(self._take())
                self._room.set()
        except RelayError as failure:
            self._failure = failure
        except Exception as failure:
            self._failure = RelayError(f"publishing run {self.run_id!r} failed: {type(failure).__name__}: {failure}")
        finally:
            self._room.set()

    def _take(self) -> list[AppendItem]:
        """Return the next batch without removing it; a terminal item is the last one of its batch."""
        most_bytes, most_items = self._settings.batch_bytes, self._settings.batch_items
        batch: list[AppendItem] = []
        size = 0
        for item in self._buffer:
            size += len(item.data)
            if batch and (size > most_bytes or len(batch) == most_items):
                break
            batch.append(item)
            if item.outcome:
                break
        return batch

    async def _store(self, batch: list[AppendItem]) -> None:
        # A timer costs next to nothing: hardly any append lasts until then.
        timer = asyncio.get_running_loop().call_later(self._renew_after, self._begin_to_renew)
        try:
            reply = await self._append(batch)
        finally:
            timer.cancel()
            if self._renewing is not None:
                self._renewing.cancel()
                await asyncio.gather(self._renewing, return_exceptions=True)
                self._renewing = None
        match reply.word:
            case "ok":
                self._acknowledge(batch, reply.last)
            case "hole":
                self._send_again(reply.last)
            case "ended":
                raise RunEnded(f"run {self.run_id!r} is over ({reply.status}); item {batch[0].sequence} was not stored")
            case "fenced" if reply.status not in ("", "live"):
                raise RunEnded(f"run {self.run_id!r} was declared abandoned; {len(self._buffer)} items were not stored")
            case "fenced":
                raise RunLost(f"run {self.run_id!r} is another publisher's now")
            case _:
                raise RunLost(f"the keys of run {self.run_id!r} are gone")

    def _acknowledge(self, batch: list[AppendItem], last: int) -> None:
        size = 0
        for item in batch:
            self._buffer.popleft()
            size += len(item.data)
            self._ended = self._ended or bool(item.outcome)
        self._buffered_bytes -= size
        self.stored = last
        if batch:
            self._window.append((last, batch, size))
            self._window_bytes += size
            while self._window_bytes > self._settings.publisher_window_bytes and len(self._window) > 1:
                self._window_base, _, dropped = self._window.popleft()
                self._window_bytes -= dropped

    def _send_again(self, last: int) -> None:
        """Put back what the server has forgotten; what it has not is skipped there as a repeat."""
        lost: list[list[AppendItem]] = []
        while self._window and self._window[-1][0] > last:
            _, batch, size = self._window.pop()
            self._window_bytes -= size
            lost.append(batch)
        if not self._window and self._window_base > last:
            raise RunLost(
                f"items {last + 1} to {self._window_base} of run {self.run_id!r} were acknowledged and are lost"
            )
        _log.warning("run %r: the server lost items above %d; sending them again", self.run_id, last)
        for batch in lost:
            self._buffer.extendleft(reversed(batch))
            self._buffered_bytes += sum(len(item.data) for item in batch)
            if any(item.outcome for item in batch):
                self._ended = False
        self.stored = last

    async def _append(self, batch: list[AppendItem]) -> Appended:
        """Call until there is an answer other than that too much is unread."""
        settings = self._settings
        delays = backoff()
        while True:
            try:
                reply = await self._scripts.append(
                    self.keys,
                    token=self.token,
                    known=self.stored,
                    lease_ms=milliseconds(settings.publisher_lease),
                    kept_ms=milliseconds(settings.live_run_kept),
                    unread_bytes=settings.unread_bytes,
                    thread_id=self._thread_id,
                    items=batch,
                    epoch=self.epoch,
                )
            except (RedisError, OSError) as error:
                if not is_transient(error):
                    raise
                self._lost_contact(error)
                await asyncio.sleep(next(delays))
                continue
            self._has_contact()
            if reply.word != "full":
                return reply
            await asyncio.sleep(next(delays))

    def _begin_to_renew(self) -> None:
        self._renewing = asyncio.create_task(self._renew(), name=f"renew the lease of {self.run_id}")

    async def _renew(self) -> None:
        """Keep the lease while an append lasts, which may be behind one of another run; that is told what is wrong."""
        delays = backoff()
        while True:
            try:
                await self._scripts.renew(
                    self.keys,
                    token=self.token,
                    lease_ms=milliseconds(self._settings.publisher_lease),
                    kept_ms=milliseconds(self._settings.live_run_kept),
                    epoch=self.epoch,
                )
            except (RedisError, OSError):
                await asyncio.sleep(next(delays))
            else:
                await asyncio.sleep(self._renew_after)


def _without_output(item: HarnessItem) -> HarnessItem:
    result = msgspec.json.decode(item.result, type=dict[str, msgspec.Raw])
    result.pop("output", None)
    result["result_omitted"] = msgspec.Raw(b"true")
    return msgspec.structs.replace(item, result=msgspec.Raw(msgspec.json.encode(result)))
