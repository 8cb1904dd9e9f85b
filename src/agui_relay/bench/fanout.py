"""One run and its readers in one process: deliveries a second, publish to delivery, memory, beside plain redis-py.

Ours is the whole way: publisher, worker, readers. A peer's publisher sends the same events, ready made, to readers that
have a connection each: a PUBLISH to a channel, or an XADD to a stream that each reads with XREAD BLOCK. They check
nothing, and lose (the channel) or repeat by hand (the stream) what a cut connection missed.
"""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import batched
from typing import Any, NamedTuple

from redis.asyncio import Redis

from agui_relay import Delivery, Relay, create_worker
from agui_relay.bench.data import text_run
from agui_relay.bench.measure import Case, Figure, Sample, at_least, percentile
from agui_relay.bench.session import Session, Step
from agui_relay.events import encode_event
from agui_relay.projection.projector import Projector
from agui_relay.source import HarnessItem, decode_item

BATCH = 256
PEERS_AT = 1_000
"""Readers of a peer; each has a connection, ours have one together."""


class Arrivals:
    """Counts what comes, and tells when an event, or a number of events, has come everywhere."""

    def __init__(self, readers: int) -> None:
        self.readers = readers
        self.times: list[float] = []
        self._goal = 0
        self._reached = asyncio.Event()

    def arrived(self) -> None:
        """Take note of one delivery."""
        self.times.append(time.perf_counter())
        if len(self.times) >= self._goal:
            self._reached.set()

    async def all(self, events: int) -> None:
        """Wait until every reader has had this many events."""
        self._goal = events * self.readers
        self._reached.clear()
        if len(self.times) < self._goal:
            await self._reached.wait()


type Publish = Callable[[int, int], Awaitable[None]]
"""Publish the events from one number up to another."""
type Setting = Callable[[str, int, int], AbstractAsyncContextManager[tuple[Publish, Arrivals]]]
"""Opens readers on a server: url, how many, how many events there will be."""


BEGINNING = 2
"""Items, each of one event, that begin the run and are not counted."""


def items(events: int) -> list[HarnessItem]:
    """Items of one event each: the beginning and `events` more."""
    return [decode_item(data) for data in text_run(events)]


@asynccontextmanager
async def relayed(url: str, readers: int, events: int) -> AsyncIterator[tuple[Publish, Arrivals]]:
    """Open our readers, with a worker."""
    run = items(events)
    arrivals = Arrivals(readers)
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(Relay(url))
        await relay.client.flushall()
        app = create_worker(relay)
        working = asyncio.create_task(app.run(sleep_time=0.5))
        publisher = await stack.enter_async_context(relay.publisher("run-1", thread_id="thread-1"))
        for item in run[:BEGINNING]:
            await publisher.publish(item)
        ready = asyncio.Semaphore(0)

        async def read() -> None:
            async with relay.subscribe("run-1") as subscription:
                async for delivery in subscription:
                    assert isinstance(delivery, Delivery)
                    if delivery.position > BEGINNING:
                        arrivals.arrived()
                    elif delivery.position == BEGINNING:
                        ready.release()

        reading = [asyncio.create_task(read()) for _ in range(readers)]
        for _ in reading:
            await ready.acquire()

        async def publish(first: int, last: int) -> None:
            for item in run[BEGINNING + first : BEGINNING + last]:
                await publisher.publish(item)

        yield publish, arrivals
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        app.exit()
        await working


def frames(events: int) -> list[bytes]:
    """Return the encoded events that ours has to deliver."""
    projector = Projector(run_id="run-1", thread_id="thread-1")
    encoded = [encode_event(event) for item in items(events) for event in projector.project(item)]
    assert len(encoded) == BEGINNING + events
    return encoded[BEGINNING:]


async def listen(client: Any, ready: asyncio.Semaphore, arrivals: Arrivals) -> None:
    """Read a channel."""
    async with client.pubsub() as pubsub:
        await pubsub.subscribe("channel")
        async for message in pubsub.listen():
            if message["type"] == "message":
                arrivals.arrived()
            else:
                ready.release()


async def follow(client: Any, ready: asyncio.Semaphore, arrivals: Arrivals) -> None:
    """Read a stream."""
    last: str | bytes = "0"
    ready.release()
    while True:
        for _, rows in await client.xread({"stream": last}, block=30_000, count=BATCH):
            for _ in rows:
                arrivals.arrived()
            last = rows[-1][0]


@asynccontextmanager
async def plain(
    url: str,
    readers: int,
    events: int,
    *,
    read: Callable[[Any, asyncio.Semaphore, Arrivals], Awaitable[None]],
    send: Callable[[Any, bytes], object],
) -> AsyncIterator[tuple[Publish, Arrivals]]:
    """Open readers with a connection each; `send` adds an event to a pipeline."""
    encoded = frames(events)
    arrivals = Arrivals(readers)
    client: Any
    async with Redis.from_url(url, max_connections=readers + 8, socket_timeout=None) as client:
        await client.flushall()
        ready = asyncio.Semaphore(0)

        async def reader() -> None:
            await read(client, ready, arrivals)

        async def publish(first: int, last: int) -> None:
            for batch in batched(encoded[first:last], BATCH, strict=False):
                async with client.pipeline(transaction=False) as pipeline:
                    for data in batch:
                        send(pipeline, data)
                    await pipeline.execute()

        # One that fails ends the measurement.
        async with asyncio.TaskGroup() as group:
            reading = []
            for _ in range(readers):
                reading.append(group.create_task(reader()))
                # Not all connect at once: redis-py would give up.
                await ready.acquire()
            yield publish, arrivals
            for task in reading:
                task.cancel()


