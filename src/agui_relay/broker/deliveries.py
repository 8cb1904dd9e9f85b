"""What a reader is given, besides notices: events, and displays in the place of events."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import msgspec

from agui_relay.broker.announcement import Cursor

if TYPE_CHECKING:
    from agui_relay.display import DisplayFold, DisplaySnapshot

_decode_event = msgspec.json.Decoder().decode


class Delivery(msgspec.Struct, eq=False):
    """One AG-UI event, whole.

    Attributes:
        position: Position of its last frame in the run's log.
        data: The event as JSON; the very bytes of its frame when it was one.

    """

    position: int
    data: bytes
    _cursor: Cursor
    _event: Mapping[str, Any] | None = None

    @property
    def cursor(self) -> str:
        """Where to resume once this is dealt with: `epoch:position`."""
        return str(self._cursor)

    @property
    def event(self) -> Mapping[str, Any]:
        """The event as a JSON mapping, decoded when first asked for."""
        if self._event is None:
            self._event = cast("Mapping[str, Any]", _decode_event(self.data))
        return self._event

    def __repr__(self) -> str:
        return f"Delivery(cursor={self.cursor!r}, data={self.data[:60]!r}, bytes={len(self.data)})"


class DisplayCheckpoint:
    """What all events up to `position` have made of the display, instead of these events.

    It takes the place of whatever was made of earlier deliveries; the deliveries after it go on from it.
    """

    def __init__(self, position: int, data: bytes, cursor: Cursor, run_id: str) -> None:
        self.position = position
        """Position of the last frame that it covers; 0 when nothing has been stored for the run yet."""
        self.cursor = str(cursor)
        """Where to resume once this is dealt with: `epoch:position`."""
        self._data = data
        self._run_id = run_id

    @cached_property
    def data(self) -> bytes:
        """The snapshot as JSON on one line, of what the subscription's view shows."""
        if self._data:
            return self._data
        from agui_relay.display import DisplayFold

        return DisplayFold(self._run_id).export().model_dump_json().encode()

    @cached_property
    def snapshot(self) -> DisplaySnapshot:
        """The snapshot, read when first asked for. ContinuationError when a newer release has written it."""
        from agui_relay.display import DisplaySnapshot

        return DisplaySnapshot.read(self.data)

    def fold(self) -> DisplayFold:
        """Return a fold that goes on from here with the deliveries that follow.

        What is stored counts frames: give `fold.fold([delivery.event], position=delivery.position)`, and in the view
        `full` the items are those of every other reader. In `chat` stream ids, and the ids made of them, may differ.
        """
        from agui_relay.display import DisplayFold

        return DisplayFold.restore(self.snapshot)

    def __repr__(self) -> str:
        return f"DisplayCheckpoint(cursor={self.cursor!r}, data={self.data[:60]!r}, bytes={len(self.data)})"
