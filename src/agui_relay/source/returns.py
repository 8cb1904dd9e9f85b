"""The items that are largest, what a tool returned, read whole in one decode.

Which of them are read here decides nothing: what is not, is read as any other item, to the same end.
"""

from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from agui_relay.source.items import MAX_LEVELS, check_content, check_levels
from agui_relay.source.reading import SAYS_NOTHING, NativeItem, TimedProjection, plain_number

# How the event of such an item begins in its canonical form, and behind how many bytes of ids at most it is looked for.
_BEGINNING = b',"event":{"part":{"tool_name":"'
_BEGINS_WITHIN = 1024
# Levels around the content: the item, its event, the part.
_LEVELS_AROUND = 3
_FEW_VALUES = MAX_LEVELS - _LEVELS_AROUND


class ReturnPart(Struct, frozen=True, forbid_unknown_fields=True):
    """What a call came to, when that is a success; no field may be unknown, so that all of it was looked at."""

    part_kind: Literal["tool-return"]
    content: Any = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    tool_kind: str | None = None
    metadata: Raw = Raw()
    timestamp: str | None = None
    outcome: Literal["success"] | None = None
    retry: Raw = Raw()


class ReturnEvent(Struct, frozen=True, forbid_unknown_fields=True):
    """As a ``NativeEvent``; no field may be unknown here either."""

    event_kind: Literal["function_tool_result", "output_tool_result"]
    part: ReturnPart
    content: Raw = Raw()


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
        item = _decode(data)
        event, part, content = item.event, item.event.part, item.projection.content
        check_content(content)
        # What a decoder keeps raw it does not look at.
        whole = all(raw in SAYS_NOTHING for raw in (part.metadata, part.retry, event.content, content))
        if not (whole or data.isascii()):
            data.decode()
        if not (whole and _is_small(part.content)):
            check_levels(data)
        return item
    except (ValueError, RecursionError):
        return None


def _is_small(value: Any) -> bool:
    """Tell whether a value holds so few others that they cannot nest too deep; it takes no longer if not."""
    pending, seen = [value], 1
    for known in pending:
        if type(known) is dict or type(known) is list:
            seen += len(known)
            if seen > _FEW_VALUES:
                return False
            pending += known.values() if type(known) is dict else known
    return True
