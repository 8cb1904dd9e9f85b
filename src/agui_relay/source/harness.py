"""Makes items of the live objects of a13n-harness: what of each is public, and how it is written.

The hot events (deltas of text, thinking and arguments) are written by structs with the fields of their classes. All
others go through their own class's serialization, without media. Batches of messages are reduced to ids; a tool's
result to what its tool returned, without what only the model sees. No agent library is imported: a live object is
an instance of a class that is loaded.
"""

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct
from pydantic import BaseModel

from agui_relay.source import media, terminal
from agui_relay.source.content import tool_result_content
from agui_relay.source.errors import ItemError
from agui_relay.source.items import HarnessItem, Projection, Source
from agui_relay.source.plain import Json, adapter_of, clean, clean_text, encoded, omitted, record, tool_value

FAILURE_CHARACTERS = 4096
"""The text of a failed result that a display shows is cut here."""

LIVE_ITEM = "a live item of a13n_harness (HarnessEvent or HarnessRunResultEvent)"
"""What is accepted as one, in the words of an error."""

_TOOL_CONTENT = "a13n.tool-content"  # The metadata key under which the Harness says which content is the tool's own.

type _Written = tuple[Source, bytes, Projection | None]


class _TextDelta(Struct, gc=False):
    content_delta: str
    provider_name: str | None
    provider_details: None = None
    citations_delta: None = None
    part_delta_kind: str = "text"


class _ThinkingDelta(Struct, gc=False):
    content_delta: str | None
    signature_delta: str | None
    provider_name: str | None
    provider_details: None = None
    part_delta_kind: str = "thinking"


class _ToolCallDelta(Struct, gc=False):
    tool_name_delta: str | None
    args_delta: str | None
    tool_call_id: str | None
    provider_name: str | None
    provider_details: None = None
    part_delta_kind: str = "tool_call"


class _PartDelta(Struct, gc=False):
    index: int
    delta: _TextDelta | _ThinkingDelta | _ToolCallDelta
    event_kind: str = "part_delta"


_encode = msgspec.json.Encoder().encode
_writers: dict[type, Callable[[Any], _Written]] = {}


def from_harness(live: Any) -> HarnessItem:
    """Return the item of a live ``HarnessEvent`` or ``HarnessRunResultEvent``.

    Raises:
        TypeError: it is neither.
        ItemError: it is broken: its event has no kind, or is not what its class says.

    """
    kind = type(live)
    if kind not in _item_types:
        _learn(live)
    try:
        return _item(live, _item_types[kind])
    except ItemError:
        raise
    except Exception as error:
        raise ItemError(f"a live item could not be written: {type(error).__name__}: {error}") from error


def _item(live: Any, terminal_result: bool) -> HarnessItem:
    occurred_at: datetime = live.occurred_at
    timestamp = int(occurred_at.timestamp() * 1000)
    thread_id, run_id = live.thread_id, live.run_id
    if not (thread_id.isascii() and run_id.isascii()):
        thread_id, run_id = clean_text(thread_id), clean_text(run_id)
    at = _iso(occurred_at)
    if terminal_result:
        result = Raw(encoded(terminal.write_result(live.result)))
        return HarnessItem(
            "result", thread_id, run_id, live.sequence, at, result=result, projection=Projection(timestamp)
        )
    event = live.event
    write = _writers.get(type(event)) or _writer(type(event))
    source, data, projection = write(event)
    if projection is None:
        projection = Projection(timestamp)
    else:
        projection = msgspec.structs.replace(projection, timestamp=timestamp)
    return HarnessItem(source, thread_id, run_id, live.sequence, at, Raw(data), projection=projection)


# Which classes are items; True for those of a terminal result. Filled by what is met.
_item_types: dict[type, bool] = {}


