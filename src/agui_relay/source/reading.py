"""What a projection reads of a source event's public JSON; everything else in it travels on unread.

One decode per event: each struct names only fields that decide something, and unknown ones are skipped.
"""

import json
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct
from pydantic_core import from_json

from agui_relay.source.errors import ItemError
from agui_relay.source.items import Milliseconds, OccurredAt, SequenceNumber

_NOTHING = Raw()
SAYS_NOTHING = (_NOTHING, Raw(b"null"))
"""A value that is not there, or is null."""
_STRING = ord('"')
_PART_EVENTS = frozenset({"part_start", "part_delta", "part_end", "function_tool_result", "output_tool_result"})


class NativeItem(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="v", tag=1):
    """As a ``HarnessItem`` that came from Pydantic AI, without its event, which is read with it and not kept raw.

    Its ids were not looked at: they are those of a run that is known, or of none.
    """

    source: Literal["pydantic_ai"]
    thread_id: str
    run_id: str
    sequence: SequenceNumber
    occurred_at: OccurredAt


class TimedProjection(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """As an item's projection that has a timestamp, and nothing else."""

    timestamp: Milliseconds


class Delta(Struct, frozen=True, gc=False):
    """A change of an open part; ``part_delta_kind`` says which fields count."""

    part_delta_kind: str
    content_delta: str | None = None
    signature_delta: str | None = None
    tool_call_id: str | None = None


class Part(Struct, frozen=True, gc=False):
    """A part of a model's response, or what a tool call came to; ``part_kind`` says which fields count."""

    part_kind: str
    content: Raw = _NOTHING
    id: str | None = None
    signature: str | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    args: Raw = _NOTHING
    outcome: str | None = None

    @property
    def text(self) -> str:
        """The content, which must be text.

        Raises:
            ItemError: it is something else.

        """
        return _text(self.content, "part.content")

    @property
    def arguments(self) -> str | None:
        """The argument text of a tool call, or None when it has no arguments.

        Raises:
            ItemError: the arguments cannot be read.

        """
        return readable(self.args)


class NativeEvent(Struct, frozen=True, gc=False):
    """An event of Pydantic AI's stream."""

    event_kind: str
    index: int = -1
    delta: Delta | None = None
    part: Part | None = None


class CapabilityEvent(Struct, frozen=True, gc=False):
    """An event of a capability, under its own kind."""

    kind: str


class InputEvent(Struct, frozen=True, gc=False):
    """What a person or the Harness gave the agent to read. ``content`` is text or the description of a medium."""

    kind: Literal["a13n.input.text", "a13n.input.media"]
    input_id: str
    source: str
    content: Raw
    metadata: Raw


class ExtensionEvent(Struct, frozen=True, gc=False):
    """An observation of the Harness itself."""

    kind: str
    payload: Raw = _NOTHING


class Lifecycle(Struct, frozen=True, gc=False):
    """The payload of a lifecycle extension, as far as it decides anything."""

    type: Any = None
    request_index: Any = None


class Delegation(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """An inline delegation: a parent started a child run, or took its outcome. Bounds are those of the Harness."""

    type: Literal["inline_delegation"]
    invocation_id: Annotated[str, Meta(pattern=r"^delegation-[A-Za-z0-9_-]+\Z", max_length=128)]
    action: Literal["started", "completed", "failed"]
    child_instance_id: Annotated[str, Meta(min_length=1, max_length=128)]
    subagent: Annotated[str, Meta(min_length=1, max_length=128)]
    status: Annotated[str, Meta(min_length=1, max_length=128)]
    parent_run_id: Annotated[str, Meta(min_length=1, max_length=256)]
    parent_agent_instance_id: Annotated[str, Meta(min_length=1, max_length=256)]
    parent_tool_call_id: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    child_run_id: Annotated[str, Meta(min_length=1, max_length=256)] | None = None

    def __post_init__(self) -> None:
        if self.child_run_id is None and self.action != "failed":
            raise ValueError(f"a delegation that {self.action} needs `child_run_id`")


class ToolExtra(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A tool's own observation, which names itself."""

    tool_call_id: Annotated[str, Meta(min_length=1, max_length=256)]
    tool_name: Annotated[str, Meta(min_length=1, max_length=256)]
    tool_id: Annotated[str, Meta(min_length=1, max_length=256)]
    name: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9]*(?:[._-][a-z0-9]+)*\Z", max_length=256)]
    value: Raw
    type: Literal["tool_extra"] = "tool_extra"


class _Kind(Struct, frozen=True, gc=False):
    event_kind: str


class _PlainNumbers(dict[str, float]):
    """Numbers that msgspec writes as Python does. Tables repeat theirs, and to look one up is half of reading it."""

    def __missing__(self, text: str) -> float:
        number = float(text)
        if number and not 1e-4 <= abs(number) < 1e16:
            raise ValueError("Python writes this number with an exponent")
        if len(self) < _NUMBERS_KEPT and len(text) <= _NUMBER_CHARACTERS:
            self[text] = number
        return number


_NUMBERS_KEPT = 4096
_NUMBER_CHARACTERS = 8

plain_number = _PlainNumbers().__getitem__
"""Read a number, as a decoder's hook. Raises ValueError for one that msgspec does not write as Python does."""

_read_plain = msgspec.json.Decoder(float_hook=plain_number).decode
_write_sorted = msgspec.json.Encoder(order="sorted").encode
_native = msgspec.json.Decoder(NativeEvent).decode
_kind = msgspec.json.Decoder(_Kind).decode
_strings = msgspec.json.Decoder(str).decode


def read_native(event: Raw) -> NativeEvent:
    """Return what decides in an event of Pydantic AI.

    Raises:
        ItemError: it has no kind, or is a part event or tool result without the fields these need.

    """
    try:
        return _native(event)
    except msgspec.MsgspecError as error:
        # An event of another kind may use the same names for other things.
        try:
            kind = _kind(event).event_kind
        except msgspec.MsgspecError:
            raise ItemError(f"not a Pydantic AI event: {error} (within `event`)") from error
        if kind in _PART_EVENTS:
            raise ItemError(f"not a valid {kind} event: {error} (within `event`)") from error
        return NativeEvent(kind)


def read[T](data: Raw, kind: type[T]) -> T:
    """Return what decides in other bytes.

    Raises:
        ItemError: they are not of this kind; the message says where.

    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise ItemError(f"not a valid {kind.__name__}: {error} (within `event`)") from error


def read_or_none[T](data: Raw, kind: type[T]) -> T | None:
    """Return what decides in other bytes, or None when they are not of this kind."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError:
        return None


def readable(data: Raw) -> str | None:
    """Return a JSON value as text: a string as it is, anything else as sorted compact JSON; None for null or nothing.

    Raises:
        ItemError: the JSON cannot be read.

    """
    if data in SAYS_NOTHING:
        return None
    return _text(data, "value") if memoryview(data)[0] == _STRING else json_text(data)


def json_text(encoded: Raw | bytes) -> str:
    """Return JSON as the text that Python writes for it: compact, with sorted keys.

    Raises:
        ItemError: the JSON cannot be read.

    """
    try:
        return sorted_text(_read_plain(encoded))
    except (msgspec.MsgspecError, RecursionError):
        pass  # The long way reads it, or says what is wrong.
    try:
        return dump_text(from_json(bytes(encoded)))
    except ValueError as error:
        raise ItemError(f"not readable JSON: {error}") from error


def sorted_text(value: Any) -> str:
    """Write a JSON value, whose numbers :func:`plain_number` has read, as compact text with sorted keys."""
    return _write_sorted(value).decode()


def dump_text(value: Any) -> str:
    """Write a JSON value as compact text with sorted keys."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _text(data: Raw, where: str) -> str:
    if data == _NOTHING:
        raise ItemError(f"expected text, got nothing - at `$.{where}`")
    try:
        return _strings(data)
    except msgspec.MsgspecError as error:
        raise ItemError(f"expected text - at `$.{where}`: {error}") from error
