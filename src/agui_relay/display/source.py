"""From an item to what a display folds: its events as JSON mappings within the display's limits, and a failed call."""

from collections.abc import Callable
from typing import Any

import ag_ui.core as agui
import msgspec
from ag_ui.core import TextPart
from msgspec import Raw

from agui_relay.display.items import MAX_FIELD_CHARS, DisplayError
from agui_relay.events import CustomEvent, Event, ToolCallArgsEvent, ToolCallResultEvent, encode_event
from agui_relay.framing.fragments import fragment_encoded
from agui_relay.projection.errors import AguiObservationError
from agui_relay.projection.observer import ObserverContinuation
from agui_relay.projection.projector import Projector
from agui_relay.source.errors import ItemError
from agui_relay.source.harness import FAILURE_CHARACTERS, from_harness
from agui_relay.source.items import HarnessItem
from agui_relay.source.reading import read_native, readable

_RESULTS = ("function_tool_result", "output_tool_result")
_decode = msgspec.json.Decoder().decode
_decode_parts = msgspec.json.Decoder(list[Raw]).decode
_encode = msgspec.json.Encoder().encode
_NOTICE = Raw(
    TextPart(text="Result parts omitted: display size limit exceeded.").model_dump_json(by_alias=True).encode()
)

type Processor = Callable[[Any, agui.Event], agui.Event | None]


class Source:
    """A root run and its inline children, converted. ``bounded`` cuts what a display would not show anyway."""

    __slots__ = ("_bounded", "_processor", "_projector")

    def __init__(
        self, processor: Processor | None, continuation: ObserverContinuation | None, *, bounded: bool
    ) -> None:
        self._processor = processor
        self._bounded = bounded
        state = None if continuation is None else continuation.state
        self._projector = Projector() if state is None else Projector.restore(_encode(state))

    def events(self, source: Any) -> list[dict[str, Any]]:
        """Return the events of one item, those above 48 KiB as their fragments.

        Raises:
            TypeError: it is no item.
            AguiObservationError: the item is refused. Nothing has changed.

        """
        item = _item(source)
        process = self._processor
        if process is None:
            events = self._projector.project(item)
        else:
            events = self._projector.project(item, lambda _, event: process(source, event))
        payloads: list[dict[str, Any]] = []
        for index, event in enumerate(events):
            encoded = encode_event(_within_bounds(event) if self._bounded else event)
            if type(event) is CustomEvent:
                identity = f"{item.thread_id}:{item.run_id}:{item.sequence}:{index}"
                payloads.extend(
                    map(
                        _decode,
                        fragment_encoded(
                            encoded,
                            identity=identity,
                            timestamp=event.timestamp,
                            subagent_run_id=event.subagent_run_id,
                        ),
                    )
                )
            else:
                payloads.append(_decode(encoded))
        return payloads

    def export(self) -> ObserverContinuation:
        """Return what a source needs to go on."""
        state = _decode(self._projector.export())
        return ObserverContinuation(thread_id=self._projector.thread_id, run_id=self._projector.run_id, state=state)


def _item(source: Any) -> HarnessItem:
    if type(source) is HarnessItem:
        return source
    try:
        return from_harness(source)
    except ItemError as error:
        raise AguiObservationError(str(error)) from error


def _within_bounds(event: Event) -> Event:
    """Cut what is longer than a display shows. Text keeps one character more, by which the cut is seen."""
    if type(event) is ToolCallArgsEvent and len(event.delta) > MAX_FIELD_CHARS:
        return msgspec.structs.replace(event, delta=event.delta[: MAX_FIELD_CHARS + 1])
    if type(event) is not ToolCallResultEvent:
        return event
    content = event.content
    if isinstance(content, str):
        if len(content) <= MAX_FIELD_CHARS:
            return event
        return msgspec.structs.replace(event, content=content[: MAX_FIELD_CHARS + 1])
    if len(bytes(content)) <= MAX_FIELD_CHARS:
        return event
    return msgspec.structs.replace(event, content=Raw(_encode([*fitting(_decode_parts(content)), _NOTICE])))


def fitting(parts: list[Raw]) -> list[Raw]:
    """Return the parts of a result that a display has room for, each whole, in their order."""
    room = MAX_FIELD_CHARS - len(bytes(_NOTICE)) - len("[]")
    kept: list[Raw] = []
    for part in parts:
        size = len(bytes(part)) + 1
        if size <= room:
            kept.append(part)
            room -= size
    return kept


def failed_call(source: Any) -> tuple[str, str] | None:
    """Return the call that failed, was denied or has to be tried again by this item, and the text to show for it.

    Raises:
        DisplayError: the item is a tool result that cannot be read.

    """
    if type(source) is not HarnessItem:
        if getattr(getattr(source, "event", None), "event_kind", None) not in _RESULTS:
            return None
        source = _item(source)
    if source.source != "pydantic_ai" or b"_tool_result" not in bytes(source.event):
        return None
    try:
        event = read_native(source.event)
        part = event.part
        if event.event_kind not in _RESULTS or part is None or part.tool_call_id is None:
            return None
        if part.part_kind == "tool-return" and part.outcome in (None, "success"):
            return None
        message = source.projection.failure if source.projection is not None else None
        if message is None:
            message = readable(part.content)
    except ItemError as error:
        raise DisplayError(str(error)) from error
    return part.tool_call_id, ("null" if message is None else message)[:FAILURE_CHARACTERS]
