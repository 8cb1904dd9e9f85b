"""Puts runs into Redis for a worker to find, a batch of each at a time, and waits until they are projected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import batched
from typing import NamedTuple

import msgspec

from agui_relay import Relay, decode_item, encode_item
from agui_relay.bench.data import RUN_ID, THREAD_ID, text_run
from agui_relay.broker.keys import PartitionKeys, RunKeys
from agui_relay.broker.scripts import AppendItem

_KEPT_MS = 600_000
_TOKEN = "bench"
_AT_A_TIME = 32
_PATIENCE = 600.0
"""Seconds after which workers that project nothing are given up."""


class Part(NamedTuple):
    """Items `first` up to `last` of a run, each a number from 0 on; they are appended in one step."""

    run_id: str
    first: int
    last: int


class Loader:
    """Appends parts of runs that all have the items of one text run; `ended`: the last of them ends the run."""

    def __init__(self, relay: Relay, items: int, *, ended: bool = False) -> None:
        self._relay = relay
        deltas = items - (3 if ended else 2)
        self._items = [decode_item(data) for data in text_run(deltas, ended=ended)]
        self._encoded = [encode_item(item) for item in self._items]
        self._ready = PartitionKeys(relay.settings.namespace, 0).ready

    async def append(self, parts: Iterable[Part]) -> int:
        """Append parts, opening the runs that begin; return how many items they are."""
        count = 0
        for some in batched(parts, _AT_A_TIME, strict=False):
            await asyncio.gather(*(self._append(part) for part in some))
            count += sum(part.last - part.first for part in some)
        return count

    async def _append(self, part: Part) -> None:
        keys = RunKeys(self._relay.settings.namespace, part.run_id)
        scripts = self._relay.scripts
        if part.first == 0:
            await scripts.open(keys, token=_TOKEN, epoch="e", thread_id=THREAD_ID, lease_ms=_KEPT_MS, kept_ms=_KEPT_MS)
        reply = await scripts.append(
            keys,
            token=_TOKEN,
            known=part.first,
            lease_ms=_KEPT_MS,
            kept_ms=_KEPT_MS,
            unread_bytes=1 << 30,
            thread_id=THREAD_ID,
            items=[
                AppendItem(part.run_id, item.sequence, item.terminal or "", self._data(part.run_id, number))
                for number, item in enumerate(self._items[part.first : part.last], part.first)
            ],
        )
        if reply.word != "ok":
            raise RuntimeError(f"the items of run {part.run_id!r} were not stored: {reply.word}")

    def _data(self, run_id: str, number: int) -> bytes:
        if run_id == RUN_ID:
            return self._encoded[number]
        return encode_item(msgspec.structs.replace(self._items[number], run_id=run_id))

    async def projected(self, *, pause: float = 0.002) -> None:
        """Wait until nothing is left for a worker: each run that has unread items has a ready entry."""
        async with asyncio.timeout(_PATIENCE):
            while await self._relay.client.xlen(self._ready):  # noqa: ASYNC110 - polls other processes
                await asyncio.sleep(pause)


@asynccontextmanager
async def fresh_relay(url: str) -> AsyncIterator[Relay]:
    """Open a relay on a server that is emptied first."""
    async with Relay(url) as relay:
        await relay.client.flushall()
        yield relay


def parts_of(runs: Sequence[str], items: int, batch: int) -> list[list[Part]]:
    """Return waves, in each of which every run gets its next batch, until all have their items."""
    return [[Part(run_id, first, min(first + batch, items)) for run_id in runs] for first in range(0, items, batch)]
