"""The JSON that clients see of tool arguments, tool results and an application's own payloads.

Text, numbers and plain structures go as they are. Media are described by kind and size, and what has no JSON form (an
arbitrary object, a number that is not finite, a cycle) is replaced by a marker that names no more than its type.
"""

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock_time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from agui_relay.source import media
from agui_relay.source.plain import CYCLE, NOT_FINITE, TOO_DEEP, clean_text, omitted

type Json = Any
type Event = dict[str, Any]

MAX_LEVELS = 128
"""Lists and objects nest at most this deep. A model or dataclass counts as one."""

_INTEGER_BITS = 14_000  # Python writes no longer integer in decimal without being asked to.
_WRITTEN_AS_TEXT: tuple[type, ...] = (PurePath, Decimal, UUID, Enum, date, clock_time, timedelta)
_LISTS = (list, tuple, set, frozenset)


def make_event(kind: str, **members: Any) -> Event:
    """Return an AG-UI event as a JSON object with the time in milliseconds; members that are None are left out."""
    event: Event = {"type": kind}
    for name, value in members.items():
        if value is not None:
            event[name] = clean_text(value) if type(value) is str else value
    event["timestamp"] = time.time_ns() // 1_000_000
    return event


def public_value(value: object) -> Json:
    """Return the public JSON form of any value; never raises because of what the value is."""
    return _public(value, 0, set())


def public_text(value: object) -> str:
    """Return a tool's result as text: a string as it is, anything else as JSON."""
    return clean_text(value) if isinstance(value, str) else json.dumps(public_value(value), ensure_ascii=False)


def arguments_text(value: object) -> str | None:
    """Return the arguments of a tool call as text: a string as it is, anything else as compact JSON."""
    if value is None:
        return None
    if isinstance(value, str):
        return clean_text(value)
    return json.dumps(public_value(value), ensure_ascii=False, separators=(",", ":"))


def scalar(value: object) -> Json:
    """Return text, a number or a flag as it is; a number that is not finite as None, anything else as a marker."""
    if isinstance(value, str):
        return clean_text(str.__str__(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):  # bool is one
        return value if value.bit_length() <= _INTEGER_BITS else omitted(value)
    if isinstance(value, Decimal):
        return str(value)
    return None if value is None else omitted(value)


def _public(value: object, level: int, active: set[int]) -> Json:
    if value is None or isinstance(value, str | int):
        return scalar(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else NOT_FINITE
    if media.is_bytes(value):
        return media.describe_bytes(value)
    if isinstance(value, media.native_types()):
        return _content(value)
    if level >= MAX_LEVELS:
        return TOO_DEEP
    if id(value) in active:
        return CYCLE
    active.add(id(value))
    try:
        if isinstance(value, _LISTS):
            return [_public(entry, level + 1, active) for entry in value]
        plain, members = _read(value)
        return _public(plain, level, active) if members is None else _object(members, level, active)
    finally:
        active.discard(id(value))


def _read(value: object) -> tuple[Json, list[tuple[object, object]] | None]:
    """Return the members of an object, or else the plain value that stands for it."""
    try:
        if isinstance(value, datetime):
            return value.astimezone(UTC).isoformat(), None
        if isinstance(value, _WRITTEN_AS_TEXT):
            return str(value), None
        if isinstance(value, Mapping):
            return None, list(value.items())
        if isinstance(value, BaseModel):
            if not media.holds_native(value):
                # Its own way of writing itself is the public one. What comes back is plain, but not all of it is JSON.
                return value.model_dump(mode="json", warnings=False), None
            shown = [name for name, field in type(value).model_fields.items() if not field.exclude]
            return None, [*((name, getattr(value, name)) for name in shown), *(value.model_extra or {}).items()]
        if is_dataclass(value) and not isinstance(value, type):
            return None, [(field.name, getattr(value, field.name)) for field in fields(value)]
    except Exception:
        pass  # An object of the application that cannot be read.
    return omitted(value), None


def _content(value: Any) -> Json:
    """Return native content without its bytes, and without the metadata that is for the application alone."""
    described = media.describe(value)
    if described is None or not described[1].display:
        return {"payload_omitted": True}
    content = described[0]
    if isinstance(content, str):
        return {"content": clean_text(content), "kind": "text-content"}
    return {name: scalar(member) for name, member in content.items()}


def _object(members: list[tuple[object, object]], level: int, active: set[int]) -> dict[str, Json]:
    taken = {clean_text(str.__str__(key)) for key, _ in members if isinstance(key, str)}
    result: dict[str, Json] = {}
    for key, value in members:
        if isinstance(key, str):
            name = clean_text(str.__str__(key))
        else:
            name = _free_name(key, taken.__contains__)
            taken.add(name)
        result[name] = _public(value, level + 1, active)
    return result


def _free_name(key: object, is_taken: Callable[[str], bool]) -> str:
    """Return a name for a key that is no text; one that another key has already gets its type added."""
    is_plain = key is None or isinstance(key, (int, float, *_WRITTEN_AS_TEXT))
    base = clean_text(str(key)) if is_plain else omitted(key)
    if not is_taken(base):
        return base
    typed = f"{base} ({type(key).__name__})"
    name, number = typed, 1
    while is_taken(name):
        number += 1
        name = f"{typed} {number}"
    return name
