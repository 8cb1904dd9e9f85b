"""The items that there are most of, one more delta of a part, read whole in one decode.

Which of them are read here decides nothing: what is not, is read as any other item, to the same end. A worker reads
what decides in a projection; a publisher reads all there is, to tell that the bytes are canonical.
"""

from functools import lru_cache
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from agui_relay.source.items import MAX_SAFE_INTEGER, SHALLOW_BYTES, check_ids, check_levels
from agui_relay.source.reading import Delta, NativeItem, TimedProjection

_LONGEST_BYTES = 16 * 1024
# How such an item ends in its canonical form, before the digits of any time from 2001 to 2286.
_PROJECTION = b',"projection":{"timestamp":'
_ENDINGS = tuple(
    b'"part_delta_kind":"%b"},"event_kind":"part_delta"}%b' % (kind, _PROJECTION)
    for kind in (b"text", b"thinking", b"tool_call")
)
_TIMESTAMP = -len(b"1767225600000}}")
_BEGINNING = b'{"v":1,"source":"pydantic_ai",'
_SHOWN = slice(len(_BEGINNING), _TIMESTAMP - len(_PROJECTION))


class DeltaEvent(Struct, frozen=True, gc=False):
    """The event: a change of the part that is open at an index."""

    event_kind: Literal["part_delta"]
    delta: Delta
    index: int = -1
    part: None = None


class DeltaItem(NativeItem, frozen=True, gc=False):
    """A delta, as far as it decides anything."""

    event: DeltaEvent
    projection: TimedProjection


class WholeDelta(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """All that the usual delta says, in the order in which Pydantic AI writes the fields of each kind."""

    tool_name_delta: str | UnsetType | None = UNSET
    args_delta: str | UnsetType | None = UNSET
    tool_call_id: str | UnsetType | None = UNSET
    content_delta: str | UnsetType | None = UNSET
    signature_delta: str | UnsetType | None = UNSET
    provider_name: str | UnsetType | None = UNSET
    provider_details: UnsetType | None = UNSET
    citations_delta: UnsetType | None = UNSET
    part_delta_kind: str | UnsetType = UNSET


class WholeDeltaEvent(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """All that the event says."""

    index: Annotated[int, Meta(ge=-MAX_SAFE_INTEGER, le=MAX_SAFE_INTEGER)]
    delta: WholeDelta
    event_kind: Literal["part_delta"]


class WholeDeltaItem(NativeItem, frozen=True, gc=False):
    """A delta, with all that it says."""

    event: WholeDeltaEvent
    projection: TimedProjection
    terminal: ClassVar[None] = None
    """No delta ends a run."""


_decode = msgspec.json.Decoder(DeltaItem).decode
_decode_whole = msgspec.json.Decoder(WholeDeltaItem).decode
_encode = msgspec.json.Encoder().encode


def read_delta(data: bytes) -> DeltaItem | None:
    """Return the item in these bytes if it is a delta of text, thinking or arguments, else None."""
    size = len(data)
    if size > _LONGEST_BYTES or not data.endswith(_ENDINGS, 0, _TIMESTAMP):
        return None
    try:
        if not data.isascii():
            data.decode()  # What a decoder skips it does not look at.
        item = _decode(data)
        # Its ids may be long, and nothing nests in them.
        if size > SHALLOW_BYTES and size - len(item.thread_id) - len(item.run_id) > SHALLOW_BYTES:
            check_levels(data)
        return item
    except (ValueError, RecursionError):
        return None


def canonical_delta(data: bytes) -> WholeDeltaItem | None:
    """Return the item in these bytes if it is a delta and they are its canonical form, else None.

    Text, small integers and null have one form only; so bytes that are written again as they were are canonical.

    Raises:
        ItemError: an id of it is not valid.

    """
    if not data.endswith(_ENDINGS, 0, _TIMESTAMP):
        return None
    try:
        item = _decode_whole(data)
    except (ValueError, RecursionError):
        return None
    if _encode(item) != data:
        return None
    check_ids(item)
    return item


def observed(item: DeltaItem, data: bytes) -> bytes | None:
    """Return what a CUSTOM shows of an item read from these bytes: all between its source and projection.

    None when they are not in canonical form, in which alone that is so.
    """
    beginning = _identity(item.thread_id, item.run_id)
    if data.startswith(beginning) and data.startswith(
        b'%d,"occurred_at":"%b","event":{"' % (item.sequence, item.occurred_at.encode()), len(beginning)
    ):
        return data[_SHOWN]
    return None


@lru_cache(maxsize=1024)
def _identity(thread_id: str, run_id: str) -> bytes:
    return b'%b"thread_id":%b,"run_id":%b,"sequence":' % (_BEGINNING, _encode(thread_id), _encode(run_id))
