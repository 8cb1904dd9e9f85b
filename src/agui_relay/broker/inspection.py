"""What can be seen of the runs in Redis without taking part in them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from agui_relay.broker.cluster import ask_all, server_time
from agui_relay.broker.keys import GROUP, PartitionKeys, RunKeys
from agui_relay.broker.settings import RelaySettings


class RunInfo(NamedTuple):
    """The state of one run."""

    run_id: str
    thread_id: str
    status: str
    """live, closing, finished, suspended, cancelled, failed or abandoned."""
    epoch: str
    items: int
    """Items stored so far."""
    lag: int
    """Items not projected yet."""
    pending: int
    """1 while a worker holds the run's entry of the ready stream; 0 when nothing is unread, or it waits for one."""
    frames: int
    """Position of the last frame."""
    rejected: int
    """Items set aside."""
    subscriptions: int
    """Subscriptions whose lease is not over."""
    memory: int
    """Bytes that the keys of the run take in Redis."""
    consumer: str | None = None
    """The worker that holds the run's entry."""
    idle: float | None = None
    """Seconds since that worker took the entry, or said that it still has it."""


class RejectedItem(NamedTuple):
    """One item that could not be projected."""

    ordinal: int
    error: str
    item: bytes


async def run_info(client: Any, keys: RunKeys) -> RunInfo | None:
    """Return the state of a run, or None when there is none."""
    own = (keys.state, keys.items, keys.frames, keys.subs, keys.rejected, keys.display)
    state, rejected, subscriptions, *memory = await ask_all(
        client,
        [
            ("HMGET", keys.state, "epoch", "thread", "status", "last", "cursor", "position", "ready"),
            ("XLEN", keys.rejected),
            ("ZCOUNT", keys.subs, await server_time(client, keys.state), "+inf"),
            *(("MEMORY USAGE", key) for key in own),
        ],
    )
    if state[0] is None:
        return None
    last, cursor, position = (int(value) for value in state[3:6])
    holder = await _holder(client, keys, state[6]) if state[6] else None
    consumer, idle = (None, None) if holder is None else holder
    return RunInfo(
        run_id=keys.run_id,
        thread_id=state[1].decode(),
        status=state[2].decode(),
        epoch=state[0].decode(),
        items=last,
        lag=last - cursor,
        pending=0 if holder is None else 1,
        frames=position,
        rejected=rejected,
        subscriptions=subscriptions,
        memory=sum(size or 0 for size in memory),
        consumer=consumer,
        idle=idle,
    )


async def _holder(client: Any, keys: RunKeys, entry: bytes) -> tuple[str, float] | None:
    """Return the consumer that holds an entry of the ready stream, and for how many seconds it has said nothing."""
    try:
        rows = await client.xpending_range(keys.ready, GROUP, min=entry, max=entry, count=1)
    except ResponseError as error:
        if not str(error).startswith("NOGROUP"):
            raise
        return None
    if not rows:
        return None
    [row] = rows
    return row["consumer"].decode(errors="replace"), row["time_since_delivered"] / 1000


async def run_infos(client: Any, settings: RelaySettings, *, page: int = 100) -> AsyncIterator[RunInfo]:
    """Iterate over the runs of all partitions, in each the last changed first."""
    for number in range(settings.partitions):
        partition = PartitionKeys(settings.namespace, number)
        start = 0
        while ids := await client.zrevrange(partition.runs, start, start + page - 1):
            start += page
            for run_id in ids:
                keys = RunKeys(settings.namespace, run_id.decode(), settings.partitions)
                info = await run_info(client, keys)
                if info is not None:
                    yield info


async def rejected_items(client: Any, keys: RunKeys, *, page: int = 100) -> AsyncIterator[RejectedItem]:
    """Iterate over the rejected items of a run, in their order."""
    after = "-"
    while rows := await client.xrange(keys.rejected, after, "+", count=page):
        for row_id, row in rows:
            yield RejectedItem(int(row_id.split(b"-")[0]), row[b"error"].decode(), row[b"item"])
        after = f"({rows[-1][0].decode()}"
