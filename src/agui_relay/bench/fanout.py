"""One run and its readers in one process: deliveries a second, publish to delivery, memory, beside plain redis-py.

Ours is the whole way: publisher, worker, readers. A peer's publisher sends the same events, ready made, to readers that
have a connection each: a PUBLISH to a channel, or an XADD to a stream that each reads with XREAD BLOCK. They check
nothing, and lose (the channel) or repeat by hand (the stream) what a cut connection missed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import statistics
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from itertools import batched
from typing import Any

from redis.asyncio import Redis

from agui_relay import Delivery, Relay, create_worker
from agui_relay.bench.data import text_run
from agui_relay.bench.measure import Comparison, Rate, rate
from agui_relay.embedded import EmbeddedRedis
from agui_relay.events import encode_event
from agui_relay.projection.projector import Projector
from agui_relay.source import HarnessItem, from_harness

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
    return [from_harness(item) for item in text_run(events)]


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


@asynccontextmanager
async def peers(
    url: str, readers: int, read: Callable[[Any, asyncio.Semaphore, Arrivals], Awaitable[None]]
) -> AsyncIterator[tuple[Any, Arrivals]]:
    """Open readers with a connection each."""
    arrivals = Arrivals(readers)
    client: Any
    async with Redis.from_url(url, max_connections=readers + 8, socket_timeout=None) as client:
        await client.flushall()
        ready = asyncio.Semaphore(0)

        async def reader() -> None:
            await read(client, ready, arrivals)

        # One that fails ends the measurement.
        async with asyncio.TaskGroup() as group:
            reading = []
            for _ in range(readers):
                reading.append(group.create_task(reader()))
                # Not all connect at once: redis-py would give up.
                await ready.acquire()
            yield client, arrivals
            for task in reading:
                task.cancel()


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
async def published(url: str, readers: int, events: int) -> AsyncIterator[tuple[Publish, Arrivals]]:
    """Open readers of a channel."""
    encoded = frames(events)
    async with peers(url, readers, listen) as (client, arrivals):

        async def publish(first: int, last: int) -> None:
            for batch in batched(encoded[first:last], BATCH, strict=False):
                async with client.pipeline(transaction=False) as pipeline:
                    for data in batch:
                        pipeline.publish("channel", data)
                    await pipeline.execute()

        yield publish, arrivals


@asynccontextmanager
async def streamed(url: str, readers: int, events: int) -> AsyncIterator[tuple[Publish, Arrivals]]:
    """Open readers of a stream."""
    encoded = frames(events)
    async with peers(url, readers, follow) as (client, arrivals):

        async def publish(first: int, last: int) -> None:
            for batch in batched(encoded[first:last], BATCH, strict=False):
                async with client.pipeline(transaction=False) as pipeline:
                    for data in batch:
                        pipeline.xadd("stream", {"frame": data})
                    await pipeline.execute()

        yield publish, arrivals


PEERS: dict[Setting, str] = {published: "pub/sub", streamed: "XREAD BLOCK"}


async def together(setting: Setting, url: str, readers: int, events: int) -> tuple[int, float]:
    """All events as fast as they go; the deliveries, and the seconds until every reader has all."""
    async with setting(url, readers, events) as (publish, arrivals):
        gc.collect()
        start = time.perf_counter()
        await publish(0, events)
        await arrivals.all(events)
        return readers * events, time.perf_counter() - start


async def one_by_one(setting: Setting, url: str, readers: int, events: int) -> tuple[list[float], float]:
    """Each event when every reader has the one before; the seconds from publish to each delivery, and in all."""
    seconds: list[float] = []
    async with setting(url, readers, events) as (publish, arrivals):
        gc.collect()
        begin = time.perf_counter()
        for number in range(events):
            start = time.perf_counter()
            await publish(number, number + 1)
            await arrivals.all(number + 1)
            seconds += (arrived - start for arrived in arrivals.times[number * readers :])
        return seconds, time.perf_counter() - begin


async def memory(setting: Setting, url: str, readers: int) -> Rate:
    """Bytes of Python's memory for each of the readers, idle."""
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
    return Rate((after - before) / readers, 0.0)


def percentile(rounds: list[list[float]], percent: int) -> Rate:
    """Return the median over the rounds of a percentile, in milliseconds."""
    values = [statistics.quantiles(seconds, n=100)[percent - 1] * 1000 for seconds in rounds]
    return Rate(statistics.median(values), (max(values) - min(values)) / statistics.median(values))


async def compare_latency(url: str, readers: int, repeat: int) -> list[Comparison]:
    """Publish one by one to so many readers."""
    at = min(readers, PEERS_AT)
    events = {1: 200, 100: 100}.get(readers, 20)
    rounds: tuple[list[tuple[list[float], float]], list[tuple[list[float], float]]] = ([], [])
    for _ in range(repeat):
        rounds[0].append(await one_by_one(relayed, url, readers, events))
        rounds[1].append(await one_by_one(published, url, at, events))
    name = PEERS[published] + ("" if at == readers else f" of {at:,}")
    rows = [
        Comparison(
            f"publish to each of {readers:,} readers, p{percent}",
            "ms",
            percentile([seconds for seconds, _ in rounds[0]], percent),
            percentile([seconds for seconds, _ in rounds[1]], percent),
            name,
            None,
        )
        for percent in (50, 99)
    ]
    ours, theirs = ([total for _, total in side] for side in rounds)
    return [
        *rows,
        Comparison(
            f"{readers:,} readers, one event at a time",
            "deliveries/s",
            rate(readers * events, ours),
            rate(at * events, theirs),
            name,
            None,
        ),
    ]


async def compare_throughput(url: str, readers: int, events: int, repeat: int) -> list[Comparison]:
    """Publish all at once to so many readers, beside both peers."""
    at = min(readers, PEERS_AT)
    suffix = "" if at == readers else f" of {at:,}"
    seconds: dict[Setting, list[float]] = {relayed: [], published: [], streamed: []}
    for _ in range(repeat):
        for setting, taken in seconds.items():
            taken.append((await together(setting, url, readers if setting is relayed else at, events))[1])
    return [
        Comparison(
            f"{readers:,} readers, as fast as it goes",
            "deliveries/s",
            rate(readers * events, seconds[relayed]),
            rate(at * events, seconds[peer]),
            PEERS[peer] + suffix,
            3 if readers == PEERS_AT else None,
        )
        for peer in PEERS
    ]


async def measure(repeat: int = 3) -> list[Comparison]:
    """Measure the ways to fan out."""
    rows: list[Comparison] = []
    async with EmbeddedRedis() as server:
        for readers, events in ((1, 20_000), (100, 1_000), (1_000, 200), (5_000, 60)):
            rows += await compare_throughput(server.url, readers, events, repeat)
        for readers in (1, 100, 1_000, 5_000):
            rows += await compare_latency(server.url, readers, repeat)
        ours = await memory(relayed, server.url, PEERS_AT)
        for peer, name in PEERS.items():
            of_peer = await memory(peer, server.url, PEERS_AT)
            rows.append(Comparison("memory of an idle reader, of 1,000", "bytes", ours, of_peer, name, None))
    return rows


def run() -> list[Comparison]:
    """Measure fanning out."""
    logging.getLogger("agui_relay").setLevel(logging.ERROR)
    return asyncio.run(measure())
