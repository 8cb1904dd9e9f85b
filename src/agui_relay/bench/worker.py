"""The worker through a real server: items to frames and subscribers, beside a pipelined copy without projection."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NamedTuple

from redis.asyncio import Redis

from agui_relay import Relay, create_worker
from agui_relay.bench.data import RUN_ID, THREAD_ID, text_run
from agui_relay.bench.loading import Loader, fresh_relay, parts_of
from agui_relay.bench.measure import Case, Figure, Sample, at_least
from agui_relay.bench.process import WorkerProcess, server_cpu
from agui_relay.bench.session import Session, Step
from agui_relay.broker.keys import GROUP, RunKeys

BATCH = 256


async def drained(relay: Relay, run_id: str, items: int) -> float:
    """Run a worker until a run has nothing unread; return the seconds that took, its start among them."""
    app = create_worker(relay)
    keys = RunKeys(relay.settings.namespace, run_id)
    start = time.perf_counter()
    running = asyncio.create_task(app.run(sleep_time=0.01))
    while await relay.client.hget(keys.state, "cursor") != str(items).encode():  # noqa: ASYNC110 - polls a task
        await asyncio.sleep(0.005)
    seconds = time.perf_counter() - start
    app.exit()
    await running
    return seconds


async def worker_drains(url: str, encoded: list[bytes], subscriptions: int) -> Sample:
    """Let one worker project a run that waits whole."""
    async with fresh_relay(url) as relay:
        async with relay.publisher(RUN_ID, thread_id=THREAD_ID) as publisher:
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
            return Sample(len(encoded), await drained(relay, RUN_ID, len(encoded)))


async def pipelined_copy(url: str, encoded: list[bytes], subscriptions: int) -> Sample:
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
        return Sample(len(encoded), time.perf_counter() - begin)


async def beside_copy(subscriptions: int, session: Session) -> list[Case]:
    """Measure one worker with so many subscriptions."""
    encoded = list(text_run(session.size(30_000, 500)))

    def side(function: Callable[[str, list[bytes], int], Awaitable[Sample]]) -> Callable[[], Awaitable[Sample]]:
        return lambda: function(session.url, encoded, subscriptions)

    return [
        await session.compare(
            f"one run, batches of {BATCH}, {subscriptions} subscription{'s' if subscriptions > 1 else ''}",
            side(worker_drains),
            side(pipelined_copy),
            peer_name="pipelined copy",
            goal=at_least(1.3) if subscriptions >= 100 else None,
        )
    ]


class Shares(NamedTuple):
    """How worker processes drained what waited, and what share of a core each part took meanwhile."""

    rate: float
    of_worker: float
    of_server: float


async def processes_drain(url: str, workers: int, runs: int, items: int) -> Shares:
    """Let so many worker processes project runs that wait whole."""
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(fresh_relay(url))
        loader = Loader(relay, items)
        count = 0
        for wave in parts_of([f"run-{number}" for number in range(runs)], items, BATCH):
            count += await loader.append(wave)
        fleet = [await stack.enter_async_context(WorkerProcess.open(url)) for _ in range(workers)]
        before = [await worker.usage() for worker in fleet]
        server = await server_cpu(relay.client)
        begin = time.perf_counter()
        await asyncio.gather(*(worker.start() for worker in fleet))
        await loader.projected(pause=0.005)
        seconds = time.perf_counter() - begin
        server = await server_cpu(relay.client) - server
        after = [await worker.usage() for worker in fleet]
        taken = sum(late.cpu - early.cpu for early, late in zip(before, after, strict=True))
        return Shares(count / seconds, taken / workers / seconds, server / seconds)


async def two_processes(session: Session) -> list[Case]:
    """Measure two worker processes beside one, and what limits them."""
    # Several times as many runs as a worker takes at a time, or the first would have them all.
    runs, items = session.size(320, 4), session.size(512, 100)
    name = "two worker processes beside one"
    two, one = await session.interleave(
        name, [partial(processes_drain, session.url, workers, runs, items) for workers in (2, 1)]
    )

    def figure(values: list[Shares], field: str) -> Figure:
        return Figure(tuple(getattr(value, field) for value in values))

    of_server, of_worker = figure(two, "of_server").median, figure(two, "of_worker").median
    cores = os.cpu_count() or 1
    if of_server > 0.85:
        limit = "the server's one thread"
    elif of_server + 2 * of_worker > 0.85 * cores:
        limit = f"the {cores} cores, which they share with the server"
    elif of_worker > 0.85:
        limit = "each worker's own core"
    else:
        limit = "waiting, for one another or for what else the machine does"
    peer = "one process"
    return [
        Case(
            name,
            "items/s",
            figure(two, "rate"),
            peer,
            figure(one, "rate"),
            note=f"what limits two: {limit} (each worker takes {of_worker:.0%} of a core, the server {of_server:.0%})",
        ),
        Case("CPU of the server", "of a core", figure(two, "of_server"), peer, figure(one, "of_server")),
        Case("CPU of each worker", "of a core", figure(two, "of_worker"), peer, figure(one, "of_worker")),
    ]


def steps(session: Session) -> list[Step]:
    """Return one worker beside the copy, and two beside one."""
    return [
        Step("1 subscription", partial(beside_copy, 1)),
        Step("100 subscriptions", partial(beside_copy, 100)),
        Step("two processes", two_processes),
    ]
