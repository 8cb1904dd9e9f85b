"""What can be seen of the runs in Redis without taking part in them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from agui_relay.broker.cluster import ask_all, server_time
from agui_relay.broker.keys import PartitionKeys, RunKeys
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
    frames: int
    """Position of the last frame."""
    rejected: int
    """Items set aside."""
    subscriptions: int
    """Subscriptions whose lease is not over."""
    memory: int
    """Bytes that the keys of the run take in Redis."""


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
            ("HMGET", keys.state, "epoch", "thread", "status", "last", "cursor", "position"),
            ("XLEN", keys.rejected),
            ("ZCOUNT", keys.subs, await server_time(client, keys.state), "+inf"),
            *(("MEMORY USAGE", key) for key in own),
        ],
    )
    if state[0] is None:
        return None
    last, cursor, position = (int(value) for value in state[3:])
    return RunInfo(
        run_id=keys.run_id,
        thread_id=state[1].decode(),
        status=state[2].decode(),
        epoch=state[0].decode(),
        items=last,
        lag=last - cursor,
        frames=position,
        rejected=rejected,
        subscriptions=subscriptions,
        memory=sum(size or 0 for size in memory),
    )


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
