"""Publishing: items through a publisher, beside pipelined XADD of the same bytes; and the bytes that Redis keeps."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from redis.asyncio import Redis

from agui_relay import Relay, create_worker, encode_item, from_harness
from agui_relay.bench.data import text_run
from agui_relay.bench.measure import Comparison, Rate, compare_async
from agui_relay.bench.worker import BATCH, drained
from agui_relay.embedded import EmbeddedRedis

ITEMS = 20_000


async def published(url: str, items: list[Any]) -> tuple[int, float]:
    """One publisher, from the first call until everything is acknowledged."""
    async with Relay(url) as relay:
        await relay.client.flushall()
        async with relay.publisher("run-1", thread_id="thread-1") as publisher:
            start = time.perf_counter()
            for item in items:
                await publisher.publish(item)
            await publisher.flush()
            return len(items), time.perf_counter() - start


async def pipelined_xadd(url: str, encoded: list[bytes]) -> tuple[int, float]:
    """Append the same bytes in pipelines of the same size."""
    async with Redis.from_url(url) as client:
        await client.flushall()
        start = time.perf_counter()
        for first in range(0, len(encoded), BATCH):
            async with client.pipeline(transaction=False) as pipeline:
                for data in encoded[first : first + BATCH]:
                    pipeline.xadd("stream", {"item": data})
                await pipeline.execute()
        return len(encoded), time.perf_counter() - start


async def bytes_kept(url: str, encoded: list[bytes]) -> Comparison:
    """Tell what Redis takes for the items and frames of a run, beside their own bytes."""
    async with Relay(url) as relay:
        await relay.client.flushall()
        async with relay.publisher("run-1", thread_id="thread-1") as publisher:
            for data in encoded:
                await publisher.publish(data)
            await publisher.flush()
            await drained(relay, create_worker(relay), "run-1", len(encoded))
            info = await relay.run("run-1")
            keys = publisher.keys
            frames = [row[b"frame"] for _, row in await relay.client.xrange(keys.frames)]
    assert info is not None
    own = sum(map(len, encoded)) + sum(map(len, frames))
    per_item = Rate(info.memory / len(encoded), 0.0)
    return Comparison(
        "Redis memory of a text run (at most 1.6)",
        "bytes an item",
        per_item,
        Rate(own / len(encoded), 0.0),
        "items and frames alone",
        None,
    )


async def measure() -> list[Comparison]:
    """Measure publishing of wire items and of their bytes."""
    encoded = [encode_item(from_harness(item)) for item in text_run(ITEMS)]
    live = list(text_run(ITEMS))
    async with EmbeddedRedis() as server:
        url = server.url
        return [
            await compare_async(
                "publish, item bytes",
                lambda: published(url, encoded),
                lambda: pipelined_xadd(url, encoded),
                peer_name="pipelined XADD",
                goal=2,
            ),
            await compare_async(
                "publish, live Harness items",
                lambda: published(url, live),
                lambda: pipelined_xadd(url, encoded),
                peer_name="pipelined XADD of ready bytes",
            ),
            await bytes_kept(url, encoded),
        ]


def run() -> list[Comparison]:
    """Measure publishing."""
    return asyncio.run(measure())
