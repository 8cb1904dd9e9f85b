"""The wire form of a Harness item: what is a valid item, and which bytes are its canonical form.

An item is one JSON object with the keys ``v, source, thread_id, run_id, sequence, occurred_at``, then ``event`` or
``result``, then ``projection``. Canonical bytes are compact UTF-8 with those keys in that order, finite numbers, no
byte below 0x20 and no lone surrogate. Only canonical bytes are stored, so that the JSON of an event can go into a frame
without being looked at.
"""

import re
from datetime import UTC, datetime
from itertools import accumulate
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct
from pydantic_core import from_json, to_json

from agui_relay.source.errors import ItemError
from agui_relay.source.result import read_result

MAX_ID_BYTES = 256
"""Thread and run ids are at most this long, in UTF-8 bytes."""

MAX_LEVELS = 196
"""Objects and lists nest at most this deep in an item; a frame adds one level, and readers stop at 200."""

MAX_VALUE_LEVELS = 184
"""Objects and lists nest at most this deep in one value of an event."""

MAX_SAFE_INTEGER = 2**53 - 1
"""The largest integer that every JSON reader keeps."""

type Milliseconds = Annotated[int, Meta(ge=-MAX_SAFE_INTEGER, le=MAX_SAFE_INTEGER)]
type SequenceNumber = Annotated[int, Meta(ge=0, le=MAX_SAFE_INTEGER)]
type OccurredAt = Annotated[str, Meta(max_length=64)]
type Source = Literal["pydantic_ai", "capability", "harness", "result"]
type Terminal = Literal["finished", "suspended", "cancelled", "failed"]

_NOTHING = Raw()


class Projection(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """What only the live object could tell, and no client may see in a CUSTOM value. All of it is optional.

    ``timestamp``: milliseconds since the Unix epoch; else computed from ``occurred_at``.
    ``call_id`` and ``content``: of a successful tool result, its call and its readable content, a JSON string or list
    of AG-UI content parts; else taken from ``event.part``.
    ``failure``: of a failed, denied or retried tool result, the text that a display shows.
    ``arguments``: of a completed tool call, its argument text; else taken from ``event.part.args``.
    """

    timestamp: Milliseconds | None = None
    call_id: str | None = None
    content: Raw = _NOTHING
    failure: str | None = None
    arguments: str | None = None


class HarnessItem(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True, tag_field="v", tag=1):
    """One public observation of a run: an event, or the terminal result.

    ``event`` is the public JSON of the source event, and ``source`` says how to read it. ``result`` is there instead
    when ``source`` is ``"result"``. An item is known by ``run_id`` and ``sequence``, which strictly increases.
    """

    source: Literal["pydantic_ai", "capability", "harness", "result"]
    thread_id: str
    run_id: str
    sequence: SequenceNumber
    occurred_at: OccurredAt
    event: Raw = _NOTHING
    result: Raw = _NOTHING
    projection: Projection | None = None

    @property
    def terminal(self) -> Terminal | None:
        """How this item ends its run, or None when it does not."""
        return None if self.source != "result" else _TERMINALS[read_result(self.result).status]

    @property
    def timestamp(self) -> int:
        """When the item occurred, in milliseconds since the Unix epoch."""
        projection = self.projection
        if projection is not None and projection.timestamp is not None:
            return projection.timestamp
        return _milliseconds(self.occurred_at)


_compact = msgspec.json.format
# What is left of JSON to see what its numbers look like: digits as 0, exponents, and what a value can begin behind.
_NUMBERS = bytes.maketrans(b"123456789E", b"000000000e")
_NO_NUMBERS = bytes(set(range(256)) - set(b"0123456789eE.:,["))
_EXPONENT = re.compile(rb"[:,\[]0[0.]*e")
_MANY_DIGITS = b"0" * 300
_BACKSLASH = ord("\\")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(HarnessItem).decode

_PREFIX = b'{"v":1,"source":"'
_KEYS = ("v", "source", "thread_id", "run_id", "sequence", "occurred_at", "event", "result", "projection")
_TERMINALS: dict[str, Terminal] = {
    "completed": "finished",
    "suspended": "suspended",
    "cancelled": "cancelled",
    "failed": "failed",
}

# The ids of a run come with each of its items; those found valid need no second look.
_VALID_IDS: set[str] = set()
_VALID_IDS_KEPT = 4096
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair, which is one character
    rb"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"  # one half of a pair
    rb"|\\.",
    re.DOTALL,
)
SHALLOW_BYTES = 2 * MAX_LEVELS + 90
"""In so few bytes nothing can nest too deep: two a level, and what every item has."""

