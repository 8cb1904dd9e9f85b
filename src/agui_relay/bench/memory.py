"""Memory: of a worker through a million items, of an idle reader, and what Redis keeps for an item."""

from __future__ import annotations

from functools import partial

from agui_relay.bench import fanout
from agui_relay.bench.data import Run, runs
from agui_relay.bench.loading import Loader, fresh_relay, parts_of
from agui_relay.bench.measure import Case, Figure, at_most
from agui_relay.bench.process import WorkerProcess
from agui_relay.bench.session import Session, Step
from agui_relay.bench.worker import drained
from agui_relay.source import decode_item

BATCH = 250
RUNS_AT_A_TIME = 10
MIB = 1 << 20


async def of_worker(session: Session) -> list[Case]:
    """Measure a worker process through a million items: runs of 2,000, ten at a time, each with its end."""
    items = session.size(2_000, 20)
    in_all, early = session.size(1_000_000, 1_000), session.size(100_000, 400)
    done, at_early = 0, 0.0
    async with fresh_relay(session.url) as relay, WorkerProcess.open(session.url) as worker:
        loader = Loader(relay, items, ended=True)
        await worker.start()
        while done < in_all:
            names = [f"run-{done}-{number}" for number in range(RUNS_AT_A_TIME)]
            for wave in parts_of(names, items, BATCH):
                done += await loader.append(wave)
            await loader.projected()
            for name in names:
                await relay.delete(name)
            if done >= early and not at_early:
                at_early = (await worker.usage()).memory / MIB
            session.tell(f"a worker's memory, {done:,} items of {in_all:,}")
        at_end = (await worker.usage()).memory / MIB
    return [
        Case(
            f"a worker's memory after {in_all:,} items",
            "MiB",
            Figure((at_end,)),
            f"after {early:,}",
            Figure((at_early,)),
            at_most(1.1),
        )
    ]


async def of_redis(run: Run, session: Session) -> list[Case]:
    """Measure what Redis takes for the items and frames of a run, beside their own bytes."""
    encoded = run.encoded()
    root = decode_item(encoded[0])
    async with fresh_relay(session.url) as relay:
        async with relay.publisher(root.run_id, thread_id=root.thread_id) as publisher:
            for data in encoded:
                await publisher.publish(data)
            await publisher.flush()
            await drained(relay, root.run_id, len(encoded))
            keys = publisher.keys
            # All nodes of a stream are counted: those of large items are few, and easily missed by a sample.
            taken = [
                await relay.client.memory_usage(key, samples=0) or 0
                for key in (keys.state, keys.items, keys.frames, keys.subs, keys.rejected, keys.display)
            ]
            frames = [row[b"frame"] for _, row in await relay.client.xrange(keys.frames)]
    own = sum(map(len, encoded)) + sum(map(len, frames))
    return [
        Case(
            f"{run.name}: memory in Redis",
            "bytes an item",
            Figure((sum(taken) / len(encoded),)),
            "items and frames alone",
            Figure((own / len(encoded),)),
            at_most(1.6),
        )
    ]


async def of_readers(session: Session) -> list[Case]:
    """Measure an idle reader of one run among many in a process."""
    readers = session.size(1_000, 10)
    rounds = 1
    settings = (fanout.relayed, *fanout.PEERS)
    name = f"an idle reader of {readers:,}"
    ours, *theirs = await session.interleave(
        name, [partial(fanout.memory, setting, session.url, readers) for setting in settings], rounds
    )
    return [
        Case(name, "bytes", Figure(tuple(ours)), f"{peer_name} connection", Figure(tuple(values)))
        for peer_name, values in zip(fanout.PEERS.values(), theirs, strict=True)
    ]


def steps(session: Session) -> list[Step]:
    """Return the memory of a worker, of runs in Redis, and of readers."""
    return [
        Step("worker", of_worker),
        *(Step(run.name, partial(of_redis, run)) for run in runs(session, session.size(20_000, 200))),
        Step("readers", of_readers),
    ]
