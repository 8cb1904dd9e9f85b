"""What the frames of a run's log amount to on a display, for each view (no I/O): what a display checkpoint holds.

Workers make checkpoints of it, and readers who come late have it made up to the head.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from agui_relay.broker.announcement import VIEWS, View, is_hidden
from agui_relay.display import DisplayFold
from agui_relay.display.continuation import VERSION

type Entry = tuple[bytes, Mapping[bytes, bytes]]
"""One entry of a frame log: its id and its fields."""

_READ_BYTES: Final = 1024 * 1024
_MOST_ROWS: Final = 4096


class CheckpointError(ValueError):
    """The display of a run cannot be folded from what is stored."""


class NewerCheckpointError(CheckpointError):
    """The stored checkpoint was written by a newer release."""


class FoldedViews:
    """A run's display at one position, for each view (no I/O): a stored checkpoint, and the frames behind it."""

    def __init__(
        self,
        run_id: str,
        position: int = 0,
        stored: Mapping[View, bytes] | None = None,
        *,
        views: Sequence[View] = VIEWS,
    ) -> None:
        """Begin with what is stored for a position; position 0 is the empty display.

        Raises:
            NewerCheckpointError: it was written by a newer release.
            CheckpointError: it is missing, or none of ours.

        """
        self.position = position
        self.folded = 0
        """Bytes of the frames that were added."""
        self._folds = {view: _restored((stored or {}).get(view), run_id, position) for view in views}

    def add(self, entries: Sequence[Entry]) -> None:
        """Fold the next entries of the run's log.

        Raises:
            CheckpointError: they do not go on where this stands, or one is no frame.
            DisplayError: the frame of one is no AG-UI event.

        """
        frames: dict[View, list[bytes]] = {view: [] for view in self._folds}
        for number, (entry_id, fields) in enumerate(entries, self.position + 1):
            if entry_id != b"%d-0" % number:
                raise CheckpointError(f"expected the frame {number} in the log, got {entry_id.decode()}")
            try:
                frame, meta = fields[b"frame"], fields[b"meta"]
                for view, shown in frames.items():
                    if not is_hidden(view, meta):
                        shown.append(frame)
            except (LookupError, ValueError):
                raise CheckpointError(f"expected frame and meta at {number} in the log, got {list(fields)}") from None
            self.folded += len(frame)
        for view, shown in frames.items():
            self._folds[view].fold_frames(shown)
        self.position += len(entries)

    def export(self) -> dict[View, bytes]:
        """Return the snapshot of each view as JSON."""
        return {view: fold.save() for view, fold in self._folds.items()}


def rows_at_once(rows: int, size: int) -> int:
    """Return how many of the next `rows` entries, of about `size` bytes in all, to read from the log in one go."""
    return max(1, min(_MOST_ROWS, rows * _READ_BYTES // max(1, size)))


async def in_thread[**ParametersT, ResultT](
    work: Callable[ParametersT, ResultT], *arguments: ParametersT.args, **options: ParametersT.kwargs
) -> ResultT:
    """Call something in a thread; whatever it raises about what is stored is a CheckpointError."""

    def attempt() -> ResultT:
        try:
            return work(*arguments, **options)
        except (CheckpointError, MemoryError):
            raise
        except Exception as error:
            raise CheckpointError(f"{type(error).__name__}: {error}") from error

    return await asyncio.to_thread(attempt)


class _Continuation(msgspec.Struct):
    version: int = 0


class _Snapshot(msgspec.Struct):
    continuation: _Continuation


_decode_snapshot = msgspec.json.Decoder(_Snapshot).decode


def _restored(data: bytes | None, run_id: str, position: int) -> DisplayFold:
    if position == 0:
        return DisplayFold(run_id)
    if data is None:
        raise CheckpointError(f"the checkpoint at {position} is not stored")
    try:
        return DisplayFold.load(data)
    except ValueError as error:
        try:
            version = _decode_snapshot(data).continuation.version
        except msgspec.MsgspecError:
            version = 0
        if version > VERSION:
            raise NewerCheckpointError(f"it has version {version}, this release reads up to {VERSION}") from None
        raise CheckpointError(f"the checkpoint at {position} cannot be read: {error}") from error
