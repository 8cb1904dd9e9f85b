"""The worker: a FastStream application that reads ready streams, drains runs and ends the abandoned ones."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from faststream import AckPolicy, FastStream
from faststream.redis import StreamSub
from faststream.redis.message import RedisBatchStreamMessage
from redis.exceptions import RedisError, ResponseError

from agui_relay.broker.checkpoints import Checkpoints
from agui_relay.broker.cluster import ask_all, server_time
from agui_relay.broker.drain import ItemProcessor
from agui_relay.broker.faults import is_transient
from agui_relay.broker.keys import GROUP, PartitionKeys, RunKeys
from agui_relay.broker.pipe import Pipe
from agui_relay.broker.reading import Contact, ReadyStreamBroker, ReadyStreamReader
from agui_relay.broker.rounds import Rounds
from agui_relay.broker.scripts import Fetched, ensure_group, inline
from agui_relay.broker.settings import milliseconds

if TYPE_CHECKING:
    from agui_relay.relay import Relay

_log = logging.getLogger("agui_relay.worker")

_READ_BLOCK_MS = 1000
_PAGE = 500
"""Runs that are looked at in one round trip."""
_FORGOTTEN_AFTER = 3600.0
"""Seconds after which a consumer that nobody reads as is taken for a dead worker's."""


class _Entry(NamedTuple):
    """A ready entry, its run, and what it carries of it."""

    id: bytes
    run_id: str
    inline: Fetched | None


class _ReadyStream(StreamSub):
    """A stream that has its whole name: FastStream makes deep copies for each batch, to put a broker's prefix there."""

    def add_prefix(self, prefix: str) -> Self:
        """Return the stream itself."""
        return self


