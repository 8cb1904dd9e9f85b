"""What a tool call came to: which results are readable and answer their call, and which are only observed."""

from typing import Literal

import ag_ui.core as agui
import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field
from pydantic import TypeAdapter, ValidationError

from agui_relay.events import ToolCallResultEvent
from agui_relay.projection.errors import AguiObservationError
from agui_relay.source.items import HarnessItem
from agui_relay.source.reading import Part, readable, sorted_text
from agui_relay.source.returns import ReturnItem

_NOTHING = Raw()
_parts: TypeAdapter[list[agui.ContentPart]] = TypeAdapter(list[agui.ContentPart])


def tool_result(item: HarnessItem, part: Part, timestamp: int, child: str | None) -> ToolCallResultEvent | None:
    """Return the result that answers a call, or None for one that failed, was denied, or has to be tried again."""
    if part.part_kind != "tool-return" or part.outcome not in (None, "success"):
        return None
    projection = item.projection
    call_id = projection.call_id if projection is not None and projection.call_id is not None else part.tool_call_id
    if call_id is None:
        raise AguiObservationError("a tool result needs the `tool_call_id` it answers")
    if projection is None or projection.content == _NOTHING:
        return _answer(call_id, _text(part.content), timestamp, child)
    return _answer(call_id, _content_parts(projection.content), timestamp, child)


def returned(item: ReturnItem, child: str | None) -> ToolCallResultEvent | None:
    """Return the same for an item that was read in one decode; None when it needs another look."""
    part, projection = item.event.part, item.projection
    call_id = projection.call_id if projection.call_id is not None else part.tool_call_id
    if call_id is None:
        return None
    content: str | Raw
    if projection.content != _NOTHING:
        content = _content_parts(projection.content)
    elif type(part.content) is str:
        content = part.content
    else:
        content = sorted_text(part.content)
    return _answer(call_id, content, projection.timestamp, child)


def _answer(call_id: str, content: str | Raw, timestamp: int, child: str | None) -> ToolCallResultEvent:
    return ToolCallResultEvent(
        timestamp=timestamp,
        subagent_run_id=child,
        message_id=f"{call_id}:result",
        tool_call_id=call_id,
        content=content,
        role="tool",
    )


def _text(content: Raw) -> str:
    text = readable(content)
    return "null" if text is None else text


class _Source(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    type: Literal["url", "data"]
    value: str
    mime_type: str | UnsetType = field(name="mimeType", default=UNSET)


class _Text(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="type", tag="text"):
    text: Raw


class _Image(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="type", tag="image"):
    source: _Source


class _Document(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="type", tag="document"):
    source: _Source


_usual_parts = msgspec.json.Decoder(list[_Text | _Image | _Document]).decode
_encode = msgspec.json.Encoder().encode
_QUOTE = ord('"')


def _content_parts(content: Raw) -> str | Raw:
    encoded = bytes(content)
    if encoded.startswith(b'"'):
        return _text(content)
    if _is_usual(encoded):
        return content.copy()
    try:
        listed = _parts.validate_json(encoded)
        return Raw(_parts.dump_json(listed, by_alias=True))
    except ValidationError as error:
        raise AguiObservationError(f"the content of a tool result is not a list of AG-UI parts: {error}") from error


def _is_usual(encoded: bytes) -> bool:
    """Tell whether these are parts with nothing but text and media, written as we write them."""
    try:
        parts = _usual_parts(encoded)
    except msgspec.MsgspecError:
        return False
    return all(type(part) is not _Text or memoryview(part.text)[0] == _QUOTE for part in parts) and (
        _encode(parts) == encoded
    )
