"""Names what the reference is known to get wrong, item by item, so that nothing else is excused.

Each name has a test in `test_reference_faults.py` that says what is right. A fault of one *item* leaves both
observers in the same state, so comparing goes on behind it; after a fault of *state* it cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from a13n_harness.events import HarnessEvent, InputMediaEvent, InputTextEvent
from pydantic_ai import messages as ai

from tests.oracle.streams import Item

OWN_NAMES = ("a13n.stream.", "a13n.input.", "a13n.pydantic_ai.", "a13n.harness.")


@dataclass
class OpenPart:
    kind: str
    given_id: str | None = None
    """The id that the source gave, if it did."""
    text: str = ""


@dataclass
class Watch:
    """As much of the stream so far as a fault depends on."""

    parts: dict[tuple[str, int], OpenPart] = field(default_factory=dict)

    def take(self, item: Item) -> None:
        """Note an item that both observers took."""
        event = item.event if isinstance(item, HarnessEvent) else None
        ended = _ended_run(item)
        if ended is not None:
            self.parts = {key: part for key, part in self.parts.items() if key[0] != ended}
        if not isinstance(event, ai.PartStartEvent | ai.PartDeltaEvent | ai.PartEndEvent):
            return
        key = (item.run_id, event.index)
        if isinstance(event, ai.PartEndEvent):
            self.parts.pop(key, None)
        elif isinstance(event, ai.PartStartEvent):
            part = event.part
            if isinstance(part, ai.TextPart):
                self.parts[key] = OpenPart("text", part.id, part.content)
            elif isinstance(part, ai.ThinkingPart):
                self.parts[key] = OpenPart("reasoning", None, part.content)
            elif isinstance(part, ai.ToolCallPart | ai.NativeToolCallPart):
                self.parts[key] = OpenPart("tool_call", part.tool_call_id)
        else:
            delta = event.delta
            if isinstance(delta, ai.TextPartDelta) and delta.content_delta:
                self.parts.setdefault(key, OpenPart("text")).text += delta.content_delta
            elif isinstance(delta, ai.ThinkingPartDelta):
                self.parts.setdefault(key, OpenPart("reasoning")).text += delta.content_delta or ""
            elif isinstance(delta, ai.ToolCallPartDelta):
                self.parts.setdefault(key, OpenPart("tool_call", delta.tool_call_id or None))

    def open(self, item: HarnessEvent, event: Any) -> OpenPart | None:
        return self.parts.get((item.run_id, event.index))


def _ended_run(item: Item) -> str | None:
    """Return the run whose open parts an item ends: its own with a result, a child with its delegation."""
    if not isinstance(item, HarnessEvent):
        return item.run_id
    payload = getattr(item.event, "payload", None)
    if isinstance(payload, dict) and payload.get("type") == "inline_delegation" and payload.get("action") != "started":
        child = payload.get("child_run_id")
        return child if isinstance(child, str) else None
    return None


def retry_prompt_result(watch: Watch, item: HarnessEvent, event: Any) -> bool:
    results = ai.FunctionToolResultEvent | ai.OutputToolResultEvent
    return isinstance(event, results) and isinstance(event.part, ai.RetryPromptPart)


def binary_in_a_part(watch: Watch, item: HarnessEvent, event: Any) -> bool:
    if isinstance(event, ai.PartStartEvent | ai.PartEndEvent):
        part = event.part
        if isinstance(part, ai.NativeToolReturnPart):
            return _holds_binary(part.content)
        return isinstance(part, ai.FilePart) or (isinstance(part, ai.SpeechPart) and part.audio is not None)
    return (
        isinstance(event, ai.PartDeltaEvent)
        and isinstance(event.delta, ai.SpeechPartDelta)
        and event.delta.audio_chunk is not None
    )


def event_named_like_ours(watch: Watch, item: HarnessEvent, event: Any) -> bool:
    return (
        isinstance(event, ai.CapabilityEvent)
        and not isinstance(event, InputTextEvent | InputMediaEvent)
        and event.kind.startswith(OWN_NAMES)
    )


def message_replaced_while_open(watch: Watch, item: HarnessEvent, event: Any) -> bool:
    if not isinstance(event, ai.PartStartEvent):
        return False
    known = watch.open(item, event)
    return known is not None and known.kind != "tool_call"


def message_forgotten_at_the_end_of_another_part(watch: Watch, item: HarnessEvent, event: Any) -> bool:
    if not isinstance(event, ai.PartEndEvent) or isinstance(
        event.part, ai.TextPart | ai.ThinkingPart | ai.ToolCallPart
    ):
        return False
    known = watch.open(item, event)
    return known is not None and known.kind != "tool_call"


def call_id_known_late(watch: Watch, item: HarnessEvent, event: Any) -> bool:
    if isinstance(event, ai.PartDeltaEvent) and isinstance(event.delta, ai.ToolCallPartDelta):
        known = watch.open(item, event)
        late = event.delta.tool_call_id
        return known is not None and known.kind == "tool_call" and known.given_id is None and bool(late)
    if isinstance(event, ai.PartEndEvent) and isinstance(event.part, ai.ToolCallPart):
        known = watch.open(item, event)
        return known is not None and known.kind == "tool_call" and known.given_id != event.part.tool_call_id
    return False


def text_id_known_late(watch: Watch, item: HarnessEvent, event: Any) -> bool:
    if not (isinstance(event, ai.PartEndEvent) and isinstance(event.part, ai.TextPart) and event.part.id):
        return False
    known = watch.open(item, event)
    return known is not None and known.kind == "text" and known.given_id is None


def rest_of_a_text_only_at_its_end(watch: Watch, item: HarnessEvent, event: Any) -> bool:
    if not (isinstance(event, ai.PartEndEvent) and isinstance(event.part, ai.TextPart | ai.ThinkingPart)):
        return False
    known = watch.open(item, event)
    kind = "text" if isinstance(event.part, ai.TextPart) else "reasoning"
    if known is None or known.kind != kind or not known.text:
        return False
    final = event.part.content
    return len(final) > len(known.text) and final.startswith(known.text)


def _holds_binary(value: Any) -> bool:
    if isinstance(value, ai.BinaryContent):
        return True
    if isinstance(value, dict):
        return any(map(_holds_binary, value.values()))
    return isinstance(value, list | tuple) and any(map(_holds_binary, value))


type Predicate = Callable[[Watch, HarnessEvent, Any], bool]

FAULTS: tuple[tuple[Predicate, Literal["item", "state"]], ...] = (
    (retry_prompt_result, "item"),
    (binary_in_a_part, "item"),
    (event_named_like_ours, "item"),
    (message_replaced_while_open, "state"),
    (message_forgotten_at_the_end_of_another_part, "item"),
    (call_id_known_late, "state"),
    (text_id_known_late, "state"),
    (rest_of_a_text_only_at_its_end, "state"),
)


def known_fault(watch: Watch, item: Item) -> tuple[str, str] | None:
    """Return name and reach ("item" or "state") of the fault that the reference shows on `item`, if it is known."""
    if isinstance(item, HarnessEvent):
        for predicate, reach in FAULTS:
            if predicate(watch, item, item.event):
                return predicate.__name__, reach
    return None