class Worker:
    """What one worker process holds: its consumer name, the entries it works on, its housekeeping."""

    def __init__(
        self, relay: Relay, processor: ItemProcessor | None = None, *, concurrency: int = 1, consumer: str | None = None
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, got {concurrency}")
        self._relay = relay
        self._settings = relay.settings
        self._processor = processor
        self._concurrency = concurrency
        self.consumer = consumer or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        """Name of the consumer in the group; unique for each process."""
        self.contact = Contact()
        self._broker: ReadyStreamBroker | None = None
        self._rounds: Rounds | None = None
        self._reading = False
        # By stream and id: two partitions may give the same id.
        self._held: dict[tuple[str, bytes], RunKeys] = {}
        self._partitions = [
            PartitionKeys(self._settings.namespace, number) for number in range(self._settings.partitions)
        ]
        # How far the look through the runs of a partition is, and those to be looked through at once.
        self._looked: dict[str, int] = {}
        self._look_now: dict[str, asyncio.Event] = {keys.ready: asyncio.Event() for keys in self._partitions}

    @property
    def rounds(self) -> Rounds:
        """The counters of the work done; only while the worker runs."""
        if self._rounds is None:
            raise RuntimeError("the worker is not running")
        return self._rounds

    @property
    def ready(self) -> bool:
        """Whether the worker is in contact with Redis and takes work."""
        return self._reading and not self.rounds.stopping and self.contact.up

    def application(self) -> FastStream:
        """Return the FastStream application that is this worker."""
        broker = self._broker = ReadyStreamBroker(
            self._relay.url,
            self._reader,
            apply_types=False,
            logger=None,
            graceful_timeout=self._settings.settle_timeout,
        )
        share = max(1, self._settings.worker_entries // self._concurrency)
        for keys in self._partitions:
            for number in range(self._concurrency):
                # The first keeps the plain name: the claiming subscriber shares it, so that a claim counts as its own.
                name = self.consumer if number == 0 else f"{self.consumer}.{number}"
                self._subscribe(broker, keys, name, max_records=share)
            self._subscribe(broker, keys, self.consumer, claim=True)
        return FastStream(
            broker, logger=None, lifespan=self._lifespan, after_startup=[self._start], on_shutdown=[self._stop]
        )

    def _subscribe(
        self,
        broker: ReadyStreamBroker,
        keys: PartitionKeys,
        consumer: str,
        *,
        max_records: int = 1,
        claim: bool = False,
    ) -> None:
        stream = _ReadyStream(
            keys.ready,
            group=GROUP,
            consumer=consumer,
            batch=True,
            max_records=max_records,
            polling_interval=milliseconds(self._settings.claim_idle / 5) if claim else _READ_BLOCK_MS,
            min_idle_time=milliseconds(self._settings.claim_idle) if claim else None,
        )
        subscriber = broker.subscriber(
            stream=stream, ack_policy=AckPolicy.MANUAL, parser=_parse, decoder=_decode, title=f"{keys.ready}:{consumer}"
        )

        async def handle(entries: Sequence[_Entry]) -> None:
            await self._handle(keys, entries, claimed=claim)

        subscriber(handle)

    def _reader(self) -> ReadyStreamReader:
        # Each subscriber reads on a connection of its own.
        subscribers = len(self._partitions) * (self._concurrency + 1)
        streams = {keys.ready: keys for keys in self._partitions}
        client: Any = self._relay.make_client(blocking_for=_READ_BLOCK_MS / 1000, connections=subscribers)
        return ReadyStreamReader(
            client,
            self.contact,
            part_of=lambda stream: self._part(streams[stream]),
            ensure_group=lambda stream: self._ensure_group(streams[stream]),
            make_pipe=None
            if self._relay.is_cluster
            else lambda: Pipe(client, answer_within=client.get_connection_kwargs()["socket_timeout"]),
        )

    def _part(self, keys: PartitionKeys) -> str:
        """Return the part of `contact` that a partition belongs to."""
        return keys.ready if self._relay.is_cluster else ""

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        async with self._relay:
            checkpoints = Checkpoints(self._relay.scripts, self._settings)
            self._rounds = Rounds(self._relay.scripts, self._settings, self._processor, checkpoints)
            for keys in self._partitions:
                await self._ensure_group(keys)
                self.contact.answered(self._part(keys))
            tasks = [
                asyncio.create_task(self._repeat(self._settings.claim_idle / 3, self._renew), name="renew entries"),
                asyncio.create_task(self._repeat(self._settings.publisher_lease / 3, self._sweep), name="sweep runs"),
                *(asyncio.create_task(self._look(keys), name=f"look through {keys.runs}") for keys in self._partitions),
            ]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                if self._broker is not None:
                    await self._broker.end_reading()
                await checkpoints.close()
                await self._forget()

    async def _start(self) -> None:
        self._reading = True

    async def _stop(self) -> None:
        self.rounds.stopping = True

    async def _ensure_group(self, keys: PartitionKeys) -> None:
        if await ensure_group(self._relay.client, keys):
            _log.info("made the consumer group of %s", keys.ready)
            # Where the group was missing, entries may be.
            self._look_now[keys.ready].set()

    async def _handle(self, keys: PartitionKeys, entries: Sequence[_Entry], *, claimed: bool) -> None:
        """Drain the runs of ready entries; wait out a server that cannot be reached, the entries stay ours."""
        settings = self._settings
        runs = {entry.id: RunKeys(settings.namespace, entry.run_id, settings.partitions) for entry in entries}
        # What a claimed entry carries was most likely projected by whoever had it before.
        carried = {} if claimed else {entry.id: entry.inline for entry in entries if entry.inline is not None}
        self._held.update({(keys.ready, entry): run for entry, run in runs.items()})
        caller = object()
        try:
            while True:
                try:
                    await self.rounds.drain(runs, inline=carried, claimed=claimed)
                    return
                except (RedisError, OSError) as error:
                    if not is_transient(error) or self.rounds.stopping:
                        raise
                    await self.contact.failed(error, self._part(keys), caller)
                    # It was, if at all, told the server; a second time it would count as another claim.
                    claimed = False
        except Exception as error:
            # FastStream says nothing. The entries stay pending and are claimed again.
            _log.error("%d runs are left for later: %s: %s", len(runs), type(error).__name__, error)
        finally:
            self.contact.answered(self._part(keys), caller)
            for entry in runs:
                self._held.pop((keys.ready, entry), None)

    async def _renew(self, keys: PartitionKeys) -> None:
        """Keep others from claiming what is in work here."""
        entries = [entry for stream, entry in self._held if stream == keys.ready]
        if entries:
            await self._relay.client.xclaim(keys.ready, GROUP, self.consumer, 0, entries, justid=True)

    async def _sweep(self, keys: PartitionKeys) -> None:
        """End the runs whose publisher's lease is over.

        Only after one full lease of unbroken contact: while the server was away no publisher could renew its lease.
        """
        # Changes nothing; refused, as the renewal of a lease is, by a server that is out of memory.
        await self._relay.client.zadd(keys.leases, {"": 0}, xx=True)
        if self.contact.unbroken_with(self._part(keys)) < self._settings.publisher_lease:
            return
        client = self._relay.client
        settings = self._settings
        now = await server_time(client, keys.leases)
        for run_id in await client.zrangebyscore(keys.leases, "-inf", now, start=0, num=100):
            run = RunKeys(settings.namespace, run_id.decode(), settings.partitions)
            word = await self._relay.scripts.abandon(run, token="", kept_ms=milliseconds(settings.ended_run_kept))
            if word == "abandoned":
                _log.warning("run %r is abandoned: its publisher's lease is over", run.run_id)
        await client.zremrangebyscore(keys.runs, "-inf", now - milliseconds(settings.live_run_kept))
        for consumer in await client.xinfo_consumers(keys.ready, GROUP):
            if consumer["pending"] == 0 and consumer["idle"] > milliseconds(_FORGOTTEN_AFTER):
                await self._relay.scripts.forget(keys, consumer=consumer["name"].decode())

    async def _look(self, keys: PartitionKeys) -> None:
        """Look through the runs for those that wait in vain: a page now and then, all when the queue was lost."""
        now = self._look_now[keys.ready]
        now.set()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.publisher_lease / 3):
                    await now.wait()
            try:
                if now.is_set():
                    now.clear()
                    self._looked[keys.ready] = 0
                    while await self._mend_some(keys, at_once=True):
                        pass
                else:
                    await self._mend_some(keys, at_once=False)
                self.contact.answered(self._part(keys), "look")
            except (RedisError, OSError) as error:
                now.set()
                await self.contact.failed(error, self._part(keys), "look")

    async def _mend_some(self, keys: PartitionKeys, *, at_once: bool) -> bool:
        """Mend the runs of the next page; return whether there are more.

        `at_once` also doubts an entry that is new: else it had time enough to be read, claimed and worked on.
        """
        client, settings = self._relay.client, self._settings
        cursor, rows = await client.zscan(keys.runs, self._looked.get(keys.ready, 0), count=_PAGE)
        self._looked[keys.ready] = int(cursor)
        if not rows:
            return bool(cursor)
        runs = [RunKeys(settings.namespace, run_id.decode(), settings.partitions) for run_id, _ in rows]
        states = await ask_all(client, [("HMGET", run.state, "last", "cursor", "ready", "status") for run in runs])
        leases = await client.zmscore(keys.leases, [run.run_id for run in runs])
        settled = await server_time(client, keys.ready) - milliseconds(max(10.0, 3 * settings.claim_idle))
        for run, (last, read, entry, status), lease in zip(runs, states, leases, strict=True):
            if last is not None:
                is_new = entry is not None and not at_once and int(entry.partition(b"-")[0]) > settled
                if (last == read or is_new) and (status != b"live" or lease is not None):
                    continue
            word = await self._relay.scripts.mend(run, lease_ms=milliseconds(settings.publisher_lease))
            if word == "queued":
                _log.warning("run %r waited in vain and is queued again", run.run_id)
        return bool(cursor)

    async def _forget(self) -> None:
        """Hand on what was read in this worker's name and not worked on; then take its names from the group."""
        lease = milliseconds(self._settings.publisher_lease)
        try:
            for keys in self._partitions:
                for number in range(self._concurrency):
                    name = self.consumer if number == 0 else f"{self.consumer}.{number}"
                    for entry, run in await self._pending(keys, name):
                        await self._relay.scripts.mend(run, lease_ms=lease, given_back=entry)
                    await self._relay.scripts.forget(keys, consumer=name)
        except (RedisError, OSError) as error:
            _log.info("the consumer %r stays behind: %s", self.consumer, error)

    async def _pending(self, keys: PartitionKeys, consumer: str) -> list[tuple[bytes, RunKeys]]:
        client, settings = self._relay.client, self._settings
        rows = await client.xpending_range(keys.ready, GROUP, "-", "+", settings.worker_entries * 2, consumer)
        entries = [row["message_id"] for row in rows]
        found = await ask_all(client, [("XRANGE", keys.ready, entry, entry) for entry in entries])
        return [
            (entry, RunKeys(settings.namespace, row[0][1][b"__data__"].decode(), settings.partitions))
            for entry, row in zip(entries, found, strict=True)
            if row
        ]

    async def _repeat(self, seconds: float, work: Callable[[PartitionKeys], Awaitable[None]]) -> None:
        async def try_to(keys: PartitionKeys) -> None:
            try:
                await work(keys)
                self.contact.answered(self._part(keys), work)
            except (RedisError, OSError) as error:
                # Without the group there is nothing to keep house of; the reader makes it anew.
                if not (isinstance(error, ResponseError) and "NOGROUP" in str(error)):
                    await self.contact.failed(error, self._part(keys), work)

        while True:
            await asyncio.sleep(seconds)
            await asyncio.gather(*map(try_to, self._partitions))


def create_worker(
    relay: Relay, processor: ItemProcessor | None = None, *, concurrency: int = 1, consumer: str | None = None
) -> FastStream:
    """Return a FastStream application that projects runs until it is stopped.

    Run it with `await app.run()` or `faststream run module:app`; as many as you like, on as many hosts. `processor`
    gets each `(HarnessItem, event)` before fragmentation and may drop the event or replace its content (see the
    observers). `concurrency` is the number of batches in work at a time, each on its own connection.
    """
    return Worker(relay, processor, concurrency=concurrency, consumer=consumer).application()


async def _parse(message: Any) -> RedisBatchStreamMessage:
    # FastStream's own batch parser dumps the bodies to JSON. It needs no consumer: the scripts acknowledge.
    nobody: Any = None
    return RedisBatchStreamMessage(raw_message=message, body=message["data"], consumer=nobody, group=GROUP)


async def _decode(message: RedisBatchStreamMessage) -> list[_Entry]:
    raw = message.raw_message
    return [
        _Entry(entry, fields[b"__data__"].decode(), inline(fields))
        for entry, fields in zip(raw["message_ids"], raw["data"], strict=True)
        if b"__data__" in fields
    ]
