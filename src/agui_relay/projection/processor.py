"""What a processor may do to an event: pass it, drop it, or replace the one field that is content."""

from collections.abc import Callable
from typing import Any

import ag_ui.core as agui
import msgspec
from ag_ui.core.events import BaseEvent
from msgspec import Raw
from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_jsonable_python

from agui_relay import events
from agui_relay.events import Event, to_model
from agui_relay.projection.errors import AguiObservationError
from agui_relay.source.plain import clean, clean_text, encoded

REPLACEABLE: dict[type, str] = {
    events.TextMessageContentEvent: "delta",
    events.ReasoningMessageContentEvent: "delta",
    events.ReasoningEncryptedValueEvent: "encrypted_value",
    events.ToolCallArgsEvent: "delta",
    events.ToolCallResultEvent: "content",
    events.RunFinishedEvent: "result",
    events.RunErrorEvent: "message",
}
"""The field of an event that a processor may replace. Nothing of other events: CUSTOM payloads are evidence."""

_typed: TypeAdapter[Any] = TypeAdapter(agui.Event)


def processed[ItemT](
    process: Callable[[ItemT, agui.Event], agui.Event | None], item: ItemT, event: Event
) -> Event | None:
    """Return what a processor makes of an event, or None when it drops it.

    The processor gets a model of its own, which it may change. What it raises is passed on.

    Raises:
        AguiObservationError: it returned something other than the event with other content.

    """
    original = to_model(event)
    candidate = process(item, to_model(event))
    if candidate is None:
        return None
    if not isinstance(candidate, BaseEvent):
        raise AguiObservationError(
            f"a processor returns an AG-UI event or None, this one returned {type(candidate).__name__}"
        )
    try:
        replacement = _typed.validate_python(candidate.model_dump(mode="python", warnings=False), strict=True)
    except (ValueError, TypeError, RecursionError) as error:
        raise AguiObservationError(f"the processor returned an invalid {original.type.value} event: {error}") from error
    if replacement.type != original.type:
        raise AguiObservationError(
            f"the processor made {replacement.type.value} of {original.type.value}; the type must stay"
        )
    field = REPLACEABLE.get(type(event))
    before, after = _fields(original), _fields(replacement)
    for name in before.keys() | after.keys():
        if name != field and (name not in before or name not in after or before[name] != after[name]):
            raise AguiObservationError(
                f"the processor changed `{name}` of {original.type.value}; it may replace {field or 'nothing'} only"
            )
    if field is None or before.get(field) == after.get(field):
        return event
    return msgspec.structs.replace(event, **{field: _content(event, getattr(replacement, field))})


def _fields(event: BaseModel) -> dict[str, Any]:
    return event.model_dump(mode="python")


def _content(event: Event, value: Any) -> Any:
    """Return a replaced value as its struct holds it."""
    if isinstance(value, str) and not isinstance(event, events.RunFinishedEvent):
        return clean_text(value)
    if value is None:
        return None
    if isinstance(value, list):
        value = [
            entry.model_dump(mode="json", by_alias=True) if isinstance(entry, BaseModel) else entry for entry in value
        ]
    try:
        return Raw(encoded(clean(to_jsonable_python(value, inf_nan_mode="null"))))
    except (ValueError, RecursionError) as error:
        raise AguiObservationError(f"the processor's replacement has no JSON form: {error}") from error
