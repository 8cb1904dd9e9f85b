"""What an event means to a display: each becomes one step, or is refused, before anything is changed.

Names alone decide nothing. A CUSTOM that a capability emitted (its source says so) is never taken for a message, a
delta, a fragment or a lifecycle of ours, whatever it is called.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from agui_relay.display.items import DisplayError, ItemKind, ItemState
from agui_relay.display.memory import MemorySource, memory_sources
from agui_relay.display.records import Time, now
from agui_relay.display.values import Json, Value, clean, frozen, thawed
from agui_relay.framing.fragments import FRAGMENT_EVENT_NAME
from agui_relay.source.content import AUTHORED_INPUT_EVENT_NAMES

PART_DELTA = "a13n.pydantic_ai.part_delta"
_INPUT_MEDIUM = "a13n.input.media"


class _Step(Struct, gc=False):
    """When it occurred, and which child run said it; None for the root."""

    at: Time
    child: str | None


class Message(_Step, gc=False):
    """An event of a message or a tool call. ``copied`` is what it says of itself, None when that is only its ids."""

    type: str
    kind: ItemKind
    key: str
    id_field: str
    id: str
    field: str | None = None
    text: str = ""
    value: Value = None
    copied: dict[str, Value] | None = None


class Lifecycle(_Step, gc=False):
    """The start or end of the run or of a child, shown as it is. ``ends`` the run."""

    content: dict[str, Value]
    ends: bool = False


class Fragment(_Step, gc=False):
    """A piece of a large event."""

    payload: Mapping[str, Any]


class Delta(_Step, gc=False):
    """More of a streamed tool call's arguments. ``stream`` is what the deltas of one part share.

    ``data`` is the whole value as JSON; None when the delta continues the stream before it, for then it can be written
    without fail, should it be needed.
    """

    stream: "Stream"
    text: str
    value: Mapping[str, Any]
    data: bytes | None
    about: dict[str, Value] | None


class Input(_Step, gc=False):
    """What a person wrote, or the medium that was attached."""

    key: str
    text: str | None
    content: dict[str, Value]
    source: Value
    group: Value


class ToolFact(_Step, gc=False):
    """What else is known of a tool call: a failure, a native call or its return, what it changed."""

    key: str
    about: dict[str, Value]
    facts: dict[str, Value]
    state: ItemState | None = None
    arguments: str | None = None
    result: Value | UnsetType = UNSET


class Observation(_Step, gc=False):
    """Anything else that has a name. ``about`` is what it says of itself."""

    name: str
    value: Value
    about: dict[str, Value] | None
    streamed: bool = False
    summary: bool = False
    starts_response: bool = False
    sources: tuple[MemorySource, ...] | None = None


type Stream = tuple[str, str, dict[str, Any]]
"""Thread, run, and the source event without its text: what the argument deltas of one part have in common."""

type Step = Message | Lifecycle | Fragment | Delta | Input | ToolFact | Observation

_TEXT: tuple[ItemKind, str] = ("text_message", "messageId")
_REASONING: tuple[ItemKind, str] = ("reasoning_message", "messageId")
_TOOL: tuple[ItemKind, str] = ("tool_call", "toolCallId")
# By type: the kind of item, the field with its id, the field of the content that a delta is appended to.
_MESSAGES: dict[str, tuple[ItemKind, str, str | None]] = {
    "TEXT_MESSAGE_START": (*_TEXT, None),
    "TEXT_MESSAGE_CONTENT": (*_TEXT, "text"),
    "TEXT_MESSAGE_END": (*_TEXT, None),
    "REASONING_MESSAGE_START": (*_REASONING, None),
    "REASONING_MESSAGE_CONTENT": (*_REASONING, "text"),
    "REASONING_MESSAGE_END": (*_REASONING, None),
    "REASONING_ENCRYPTED_VALUE": ("reasoning_message", "entityId", None),
    "TOOL_CALL_START": (*_TOOL, None),
    "TOOL_CALL_ARGS": (*_TOOL, "arguments"),
    "TOOL_CALL_END": (*_TOOL, None),
    "TOOL_CALL_RESULT": (*_TOOL, None),
}
TURNS: dict[str, tuple[ItemKind, str, str | None]] = {
    "TEXT_MESSAGE_START": (*_TEXT, "role"),
    "TEXT_MESSAGE_END": (*_TEXT, None),
    "REASONING_MESSAGE_START": (*_REASONING, "role"),
    "REASONING_MESSAGE_END": (*_REASONING, None),
    "TOOL_CALL_START": (*_TOOL, "toolCallName"),
    "TOOL_CALL_END": (*_TOOL, None),
}
"""By type: kind, field with the id, and the one other field that the usual event says of its item."""

_COPIED = (
    "messageId",
    "role",
    "toolCallId",
    "toolCallName",
    "parentMessageId",
    "metadata",
    "subagentRunId",
    "responseGroup",
)
_LIFECYCLES = {
    "RUN_STARTED": False,
    "RUN_FINISHED": True,
    "RUN_ERROR": True,
    "SUBAGENT_STARTED": False,
    "SUBAGENT_FINISHED": False,
    "SUBAGENT_ERROR": False,
}
_RESULTS = frozenset({"a13n.pydantic_ai.function_tool_result", "a13n.pydantic_ai.output_tool_result"})
_PARTS = frozenset({"a13n.pydantic_ai.part_start", "a13n.pydantic_ai.part_end"})
_NATIVE_PARTS = frozenset({"builtin-tool-call", "builtin-tool-return"})
_IMAGES = frozenset({"a13n.tool_images", "a13n.harness-ui.tool_images"})
_SUPPLEMENTS = _IMAGES | {"a13n.filesystem.edit_applied", "a13n.harness-ui.mcp_apps", "a13n.mcp_apps"}
_SUMMARIES = frozenset({"a13n.context.handoff_summary", "a13n.context.compaction_summary"})
_FAILURES = frozenset({"failed", "denied", "interrupted"})

_LIFECYCLE, _CONTEXT = "a13n.harness.lifecycle", "a13n.harness.context"
MEANINGFUL = (
    _RESULTS
    | _PARTS
    | _SUPPLEMENTS
    | _SUMMARIES
    | AUTHORED_INPUT_EVENT_NAMES
    | {FRAGMENT_EVENT_NAME, PART_DELTA, _INPUT_MEDIUM, _LIFECYCLE, _CONTEXT}
)
"""The names that can make a CUSTOM more than an observation."""

GROWTHS: dict[str, tuple[ItemKind, str, str]] = {
    name: (kind, own, field) for name, (kind, own, field) in _MESSAGES.items() if field is not None
}
"""Of the types of events that append a delta: kind, field with the id, field that grows."""

# The times that a calendar of the years 1 to 9999 holds, in milliseconds.
_FIRST_TIME, LAST_TIME = -62_135_596_800_000, 253_402_300_799_999


class Reader:
    """Reads events. Remembers the latest stream of argument deltas: the next event most likely goes on in it."""

    __slots__ = ("_stream",)

    def __init__(self) -> None:
        self._stream: Stream | None = None

    def read(self, payload: Mapping[str, Any], *, trusted: bool = False) -> Step | None:
        """Return what an event means; None when a display does not show it. ``trusted``: it was just read from JSON.

        Raises:
            DisplayError: it is no AG-UI event.

        """
        try:
            event_type = payload["type"]
            message = _MESSAGES.get(event_type)
        except (TypeError, KeyError, IndexError):
            is_model = hasattr(payload, "model_dump")
            hint = ", a model: fold its `model_dump(mode='json', by_alias=True)`" if is_model else ""
            raise DisplayError(f"expected an AG-UI event with a `type`, got {payload!r:.80}{hint}") from None
        if message is not None:
            return _message(payload, event_type, message, trusted)
        if event_type == "CUSTOM":
            if payload.get("name") == PART_DELTA and (delta := self._delta(payload, trusted)) is not None:
                return delta
            return _custom(payload, trusted)
        if event_type in _LIFECYCLES:
            content = {_name(name): frozen(value, trusted=trusted) for name, value in payload.items()}
            return Lifecycle(_time(payload), None, content, _LIFECYCLES[event_type])
        return None

    def _delta(self, payload: Mapping[str, Any], trusted: bool) -> Delta | None:
        value = payload.get("value")
        event = value.get("event") if type(value) is dict else None
        delta = event.get("delta") if type(event) is dict else None
        if type(value) is not dict or type(event) is not dict or type(delta) is not dict:
            return None
        text, thread_id, run_id = delta.get("args_delta"), value.get("thread_id"), value.get("run_id")
        if (
            type(text) is not str
            or delta.get("part_delta_kind") != "tool_call"
            or delta.get("tool_name_delta")
            or event.get("event_kind") == "capability"
            or not (isinstance(thread_id, str) and isinstance(run_id, str))
        ):
            return None
        at, child = payload.get("timestamp"), payload.get("subagentRunId")
        if type(at) is not int or not 0 <= at <= LAST_TIME:
            at = _time(payload)
        about: dict[str, Value] | None = None
        if child is not None:
            child = _child(payload)
            about = {"subagentRunId": child if child is not None else ""}
        elif "subagentRunId" in payload:
            about = {"subagentRunId": None}
        stream: Stream = (thread_id, run_id, {**event, "delta": {**delta, "args_delta": None}})
        known, data = self._stream, None
        if known is not None and stream == known and _is_source(value):
            stream = known
        else:
            held = frozen(value, trusted=trusted)
            assert type(held) is Json
            data = held.data
            # A copy of its own: nobody can change it before the next delta is held against it.
            self._stream = stream = (clean(thread_id), clean(run_id), thawed(frozen(stream[2], trusted=trusted)))
        return Delta(at, child, stream, text if text.isascii() else clean(text), value, data, about)


def _message(
    payload: Mapping[str, Any], event_type: str, means: tuple[ItemKind, str, str | None], trusted: bool
) -> Message:
    kind, id_field, field = means
    # The usual case of each field without a call: most events of a run are its deltas.
    own_id, child, at = payload.get(id_field), payload.get("subagentRunId"), payload.get("timestamp")
    known = 3 if "timestamp" in payload else 2
    if type(own_id) is not str or not own_id.isascii():
        own_id = _text(payload, id_field)
    if type(at) is not int or not 0 <= at <= LAST_TIME:
        at = _time(payload)
    key = own_id
    if child is not None and (child := _child(payload)) is not None:
        known += 1
        key = f"{child}:{own_id}"
    text: Any = ""
    value: Value = None
    if field is not None:
        known += 1
        text = payload.get("delta")
        if type(text) is not str or not text.isascii():
            text = _text(payload, "delta")
    elif event_type == "TOOL_CALL_RESULT":
        content = payload.get("content", "")
        value = frozen(content if isinstance(content, list) else str(content), trusted=trusted)
    elif event_type == "REASONING_ENCRYPTED_VALUE":
        value = frozen(payload.get("encryptedValue"), trusted=trusted)
    copied = None
    if len(payload) != known or id_field == "entityId":
        copied = {}
        for name in _COPIED:
            if name in payload:
                said = payload[name]
                copied[name] = said if type(said) is str and said.isascii() else frozen(said, trusted=trusted)
    return Message(at, child, event_type, kind, key, id_field, own_id, field, text, value, copied)


def _custom(payload: Mapping[str, Any], trusted: bool) -> Step:
    name, value = _text(payload, "name"), payload.get("value")
    if name not in MEANINGFUL:
        return _observation(payload, name, value, trusted)
    event = value.get("event") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(event, dict):
        if name == FRAGMENT_EVENT_NAME:
            return Fragment(_time(payload), _child(payload), payload)
        return _observation(payload, name, value, trusted)
    if event.get("event_kind") == "capability":
        if name in _SUPPLEMENTS and isinstance(event.get("tool_call_id"), str):
            return _supplement(payload, name, event, trusted)
        step = _observation(payload, name, value, trusted)
        step.summary = name in _SUMMARIES
        return step
    if name in (_LIFECYCLE, _CONTEXT):
        step = _observation(payload, name, value, trusted)
        inner = event.get("payload")
        if isinstance(inner, dict):
            if name == _LIFECYCLE:
                step.starts_response = inner.get("type") == "model_request_started"
            else:
                step.sources = memory_sources(inner)
        return step
    if (authored := _input(payload, name, event, trusted)) is not None:
        return authored
    part = event.get("part")
    if isinstance(part, dict) and isinstance(part.get("tool_call_id"), str):
        if name in _RESULTS:
            return _tool(payload, part, trusted, provider=None)
        if name in _PARTS and part.get("part_kind") in _NATIVE_PARTS:
            return _tool(payload, part, trusted, provider=clean(str(part.get("provider_name") or "provider")))
    step = _observation(payload, name, value, trusted)
    step.streamed = name in _PARTS or name == PART_DELTA
    return step


def _observation(payload: Mapping[str, Any], name: str, value: Any, trusted: bool) -> Observation:
    about: dict[str, Value] | None = None
    if "metadata" in payload or "subagentRunId" in payload:
        about = {key: frozen(payload[key], trusted=trusted) for key in ("metadata", "subagentRunId") if key in payload}
    return Observation(_time(payload), _child(payload), name, frozen(value, trusted=trusted), about)


def _is_source(value: Mapping[str, Any]) -> bool:
    """Tell whether the rest of a value, beside what streams share, is what it should be."""
    sequence, at = value.get("sequence"), value.get("occurred_at")
    return len(value) == 5 and type(sequence) is int and type(at) is str and at.isascii()


def _input(payload: Mapping[str, Any], name: str, event: dict[str, Any], trusted: bool) -> Input | None:
    source = event.get("source", "user")
    medium = name == _INPUT_MEDIUM and source in ("user", "steering")
    own_id, content = event.get("message_id"), event.get("content")
    if not (medium or name in AUTHORED_INPUT_EVENT_NAMES) or not isinstance(own_id, str):
        return None
    if not medium and not isinstance(content, str):
        return None
    own_id, child = clean(own_id), _child(payload)
    fields: dict[str, Value] = {"messageId": own_id, "role": "user"}
    for key in ("subagentRunId", "metadata"):
        if key in payload:
            fields[key] = frozen(payload[key], trusted=trusted)
    text = None
    if medium:
        fields["input_media"] = frozen(content, trusted=trusted)
    else:
        text = clean(str(content))
    key = f"{child}:{own_id}" if child else own_id
    shown_source, group = frozen(source, trusted=trusted), frozen(event.get("input_id"), trusted=trusted)
    return Input(_time(payload), child, key, text, fields, shown_source, group)


def _supplement(payload: Mapping[str, Any], name: str, event: dict[str, Any], trusted: bool) -> ToolFact:
    step = _tool_fact(payload, event, trusted, provider=None)
    facts: dict[str, Any]
    if name == "a13n.filesystem.edit_applied":
        facts = {"applied_edit": {key: event.get(key) for key in ("file_path", "before", "after")}}
    elif name in _IMAGES:
        facts = {"tool_images": event.get("images", []), "tool_image_unavailable": event.get("unavailable", False)}
    else:
        facts = {"mcp_apps": event.get("apps", [])}
    step.facts = {key: frozen(value, trusted=trusted) for key, value in facts.items()}
    return step


def _tool(payload: Mapping[str, Any], part: dict[str, Any], trusted: bool, *, provider: str | None) -> ToolFact:
    step = _tool_fact(payload, part, trusted, provider=provider)
    kind, outcome = part.get("part_kind"), part.get("outcome")
    if kind == "builtin-tool-call":
        args = thawed(frozen(part.get("args"), trusted=trusted))
        step.arguments = args if isinstance(args, str) else json.dumps(args, ensure_ascii=False, separators=(",", ":"))
        step.facts = {"arguments_complete": True}
        return step
    retry = kind == "retry-prompt" or outcome == "retried"
    step.result = frozen(part.get("content"), trusted=trusted)
    step.facts = {"outcome": frozen(outcome, trusted=trusted), "retry": retry}
    failed = retry or (isinstance(outcome, str) and outcome in _FAILURES)
    step.state = "failed" if failed else "completed"
    return step


def _tool_fact(payload: Mapping[str, Any], source: dict[str, Any], trusted: bool, *, provider: str | None) -> ToolFact:
    call_id, child = clean(source["tool_call_id"]), _child(payload)
    key = call_id if provider is None else f"native:{provider}:{call_id}"
    about: dict[str, Value] = {"toolCallId": call_id}
    if isinstance(payload.get("subagentRunId"), str):
        about["subagentRunId"] = clean(payload["subagentRunId"])
    if provider is not None:
        about["provider"] = provider
    if "tool_name" in source:
        about["toolCallName"] = frozen(source["tool_name"], trusted=trusted)
    return ToolFact(_time(payload), child, f"{child}:{key}" if child else key, about, {})


def _text(payload: Mapping[str, Any], field: str) -> str:
    value = payload.get(field)
    if not isinstance(value, str):
        raise DisplayError(f"expected `{field}` of {payload['type']} to be text, got {value!r:.80}")
    return value if value.isascii() else clean(value)


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise DisplayError(f"expected the fields of an event to have names, got {name!r:.80}")
    return clean(name)


def _child(payload: Mapping[str, Any]) -> str | None:
    child = payload.get("subagentRunId")
    if child is None or child == "":
        return None
    if not isinstance(child, str):
        raise DisplayError(f"expected `subagentRunId` of {payload['type']} to be text, got {child!r:.80}")
    return clean(child)


def _time(payload: Mapping[str, Any]) -> Time:
    """Return when an event occurred; now, when it does not say."""
    at = payload.get("timestamp")
    if type(at) is int and 0 <= at <= LAST_TIME:
        return at
    if isinstance(at, int | float) and type(at) is not bool and not (isinstance(at, float) and math.isnan(at)):
        return at if _FIRST_TIME <= at <= LAST_TIME else min(max(at, _FIRST_TIME), LAST_TIME)
    return now()
