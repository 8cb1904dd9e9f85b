"""The AG-UI events a projection emits: structs whose encoded form is the AG-UI 1.0 JSON, and their typed models.

Field order, names and omissions are those of ``ag_ui.core``: for every struct,
``TypeAdapter(Event).validate_json(encode_event(e)).model_dump_json(by_alias=True).encode() == encode_event(e)``.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, cast

import ag_ui.core as agui
import msgspec
from ag_ui.core import events as models
from msgspec import UNSET, Raw, Struct, UnsetType
from pydantic import BaseModel, TypeAdapter


class SourceValue(Struct, frozen=True, gc=False):
    """The value of a CUSTOM event: where the observation came from, and its public JSON."""

    thread_id: str
    run_id: str
    sequence: int
    occurred_at: str
    event: "Raw | InputValue"


class InputValue(Struct, frozen=True, gc=False):
    """An authored or injected input as a client sees it. ``content`` is text, or the description of a medium."""

    input_id: str
    source: str
    content: Raw
    message_id: str
    role: Literal["user", "system"]


class TerminalSource(Struct, frozen=True, gc=False):
    """The ``rawEvent`` of a terminal event: its correlation, and what the AG-UI fields cannot say."""

    thread_id: str
    run_id: str
    sequence: int
    occurred_at: str
    status: str
    result_omitted: bool | UnsetType = UNSET
    failure: Raw | UnsetType = UNSET


class TokenUsage(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """Token counts of a run, each within 0 and 2**53 - 1; a count that is not known is left out."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None


class Interrupt(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, rename="camel"):
    """One answer a suspended run waits for."""

    subagent_run_id: str | None = None
    id: str
    reason: str
    message: str | None = None
    tool_call_id: str | None = None
    response_schema: Raw | UnsetType = UNSET
    expires_at: str | None = None
    metadata: Raw | UnsetType = UNSET


class SuccessOutcome(Struct, frozen=True, gc=False, tag_field="type", tag="success"):
    """The run, or the subagent, completed."""


class CancelledOutcome(Struct, frozen=True, gc=False, tag_field="type", tag="cancelled"):
    """The run was stopped before it completed and did not fail."""


class InterruptOutcome(Struct, frozen=True, gc=False, tag_field="type", tag="interrupt"):
    """The run waits for answers; at least one."""

    interrupts: list[Interrupt]


class BaseEvent(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, rename="camel", tag_field="type"):
    """What every event carries. ``timestamp`` counts milliseconds since the Unix epoch."""

    type_name: ClassVar[str]
    """The event's ``type`` in JSON, such as ``TEXT_MESSAGE_START``."""

    timestamp: int | None = None
    raw_event: TerminalSource | None = None
    metadata: Raw | None = None


class AttributableEvent(BaseEvent, frozen=True, kw_only=True):
    """An event that may belong to a child run, whose id is ``subagent_run_id``."""

    subagent_run_id: str | None = None


class TextMessageStartEvent(AttributableEvent, frozen=True, kw_only=True, tag="TEXT_MESSAGE_START"):
    """Opens a text message."""

    message_id: str
    role: str | None = None
    name: str | None = None


class TextMessageContentEvent(AttributableEvent, frozen=True, kw_only=True, tag="TEXT_MESSAGE_CONTENT"):
    """Appends to an open text message."""

    message_id: str
    delta: str


class TextMessageEndEvent(AttributableEvent, frozen=True, kw_only=True, tag="TEXT_MESSAGE_END"):
    """Closes a text message."""

    message_id: str


class ReasoningMessageStartEvent(AttributableEvent, frozen=True, kw_only=True, tag="REASONING_MESSAGE_START"):
    """Opens a reasoning message."""

    message_id: str
    role: str | None = None


class ReasoningMessageContentEvent(AttributableEvent, frozen=True, kw_only=True, tag="REASONING_MESSAGE_CONTENT"):
    """Appends to an open reasoning message."""

    message_id: str
    delta: str


class ReasoningMessageEndEvent(AttributableEvent, frozen=True, kw_only=True, tag="REASONING_MESSAGE_END"):
    """Closes a reasoning message."""

    message_id: str


class ReasoningEncryptedValueEvent(AttributableEvent, frozen=True, kw_only=True, tag="REASONING_ENCRYPTED_VALUE"):
    """A provider's signature over a reasoning message."""

    subtype: Literal["tool-call", "message"]
    entity_id: str
    encrypted_value: str


