"""Which runs a worker works on next: rounds of fetch, project and commit over the ready entries it holds."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import count
from typing import NamedTuple

from agui_relay.broker.announcement import View
from agui_relay.broker.checkpoints import Checkpoints
from agui_relay.broker.drain import ItemProcessor, project_batch
from agui_relay.broker.faults import is_transient
from agui_relay.broker.keys import RunKeys
from agui_relay.broker.scripts import CommitCall, CommitLimits, Committed, FetchCall, Fetched, Scripts
from agui_relay.broker.settings import RelaySettings, milliseconds
from agui_relay.projection.projector import ContinuationError, Projector

_log = logging.getLogger("agui_relay.worker")

_LEAST_ROUND_BYTES = 64 * 1024
_UNASKED: tuple[View, ...] = ("full",)
"""What is announced as long as nobody is known to read."""
CLAIMS_SUSPECT = 2
"""A run claimed this often without a commit may hold an item that kills workers: it is taken one item at a time."""
CLAIMS_REJECT = 4
"""At this claim, its fifth delivery, the run's next item is set aside unseen."""


class _Known(NamedTuple):
    """A projector that stands at a run's cursor, as long as the version of the continuation is still the same."""

    epoch: str
    version: str
    continuation: bytes
    projector: Projector
    views: tuple[View, ...]
    """Those that somebody read when frames were last announced."""


class _Turn:
    """A ready entry in work; `next` is what to project without a fetch, `claimed` is to be told at the first one."""

    __slots__ = ("claimed", "entry", "keys", "next", "taken")

    def __init__(self, entry: bytes, keys: RunKeys, claimed: bool, next_: Fetched | None) -> None:
        self.entry = entry
        self.keys = keys
        self.claimed = claimed
        self.next = next_
        self.taken = 0


class _Work(NamedTuple):
    """A projected batch on its way to the server."""

    turn: _Turn
    fetched: Fetched
    call: CommitCall
    known: _Known


