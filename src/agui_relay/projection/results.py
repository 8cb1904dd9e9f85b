"""What a tool call came to: which results are readable and answer their call, and which are only observed."""

import ag_ui.core as agui
from msgspec import Raw
from pydantic import TypeAdapter, ValidationError

from agui_relay.events import ToolCallResultEvent
from agui_relay.projection.errors import AguiObservationError
from agui_relay.source.items import HarnessItem
from agui_relay.source.reading import Part, readable

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
    content = part.content if projection is None or projection.content == _NOTHING else projection.content
    return ToolCallResultEvent(
        timestamp=timestamp,
        subagent_run_id=child,
        message_id=f"{call_id}:result",
        tool_call_id=call_id,
        content=_content_parts(content) if content is not part.content else _text(part.content),
        role="tool",
    )


def _text(content: Raw) -> str:
    text = readable(content)
    return "null" if text is None else text


def _content_parts(content: Raw) -> str | Raw:
    encoded = bytes(content)
    if encoded.startswith(b'"'):
        return _text(content)
    try:
        listed = _parts.validate_json(encoded)
        return Raw(_parts.dump_json(listed, by_alias=True))
    except ValidationError as error:
        raise AguiObservationError(f"the content of a tool result is not a list of AG-UI parts: {error}") from error
