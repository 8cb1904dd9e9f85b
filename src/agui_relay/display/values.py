"""How content is held while it grows: text in pieces, anything else as JSON nobody can change behind our back."""

import json
import math
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Struct
from pydantic_core import from_json, to_json

from agui_relay.display.items import DisplayError

type Value = str | int | float | bool | Json | Text | Streamed | None
"""A value in the content of a record."""

# A snapshot holds a value within four levels, and must stay readable.
_SHALLOW = 190
_IN_SNAPSHOT = (b"[[[[", b"]]]]")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Json(Struct, frozen=True, eq=False, gc=False):
    """An object or a list, as compact JSON."""

    data: bytes


OMITTED = Json(b'{"omitted":true}')
"""Stands for a value that is too large to show."""


@dataclass(slots=True, eq=False)
class Text:
    """Text that grows by appending; joined only when it is asked for."""

    pieces: list[str] = field(default_factory=list)
    length: int = 0

    @classmethod
    def of(cls, text: str) -> "Text":
        """Return a text that begins with this."""
        return cls([text], len(text))

    def append(self, more: str, limit: int) -> bool:
        """Take more text, up to a length of ``limit`` characters in all. Tell whether something was cut off."""
        length = self.length + len(more)
        if length <= limit:
            self.pieces.append(more)
            self.length = length
            return False
        if limit > self.length:
            self.pieces.append(more[: limit - self.length])
            self.length = limit
        return True

    def value(self) -> str:
        """Return the text."""
        pieces = self.pieces
        if len(pieces) != 1:
            pieces[:] = ("".join(pieces),)
        return pieces[0]

    def tail(self, start: int) -> str:
        """Return the text from a place on, without touching what is before."""
        missing = self.length - start
        taken: list[str] = []
        for piece in reversed(self.pieces):
            if missing <= 0:
                break
            taken.append(piece if len(piece) <= missing else piece[len(piece) - missing :])
            missing -= len(piece)
        return "".join(reversed(taken))


class Streamed:
    """The value of a streamed tool-call delta, with the argument text of all deltas that continued it."""

    __slots__ = ("data", "text")

    def __init__(self, data: bytes, text: Text) -> None:
        self.data = data
        self.text = text

    @classmethod
    def of(cls, data: bytes) -> "Streamed | None":
        """Go on from a value as it was shown; None when it was too large to be."""
        try:
            arguments = _decode(data)["event"]["delta"]["args_delta"]
        except (KeyError, TypeError):
            return None
        return cls(data, Text.of(arguments)) if isinstance(arguments, str) else None

    def value(self) -> Any:
        """Return the value."""
        value = _decode(self.data)
        value["event"]["delta"]["args_delta"] = self.text.value()
        return value


def thawed(value: Value) -> Any:
    """Return a value as Python objects of its own."""
    kind = type(value)
    if kind is Json:
        return _decode(value.data)  # type: ignore[union-attr]
    if kind is Text or kind is Streamed:
        return value.value()  # type: ignore[union-attr]
    return value


def frozen(value: Any, *, trusted: bool = False) -> Value:
    """Return a JSON value as it is held. Numbers that are not finite become null, lone surrogates U+FFFD.

    ``trusted`` values were just read from JSON. One that nests deeper than a snapshot can is omitted.

    Raises:
        DisplayError: it has no JSON form.

    """
    kind = type(value)
    if kind is str:
        return value if value.isascii() else clean(value)
    if kind is dict or kind is list:
        return _shallow(encoded(value, trusted=trusted))
    if value is None or kind is bool or kind is int:
        return value  # type: ignore[no-any-return]
    if kind is float:
        return value if math.isfinite(value) else None
    data = encoded(value, trusted=trusted)
    first = data[:1]
    if first not in (b"{", b"["):
        return frozen(_decode(data))
    return _shallow(data)


def _shallow(data: bytes) -> "Json":
    if len(data) > 2 * _SHALLOW and data.count(b"{") + data.count(b"[") > _SHALLOW:
        before, behind = _IN_SNAPSHOT
        try:
            from_json(before + data + behind)
        except ValueError:
            return OMITTED
    return Json(data)


def encoded(value: Any, *, trusted: bool = False) -> bytes:
    """Return a JSON value as compact JSON.

    Raises:
        DisplayError: it has no JSON form.

    """
    try:
        data = _encode(value)
        # The encoder writes more than JSON knows: bytes, times, sets. Those do not come back as they were.
        if trusted or _decode(data) == value:
            return data
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass
    try:
        text = clean(json.dumps(value, ensure_ascii=False))
        return to_json(from_json(text), inf_nan_mode="null")
    except (TypeError, ValueError, RecursionError) as error:
        raise DisplayError(f"expected a JSON value, got a {type(value).__name__} that is none: {error}") from error


def size(value: Value) -> int:
    """Return the bytes of a value as compact JSON in UTF-8."""
    return len(value.data) if type(value) is Json else len(_encode(value))


def clean(text: str) -> str:
    """Return text as it is, with U+FFFD for lone surrogates, which no UTF-8 can carry."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
