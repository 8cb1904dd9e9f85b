"""When a worker makes the next display checkpoint of a run, and how it is stored.

The frames behind the last checkpoint are folded in a thread, beside the worker's batches and one run at a time. The
frames stay until the next checkpoint is stored, which is one atomic step with the trimming behind it. Only a run whose
frames come faster than they are folded waits for that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from typing import Final

from agui_relay.broker.faults import is_transient
from agui_relay.broker.folded import (
    CheckpointError,
    Entry,
    FoldedViews,
    NewerCheckpointError,
    in_thread,
    rows_at_once,
)
from agui_relay.broker.keys import RunKeys
from agui_relay.broker.packed import pack, unpack
from agui_relay.broker.scripts import Scripts, Uncovered
from agui_relay.broker.settings import RelaySettings

_log = logging.getLogger("agui_relay.worker")

_ASIDE: Final = 60.0
"""Seconds until a run whose checkpoint this worker cannot make is looked at again."""
_MOST_ASIDE: Final = 4096


class Checkpoints:
    """Makes the display checkpoints of the runs that a worker is told of."""

    def __init__(self, scripts: Scripts, settings: RelaySettings) -> None:
        self._scripts = scripts
        self._settings = settings
        # Threads of Python have one processor between them: more at a time would only hold up the batches longer.
        self._turn = asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # Told of while one is in the making.
        self._again: set[str] = set()
        self._aside: dict[str, float] = {}
        self._closed = False
        self.lagging: set[str] = set()
        """Runs that should wait for their next checkpoint; each has one in the making."""
        self.made = 0
        """Checkpoints stored so far."""

    def due(self, keys: RunKeys, epoch: str, *, lags: bool = False) -> None:
        """Let a run have its next checkpoint; `lags` tells that its frames come faster than they are folded."""
        run_id = keys.run_id
        if self._closed or self._aside.get(run_id, 0.0) > time.monotonic():
            return
        if lags:
            self.lagging.add(run_id)
        if run_id in self._tasks:
            self._again.add(run_id)
        else:
            self._tasks[run_id] = asyncio.create_task(self._keep_up(keys, epoch), name=f"checkpoint of {run_id}")

    async def wait(self, run_ids: Iterable[str]) -> None:
        """Return once one of these runs does not lag."""
        tasks = [self._tasks[run_id] for run_id in run_ids if run_id in self.lagging]
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Drop what is in work; another commit tells a worker of it. A thread ends with the frames it has in hand."""
        self._closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # One that had not begun took no leave.
        self._tasks.clear()
        self.lagging.clear()

    async def _keep_up(self, keys: RunKeys, epoch: str) -> None:
        run_id = keys.run_id
        try:
            while True:
                async with self._turn:
                    self._again.discard(run_id)
                    goes_on = await self._make(keys, epoch)
                if not goes_on and run_id not in self._again:
                    return
        except Exception as error:
            # Of what passes by itself the next commit tells again.
            if not is_transient(error):
                self._set_aside(keys, f"{type(error).__name__}: {error}")
        finally:
            self._again.discard(run_id)
            self.lagging.discard(run_id)
            self._tasks.pop(run_id, None)

    async def _make(self, keys: RunKeys, epoch: str) -> bool:
        """Make one checkpoint if it is due; return whether the next may be."""
        settings, scripts = self._settings, self._scripts
        due = await scripts.uncovered(
            keys, epoch=epoch, log_bytes=settings.frame_log_bytes, tail_bytes=settings.display_tail_bytes
        )
        if due.word != "due":
            return False
        try:
            stored = {view: await in_thread(unpack, packed) for view, packed in due.stored.items()}
            views = await in_thread(FoldedViews, keys.run_id, due.covered, stored)
            while views.position < due.head:
                await in_thread(views.add, await self._read_on(keys, views, due))
            snapshots = await in_thread(views.export)
            size = sum(map(len, snapshots.values()))
            if size > settings.display_bytes:
                raise CheckpointError(f"it has {size} bytes, at most {settings.display_bytes} are kept")
            to_store = {view: await in_thread(pack, snapshot) for view, snapshot in snapshots.items()}
        except NewerCheckpointError as error:
            if due.log <= 2 * settings.frame_log_bytes:
                self._set_aside(keys, str(error))
                return False
            await self._give_up(keys, epoch, due, f"{error}, and the log has {due.log} bytes")
            return False
        except CheckpointError as error:
            await self._give_up(keys, epoch, due, str(error))
            return False
        word = await scripts.checkpoint(
            keys,
            epoch=epoch,
            covered=due.covered,
            position=views.position,
            folded=views.folded,
            log_bytes=settings.frame_log_bytes,
            shown=size,
            snapshots=to_store,
        )
        self.made += word == "ok"
        return word == "ok"

    async def _read_on(self, keys: RunKeys, views: FoldedViews, due: Uncovered) -> Sequence[Entry]:
        entries: Sequence[Entry] = await self._scripts.read_frames(
            keys,
            first=views.position + 1,
            last=due.head,
            most=rows_at_once(due.head - views.position, due.tail - views.folded),
        )
        if not entries:
            raise CheckpointError(f"the frames from {views.position + 1} to {due.head} are not in the log")
        return entries

    async def _give_up(self, keys: RunKeys, epoch: str, due: Uncovered, reason: str) -> None:
        """Keep the log of a run without a display bounded, unless another worker has gone on with it meanwhile."""
        word = await self._scripts.checkpoint(
            keys, epoch=epoch, covered=due.covered, log_bytes=self._settings.frame_log_bytes
        )
        if word == "ok":
            _log.error("run %r has no display checkpoint any more: %s", keys.run_id, reason)

    def _set_aside(self, keys: RunKeys, reason: str) -> None:
        now = time.monotonic()
        if keys.run_id not in self._aside:
            _log.warning("the display checkpoint of run %r is left to another worker: %s", keys.run_id, reason)
            if len(self._aside) >= _MOST_ASIDE:
                del self._aside[next(iter(self._aside))]
        self._aside[keys.run_id] = now + _ASIDE
