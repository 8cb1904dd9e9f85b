"""The worker: a FastStream application that reads ready streams and drains the runs of their entries."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from faststream import AckPolicy, FastStream
from faststream.redis import StreamSub
from faststream.redis.message import RedisBatchStreamMessage
from redis.exceptions import RedisError

from agui_relay.broker.checkpoints import Checkpoints
from agui_relay.broker.drain import ItemProcessor
from agui_relay.broker.faults import backoff, is_transient
from agui_relay.broker.housekeeping import Housekeeping
from agui_relay.broker.keys import GROUP, PartitionKeys, RunKeys
from agui_relay.broker.pipe import Pipe
from agui_relay.broker.reading import HOW_TO_RUN, Contact, ReadyStreamBroker, ReadyStreamReader
from agui_relay.broker.rounds import Rounds
from agui_relay.broker.scripts import Fetched, ensure_group, inline
from agui_relay.broker.settings import milliseconds

if TYPE_CHECKING:
    from agui_relay.relay import Relay

_log = logging.getLogger("agui_relay.worker")

_READ_BLOCK_MS = 1000


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
    """What one worker process holds: its consumer names, the entries it works on, its house."""

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
        self._checkpoints: Checkpoints | None = None
        self._opening: asyncio.Task[None] | None = None
        self._reading = False
        # By stream and id: two partitions may give the same id.
        self._held: dict[tuple[str, bytes], RunKeys] = {}
        self._partitions = [
            PartitionKeys(self._settings.namespace, number) for number in range(self._settings.partitions)
        ]
        # The first keeps the plain name: the claiming subscriber shares it, so that a claim counts as its own.
        self._consumers = [self.consumer, *(f"{self.consumer}.{number}" for number in range(1, concurrency))]
        self._house = Housekeeping(
            relay,
            self._partitions,
            self.contact,
            consumers=self._consumers,
            held=lambda keys: [entry for stream, entry in self._held if stream == keys.ready],
            part_of=self._part,
            due=self._due,
        )

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
            opened=self._opened,
            apply_types=False,
            logger=None,
            graceful_timeout=self._settings.settle_timeout,
        )
        share = max(1, self._settings.worker_entries // self._concurrency)
        for keys in self._partitions:
            for consumer in self._consumers:
                self._subscribe(broker, keys, consumer, max_records=share)
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
        async with AsyncExitStack() as stack:
            # A task: an application that is stopped while it starts cancels what it waits for again and again.
            self._opening = asyncio.create_task(self._open(stack), name="open the relay")
            try:
                yield
            finally:
                self._opening.cancel()
                await asyncio.gather(self._opening, return_exceptions=True)

    async def _open(self, stack: AsyncExitStack) -> None:
        """Enter what the worker works with, once the server can be reached."""
        await _patiently(partial(stack.enter_async_context, self._relay))
        for keys in self._partitions:
            await _patiently(partial(self._ensure_group, keys))
            self.contact.answered(self._part(keys))
        self._checkpoints = checkpoints = Checkpoints(self._relay.scripts, self._settings)
        self._rounds = Rounds(self._relay.scripts, self._settings, self._processor, checkpoints)
        stack.push_async_callback(self._close, checkpoints)
        await stack.enter_async_context(self._house.kept())

    async def _opened(self) -> None:
        if self._opening is None:
            raise RuntimeError(HOW_TO_RUN)
        await asyncio.shield(self._opening)

    async def _close(self, checkpoints: Checkpoints) -> None:
        # Stopped while it started, it may have been told before there were rounds.
        self.rounds.stopping = True
        if self._broker is not None:
            await self._broker.end_reading()
        await checkpoints.close()
        await self._house.hand_on()

    def _due(self, keys: RunKeys, epoch: str) -> None:
        if self._checkpoints is not None:
            self._checkpoints.due(keys, epoch)

    async def _start(self) -> None:
        self._reading = True

    async def _stop(self) -> None:
        if self._rounds is not None:
            self._rounds.stopping = True

    async def _ensure_group(self, keys: PartitionKeys) -> None:
        if await ensure_group(self._relay.client, keys):
            _log.info("made the consumer group of %s", keys.ready)
            # Where the group was missing, entries may be.
            self._house.look_now(keys)

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


async def _patiently(call: Callable[[], Awaitable[object]]) -> None:
    """Call until the server can be reached; raises what does not pass by itself."""
    delays = backoff()
    told = False
    while True:
        try:
            await call()
            return
        except (RedisError, OSError) as error:
            if not is_transient(error):
                raise
            if not told:
                told = True
                _log.warning("Redis does not serve, waiting: %s: %s", type(error).__name__, error)
            await asyncio.sleep(next(delays))


def create_worker(
    relay: Relay, processor: ItemProcessor | None = None, *, concurrency: int = 1, consumer: str | None = None
) -> FastStream:
    """Return a FastStream application that projects runs until it is stopped.

    Run it with `await app.run()` or `faststream run module:app`; as many as you like, on as many hosts. It opens
    `relay` while it runs, and waits for a server that cannot be reached yet; what does not pass by itself, such as a
    wrong password, is raised. `processor` gets each `(HarnessItem, event)` before fragmentation and may drop the event
    or replace its content (see the observers). `concurrency` is the number of batches in work at a time, each on its
    own connection.
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
