"""The public JSON form of any live value: what it says, without media, and readable where it has no such form.

Nothing here fails on a value. What cannot be written is replaced by a marker that says what was omitted.
"""

import math
import sys
from dataclasses import is_dataclass
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_json

from agui_relay.source import media
from agui_relay.source.items import MAX_VALUE_LEVELS

type Json = Any

NOT_FINITE = "[omitted: not a finite number]"
CYCLE = "[omitted: a value that contains itself]"
TOO_DEEP = f"[omitted: nested deeper than {MAX_VALUE_LEVELS} levels]"
_OMITTED: dict[str, Json] = {"payload_omitted": True}

# Python writes no longer integer than this in decimal without being asked to.
_INTEGER_BITS = 14_000

_any: TypeAdapter[Any] = TypeAdapter(Any)


def clean_text(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot carry, with U+FFFD; a pair of them becomes its character."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean(value: Json, not_finite: Json = None) -> Json:
    """Return a JSON value that can be written: no lone surrogates, no endless nesting, finite numbers."""
    return _clean(value, 0, not_finite)


def encoded(value: Json) -> bytes:
    """Return the canonical bytes of a cleaned JSON value."""
    return to_json(value, inf_nan_mode="null")


def omitted(value: object) -> str:
    """Return the marker for a value without a JSON form."""
    return f"[omitted: {clean_text(type(value).__name__)} has no JSON form]"


def _clean(value: Json, level: int, not_finite: Json) -> Json:
    kind = type(value)
    if kind is str:
        return value if value.isascii() else clean_text(value)
    if kind is float:
        return value if math.isfinite(value) else not_finite
    if kind is int:
        return value if value.bit_length() <= _INTEGER_BITS else omitted(value)
    if kind is dict or kind is list:
        if level >= MAX_VALUE_LEVELS:
            return TOO_DEEP
        if kind is list:
            return [_clean(entry, level + 1, not_finite) for entry in value]
        return {clean_text(str(key)): _clean(entry, level + 1, not_finite) for key, entry in value.items()}
    return value if value is None or kind is bool else omitted(value)


def tool_value(value: Any, not_finite: Json = NOT_FINITE) -> Json:
    """Return what a tool gave, as JSON: native content described, records through their own class."""
    return _tool_value(value, 0, set(), not_finite)


def _tool_value(value: Any, level: int, active: set[int], not_finite: Json) -> Json:
    if value is None or type(value) in (str, bool, int, float):
        return _clean(value, 0, not_finite)
    if media.is_bytes(value):
        return media.describe_bytes(value)
    if isinstance(value, media.native_types()):
        described = media.describe(value)
        shown = described is not None and described[1].display
        return _clean(described[0], level, None) if described is not None and shown else _OMITTED
    if isinstance(value, dict | list | tuple):
        if level >= MAX_VALUE_LEVELS:
            return TOO_DEEP
        if id(value) in active:
            return CYCLE
        active.add(id(value))
        try:
            if isinstance(value, dict):
                return {_key(key): _tool_value(entry, level + 1, active, not_finite) for key, entry in value.items()}
            return [_tool_value(entry, level + 1, active, not_finite) for entry in value]
        finally:
            active.discard(id(value))
    if _is_record(value):
        # Its own way of writing itself may flatten or rename media, so looking at the outcome would be too late.
        return _OMITTED if media.holds_native(value) else _written(value, adapter_of(type(value)), level, not_finite)
    return _written(value, _any, level, not_finite)


def _written(value: Any, adapter: TypeAdapter[Any] | None, level: int, not_finite: Json) -> Json:
    if adapter is None:
        return omitted(value)
    try:
        return _clean(adapter.dump_python(value, mode="json", warnings="error"), level, not_finite)
    except Exception:
        return omitted(value)


def _key(key: Any) -> str:
    if type(key) is str:
        return clean_text(key)
    try:
        return clean_text(next(iter(_any.dump_python({key: None}, mode="json"))))
    except Exception:
        return omitted(key)


def record(value: Any) -> dict[str, Json]:
    """Return a record (dataclass or model) through its own class; field by field where media or a fault is in the way.

    What is left out by its class stays out. A ``metadata`` field without a JSON form, or with media, is the
    application's own and becomes null.
    """
    adapter = adapter_of(type(value))
    if adapter is not None and not media.holds_payload(value):
        try:
            return _as_object(_clean(_dump(adapter, value), 0, None))
        except Exception:
            pass  # One of its fields has no JSON form; the others have.
    return _by_field(value, adapter, 0, set())


def _by_field(value: Any, adapter: TypeAdapter[Any] | None, level: int, active: set[int]) -> dict[str, Json]:
    if adapter is None or id(value) in active or level >= MAX_VALUE_LEVELS:
        return {"value": CYCLE if id(value) in active else omitted(value)}
    active.add(id(value))
    result: dict[str, Json] = {}
    for name, written in _fields(adapter).items():
        content = getattr(value, name, None)
        if not media.holds_payload(content):
            try:
                result.update(_as_object(_clean(_dump(adapter, value, include={name}), level, None)))
                continue
            except Exception:
                pass  # Said below what it was.
        if written is not None:
            result[written] = None if name == "metadata" else _field(content, level + 1, active)
    active.discard(id(value))
    return result


def _field(value: Any, level: int, active: set[int]) -> Json:
    if level >= MAX_VALUE_LEVELS:
        return TOO_DEEP
    if media.is_bytes(value):
        return media.describe_bytes(value)
    if media.is_payload(value):
        return _clean(media.describe_medium(value), level, None)
    if isinstance(value, dict | list | tuple):
        if id(value) in active:
            return CYCLE
        active.add(id(value))
        try:
            if isinstance(value, dict):
                return {_key(key): _field(entry, level + 1, active) for key, entry in value.items()}
            return [_field(entry, level + 1, active) for entry in value]
        finally:
            active.discard(id(value))
    if _is_record(value):
        adapter = adapter_of(type(value))
        if adapter is not None and not media.holds_payload(value):
            try:
                return _clean(_dump(adapter, value), level, None)
            except Exception:
                pass  # Field by field, then.
        return _by_field(value, adapter, level, active)
    if callable(value):
        return None
    return _written(value, _any, level, None)


def _dump(adapter: TypeAdapter[Any], value: Any, include: set[str] | None = None) -> Any:
    return adapter.dump_python(value, mode="json", by_alias=True, warnings="error", include=include)


def _as_object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {"value": value}


def _is_record(value: Any) -> bool:
    return isinstance(value, BaseModel) or (is_dataclass(value) and not isinstance(value, type))


def _fields(adapter: TypeAdapter[Any]) -> dict[str, str | None]:
    """Return the fields of a record's class and the names they are written under, None for those it leaves out."""
    schema: Any = adapter.core_schema
    known = {entry["ref"]: entry for entry in schema.get("definitions", ()) if "ref" in entry}
    while schema["type"] not in ("model-fields", "dataclass-args"):
        below = known.get(schema.get("schema_ref")) if schema["type"] == "definition-ref" else schema.get("schema")
        if not isinstance(below, dict):
            return {}
        schema = below
    entries = schema["fields"]
    listed = entries.items() if isinstance(entries, dict) else ((entry["name"], entry) for entry in entries)
    return {
        name: None if entry.get("serialization_exclude") else entry.get("serialization_alias", name)
        for name, entry in listed
    }


def adapter_of(kind: type) -> TypeAdapter[Any] | None:
    """Return what writes values of a class, or None when the class does not say how."""
    if kind in _adapters:
        return _adapters[kind]
    messages = sys.modules.get("pydantic_ai.messages")
    written: type = kind
    if messages is not None and kind is messages.UnknownCapabilityEvent:
        written = messages.CapabilityEvent
    adapter: TypeAdapter[Any] | None
    try:
        adapter = TypeAdapter(written)
    except Exception:
        adapter = None
    if len(_adapters) >= _ADAPTERS_KEPT:
        _adapters.clear()
    _adapters[kind] = adapter
    return adapter


_adapters: dict[type, TypeAdapter[Any] | None] = {}
_ADAPTERS_KEPT = 1024
