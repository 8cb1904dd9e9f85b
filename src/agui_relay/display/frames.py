"""Encoded events, read for a display: those that a run consists of, without a mapping in between.

Each class lists what such an event may say. One that says more, or something else, is read the long way, and refused
there if it is no AG-UI event. What was read can be folded without fail.
"""

from typing import Annotated, Any, ClassVar, get_args

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from agui_relay.display.items import DisplayError, ItemKind
from agui_relay.display.reading import LAST_TIME, MEANINGFUL, Message, Observation, Reader, Step
from agui_relay.display.records import Time, now
from agui_relay.display.values import Value, frozen

type _Time = Annotated[int, Meta(ge=0, le=LAST_TIME)]
type _Child = Annotated[str, Meta(min_length=1)]


class _Event(Struct, tag_field="type", forbid_unknown_fields=True, kw_only=True, gc=False):
    timestamp: _Time | UnsetType = UNSET
    child: _Child | UnsetType = field(name="subagentRunId", default=UNSET)

    @property
    def at(self) -> Time:
        """When it occurred; now, when it does not say."""
        return now() if self.timestamp is UNSET else self.timestamp


class Own(_Event, gc=False):
    """An event of a message or a call: the kind of item, and its id within the kind."""

    kind: ClassVar[ItemKind]
    id_field: ClassVar[str]
    id: str

    def says(self) -> tuple[dict[str, Value] | None, Value]:
        """Return what it says of its item, unless that is only the id, and the value it brings."""
        return None, None

    def _with_child(self, copied: dict[str, Value]) -> dict[str, Value]:
        if self.child is not UNSET:
            copied["subagentRunId"] = self.child
        return copied


class Growth(Own, gc=False):
    """One that appends its delta to a field."""

    grows: ClassVar[str]
    delta: str

    def step(self, event_type: str) -> Message:
        """Return the step that it is."""
        child = None if self.child is UNSET else self.child
        key = self.id if child is None else f"{child}:{self.id}"
        return Message(self.at, child, event_type, self.kind, key, self.id_field, self.id, self.grows, self.delta)


class TextDelta(Growth, gc=False, tag="TEXT_MESSAGE_CONTENT"):
    """More of a text."""

    kind = "text_message"
    id_field = "messageId"
    grows = "text"
    id: str = field(name="messageId")


class ReasoningDelta(Growth, gc=False, tag="REASONING_MESSAGE_CONTENT"):
    """More of a reasoning."""

    kind = "reasoning_message"
    id_field = "messageId"
    grows = "text"
    id: str = field(name="messageId")


class ArgumentsDelta(Growth, gc=False, tag="TOOL_CALL_ARGS"):
    """More of a call's arguments."""

    kind = "tool_call"
    id_field = "toolCallId"
    grows = "arguments"
    id: str = field(name="toolCallId")


class TextStart(Own, gc=False, tag="TEXT_MESSAGE_START"):
    """The start of a text."""

    kind = "text_message"
    id_field = "messageId"
    id: str = field(name="messageId")
    role: str

    def says(self) -> tuple[dict[str, Value] | None, Value]:
        """See the base."""
        return self._with_child({"messageId": self.id, "role": self.role}), None


class ReasoningStart(Own, gc=False, tag="REASONING_MESSAGE_START"):
    """The start of a reasoning."""

    kind = "reasoning_message"
    id_field = "messageId"
    id: str = field(name="messageId")
    role: str

    def says(self) -> tuple[dict[str, Value] | None, Value]:
        """See the base."""
        return self._with_child({"messageId": self.id, "role": self.role}), None


class ToolStart(Own, gc=False, tag="TOOL_CALL_START"):
    """The start of a call."""

    kind = "tool_call"
    id_field = "toolCallId"
    id: str = field(name="toolCallId")
    name: str = field(name="toolCallName")
    parent: str | UnsetType = field(name="parentMessageId", default=UNSET)

    def says(self) -> tuple[dict[str, Value] | None, Value]:
        """See the base."""
        copied: dict[str, Value] = {"toolCallId": self.id, "toolCallName": self.name}
        if self.parent is not UNSET:
            copied["parentMessageId"] = self.parent
        return self._with_child(copied), None


class TextEnd(Own, gc=False, tag="TEXT_MESSAGE_END"):
    """The end of a text."""

    kind = "text_message"
    id_field = "messageId"
    id: str = field(name="messageId")


class ReasoningEnd(Own, gc=False, tag="REASONING_MESSAGE_END"):
    """The end of a reasoning."""

    kind = "reasoning_message"
    id_field = "messageId"
    id: str = field(name="messageId")


class ToolEnd(Own, gc=False, tag="TOOL_CALL_END"):
    """The end of a call's arguments."""

    kind = "tool_call"
    id_field = "toolCallId"
    id: str = field(name="toolCallId")


class ToolResult(Own, gc=False, tag="TOOL_CALL_RESULT"):
    """The textual result of a call."""

    kind = "tool_call"
    id_field = "toolCallId"
    id: str = field(name="toolCallId")
    message_id: str = field(name="messageId")
    content: str
    role: str

    def says(self) -> tuple[dict[str, Value] | None, Value]:
        """See the base."""
        return self._with_child({"messageId": self.message_id, "role": self.role, "toolCallId": self.id}), self.content


class Custom(_Event, tag="CUSTOM"):
    """Anything that has a name."""

    name: str
    value: Any = None
    metadata: Any = UNSET

    def step(self, reader: Reader) -> Step | None:
        """Return what it means."""
        child = None if self.child is UNSET else self.child
        if self.name not in MEANINGFUL and self.metadata is UNSET:
            about: dict[str, Value] | None = None if child is None else {"subagentRunId": child}
            return Observation(self.at, child, self.name, frozen(self.value, trusted=True), about)
        payload = {"type": "CUSTOM", "name": self.name, "value": self.value}
        if self.timestamp is not UNSET:
            payload["timestamp"] = self.timestamp
        if self.metadata is not UNSET:
            payload["metadata"] = self.metadata
        if child is not None:
            payload["subagentRunId"] = child
        return reader.read(payload, trusted=True)


type _Known = (
    TextDelta
    | ReasoningDelta
    | ArgumentsDelta
    | TextStart
    | ReasoningStart
    | ToolStart
    | TextEnd
    | ReasoningEnd
    | ToolEnd
    | ToolResult
    | Custom
)

_decode_known = msgspec.json.Decoder(_Known).decode
_decode = msgspec.json.Decoder().decode


def read_frame(frame: bytes, reader: Reader) -> Own | Custom | Step | None:
    """Return what a frame says, or what it means when it is none that has a class here.

    Raises:
        DisplayError: it is no AG-UI event.

    """
    try:
        return _decode_known(frame)
    except msgspec.MsgspecError:
        pass
    try:
        payload = _decode(frame)
    except msgspec.MsgspecError as error:
        raise DisplayError(f"expected the JSON of an event: {error}") from error
    return reader.read(payload, trusted=True)


EVENT_TYPES: dict[type[Struct], str] = {known: str(known.__struct_config__.tag) for known in get_args(_Known.__value__)}
"""The `type` of the events that have a class here."""
