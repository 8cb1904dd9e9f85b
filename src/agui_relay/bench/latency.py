"""From `publish` to the delivery at a subscriber, one item at a time, beside a bare PUBLISH to a listener.

Idle: between two items all that the first set in motion has come to rest. One after the other: an item is published as
soon as the one before is delivered, while the worker still has to turn to the server for more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from redis.asyncio import Redis

from agui_relay import Delivery, Relay, create_worker
from agui_relay.bench.data import RUN_ID, THREAD_ID, text_run
from agui_relay.bench.loading import fresh_relay
from agui_relay.bench.measure import Case, Figure, at_most, percentile
from agui_relay.bench.process import WorkerProcess
from agui_relay.bench.session import Session, Step
from agui_relay.source import decode_item

WARM = 20
"""Of each round, the first that are not counted."""

PAUSE = 0.005
"""Seconds between two items when idle; models give one every 10 to 30 ms."""


@asynccontextmanager
async def worker_here(relay: Relay) -> AsyncIterator[None]:
    """Run a worker in this process."""
    app = create_worker(relay)
    working = asyncio.create_task(app.run(sleep_time=0.5))
    yield
    app.exit()
    await working


@asynccontextmanager
async def worker_beside(relay: Relay) -> AsyncIterator[None]:
    """Run a worker in a process of its own."""
    async with WorkerProcess.open(relay.url) as worker:
        await worker.start()
        yield


async def through_the_relay(url: str, samples: int, pause: float, worker: Callable[[Relay], Any]) -> list[float]:
    """Return the milliseconds from each publish to its delivery; publisher and subscriber share this process."""
    items = [decode_item(data) for data in text_run(samples + WARM)]
    times: list[float] = []
    async with (
        fresh_relay(url) as relay,
        worker(relay),
        relay.publisher(RUN_ID, thread_id=THREAD_ID) as publisher,
        relay.subscribe(RUN_ID) as reader,
    ):
        deliveries = aiter(reader)
        for item in items:
            await asyncio.sleep(pause)
            start = time.perf_counter()
            await publisher.publish(item)
            delivery = await anext(deliveries)
            times.append((time.perf_counter() - start) * 1000)
            if not isinstance(delivery, Delivery):
                raise RuntimeError(f"expected the delivery of an event, got {delivery}")
    return times[-samples:]


async def bare_publish(url: str, samples: int, pause: float) -> list[float]:
    """Return the milliseconds from each PUBLISH to the message at a listener."""
    times: list[float] = []
    client: Any
    async with Redis.from_url(url) as client, client.pubsub() as pubsub:
        await pubsub.subscribe("channel")
        await pubsub.get_message(timeout=5)
        for _ in range(samples + WARM):
            await asyncio.sleep(pause)
            start = time.perf_counter()
            await client.publish("channel", b"x" * 200)
            while await pubsub.get_message(timeout=5, ignore_subscribe_messages=True) is None:
                pass
            times.append((time.perf_counter() - start) * 1000)
    return times[-samples:]


async def beside_publish(what: str, pause: float, worker: Callable[[Relay], Any], session: Session) -> list[Case]:
    """Measure both in turns; only a worker in this process has goals, as the bare listener is here as well."""
    samples = session.size(400, 20)
    sides: list[Callable[[], Awaitable[list[float]]]] = [
        partial(through_the_relay, session.url, samples, pause, worker),
        partial(bare_publish, session.url, samples, pause),
    ]
    ours, bare = await session.interleave(f"publish to delivery, {what}", sides)
    return [
        Case(
            f"publish to delivery, {what}, p{percent}",
            "ms",
            Figure(tuple(percentile(times, percent) for times in ours)),
            "bare PUBLISH",
            Figure(tuple(percentile(times, percent) for times in bare)),
            goal if worker is worker_here else None,
        )
        for percent, goal in ((50, at_most(6)), (99, at_most(10)))
    ]


def steps(session: Session) -> list[Step]:
    """Return the latency with a worker in this process, and with one in its own; idle, and one item after the other."""
    return [
        Step(what, partial(beside_publish, what, pause, worker))
        for what, pause, worker in (
            ("idle", PAUSE, worker_here),
            ("one after the other", 0.0, worker_here),
            ("idle, worker in its own process", PAUSE, worker_beside),
            ("one after the other, worker in its own process", 0.0, worker_beside),
        )
    ]
