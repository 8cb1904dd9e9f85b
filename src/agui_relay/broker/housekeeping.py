"""What a worker does beside its batches: keep its entries, end abandoned runs, see to those that wait in vain.

Each task goes on whatever fails; what it could not do it does the next time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from redis.exceptions import RedisError, ResponseError

from agui_relay.broker.cluster import ask_all, server_time
from agui_relay.broker.keys import GROUP, PartitionKeys, RunKeys
from agui_relay.broker.reading import Contact
from agui_relay.broker.settings import milliseconds

if TYPE_CHECKING:
    from agui_relay.relay import Relay

_log = logging.getLogger("agui_relay.worker")

_PAGE = 500
"""Runs that are looked at in one round trip."""
_FORGOTTEN_AFTER = 3600.0
"""Seconds after which a consumer that nobody reads as is taken for a dead worker's."""


class Housekeeping:
    """The house of one worker: `consumers` are its names in the group, the first of which claims.

    `held` gives the entries in work of a partition; `part_of` the part of `contact` that a partition belongs to; `due`
    is told of a run (and its epoch) whose next display checkpoint may have nobody who makes it.
    """

    def __init__(
        self,
        relay: Relay,
        partitions: Sequence[PartitionKeys],
        contact: Contact,
        *,
        consumers: Sequence[str],
        held: Callable[[PartitionKeys], Iterable[bytes]],
        part_of: Callable[[PartitionKeys], str],
        due: Callable[[RunKeys, str], None],
    ) -> None:
        self._relay = relay
        self._settings = relay.settings
        self._partitions = partitions
        self._contact = contact
        self._consumers = consumers
        self._held = held
        self._part_of = part_of
        self._due = due
        # How far the look through the runs of a partition is, and those to be looked through at once.
        self._looked: dict[str, int] = {}
        self._look_now: dict[str, asyncio.Event] = {keys.ready: asyncio.Event() for keys in partitions}

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Keep house while the block lasts."""
        tasks = [
            asyncio.create_task(self._repeat(self._settings.claim_idle / 3, self._renew), name="renew entries"),
            asyncio.create_task(self._repeat(self._settings.publisher_lease / 3, self._sweep), name="sweep runs"),
            *(asyncio.create_task(self._look(keys), name=f"look through {keys.runs}") for keys in self._partitions),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def look_now(self, keys: PartitionKeys) -> None:
        """Look through all runs of a partition at once: entries may be missing."""
        self._look_now[keys.ready].set()

    async def hand_on(self) -> None:
        """Hand on what was read in this worker's name and not worked on; then take its names from the group."""
        lease = milliseconds(self._settings.publisher_lease)
        for consumer in self._consumers:
            try:
                for keys in self._partitions:
                    for entry, run in await self._pending(keys, consumer):
                        await self._relay.scripts.mend(run, lease_ms=lease, given_back=entry)
                    await self._relay.scripts.forget(keys, consumer=consumer)
            except (RedisError, OSError) as error:
                _log.info("the consumer %r stays behind: %s", consumer, error)
                return

    async def _renew(self, keys: PartitionKeys) -> None:
        """Keep others from claiming what is in work here."""
        entries = list(self._held(keys))
        if entries:
            await self._relay.client.xclaim(keys.ready, GROUP, self._consumers[0], 0, entries, justid=True)

    async def _sweep(self, keys: PartitionKeys) -> None:
        """End the runs whose publisher's lease is over.

        Only after one full lease of unbroken contact: while the server was away no publisher could renew its lease.
        """
        # Changes nothing; refused, as the renewal of a lease is, by a server that is out of memory.
        await self._relay.client.zadd(keys.leases, {"": 0}, xx=True)
        if self._contact.unbroken_with(self._part_of(keys)) < self._settings.publisher_lease:
            return
        client = self._relay.client
        settings = self._settings
        now = await server_time(client, keys.leases)
        for run_id in await client.zrangebyscore(keys.leases, "-inf", now, start=0, num=100):
            run = RunKeys(settings.namespace, run_id.decode(), settings.partitions)
            word = await self._relay.scripts.abandon(run, token="", kept_ms=milliseconds(settings.ended_run_kept))
            if word == "abandoned":
                _log.warning("run %r is abandoned: its publisher's lease is over", run.run_id)
        await client.zremrangebyscore(keys.runs, "-inf", now - milliseconds(settings.live_run_kept))
        for consumer in await client.xinfo_consumers(keys.ready, GROUP):
            if consumer["pending"] == 0 and consumer["idle"] > milliseconds(_FORGOTTEN_AFTER):
                await self._relay.scripts.forget(keys, consumer=consumer["name"].decode())

    async def _look(self, keys: PartitionKeys) -> None:
        """Look through the runs for those that wait in vain: a page now and then, all when the queue was lost."""
        now = self._look_now[keys.ready]
        now.set()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.publisher_lease / 3):
                    await now.wait()
            try:
                if now.is_set():
                    now.clear()
                    self._looked[keys.ready] = 0
                    while await self._mend_some(keys, at_once=True):
                        pass
                else:
                    await self._mend_some(keys, at_once=False)
                self._contact.answered(self._part_of(keys), "look")
            except (RedisError, OSError) as error:
                now.set()
                await self._contact.failed(error, self._part_of(keys), "look")

    async def _mend_some(self, keys: PartitionKeys, *, at_once: bool) -> bool:
        """Mend the runs of the next page; return whether there are more.

        `at_once` also doubts an entry that is new: else it had time enough to be read, claimed and worked on.
        """
        client, settings = self._relay.client, self._settings
        cursor, rows = await client.zscan(keys.runs, self._looked.get(keys.ready, 0), count=_PAGE)
        self._looked[keys.ready] = int(cursor)
        if not rows:
            return bool(cursor)
        runs = [RunKeys(settings.namespace, run_id.decode(), settings.partitions) for run_id, _ in rows]
        fields = ("last", "cursor", "ready", "status", "epoch", "covered", "tail", "log")
        states = await ask_all(client, [("HMGET", run.state, *fields) for run in runs])
        leases = await client.zmscore(keys.leases, [run.run_id for run in runs])
        settled = await server_time(client, keys.ready) - milliseconds(max(10.0, 3 * settings.claim_idle))
        for run, (_, changed), state, lease in zip(runs, rows, states, leases, strict=True):
            last, read, entry, status, epoch, covered, tail, log = state
            if last is not None:
                uncovered, kept = int(tail or log or 0), int(log or 0)
                is_long = uncovered > settings.display_tail_bytes or kept > settings.frame_log_bytes
                if is_long and covered != b"none" and changed <= settled:
                    # Whoever was told of it by the run's last commit may have died since.
                    self._due(run, epoch.decode())
                is_new = entry is not None and not at_once and int(entry.partition(b"-")[0]) > settled
                if (last == read or is_new) and (status != b"live" or lease is not None):
                    continue
            word = await self._relay.scripts.mend(run, lease_ms=milliseconds(settings.publisher_lease))
            if word == "queued":
                _log.warning("run %r waited in vain and is queued again", run.run_id)
        return bool(cursor)

    async def _pending(self, keys: PartitionKeys, consumer: str) -> list[tuple[bytes, RunKeys]]:
        client, settings = self._relay.client, self._settings
        rows = await client.xpending_range(keys.ready, GROUP, "-", "+", settings.worker_entries * 2, consumer)
        entries = [row["message_id"] for row in rows]
        found = await ask_all(client, [("XRANGE", keys.ready, entry, entry) for entry in entries])
        return [
            (entry, RunKeys(settings.namespace, row[0][1][b"__data__"].decode(), settings.partitions))
            for entry, row in zip(entries, found, strict=True)
            if row
        ]

    async def _repeat(self, seconds: float, work: Callable[[PartitionKeys], Awaitable[None]]) -> None:
        async def try_to(keys: PartitionKeys) -> None:
            try:
                await work(keys)
                self._contact.answered(self._part_of(keys), work)
            except (RedisError, OSError) as error:
                # Without the group there is nothing to keep house of; the reader makes it anew.
                if not (isinstance(error, ResponseError) and "NOGROUP" in str(error)):
                    await self._contact.failed(error, self._part_of(keys), work)

        while True:
            await asyncio.sleep(seconds)
            await asyncio.gather(*map(try_to, self._partitions))