_LONG_BYTES = 4096
_CONTROL_BYTES = bytes(range(0x20))
_OBJECT = ord("{")
_CONTENT = b'"['
# What is left of JSON to see how deep it nests; and its brackets as signed bytes, 1 for down and -1 for up.
_NO_STRUCTURE = bytes(set(range(256)) - set(b'"{[]}'))
_STEPS = bytes.maketrans(b"{[]}", b"\x01\x01\xff\xff")


def encode_item(item: HarnessItem) -> bytes:
    """Return the canonical bytes of an item.

    Raises:
        ItemError: the item is not valid: a blank, long or unprintable id, a missing event, and so on.

    """
    if type(item) is not HarnessItem:
        raise ItemError(f"expected a HarnessItem, got {type(item).__name__}")
    if item.event is not _NOTHING and item.event == _NOTHING:
        item = msgspec.structs.replace(item, event=_NOTHING)
    if item.result is not _NOTHING and item.result == _NOTHING:
        item = msgspec.structs.replace(item, result=_NOTHING)
    try:
        data = _encode(item)
    except (TypeError, ValueError) as error:
        raise ItemError(f"the item has no JSON form: {error}") from error
    if len(data.translate(None, _CONTROL_BYTES)) != len(data):
        # Somebody else wrote the event. A line break in it would break the lines that frames travel on.
        return canonical_item(data)[1]
    _checked(data)
    return data


def decode_item(data: bytes) -> HarnessItem:
    """Return the item that these bytes hold. Any JSON form is accepted; canonical bytes take the fast way.

    Raises:
        ItemError: not JSON, not an item, or an item that breaks a bound. The message says where.

    """
    if not data.startswith(_PREFIX):
        return canonical_item(data)[0]
    return _checked(data)


