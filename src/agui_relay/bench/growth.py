"""What an item costs as live runs, subscribers and the items of a run grow, in batches of one size.

Of live runs and of items the CPU time is taken, the worker's and the server's, each in its own process: that of the
program which loads the server does not count, nor does waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import cycle, islice
from typing import NamedTuple

from agui_relay import RelaySettings
from agui_relay.bench import fanout
from agui_relay.bench.data import RUN_ID, text_run
from agui_relay.bench.loading import Loader, Part, fresh_relay, parts_of
from agui_relay.bench.measure import Case, Figure, Sample, at_most
from agui_relay.bench.process import WorkerProcess, server_cpu
from agui_relay.bench.session import Session, Step
from agui_relay.bench.worker import worker_drains

FLAT = at_most(1.3)
ACTIVE = 10
"""Runs that get items at a time, however many are live."""
SMALL_BATCH = 12
BATCH = 250


class Cost(NamedTuple):
    """Microseconds of CPU time for each item."""

    worker: float
    server: float


async def cost(url: str, warm: Sequence[Sequence[Part]], waves: Sequence[Sequence[Part]], items: int) -> Cost:
    """Return what the items of `waves` cost, after those of `warm`; each wave when the one before is projected.

    `items` are those of the longest run.
    """
    async with fresh_relay(url) as relay, WorkerProcess.open(url) as worker:
        loader = Loader(relay, items)
        await worker.start()
        for wave in warm:
            await loader.append(wave)
            await loader.projected()
        before, server = await worker.usage(), await server_cpu(relay.client)
        count = 0
        for wave in waves:
            count += await loader.append(wave)
            await loader.projected()
        after, server = await worker.usage(), await server_cpu(relay.client) - server
        return Cost((after.cpu - before.cpu) / count * 1e6, server / count * 1e6)


async def live_runs(url: str, live: int, waves: int) -> Cost:
    """Return what items cost while so many runs are live; every wave is for the next ten of them, in turns."""
    names = [f"run-{number}" for number in range(live)]
    warm = parts_of(names, SMALL_BATCH, SMALL_BATCH)
    last = dict.fromkeys(names, SMALL_BATCH)
    measured: list[list[Part]] = []
    turns = cycle(names)
    for _ in range(waves):
        wave = [Part(name, last[name], last[name] + SMALL_BATCH) for name in islice(turns, ACTIVE)]
        last.update((part.run_id, part.last) for part in wave)
        measured.append(wave)
    return await cost(url, warm, measured, max(last.values()))


async def together(url: str, live: int, batch: int, items: int) -> Cost:
    """Return what items cost while all of so many runs get a few of them at a time."""
    names = [f"run-{number}" for number in range(live)]
    last = SMALL_BATCH + items
    waves = [[Part(name, first, first + batch) for name in names] for first in range(SMALL_BATCH, last, batch)]
    return await cost(url, parts_of(names, SMALL_BATCH, SMALL_BATCH), waves, last)


async def long_run(url: str, items: int, in_all: int) -> Cost:
    """Return what items cost in runs of so many, one run after the other."""
    warm = parts_of(["warm"], BATCH, BATCH)
    names = [RUN_ID, *(f"run-{number}" for number in range(2, in_all // items + 1))]
    return await cost(url, warm, [wave for name in names for wave in parts_of([name], items, BATCH)], items)


def both(name: str, large: list[Cost], small: list[Cost], peer_name: str) -> list[Case]:
    """Return a row for the worker and one for the server."""
    return [
        Case(
            f"{name}: CPU of the {field}",
            "µs an item",
            Figure(tuple(getattr(value, field) for value in large)),
            peer_name,
            Figure(tuple(getattr(value, field) for value in small)),
            FLAT,
        )
        for field in Cost._fields
    ]


async def more_runs(session: Session) -> list[Case]:
    """Measure 100 to 10,000 live runs beside 10."""
    sizes = (20,) if session.quick else (100, 1_000, 10_000)
    waves = session.size(300, 3)
    small, *larger = await session.interleave(
        f"{', '.join(f'{size:,}' for size in sizes)} live runs beside {ACTIVE}",
        [partial(live_runs, session.url, live, waves) for live in (ACTIVE, *sizes)],
    )
    return [
        case
        for size, costs in zip(sizes, larger, strict=True)
        for case in both(f"{size:,} live runs", costs, small, f"{ACTIVE} live runs")
    ]


async def single_items(session: Session) -> list[Case]:
    """Measure runs that get one item at a time, as live runs with a fast worker do, beside batches; without a goal."""
    live, items = session.size(100, 10), session.size(10 * SMALL_BATCH, SMALL_BATCH)
    name = f"{live:,} live runs that get one item at a time"
    single, batches = await session.interleave(
        name, [partial(together, session.url, live, batch, items) for batch in (1, SMALL_BATCH)]
    )
    return [case._replace(goal=None) for case in both(name, single, batches, f"{SMALL_BATCH} at a time")]


async def more_items(session: Session) -> list[Case]:
    """Measure a run of 100,000 items beside runs of 1,000 and of 10,000."""
    large = session.size(100_000, 1_000)
    sizes = (500,) if session.quick else (1_000, 10_000)
    name = f"{large:,} items in a run"
    of_large, *smaller = await session.interleave(
        name, [partial(long_run, session.url, items, large) for items in (large, *sizes)]
    )
    tail = RelaySettings().display_tail_bytes
    note = f"of a run with more than {tail:,} bytes of frames the worker also folds the display"
    return [
        case._replace(note=note if size == sizes[0] and "worker" in case.name else "")
        for size, costs in zip(sizes, smaller, strict=True)
        for case in both(name, of_large, costs, f"{size:,} items in each")
    ]


def per_delivery(sample: Sample) -> float:
    """Return the microseconds of a delivery."""
    return sample.cost


async def more_readers(many: int, few: int, session: Session) -> list[Case]:
    """Measure many readers in one process beside few of them."""
    events = session.size(500, 20)
    return [
        await session.compare(
            f"{many:,} readers of one run in a process",
            partial(fanout.together, fanout.relayed, session.url, many, events),
            partial(fanout.together, fanout.relayed, session.url, few, events),
            peer_name=fanout.counted(few),
            unit="µs a delivery",
            goal=FLAT,
            value=per_delivery,
        )
    ]


async def more_subscriptions(many: int, few: int, session: Session) -> list[Case]:
    """Measure the worker's and the server's side of many subscriptions, each in a process of its own, beside few."""
    encoded = list(text_run(session.size(10_000, 500)))

    async def side(subscriptions: int) -> Sample:
        sample = await worker_drains(session.url, encoded, subscriptions)
        return sample._replace(units=sample.units * subscriptions)

    return [
        await session.compare(
            f"{many:,} subscriptions of processes of their own",
            partial(side, many),
            partial(side, few),
            peer_name=f"{few:,} subscriptions" if few > 1 else "1 subscription",
            unit="µs a delivery",
            goal=FLAT,
            value=per_delivery,
        )
    ]


def steps(session: Session) -> list[Step]:
    """Return the growth of runs, of readers and of items."""
    many, some = (20, 5) if session.quick else (1_000, 100)
    return [
        Step("live runs", more_runs),
        Step("single items", single_items),
        *(Step(f"{many:,} readers", partial(more_readers, many, few)) for few in (1, some)),
        *(Step(f"{many:,} subscriptions", partial(more_subscriptions, many, few)) for few in (1, some)),
        Step("long run", more_items),
    ]
