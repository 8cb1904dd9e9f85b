"""Publishing: items through a publisher, beside pipelined XADD of the same bytes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from redis.asyncio import Redis

from agui_relay.bench.data import RUN_ID, THREAD_ID, harness_missing, live, text_run
from agui_relay.bench.loading import fresh_relay
from agui_relay.bench.measure import Case, Sample, at_least
from agui_relay.bench.session import Session, Step

BATCH = 256


async def published(url: str, items: Sequence[Any]) -> Sample:
    """Time one publisher, from the first call until everything is acknowledged."""
    async with fresh_relay(url) as relay, relay.publisher(RUN_ID, thread_id=THREAD_ID) as publisher:
        start = time.perf_counter()
        for item in items:
            await publisher.publish(item)
        await publisher.flush()
        return Sample(len(items), time.perf_counter() - start)


async def pipelined_xadd(url: str, encoded: list[bytes]) -> Sample:
    """Append the same bytes in pipelines of the same size."""
    async with Redis.from_url(url) as client:
        await client.flushall()
        start = time.perf_counter()
        for first in range(0, len(encoded), BATCH):
            async with client.pipeline(transaction=False) as pipeline:
                for data in encoded[first : first + BATCH]:
                    pipeline.xadd("stream", {"item": data})
                await pipeline.execute()
        return Sample(len(encoded), time.perf_counter() - start)


async def item_bytes(session: Session) -> list[Case]:
    """Measure the publishing of bytes."""
    encoded = list(text_run(session.size(20_000, 500)))
    return [
        await session.compare(
            "item bytes",
            partial(published, session.url, encoded),
            partial(pipelined_xadd, session.url, encoded),
            peer_name="pipelined XADD",
            goal=at_least(2),
        )
    ]


async def live_items(session: Session) -> list[Case]:
    """Measure the publishing of live Harness items."""
    name, peer_name = "live Harness items", "pipelined XADD of ready bytes"
    if missing := harness_missing():
        return [Case(name, "items/s", None, peer_name, missing=missing)]
    encoded = list(text_run(session.size(20_000, 500)))
    return [
        await session.compare(
            name,
            partial(published, session.url, live(encoded)),
            partial(pipelined_xadd, session.url, encoded),
            peer_name=peer_name,
        )
    ]


def steps(session: Session) -> list[Step]:
    """Return publishing of bytes and of live items."""
    return [Step("item bytes", item_bytes), Step("live items", live_items)]
