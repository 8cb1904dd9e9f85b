"""The worker through a real server: items to frames and subscribers, beside a pipelined copy without projection."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio import Redis

from agui_relay.broker.keys import GROUP
from agui_relay.broker.worker import create_worker
from agui_relay.embedded import EmbeddedRedis
from agui_relay.relay import Relay
from agui_relay.source import encode_item, from_harness
from benchmarks.data import text_run
from benchmarks.measure import Comparison, compare_async

ITEMS = 30_000
BATCH = 256


async def worker_drains(url: str, encoded: list[bytes], subscriptions: int) -> tuple[int, float]:
    """One worker projects a run that waits whole; the seconds are those from its first to its last commit."""
    async with Relay(url) as relay:
        await relay.client.flushall()
        publisher = relay.publisher("run-1", thread_id="thread-1")
        async with publisher:
            for data in encoded:
                await publisher.publish(data)
            await publisher.flush()
            keys = publisher._keys
            for number in range(subscriptions):
                await relay.scripts.join(
                    keys,
                    view="full",
                    subscription_id=f"s{number}",
                    lease_ms=600_000,
                    kept_ms=600_000,
                    nonce="",
                )
            app = create_worker(relay)
            start = time.perf_counter()
            running = asyncio.create_task(app.run(sleep_time=0.01))
            while await relay.client.hget(keys.state, "cursor") != str(len(encoded)).encode():  # noqa: ASYNC110 - polls what another task does
                await asyncio.sleep(0.005)
            seconds = time.perf_counter() - start
            app.exit()
            await running
    return len(encoded), seconds


async def pipelined_copy(url: str, encoded: list[bytes], subscriptions: int) -> tuple[int, float]:
    """A consumer-group reader that copies entries to another stream and publishes each batch to every subscription."""
    client: Any
    async with Redis.from_url(url) as client:
        await client.flushall()
        for start in range(0, len(encoded), BATCH):
            async with client.pipeline(transaction=False) as pipeline:
                for data in encoded[start : start + BATCH]:
                    pipeline.xadd("source", {"item": data})
                await pipeline.execute()
        await client.xgroup_create("source", GROUP, id="0")
        begin = time.perf_counter()
        while rows := await client.xreadgroup(GROUP, "copy", {"source": ">"}, count=BATCH):
            entries = rows[0][1]
            async with client.pipeline(transaction=False) as pipeline:
                for _, fields in entries:
                    pipeline.xadd("target", fields)
                body = b"\n".join(fields[b"item"] for _, fields in entries)
                for number in range(subscriptions):
                    pipeline.publish(f"channel-{number}", body)
                pipeline.xack("source", GROUP, *(entry for entry, _ in entries))
                await pipeline.execute()
        return len(encoded), time.perf_counter() - begin


async def measure() -> list[Comparison]:
    """Measure one worker with one and with many subscriptions."""
    encoded = [encode_item(from_harness(item)) for item in text_run(ITEMS)]
    rows: list[Comparison] = []
    async with EmbeddedRedis() as server:
        for subscriptions in (1, 100):

            def bound(
                function: Callable[[str, list[bytes], int], Awaitable[tuple[int, float]]], count: int = subscriptions
            ) -> Callable[[], Awaitable[tuple[int, float]]]:
                return lambda: function(server.url, encoded, count)

            rows.append(
                await compare_async(
                    f"worker, one run, batch {BATCH}, {subscriptions} subscriptions",
                    bound(worker_drains),
                    bound(pipelined_copy),
                    peer_name="pipelined copy",
                    goal=1.3,
                )
            )
    return rows


def run() -> list[Comparison]:
    """Measure the worker."""
    logging.getLogger("agui_relay").setLevel(logging.ERROR)
    return asyncio.run(measure())