def _learn(live: Any) -> None:
    harness = cast(Any, sys.modules.get("a13n_harness.events"))
    if harness is None or not isinstance(live, harness.HarnessEvent | harness.HarnessRunResultEvent):
        raise TypeError(f"expected {LIVE_ITEM}, got {type(live).__name__}")
    _item_types[type(live)] = isinstance(live, harness.HarnessRunResultEvent)


def _iso(at: datetime) -> str:
    if at.tzinfo is UTC and at.microsecond:
        # The same text as isoformat(), for a tenth of its time.
        return _encode(at)[1:-2].decode() + "+00:00"
    return at.isoformat()


def _writer(kind: type) -> Callable[[Any], _Written]:
    """Find out, once for every class, how its events are written."""
    harness = cast(Any, sys.modules["a13n_harness.events"])
    messages = cast(Any, sys.modules["pydantic_ai.messages"])
    known: tuple[tuple[type, Callable[[Any], _Written]], ...] = (
        (harness.HarnessExtensionEvent, _extension),
        (messages.EnqueuedMessagesEvent, _enqueued_messages),
        (messages.DeferredToolResultsEvent, _deferred_results),
        (messages.CapabilityEvent, _capability),
        (messages.PartDeltaEvent, _part_delta),
        (messages.FunctionToolResultEvent, _tool_result),
        (messages.OutputToolResultEvent, _tool_result),
    )
    write = next((write for base, write in known if issubclass(kind, base)), _native)
    _writers[kind] = write
    return write


def _part_delta(event: Any) -> _Written:
    delta = event.delta
    written: _TextDelta | _ThinkingDelta | _ToolCallDelta
    kind = getattr(delta, "part_delta_kind", None)
    if kind == "speech" or delta.provider_details is not None:
        return _native(event)
    if kind == "text" and delta.citations_delta is None:
        written = _TextDelta(delta.content_delta, delta.provider_name)
    elif kind == "thinking":
        written = _ThinkingDelta(delta.content_delta, delta.signature_delta, delta.provider_name)
    elif kind == "tool_call" and type(delta.args_delta) is not dict:
        written = _ToolCallDelta(delta.tool_name_delta, delta.args_delta, delta.tool_call_id, delta.provider_name)
    else:
        return _native(event)
    try:
        return "pydantic_ai", _encode(_PartDelta(event.index, written)), None
    except (TypeError, ValueError):
        return _native(event)


def _native(event: Any) -> _Written:
    plain = record(event)
    if "event_kind" not in plain:
        kind = getattr(event, "event_kind", None)
        if not isinstance(kind, str):
            raise ItemError(f"an event needs an `event_kind`, {type(event).__name__} has none")
        plain["event_kind"] = clean_text(kind)
    return "pydantic_ai", encoded(plain), None


def _capability(event: Any) -> _Written:
    messages = cast(Any, sys.modules["pydantic_ai.messages"])
    if isinstance(event, messages.UnknownCapabilityEvent):
        return "capability", encoded(_unknown_capability(event)), None
    plain = record(event)
    harness = cast(Any, sys.modules["a13n_harness.events"])
    if isinstance(event, harness.InputTextEvent | harness.InputMediaEvent) and plain.get("metadata") is None:
        # What has no JSON form in it must not take along that the input is hidden.
        plain["metadata"] = record(event.metadata)
    return "capability", encoded(plain), None


def _unknown_capability(event: Any) -> dict[str, Json]:
    """Write an event whose class is not loaded here, as that class would: its own fields are not set apart."""
    adapter = adapter_of(type(event))
    if adapter is not None and not media.holds_payload(event):
        with suppress(Exception):
            plain: dict[str, Json] = clean(adapter.dump_python(event, mode="json", by_alias=True, warnings="error"))
            return plain
    # The kind is that of a class which is loaded and does not fit; or there is media.
    envelope = {name: clean(getattr(event, name)) for name in media.field_names(type(event)) if name != "data"}
    payload = tool_value(event.data or {}, None)
    return (payload if isinstance(payload, dict) else {}) | envelope


