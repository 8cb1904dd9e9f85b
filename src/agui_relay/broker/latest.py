"""The display of a run up to its head, for who comes late: what is stored, and the frames behind it folded here.

Workers fold a run now and then only, since that costs about as much as projecting it. Who begins with the display has
the rest folded in its own process, once for all readers of the run there, and from where it was when the last one came.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from agui_relay.broker.announcement import View, entry_fields
from agui_relay.broker.keys import RunKeys
from agui_relay.broker.packed import unpack
from agui_relay.broker.scripts import Display, Scripts

if TYPE_CHECKING:
    from agui_relay.broker.folded import FoldedViews

_log = logging.getLogger("agui_relay.subscription")

_FOLDED_BYTES: Final = 512 * 1024
"""Frames behind the stored display that are given as they are; of more, the display is given."""


class LatestDisplay:
    """The display of one run for one view, folded up to the head when somebody asks."""

    def __init__(self, scripts: Scripts, keys: RunKeys, view: View) -> None:
        self._scripts = scripts
        self._keys = keys
        self._view: View = view
        self._turn = asyncio.Lock()
        # What was folded last, of which life.
        self._epoch = ""
        self._folded: FoldedViews | None = None

    async def read(self, *, latest: bool = True) -> Display:
        """Return the display and the state that it belongs to, of one moment that is not before this call.

        What is stored, unpacked, unless the `latest` is wanted; also when little is behind that, or cannot be folded.
        """
        if not latest:
            return await self._unpacked(await self._scripts.read_display(self._keys, view=self._view))
        async with self._turn:
            stored = await self._scripts.read_display(self._keys, view=self._view)
            if stored.tail <= _FOLDED_BYTES:
                return await self._unpacked(stored)
            # A thread that is not waited for any more still works on it: nobody may go on from there.
            folded, self._folded = self._folded, None
            try:
                folded = await self._fold(folded if stored.epoch == self._epoch else None, stored)
            except ValueError as error:
                # Trimmed or removed meanwhile, most likely; what is stored was true.
                _log.debug("run %r: the display is not folded up to the head: %s", self._keys.run_id, error)
                return await self._unpacked(stored)
            self._epoch, self._folded = stored.epoch, folded
            return stored._replace(position=folded.position, snapshot=folded.export()[self._view])

    async def _unpacked(self, stored: Display) -> Display:
        if stored.position is None:
            return stored
        try:
            snapshot = await asyncio.to_thread(unpack, stored.snapshot)
        except ValueError as error:
            _log.error("run %r: its display checkpoint cannot be read: %s", self._keys.run_id, error)
            return stored._replace(position=None, snapshot=b"")
        return stored._replace(snapshot=snapshot)

    async def _fold(self, folded: FoldedViews | None, stored: Display) -> FoldedViews:
        """Go on, from where somebody else came to or from what is stored, up to the head."""
        # Whoever only follows need not load what folds.
        from agui_relay.broker.folded import CheckpointError, FoldedViews, in_thread, rows_at_once

        position, head, view = stored.position or 0, stored.head, self._view
        if folded is None or not position <= folded.position <= head:
            snapshots = {view: await in_thread(unpack, stored.snapshot)} if position else None
            folded = await in_thread(FoldedViews, self._keys.run_id, position, snapshots, views=(view,))
        most = rows_at_once(head - position, stored.tail)
        while folded.position < head:
            log = await self._scripts.read_log(self._keys, first=folded.position + 1, most=most)
            if log.epoch != stored.epoch or not log.entries:
                raise CheckpointError(f"the frames from {folded.position + 1} on are gone")
            entries = [(entry, entry_fields(raw)) for entry, raw in log.entries[: head - folded.position]]
            await in_thread(folded.add, entries)
        return folded
