"""From `publish` to the delivery at a subscriber, one item at a time, beside a bare PUBLISH to a listener."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from redis.asyncio import Redis

from agui_relay import Delivery, Relay, create_worker
from agui_relay.bench.data import text_run
from agui_relay.bench.measure import Comparison, Rate
from agui_relay.embedded import EmbeddedRedis
from agui_relay.source import from_harness

ROUNDS = 5
SAMPLES = 300


async def through_the_relay(url: str) -> list[float]:
    """Seconds from each publish to its delivery; publisher, worker and subscriber share this process."""
    items = [from_harness(item) for item in text_run(SAMPLES)]
    seconds: list[float] = []
    async with Relay(url) as relay:
        await relay.client.flushall()
        app = create_worker(relay)
        working = asyncio.create_task(app.run(sleep_time=0.5))
        async with relay.publisher("run-1", thread_id="thread-1") as publisher, relay.subscribe("run-1") as reader:
            deliveries = aiter(reader)
            for number, item in enumerate(items):
                start = time.perf_counter()
                await publisher.publish(item)
                delivery = await anext(deliveries)
                assert isinstance(delivery, Delivery)
                if number >= 2:
                    seconds.append(time.perf_counter() - start)
        app.exit()
        await working
    return seconds


async def bare_publish(url: str) -> list[float]:
    """Seconds from each PUBLISH to the message at a listener."""
    seconds: list[float] = []
    client: Any
    async with Redis.from_url(url) as client, client.pubsub() as pubsub:
        await pubsub.subscribe("channel")
        await pubsub.get_message(timeout=5)
        for _ in range(SAMPLES):
            start = time.perf_counter()
            await client.publish("channel", b"x" * 200)
            while await pubsub.get_message(timeout=5, ignore_subscribe_messages=True) is None:
                pass
            seconds.append(time.perf_counter() - start)
    return seconds


def percentile(rounds: list[list[float]], percent: int) -> Rate:
    """Return the median over the rounds of a percentile, in milliseconds."""
    values = [statistics.quantiles(seconds, n=100)[percent - 1] * 1000 for seconds in rounds]
    return Rate(statistics.median(values), (max(values) - min(values)) / statistics.median(values))


async def measure() -> list[Comparison]:
    """Measure both, in turns."""
    ours: list[list[float]] = []
    bare: list[list[float]] = []
    async with EmbeddedRedis() as server:
        for _ in range(ROUNDS):
            ours.append(await through_the_relay(server.url))
            bare.append(await bare_publish(server.url))
    return [
        Comparison(
            f"publish to delivery, idle, p{percent} (at most {bound} times)",
            "ms",
            percentile(ours, percent),
            percentile(bare, percent),
            "bare PUBLISH",
            None,
        )
        for percent, bound in ((50, 6), (99, 10))
    ]


def run() -> list[Comparison]:
    """Measure the latency of an idle relay."""
    return asyncio.run(measure())