def _extension(event: BaseModel) -> _Written:
    return "harness", encoded(clean(event.model_dump(mode="json", by_alias=True))), None


def _enqueued_messages(event: Any) -> _Written:
    plain = {"event_kind": event.event_kind, "enqueue_id": event.enqueue_id}
    return "pydantic_ai", encoded(clean(plain)), None


def _deferred_results(event: Any) -> _Written:
    results = event.results
    plain = {
        "event_kind": event.event_kind,
        "call_ids": list(results.calls),
        "approval_ids": list(results.approvals),
    }
    return "pydantic_ai", encoded(clean(plain)), None


def _tool_result(event: Any) -> _Written:
    part = event.part
    messages = cast(Any, sys.modules["pydantic_ai.messages"])
    plain: dict[str, Json]
    if isinstance(part, messages.ToolReturnPart):
        value = _execution_value(part.content, part.metadata)
        readable = tool_result_content(value)
        if part.outcome == "success":
            content = tool_value(value)
            plain = {"part": _tool_part(part, content, None)}
            projection = _readable(readable, content, isinstance(value, str))
        else:
            plain = {"part": _tool_part(part, tool_value(value, None), _public_metadata(part.metadata))}
            projection = Projection(failure=_failure_text(readable))
    else:
        # A retry prompt: deprecated by Pydantic AI, and still handed out.
        plain = {"part": record(part)}
        projection = Projection(failure=_failure_text(tool_result_content(getattr(part, "content", None))))
    if hasattr(event, "content"):
        plain["content"] = None
    plain["event_kind"] = event.event_kind
    return "pydantic_ai", encoded(plain), projection


def _readable(readable: str | list[Any], content: Json, is_text: bool) -> Projection | None:
    """Return what a client shows, unless the content says it itself: text as it is, anything else as JSON."""
    if not isinstance(readable, str):
        return Projection(content=_parts_json(readable))
    if isinstance(content, str) and not is_text:
        # A number or date that JSON writes as a string is no text.
        return Projection(content=Raw(encoded(readable)))
    return None


def _execution_value(content: Any, metadata: Any) -> Any:
    """Return what the tool itself returned, without the supplements that only the model is shown."""
    if not isinstance(metadata, Mapping) or _TOOL_CONTENT not in metadata:
        return content
    try:
        return content[metadata[_TOOL_CONTENT]["result_index"]]
    except (IndexError, KeyError, TypeError):
        return omitted(content)  # Which of it is for the model only cannot be told.


def _tool_part(part: Any, content: Json, metadata: Json) -> dict[str, Json]:
    with suppress(Exception):
        adapter = adapter_of(type(part))
        if adapter is not None:
            bare = replace(part, content="", metadata=None)
            dumped = adapter.dump_python(bare, mode="json", by_alias=True, warnings=False)
            plain: dict[str, Json] = clean({**dumped, "metadata": metadata})
            return plain | {"content": content}
    return {
        "tool_name": clean(part.tool_name),
        "content": content,
        "tool_call_id": clean(part.tool_call_id),
        "metadata": metadata,
        "outcome": clean(part.outcome),
        "part_kind": "tool-return",
    }


def _public_metadata(metadata: Any) -> Json:
    """Return the application's metadata if it has a JSON form as a whole, and no media."""
    if metadata is None or media.holds_payload(metadata):
        return None
    adapter = adapter_of(cast(type, Any))
    try:
        return None if adapter is None else clean(adapter.dump_python(metadata, mode="json", warnings="error"))
    except Exception:
        return None


def _failure_text(readable: str | list[Any]) -> str:
    if not isinstance(readable, str):
        # With the spaces that Python puts where nobody asks it not to: that is how displays have shown it.
        readable = json.dumps([part.model_dump(mode="json", by_alias=True) for part in readable])
    return readable[:FAILURE_CHARACTERS]


def _parts_json(parts: Any) -> Raw:
    return Raw(encoded([part.model_dump(mode="json", by_alias=True) for part in parts]))
