"""The items that are largest, what a tool returned, read whole in one decode.

Which of them are read here decides nothing: what is not, is read as any other item, to the same end.
"""

from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from agui_relay.source.items import check_levels
from agui_relay.source.reading import Delta, NativeItem, TimedProjection, plain_number

# How the event of such an item begins in its canonical form, and behind how many bytes of ids at most it is looked for.
_BEGINNING = b',"event":{"part":{"tool_name":"'
_BEGINS_WITHIN = 1024


class ReturnPart(Struct, frozen=True):
    """What a call came to, when that is a success: as a ``Part``, its content read."""

    part_kind: Literal["tool-return"]
    content: Any = None
    id: str | None = None
    signature: str | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    args: Raw = Raw()
    outcome: Literal["success"] | None = None


class ReturnEvent(Struct, frozen=True):
    """As a ``NativeEvent``."""

    event_kind: Literal["function_tool_result", "output_tool_result"]
    part: ReturnPart
    index: int = -1
    delta: Delta | None = None


class ReturnProjection(TimedProjection, frozen=True, gc=False):
    """As an item's projection."""

    call_id: str | None = None
    content: Raw = Raw()
    failure: str | None = None
    arguments: str | None = None


class ReturnItem(NativeItem, frozen=True, gc=True):
    """What a tool returned."""

    event: ReturnEvent
    projection: ReturnProjection


_decode = msgspec.json.Decoder(ReturnItem, float_hook=plain_number).decode


def read_return(data: bytes) -> ReturnItem | None:
    """Return the item in these bytes if it is what a tool returned, else None."""
    if data.find(_BEGINNING, 0, _BEGINS_WITHIN) < 0:
        return None
    try:
        if not data.isascii():
            data.decode()  # What a decoder skips it does not look at.
        check_levels(data)
        return _decode(data)
    except (ValueError, RecursionError):
        return None
