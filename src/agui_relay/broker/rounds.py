"""Which runs a worker works on next: rounds of fetch, project and commit over the ready entries it holds."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from agui_relay.broker.drain import ItemProcessor, commit_call, project_batch
from agui_relay.broker.faults import is_transient
from agui_relay.broker.keys import RunKeys
from agui_relay.broker.scripts import CommitCall, CommitLimits, Committed, FetchCall, Fetched, Scripts
from agui_relay.broker.settings import RelaySettings, milliseconds
from agui_relay.projection.projector import ContinuationError, Projector

_log = logging.getLogger("agui_relay.worker")

_LEAST_ROUND_BYTES = 64 * 1024
DELIVERIES_SINGLE = 3
"""From this delivery on an entry is suspected to kill workers: its run is taken one item at a time."""
DELIVERIES_REJECT = 5
"""At this delivery the run's next item is set aside unseen."""


class _Known(NamedTuple):
    """A projector that stands at a run's cursor, as long as the version of the continuation is still the same."""

    epoch: str
    version: int
    continuation: bytes
    projector: Projector


class _Turn:
    """A ready entry in work."""

    __slots__ = ("deliveries", "entry", "keys", "taken")

    def __init__(self, entry: bytes, keys: RunKeys, deliveries: int) -> None:
        self.entry = entry
        self.keys = keys
        self.deliveries = deliveries
        self.taken = 0


class Rounds:
    """Projects the runs of ready entries until each is drained, goes to the end of the queue, or is another's.

    The runs of one round are fetched in one round trip and committed in another. A projector is kept between batches
    and used again while the server still has the continuation it wrote; whatever else happens, it is dropped and the
    continuation is read anew.
    """

    def __init__(self, scripts: Scripts, settings: RelaySettings, process: ItemProcessor | None = None) -> None:
        self._scripts = scripts
        self._settings = settings
        self._process = process
        self._limits = CommitLimits(
            milliseconds(settings.ended_run_kept),
            settings.announcement_fanout_bytes,
            settings.frame_log_bytes,
            settings.items_kept_bytes,
        )
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self.stopping = False
        """Set to let each run go to the end of the queue after the batch in work."""
        self.items = 0
        """Items committed so far, rejected ones included."""
        self.frames = 0
        """Frames committed so far."""
        self.rejected = 0
        """Items set aside so far."""
        self.stale = 0
        """Commits that another worker had made before."""

    async def drain(self, entries: Mapping[bytes, RunKeys], deliveries: Mapping[bytes, int] | None = None) -> None:
        """Work on the runs of `entries` (ready entry to run). Raises the transient errors of redis-py, see `faults`."""
        counts = deliveries or {}
        turns = [_Turn(entry, keys, counts.get(entry, 1)) for entry, keys in entries.items()]
        while turns:
            fetched = await self._scripts.fetch_many([self._fetch_call(turn, len(turns)) for turn in turns])
            calls: list[tuple[_Turn, CommitCall, _Known, int]] = []
            for turn, reply in zip(turns, fetched, strict=True):
                if isinstance(reply, BaseException):
                    self._failed(turn, reply)
                elif reply.word == "items":
                    self._project(turn, reply, calls)
                    # Heartbeats and signals have their turn between two runs.
                    await asyncio.sleep(0)
                elif reply.word == "lost":
                    _log.error("run %r: unread items are missing; it was removed", turn.keys.run_id)
            if not calls:
                return
            committed = await self._scripts.commit_many([call for _, call, _, _ in calls], self._limits)
            turns = [
                turn
                for (turn, call, known, rejected), reply in zip(calls, committed, strict=True)
                if self._committed(turn, call, known, rejected, reply)
            ]

    def _fetch_call(self, turn: _Turn, runs: int) -> FetchCall:
        known = self._known.get(turn.keys.run_id)
        settings = self._settings
        single = turn.deliveries >= DELIVERIES_SINGLE
        return FetchCall(
            turn.keys,
            turn.entry,
            "" if known is None else f"{known.epoch}:{known.version}",
            1 if single else settings.batch_items,
            min(settings.batch_bytes, max(_LEAST_ROUND_BYTES, settings.worker_round_bytes // runs)),
        )

    def _project(self, turn: _Turn, fetched: Fetched, calls: list[tuple[_Turn, CommitCall, _Known, int]]) -> None:
        run_id = turn.keys.run_id
        known = self._known.pop(run_id, None)
        if known is not None and (known.epoch, known.version) != (fetched.epoch, fetched.version):
            known = None
        continuation = known.continuation if known is not None else fetched.continuation

        def restore() -> Projector:
            if continuation:
                return Projector.restore(continuation)
            return Projector(run_id=run_id, thread_id=fetched.thread_id or None)

        poison = None
        if turn.deliveries >= DELIVERIES_REJECT and turn.taken == 0:
            poison = f"set aside unseen: its run was delivered {turn.deliveries} times without a commit"
        try:
            batch, projector = project_batch(
                fetched, restore, known.projector if known is not None else None, self._process, poison
            )
        except ContinuationError as error:
            _log.warning("run %r is left to another worker: %s", run_id, error)
            return
        turn.taken += 1
        call = commit_call(
            fetched,
            batch,
            projector,
            call=turn,
            announcement_bytes=self._settings.announcement_bytes,
            turn_over=self.stopping or turn.taken >= self._settings.worker_turns,
        )
        written = call.continuation
        known = _Known(
            fetched.epoch,
            fetched.version + (written is not None),
            continuation if written is None else written,
            projector,
        )
        calls.append((turn, call, known, len(batch.rejected)))

    def _committed(
        self, turn: _Turn, call: CommitCall, known: _Known, rejected: int, reply: Committed | BaseException
    ) -> bool:
        """Take note of a commit; return whether the run stays in work."""
        if isinstance(reply, BaseException):
            self._failed(turn, reply)
            return False
        if reply.word == "stale":
            # Someone else has done this; what is left may be done at once, if the entry is still ours.
            self.stale += 1
            return True
        if reply.word == "gone":
            return False
        self.items += call.new_cursor - call.cursor
        self.frames += len(call.frames)
        self.rejected += rejected
        if rejected:
            _log.warning("run %r: %d items rejected: %s", turn.keys.run_id, rejected, call.rejected[0].error)
        turn.deliveries = min(turn.deliveries, DELIVERIES_REJECT - 1)
        if reply.left or reply.status == "live":
            self._known[turn.keys.run_id] = known
            while len(self._known) > self._settings.worker_cached_runs:
                self._known.popitem(last=False)
        return reply.left > 0 and not call.turn_over

    def _failed(self, turn: _Turn, error: BaseException) -> None:
        if not isinstance(error, Exception) or is_transient(error):
            raise error
        # Only this run is affected; its entry stays pending and is claimed again later.
        _log.error("run %r: %s: %s", turn.keys.run_id, type(error).__name__, error)
