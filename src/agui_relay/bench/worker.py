"""The worker through a real server: items to frames and subscribers, beside a pipelined copy without projection."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from faststream import FastStream
from redis.asyncio import Redis

from agui_relay import Relay, RelaySettings, create_worker
from agui_relay.bench.data import text_run
from agui_relay.bench.measure import Comparison, compare_async
from agui_relay.broker.keys import GROUP, RunKeys
from agui_relay.broker.scripts import AppendItem
from agui_relay.embedded import EmbeddedRedis
from agui_relay.source import encode_item, from_harness

ITEMS = 30_000
BATCH = 256


async def drained(relay: Relay, app: FastStream, run_id: str, items: int) -> float:
    """Run a worker until a run has nothing unread; return the seconds that took."""
    keys = RunKeys(relay.settings.namespace, run_id)
    start = time.perf_counter()
    running = asyncio.create_task(app.run(sleep_time=0.01))
    while await relay.client.hget(keys.state, "cursor") != str(items).encode():  # noqa: ASYNC110 - polls a task
        await asyncio.sleep(0.005)
    seconds = time.perf_counter() - start
    app.exit()
    await running
    return seconds


async def worker_drains(url: str, encoded: list[bytes], subscriptions: int) -> tuple[int, float]:
    """One worker projects a run that waits whole; the seconds include its start."""
    async with Relay(url) as relay:
        await relay.client.flushall()
        async with relay.publisher("run-1", thread_id="thread-1") as publisher:
            for data in encoded:
                await publisher.publish(data)
            await publisher.flush()
            for number in range(subscriptions):
                await relay.scripts.join(
                    publisher.keys,
                    view="full",
                    subscription_id=f"s{number}",
                    lease_ms=600_000,
                    kept_ms=600_000,
                    nonce="",
                )
            return len(encoded), await drained(relay, create_worker(relay), "run-1", len(encoded))


async def many_runs(url: str, runs: int, items: int) -> tuple[int, float]:
    """One worker projects as many runs, each with `items` items in one batch."""
    async with Relay(url, settings=RelaySettings(publisher_lease=600)) as relay:
        await relay.client.flushall()
        one_run = [from_harness(item) for item in text_run(items - 2)]
        for number in range(runs):
            keys = RunKeys("agui", f"run-{number}")
            await relay.scripts.open(
                keys, token="t", epoch="e", thread_id="thread-1", lease_ms=600_000, kept_ms=600_000
            )
            batch = [
                AppendItem(
                    keys.run_id, item.sequence, "", encode_item(msgspec.structs.replace(item, run_id=keys.run_id))
                )
                for item in one_run
            ]
            await relay.scripts.append(
                keys,
                token="t",
                known=0,
                lease_ms=600_000,
                kept_ms=600_000,
                unread_bytes=1 << 26,
                thread_id="thread-1",
                items=batch,
            )
        return runs * items, await drained(relay, create_worker(relay), f"run-{runs - 1}", items)


async def pipelined_copy(url: str, encoded: list[bytes], subscriptions: int) -> tuple[int, float]:
    """Copy entries from a consumer group to another stream and publish each batch to every subscription."""
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
        rows.append(
            await compare_async(
                "worker, 10,000 live runs of 12 items (at most 1.3 times the cost of 100)",
                lambda: many_runs(server.url, 10_000, 12),
                lambda: many_runs(server.url, 100, 12),
                peer_name="100 live runs",
                repeat=3,
            )
        )
    return rows


def run() -> list[Comparison]:
    """Measure the worker."""
    logging.getLogger("agui_relay").setLevel(logging.ERROR)
    return asyncio.run(measure())