class ToolCallStartEvent(AttributableEvent, frozen=True, kw_only=True, tag="TOOL_CALL_START"):
    """Opens a tool call."""

    tool_call_id: str
    tool_call_name: str
    parent_message_id: str | None = None


class ToolCallArgsEvent(AttributableEvent, frozen=True, kw_only=True, tag="TOOL_CALL_ARGS"):
    """Appends to the argument text of an open tool call."""

    tool_call_id: str
    delta: str


class ToolCallEndEvent(AttributableEvent, frozen=True, kw_only=True, tag="TOOL_CALL_END"):
    """The arguments of a tool call are complete."""

    tool_call_id: str


class ToolCallResultEvent(AttributableEvent, frozen=True, kw_only=True, tag="TOOL_CALL_RESULT"):
    """What a tool returned: text, or the JSON of a list of AG-UI content parts."""

    message_id: str
    tool_call_id: str
    content: str | Raw
    role: str | None = None


class SubagentStartedEvent(AttributableEvent, frozen=True, kw_only=True, tag="SUBAGENT_STARTED"):
    """A child run began; ``subagent_run_id`` is the child."""

    name: str
    description: str | None = None
    parent_subagent_run_id: str | None = None
    parent_tool_call_id: str | None = None
    parent_message_id: str | None = None


class SubagentFinishedEvent(AttributableEvent, frozen=True, kw_only=True, tag="SUBAGENT_FINISHED"):
    """A child run completed."""

    result: Raw | None = None
    outcome: SuccessOutcome | None = None


class SubagentErrorEvent(AttributableEvent, frozen=True, kw_only=True, tag="SUBAGENT_ERROR"):
    """A child run did not complete."""

    message: str
    code: str | None = None


class _Visibility(Struct, gc=False):
    display: Any = True


class CustomEvent(AttributableEvent, frozen=True, kw_only=True, tag="CUSTOM"):
    """Any other observation, named."""

    name: str
    value: SourceValue | Raw

    @property
    def hidden(self) -> bool:
        """True when the metadata of an input says ``display: false``."""
        if self.metadata is None:
            return False
        return msgspec.json.decode(self.metadata, type=_Visibility).display is False


class RunStartedEvent(BaseEvent, frozen=True, kw_only=True, tag="RUN_STARTED"):
    """Opens the root run."""

    thread_id: str
    run_id: str
    protocol_version: str | None = None


class RunFinishedEvent(BaseEvent, frozen=True, kw_only=True, tag="RUN_FINISHED"):
    """Closes a root run that did not fail."""

    thread_id: str
    run_id: str
    result: Raw | None = None
    outcome: SuccessOutcome | CancelledOutcome | InterruptOutcome | None = None
    usage: list[TokenUsage] | None = None


class RunErrorEvent(BaseEvent, frozen=True, kw_only=True, tag="RUN_ERROR"):
    """Ends a root run that failed."""

    message: str
    code: str | None = None
    usage: list[TokenUsage] | None = None


type Event = (
    TextMessageStartEvent
    | TextMessageContentEvent
    | TextMessageEndEvent
    | ReasoningMessageStartEvent
    | ReasoningMessageContentEvent
    | ReasoningMessageEndEvent
    | ReasoningEncryptedValueEvent
    | ToolCallStartEvent
    | ToolCallArgsEvent
    | ToolCallEndEvent
    | ToolCallResultEvent
    | SubagentStartedEvent
    | SubagentFinishedEvent
    | SubagentErrorEvent
    | CustomEvent
    | RunStartedEvent
    | RunFinishedEvent
    | RunErrorEvent
)

for _struct in (*AttributableEvent.__subclasses__(), *BaseEvent.__subclasses__()):
    if _struct is not AttributableEvent:
        _struct.type_name = _struct.__struct_config__.tag  # type: ignore[assignment]

_encode = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder().decode
_typed: TypeAdapter[agui.Event] = TypeAdapter(agui.Event)
_new = object.__new__
_set = object.__setattr__


encode_event: Callable[[Event], bytes] = _encode
"""Return the event as AG-UI JSON in UTF-8: compact, and without a byte below 0x20."""


