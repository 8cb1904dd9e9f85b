"""Which live values carry media, and how they are described without their bytes.

The classes are those of pydantic_ai and a13n_harness. They are looked up where they are loaded already and never
imported: a value cannot be an instance of a class that nobody loaded.
"""

import sys
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, Protocol, cast

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

_NATIVE_NAMES = ("BinaryContent", "ImageUrl", "AudioUrl", "VideoUrl", "DocumentUrl", "UploadedFile", "TextContent")
_WEB = ("https://", "http://")
_LISTS = (list, tuple, set, frozenset, deque)


class ContentMetadata(BaseModel):
    """How content is to be presented, and opaque references of the host; never instructions, never authority.

    ``display``: whether a client shows it. ``source_id``: what it belongs to. ``media``: whether it describes a medium.
    """

    model_config = ConfigDict(frozen=True, extra="allow")
    display: bool = True
    source_id: str | None = None
    media: bool = False

    @model_validator(mode="before")
    @classmethod
    def _accept_other(cls, value: Any) -> Any:
        """Take the class of the same name of a13n-harness too."""
        if isinstance(value, BaseModel) and not isinstance(value, cls) and hasattr(value, "display"):
            return value.model_dump()
        return value

    @classmethod
    def from_native(cls, metadata: object) -> "ContentMetadata":
        """Read a metadata dict; anything else, and a dict that does not fit, gives the defaults."""
        if not isinstance(metadata, dict):
            return cls()
        try:
            return cls.model_validate(metadata)
        except ValidationError:
            return cls()


class Presentation(Protocol):
    """The one thing that decides whether content is shown; either ``ContentMetadata`` has it."""

    @property
    def display(self) -> bool:
        """Whether a client shows the content."""


@lru_cache(maxsize=4)
def _native_types(messages: Any) -> tuple[type, ...]:
    return tuple(getattr(messages, name) for name in _NATIVE_NAMES)


def native_types() -> tuple[type, ...]:
    """Return the classes of native content that exist in this process; none when no agent library is loaded."""
    messages = sys.modules.get("pydantic_ai.messages")
    known = () if messages is None else _native_types(messages)
    content = sys.modules.get("a13n_harness.content")
    item = getattr(content, "ContentItem", None)
    return (item, *known) if isinstance(item, type) else known


def describe(value: Any) -> tuple[str | dict[str, Any], Presentation] | None:
    """Return the text of native content, or the description of a medium, and how to present it.

    None for what is no content (cache markers).
    """
    messages = cast(Any, sys.modules["pydantic_ai.messages"])
    metadata: Presentation = ContentMetadata()
    if hasattr(value, "value") and hasattr(value, "metadata"):
        metadata, value = value.metadata, value.value
    elif isinstance(value, messages.TextContent):
        metadata = ContentMetadata.from_native(value.metadata)
    if isinstance(value, str):
        return value, metadata
    if isinstance(value, messages.TextContent):
        return value.content, metadata
    if isinstance(value, messages.CachePoint):
        return None
    return describe_medium(value), metadata


def describe_medium(value: Any) -> dict[str, Any]:
    """Return the description of a medium: what it is and how large, or where a client finds it."""
    messages = cast(Any, sys.modules["pydantic_ai.messages"])
    medium: dict[str, Any] = {"kind": str(getattr(value, "kind", "unknown"))}
    if isinstance(value, messages.BinaryContent):
        return medium | {"media_type": value.media_type, "size_bytes": len(value.data), "payload_omitted": True}
    if isinstance(value, messages.UploadedFile):
        medium |= {"file_id": value.file_id, "provider_name": value.provider_name}
    elif isinstance(value, messages.FileUrl) and value.url.startswith(_WEB):
        medium["url"] = value.url
    else:
        medium["payload_omitted"] = True
    # An address need not tell a type.
    with suppress(AttributeError, ValueError):
        medium["media_type"] = value.media_type
    return medium


def is_bytes(value: Any) -> bool:
    """Tell whether a value is raw bytes."""
    return isinstance(value, bytes | bytearray | memoryview)


def describe_bytes(value: Any) -> dict[str, Any]:
    """Return the description of raw bytes."""
    size = value.nbytes if isinstance(value, memoryview) else len(value)
    return {"payload_omitted": True, "size_bytes": size}


def is_payload(value: Any) -> bool:
    """Tell whether a value is media itself: raw bytes, binary content, or an address that holds its data."""
    if is_bytes(value):
        return True
    messages = cast(Any, sys.modules.get("pydantic_ai.messages"))
    if messages is None:
        return False
    if isinstance(value, messages.FileUrl):
        return not value.url.startswith(_WEB)
    return isinstance(value, messages.BinaryContent)


def holds_payload(value: Any) -> bool:
    """Tell whether there is media anywhere in a value, whatever its own way of writing itself would do with it."""
    return _holds(value, is_payload)


def holds_native(value: Any) -> bool:
    """Tell whether there is native content or raw bytes anywhere in a value."""
    types = native_types()
    return _holds(value, lambda part: is_bytes(part) or isinstance(part, types))


def _holds(value: Any, wanted: Any) -> bool:
    seen: set[int] = set()
    pending: list[Any] = [value]
    # Not recursive: what is looked at may nest deeper than the stack reaches.
    while pending:
        part = pending.pop()
        if part is None or isinstance(part, str | int | float):
            continue
        if wanted(part):
            return True
        if id(part) not in seen:
            seen.add(id(part))
            pending.extend(_children(part))
    return False


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, _LISTS):
        return value
    if isinstance(value, BaseModel):
        return [*vars(value).values(), *(value.model_extra or {}).values()]
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, name, None) for name in field_names(type(value))]
    return ()


def field_names(record: type) -> tuple[str, ...]:
    """Return the names of a dataclass's fields, in order."""
    names = _field_names.get(record)
    if names is None:
        names = tuple(field.name for field in fields(record))
        if len(_field_names) >= _CLASSES_KEPT:
            _field_names.clear()
        _field_names[record] = names
    return names


_field_names: dict[type, tuple[str, ...]] = {}
_CLASSES_KEPT = 1024