def canonical_item(data: bytes) -> tuple[HarnessItem, bytes]:
    """Return the item of foreign bytes, and its canonical bytes.

    Numbers are written as Pydantic writes them; escaped lone surrogates become U+FFFD.

    Raises:
        ItemError: as :func:`decode_item`, and for numbers that are not finite.

    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ItemError(f"expected the bytes of an item, got {type(data).__name__}")
    data = bytes(data)
    if data.startswith(_PREFIX):
        try:
            item = _checked(data)
            projection = item.projection
            # Written again, the envelope shows all that is not as we would write it; what is raw in it does not.
            if (
                _is_canonical(bytes(item.event if item.result is _NOTHING else item.result))
                and (projection is None or projection.content is _NOTHING or _is_canonical(bytes(projection.content)))
                and _encode(item) == data
            ):
                return item, data
        except ValueError:
            pass  # The long way says what is wrong, or repairs it.
    value = _parsed(data)
    if not isinstance(value, dict):
        raise ItemError(f"expected the JSON object of an item, got {type(value).__name__}")
    if type(value.get("v")) is not int or value["v"] != 1:
        raise ItemError(f"expected the item's version `v` to be 1, got {value.get('v')!r:.40}")
    item = _checked(_finite({key: value.pop(key) for key in _KEYS if key in value} | value))
    canonical = _encode(item)
    return item, data if canonical == data else canonical


def encode_made(item: HarnessItem) -> bytes:
    """Return the canonical bytes of an item that an adapter made: only its ids and its depth are left to check."""
    data = _encode(item)
    check_ids(item)
    check_levels(data)
    return data


def _is_canonical(data: bytes) -> bool:
    """Tell, rather no than wrongly yes, whether JSON is compact, without escapes and with plain numbers only.

    The order of an event's keys and a number's trailing zeros are the writer's business. Raises ValueError for what is
    not JSON.
    """
    # To look for one byte costs a tenth of looking for two.
    if (_BACKSLASH in data and b"\\u" in data) or _compact(data, indent=-1) != data:
        return False
    # An exponent, or more digits than a double holds, can be infinity in disguise. Ids have an `e` behind a digit too.
    numbers = data.translate(_NUMBERS, _NO_NUMBERS)
    return not (b"0e" in numbers and _EXPONENT.search(numbers)) and (
        len(numbers) < len(_MANY_DIGITS) or _MANY_DIGITS not in numbers
    )


def _checked(data: bytes) -> HarnessItem:
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise ItemError(f"the item is not UTF-8: {error}") from error
    check_levels(data)
    try:
        item = _decode(data)
    except msgspec.ValidationError as error:
        raise ItemError(f"not a valid Harness item: {error}") from error
    except msgspec.DecodeError as error:
        # Escaped lone surrogates are JSON all the same.
        if b"\\u" in data and (repaired := _repaired(data)) != data:
            return canonical_item(repaired)[0]
        raise ItemError(f"the item is not JSON: {error}") from error
    check_ids(item)
    if item.source == "result":
        if item.result is _NOTHING or item.event is not _NOTHING:
            raise ItemError("an item with source 'result' needs `result`, and has no `event`")
        read_result(item.result)
    elif item.event is _NOTHING or item.result is not _NOTHING:
        raise ItemError(f"an item with source {item.source!r} needs `event`, and has no `result`")
    elif memoryview(item.event)[0] != _OBJECT:
        raise ItemError("expected an object - at `$.event`")
    projection = item.projection
    if projection is None or projection.timestamp is None:
        _milliseconds(item.occurred_at)
    if projection is not None:
        check_content(projection.content)
    return item


def check_content(content: Raw) -> None:
    """Make sure that the content of a projection, if there is any, is text or a list.

    Raises:
        ItemError: it is something else.

    """
    if content != _NOTHING and memoryview(content)[0] not in _CONTENT:
        raise ItemError("expected a string or a list of content parts - at `$.projection.content`")


def check_ids(item: Any) -> None:
    """Make sure that the thread and the run of an item have ids within bounds.

    Raises:
        ItemError: blank, longer than :data:`MAX_ID_BYTES`, or with a control character.

    """
    if item.thread_id not in _VALID_IDS:
        _check_id("thread_id", item.thread_id)
    if item.run_id not in _VALID_IDS:
        _check_id("run_id", item.run_id)


def _check_id(name: str, value: str) -> None:
    size = len(value.encode())
    if size > MAX_ID_BYTES:
        raise ItemError(f"expected at most {MAX_ID_BYTES} bytes, got {size} - at `$.{name}`")
    if not value.strip():
        raise ItemError(f"expected an id, got blank text - at `$.{name}`")
    if _CONTROL.search(value):
        raise ItemError(f"expected no control character, got {value!r} - at `$.{name}`")
    if len(_VALID_IDS) >= _VALID_IDS_KEPT:
        _VALID_IDS.clear()
    _VALID_IDS.add(value)


def _has_few_brackets(data: bytes) -> bool:
    """Tell whether brackets come so seldom in an item that they cannot nest too deep."""
    if len(data) < _LONG_BYTES:
        return data.count(b"{") + data.count(b"[") <= MAX_LEVELS
    # In a long one, looking for some is faster than counting all.
    for bracket in (b"{", b"["):
        place = -1
        for _ in range(MAX_LEVELS // 2 + 1):
            place = data.find(bracket, place + 1)
            if place < 0:
                break
        else:
            return False
    return True


def check_levels(data: bytes) -> None:
    """Make sure that an item nests no deeper than it may.

    Raises:
        ItemError: it has more than :data:`MAX_LEVELS` levels.

    """
    if len(data) <= SHALLOW_BYTES or _has_few_brackets(data):
        return
    # Not within strings: these are emptied of all but brackets, then taken out. Two quotes side by side change nothing.
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    structure = data.translate(None, _NO_STRUCTURE).replace(b'""', b"")
    brackets = b"".join(structure.split(b'"')[::2])
    # A table is wide, not deep: without what is empty, one or two levels each time, soon nothing is left of it.
    wide = brackets
    for levels in range(2, MAX_LEVELS, 2):
        narrow = wide.replace(b"[]", b"").replace(b"{}", b"")
        if narrow.count(b"[") + narrow.count(b"{") + levels <= MAX_LEVELS:
            return
        if len(narrow) > len(wide) // 2:
            break
        wide = narrow
    steps = brackets.translate(_STEPS)
    deepest = max(accumulate(memoryview(steps).cast("b")), default=0)
    if deepest > MAX_LEVELS:
        raise ItemError(f"expected at most {MAX_LEVELS} levels of objects and lists, got {deepest}")


def _parsed(data: bytes) -> Any:
    try:
        return from_json(data, allow_inf_nan=False)
    except ValueError as error:
        repaired = _repaired(data)
        if repaired == data:
            raise ItemError(f"the item is not JSON: {error}") from error
    try:
        return from_json(repaired, allow_inf_nan=False)
    except ValueError as error:
        raise ItemError(f"the item is not JSON: {error}") from error


def _repaired(data: bytes) -> bytes:
    """Replace escaped lone surrogates, which are JSON and no text, with U+FFFD."""
    return _ESCAPES.sub(lambda match: b"\\ufffd" if len(match[0]) == 6 else match[0], data)


def _finite(value: Any) -> bytes:
    try:
        data = to_json(value, inf_nan_mode="constants")
        # 1e999 is JSON and reads as infinity.
        if (b"Infinity" in data or b"NaN" in data) and to_json(value, inf_nan_mode="null") != data:
            raise ItemError("expected finite numbers, got one that is not")
    except ValueError as error:
        if isinstance(error, ItemError):
            raise
        raise ItemError(f"the item has no JSON form: {error}") from error
    return data


def _milliseconds(occurred_at: str) -> int:
    try:
        at = datetime.fromisoformat(occurred_at)
        # Without an offset it means UTC; local time would depend on the machine that asks.
        return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise ItemError(f"expected an ISO 8601 time, got {occurred_at!r} - at `$.occurred_at`") from error