published: Setting = partial(plain, read=listen, send=lambda pipeline, data: pipeline.publish("channel", data))
streamed: Setting = partial(plain, read=follow, send=lambda pipeline, data: pipeline.xadd("stream", {"frame": data}))
PEERS: dict[Setting, str] = {published: "pub/sub", streamed: "XREAD BLOCK"}


async def together(setting: Setting, url: str, readers: int, events: int) -> Sample:
    """Time all events as fast as they go, until every reader has all of them; the units are deliveries."""
    async with setting(url, readers, events) as (publish, arrivals):
        gc.collect()
        start = time.perf_counter()
        await publish(0, events)
        await arrivals.all(events)
        return Sample(readers * events, time.perf_counter() - start)


class Singly(NamedTuple):
    """What came of publishing each event when every reader had the one before."""

    milliseconds: list[float]
    """From publish to each delivery."""
    rate: float
    """Deliveries a second."""


async def one_by_one(setting: Setting, url: str, readers: int, events: int) -> Singly:
    """Publish each event when every reader has the one before."""
    times: list[float] = []
    async with setting(url, readers, events) as (publish, arrivals):
        gc.collect()
        begin = time.perf_counter()
        for number in range(events):
            start = time.perf_counter()
            await publish(number, number + 1)
            await arrivals.all(number + 1)
            times += ((arrived - start) * 1000 for arrived in arrivals.times[number * readers :])
        return Singly(times, readers * events / (time.perf_counter() - begin))


async def memory(setting: Setting, url: str, readers: int) -> float:
    """Return the bytes of Python's memory for each of the readers, idle."""
    async with setting(url, 1, 1):
        gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        async with setting(url, readers, 1):
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / readers


def counted(readers: int) -> str:
    """Return how many readers there are, in words."""
    return f"{readers:,} reader{'s' if readers > 1 else ''}"


def peer_name(setting: Setting, readers: int, at: int) -> str:
    """Return the name of a peer, with its number of readers when that is another."""
    return PEERS[setting] + ("" if at == readers else f" of {at:,}")


async def compare_latency(readers: int, events: int, session: Session) -> list[Case]:
    """Publish one by one to so many readers."""
    at = min(readers, PEERS_AT)
    ours, theirs = await session.interleave(
        f"{counted(readers)}, one event at a time",
        [
            partial(one_by_one, relayed, session.url, readers, events),
            partial(one_by_one, published, session.url, at, events),
        ],
    )
    name = peer_name(published, readers, at)
    return [
        *(
            Case(
                f"publish to {counted(readers)}, p{percent}",
                "ms",
                Figure(tuple(percentile(round_.milliseconds, percent) for round_ in ours)),
                name,
                Figure(tuple(percentile(round_.milliseconds, percent) for round_ in theirs)),
            )
            for percent in (50, 99)
        ),
        Case(
            f"{counted(readers)}, one event at a time",
            "deliveries/s",
            Figure(tuple(round_.rate for round_ in ours)),
            name,
            Figure(tuple(round_.rate for round_ in theirs)),
        ),
    ]


async def compare_throughput(readers: int, events: int, session: Session) -> list[Case]:
    """Publish all at once to so many readers, beside both peers."""
    at = min(readers, PEERS_AT)
    name = f"{counted(readers)}, as fast as it goes"
    sides = [
        partial(together, setting, session.url, readers if setting is relayed else at, events)
        for setting in (relayed, *PEERS)
    ]
    ours, *theirs = [
        Figure(tuple(sample.rate for sample in samples)) for samples in await session.interleave(name, sides)
    ]
    return [
        Case(
            name,
            "deliveries/s",
            ours,
            peer_name(peer, readers, at),
            figure,
            at_least(3) if readers == PEERS_AT else None,
        )
        for peer, figure in zip(PEERS, theirs, strict=True)
    ]


def steps(session: Session) -> list[Step]:
    """Return throughput and latency of one to many readers."""
    if session.quick:
        return [
            Step("10 readers", partial(compare_throughput, 10, 20)),
            Step("10 readers", partial(compare_latency, 10, 5)),
        ]
    return [
        *(
            Step(f"{counted(readers)} at once", partial(compare_throughput, readers, events))
            for readers, events in ((1, 20_000), (100, 1_000), (1_000, 200), (5_000, 60))
        ),
        *(
            Step(f"{counted(readers)} one by one", partial(compare_latency, readers, events))
            for readers, events in ((1, 200), (100, 100), (1_000, 20), (5_000, 20))
        ),
    ]