class Rounds:
    """Projects the runs of ready entries until each is drained, goes to the end of the queue, or is another's.

    The runs of one round are fetched in one round trip and committed in another. A projector is kept between batches
    and used again while the server still has the continuation it wrote; whatever else happens, it is dropped and the
    continuation is read anew.
    """

    def __init__(
        self,
        scripts: Scripts,
        settings: RelaySettings,
        process: ItemProcessor | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._scripts = scripts
        self._settings = settings
        self._process = process
        self._checkpoints = checkpoints
        self._limits = CommitLimits(
            milliseconds(settings.ended_run_kept),
            settings.announcement_fanout_bytes,
            settings.frame_log_bytes,
            settings.items_kept_bytes,
            settings.display_tail_bytes,
        )
        self._known: OrderedDict[str, _Known] = OrderedDict()
        # A count would not do as the word for a continuation: after a failover another one may have the same number.
        self._words = (f"{secrets.token_hex(6)}.{number}" for number in count(1))
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

    async def drain(
        self,
        entries: Mapping[bytes, RunKeys],
        *,
        inline: Mapping[bytes, Fetched] | None = None,
        claimed: bool = False,
    ) -> None:
        """Work on the runs of `entries` (ready entry to run) until nothing of them is left to do here.

        `inline` is what entries carry of their runs; `claimed` tells that other workers had these entries before.
        Raises the transient errors of redis-py, see `faults`.
        """
        turns = [
            _Turn(entry, keys, claimed, self._usable(keys, (inline or {}).get(entry)))
            for entry, keys in entries.items()
        ]
        while turns:
            turns, lagging = await self._without_lagging(turns)
            calls: list[_Work] = []
            unknown: list[_Turn] = []
            for turn, reply in await self._fetch(turns):
                if isinstance(reply, BaseException):
                    self._failed(turn, reply)
                elif reply.word == "items":
                    known = self._take_known(turn.keys.run_id, reply)
                    if known is None and reply.version and not reply.continuation:
                        # It was at hand when these items were asked for. Who took it works on the run as well: a
                        # worker that was stopped for long claims from itself.
                        turn.next = None
                        unknown.append(turn)
                        continue
                    self._project(turn, reply, known, calls, len(turns))
                    if len(turns) > 1:
                        # Heartbeats and signals have their turn between two runs.
                        await asyncio.sleep(0)
                elif reply.word == "lost":
                    _log.error("run %r: unread items are missing; it was removed", turn.keys.run_id)
            committed = await self._scripts.commit_many([work.call for work in calls], self._limits) if calls else []
            turns = [*lagging, *unknown]
            turns += [work.turn for work, reply in zip(calls, committed, strict=True) if self._committed(work, reply)]

    async def _without_lagging(self, turns: list[_Turn]) -> tuple[list[_Turn], list[_Turn]]:
        """Put aside those that should wait for the checkpoint of their run; wait when that are all."""
        checkpoints = self._checkpoints
        if checkpoints is None or not checkpoints.lagging or self.stopping:
            return turns, []
        if all(turn.keys.run_id in checkpoints.lagging for turn in turns):
            await checkpoints.wait(turn.keys.run_id for turn in turns)
        lagging = [turn for turn in turns if turn.keys.run_id in checkpoints.lagging]
        return [turn for turn in turns if turn not in lagging], lagging

    async def _fetch(self, turns: Sequence[_Turn]) -> list[tuple[_Turn, Fetched | BaseException]]:
        """Return the next items of each run: those that are at hand already, else from the server."""
        missing = [turn for turn in turns if turn.next is None]
        if missing:
            fetched = await self._scripts.fetch_many([self._fetch_call(turn, len(turns)) for turn in missing])
            for turn in missing:
                turn.claimed = False
            replies: dict[bytes, Fetched | BaseException] = dict(
                zip((turn.entry for turn in missing), fetched, strict=True)
            )
        return [(turn, replies[turn.entry] if turn.next is None else turn.next) for turn in turns]

    def _usable(self, keys: RunKeys, fetched: Fetched | None) -> Fetched | None:
        """Return what a ready entry carries if this worker has the continuation that belongs to it."""
        if fetched is None or (not fetched.version and fetched.cursor == 0):
            return fetched
        known = self._known.get(keys.run_id)
        return (
            fetched if known is not None and (known.epoch, known.version) == (fetched.epoch, fetched.version) else None
        )

    def _most_bytes(self, runs: int) -> int:
        settings = self._settings
        return min(settings.batch_bytes, max(_LEAST_ROUND_BYTES, settings.worker_round_bytes // runs))

    def _fetch_call(self, turn: _Turn, runs: int) -> FetchCall:
        known = self._known.get(turn.keys.run_id)
        return FetchCall(
            turn.keys,
            turn.entry,
            "" if known is None else f"{known.epoch}:{known.version}",
            self._settings.batch_items,
            self._most_bytes(runs),
            turn.claimed,
        )

    def _take_known(self, run_id: str, fetched: Fetched) -> _Known | None:
        """Take out what is known of a run; None unless it is what belongs to the fetched items."""
        known = self._known.pop(run_id, None)
        if known is not None and (known.epoch, known.version) != (fetched.epoch, fetched.version):
            return None
        return known

    def _project(self, turn: _Turn, fetched: Fetched, known: _Known | None, calls: list[_Work], runs: int) -> None:
        run_id = turn.keys.run_id
        continuation = known.continuation if known is not None else fetched.continuation

        def restore() -> Projector:
            if continuation:
                return Projector.restore(continuation)
            return Projector(run_id=run_id, thread_id=fetched.thread_id or None)

        poison = None
        if fetched.claims >= CLAIMS_REJECT:
            poison = f"set aside unseen: its run was delivered {fetched.claims + 1} times without a commit"
        try:
            batch, projector = project_batch(
                fetched,
                restore,
                known.projector if known is not None else None,
                self._process,
                poison,
                self._settings.batch_bytes,
            )
        except ContinuationError as error:
            _log.warning("run %r is left to another worker: %s", run_id, error)
            return
        turn.taken += 1
        views = (known.views if known is not None else ()) or _UNASKED
        turn_over = self.stopping or turn.taken >= self._settings.worker_turns
        call = CommitCall(
            keys=turn.keys,
            entry=turn.entry,
            epoch=fetched.epoch,
            cursor=fetched.cursor,
            new_cursor=fetched.cursor + batch.items,
            consumed=batch.consumed,
            turn_over=turn_over,
            next_items=0 if fetched.claims >= CLAIMS_SUSPECT else self._settings.batch_items,
            next_bytes=self._most_bytes(runs),
            version=next(self._words) if projector.changed else fetched.version,
            continuation=projector.export() if projector.changed else None,
            frames=batch.frames,
            rejected=batch.rejected,
            # Readers of a view that is not here take the frames from the log, and are known from then on.
            announced=[
                (view, batch.announced(view, fetched.position, self._settings.announcement_bytes)) for view in views
            ],
        )
        written = call.continuation
        known = _Known(
            fetched.epoch,
            call.version,
            continuation if written is None else written,
            projector,
            views,
        )
        calls.append(_Work(turn, fetched, call, known))

    def _committed(self, work: _Work, reply: Committed | BaseException) -> bool:
        """Take note of a commit; return whether the run stays in work."""
        turn, fetched, call, known = work
        turn.next = None
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
        self.rejected += len(call.rejected)
        if call.rejected:
            _log.warning("run %r: %d items rejected: %s", turn.keys.run_id, len(call.rejected), call.rejected[0].error)
        if reply.due and self._checkpoints is not None:
            self._checkpoints.due(turn.keys, call.epoch, lags=reply.due > 1)
        if reply.left or reply.status == "live":
            self._known[turn.keys.run_id] = known._replace(views=reply.views) if call.frames else known
            while len(self._known) > self._settings.worker_cached_runs:
                self._known.popitem(last=False)
        if reply.items:
            # Without the continuation: that of the fetch is older than this version.
            turn.next = fetched._replace(
                cursor=call.new_cursor,
                position=reply.position,
                version=known.version,
                continuation=b"",
                items=reply.items,
            )
        return reply.left > 0 and not call.turn_over

    def _failed(self, turn: _Turn, error: BaseException) -> None:
        if not isinstance(error, Exception) or is_transient(error):
            raise error
        # Only this run is affected; its entry stays pending and is claimed again later.
        _log.error("run %r: %s: %s", turn.keys.run_id, type(error).__name__, error)