def to_model(event: Event) -> agui.Event:
    """Return the event as a model of ``ag_ui.core``, as if validated from its encoded form; nothing is shared."""
    build = _BUILDERS.get(type(event))
    if build is None or event.metadata is not None or event.raw_event is not None:
        return _typed.validate_json(_encode(event))
    built: agui.Event = build(event)
    return built


_set_present = cast(Any, BaseModel.__dict__["__pydantic_fields_set__"]).__set__
_set_extra = cast(Any, BaseModel.__dict__["__pydantic_extra__"]).__set__
_set_private = cast(Any, BaseModel.__dict__["__pydantic_private__"]).__set__


def _made(model: type[Any], values: dict[str, Any], present: set[str]) -> Any:
    """Make a model of values that need no validation: what they come from is typed already."""
    built = _new(model)
    _set(built, "__dict__", values)
    _set_present(built, present)
    _set_extra(built, {})
    _set_private(built, None)
    return built


def _flat_builder(model: type[models.BaseEvent], struct: type[Struct]) -> Callable[[Any], Any]:
    """Return what makes models whose fields are all strings, numbers or absent."""
    names = ("type", *struct.__struct_fields__)
    assert names == tuple(model.model_fields), f"{struct.__name__} does not follow the fields of ag_ui.core"
    tag = model.model_fields["type"].default
    as_tuple = msgspec.structs.astuple

    def build(event: Any) -> Any:
        values = dict(zip(names, (tag, *as_tuple(event)), strict=True))
        return _made(model, values, {name for name, value in values.items() if value is not None})

    return build


def _content_builder(model: type[models.BaseEvent]) -> Callable[[Any], Any]:
    """Return the same for the events that there are most of: more text of a message."""
    tag = model.model_fields["type"].default
    usual = {"type", "timestamp", "message_id", "delta"}

    def build(event: Any) -> Any:
        timestamp, child = event.timestamp, event.subagent_run_id
        values = {
            "type": tag,
            "timestamp": timestamp,
            "raw_event": None,
            "metadata": None,
            "subagent_run_id": child,
            "message_id": event.message_id,
            "delta": event.delta,
        }
        return _made(model, values, _present(usual, timestamp, child))

    return build


def _present(usual: set[str], timestamp: int | None, child: str | None) -> set[str]:
    present = usual.copy()
    if timestamp is None:
        present.discard("timestamp")
    if child is not None:
        present.add("subagent_run_id")
    return present


def _build_custom(event: CustomEvent) -> Any:
    value = event.value
    payload: Any
    if type(value) is SourceValue and type(value.event) is Raw:
        payload = {
            "thread_id": value.thread_id,
            "run_id": value.run_id,
            "sequence": value.sequence,
            "occurred_at": value.occurred_at,
            "event": _read(value.event),
        }
    else:
        payload = _read(_encode(value))
    timestamp, child = event.timestamp, event.subagent_run_id
    values = {
        "type": models.EventType.CUSTOM,
        "timestamp": timestamp,
        "raw_event": None,
        "metadata": None,
        "subagent_run_id": child,
        "name": event.name,
        "value": payload,
    }
    return _made(models.CustomEvent, values, _present(_CUSTOM_FIELDS, timestamp, child))


_CUSTOM_FIELDS = {"type", "timestamp", "name", "value"}
_BUILDERS: dict[type, Callable[[Any], Any]] = {
    struct: _flat_builder(model, struct)
    for model, struct in (
        (models.TextMessageStartEvent, TextMessageStartEvent),
        (models.TextMessageEndEvent, TextMessageEndEvent),
        (models.ReasoningMessageStartEvent, ReasoningMessageStartEvent),
        (models.ReasoningMessageEndEvent, ReasoningMessageEndEvent),
        (models.ReasoningEncryptedValueEvent, ReasoningEncryptedValueEvent),
        (models.ToolCallStartEvent, ToolCallStartEvent),
        (models.ToolCallArgsEvent, ToolCallArgsEvent),
        (models.ToolCallEndEvent, ToolCallEndEvent),
    )
}
_BUILDERS[TextMessageContentEvent] = _content_builder(models.TextMessageContentEvent)
_BUILDERS[ReasoningMessageContentEvent] = _content_builder(models.ReasoningMessageContentEvent)
_BUILDERS[CustomEvent] = _build_custom
