"""Random streams of live Harness objects: what a run may put out, and what it must never be taken for.

A stream is grown run by run (model requests with parts, tool calls and their results, observations of every
kind, children, a terminal result), then the runs are interleaved and numbered. Everything is drawn through
hypothesis, so that a failure shrinks.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Any

from a13n_harness.content import ContentItem, ContentMetadata
from a13n_harness.events import (
    HarnessEvent,
    HarnessExtensionEvent,
    HarnessRunResultEvent,
    InputMediaEvent,
    InputTextEvent,
    input_events,
)
from a13n_harness.result import HarnessRunResult, SafeFailure
from a13n_harness.state import HarnessState
from a13n_harness.tools.client import CLIENT_TOOL_MARKER_KEY
from a13n_harness.tools.deferred import DeferredToolCall, DeferredToolRequests
from a13n_harness.usage import RunUsageSummary
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter
from pydantic_ai import messages as ai
from pydantic_ai.tools import DeferredToolRequests as NativeRequests
from pydantic_ai.tools import DeferredToolResults as NativeResults

type Item = HarnessEvent | HarnessRunResultEvent[Any]

SNIPPETS = (
    "",
    "a",
    "Hello ",
    "world. ",
    "字",
    "é",
    "e\u0301",
    "😀",
    '"',
    '\\"',
    "\\",
    "\n\r\t",
    "\x00\x1b\x7f",
    "</script>",
    "\u2028\u2029",
    "\ufeff",
    "\\u0041",
    "a13n.stream.fragment",
    "data: x\n\n",
)
LARGE = ("x" * 49_000, "字" * 17_000, '"\\' * 30_000, "y" * 200_000, "😀\n" * 20_000)
NAMES = ("search", "read_file", "ask", "werkzeug-ü", "a.b")


@dataclass(kw_only=True)
class ProgressEvent(ai.CapabilityEvent, namespace="test.oracle", name="progress"):
    """A capability event of an application's own class, with types that need its serializers."""

    done: int
    ratio: float = 0.5
    note: str = ""
    when: dt.datetime | None = None
    cost: Decimal | None = None
    tags: set[str] = field(default_factory=set)
    data_: dict[str, Any] = field(default_factory=dict)


class Preview(BaseModel):
    title: str
    size: int = Field(default=3, serialization_alias="sizeBytes")
    when: dt.datetime | None = None


@dataclass(kw_only=True)
class PreviewEvent(ai.CapabilityEvent, namespace="test.oracle", name="preview"):
    preview: Preview


@dataclass(kw_only=True)
class StepEvent(ai.CustomEvent, name="test_oracle_step"):
    """An application event of Pydantic AI, not a capability's."""

    step: int
    text: str = ""


@dataclass
class MeterEvent:
    """What only has an event kind is an event too."""

    value: float
    text: str = ""
    event_kind: str = "test_oracle_meter"


class GaugeEvent(BaseModel):
    event_kind: str = "test_oracle_gauge"
    level: int = Field(default=1, serialization_alias="Level")


@dataclass
class Weather:
    city: str
    degrees: float
    at: dt.datetime | None = None


class Opaque:
    """Has no JSON form."""


@cache
def _integers(below: int) -> st.SearchStrategy[int]:
    return st.integers(0, below - 1)


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_INTS = st.integers(-(2**70), 2**70)


class Source:
    """The choices of one stream, all made through hypothesis. Zero is the plain choice."""

    def __init__(self, draw: st.DrawFn, *, rare: bool = False, complete: bool = False) -> None:
        self.draw = draw
        self.rare = rare
        """May show what the reference is known to get wrong."""
        self.complete = complete
        """The run announces and ends all it should, and no id comes twice."""
        self.numbers = 0
        self.large_left = 1

    def below(self, bound: int) -> int:
        return self.draw(_integers(bound))

    def chance(self, percent: int) -> bool:
        return self.below(100) >= 100 - percent

    def pick[T](self, values: Sequence[T]) -> T:
        return values[self.below(len(values))]

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def text(self) -> str:
        choice = self.below(40)
        if choice == 39 and self.large_left and self.chance(15):
            self.large_left -= 1
            return self.pick(LARGE)
        if choice >= 36:
            return self.draw(_TEXT)
        return SNIPPETS[choice % len(SNIPPETS)]

    def json(self, depth: int = 2) -> Any:
        choice = self.below(11 if depth else 8)
        match choice:
            case 0 | 1 | 2:
                return self.text()
            case 3:
                return self.pick((0, 1, -1, 2**53 + 1, 10**30, True, False))
            case 4:
                return self.pick((1.5, -0.0, 1e16, 1e-7, 1.7976931348623157e308, 5e-324, 100.0))
            case 5:
                return None
            case 6:
                return self.draw(_FLOATS)
            case 7:
                return self.draw(_INTS)
            case 8:
                return [self.json(depth - 1) for _ in range(self.below(3))]
            case _:
                return self.mapping(depth)

    def mapping(self, depth: int = 2) -> dict[str, Any]:
        keys = ("city", "b", "a", "type", "name", "", "字", "metadata", "token_count", "x" * 40, '"')
        return {self.pick(keys): self.json(depth - 1) for _ in range(self.below(4))}


@dataclass
class Run:
    """One run while its items are grown: who it is, and what it has yet to say."""

    run_id: str
    thread_id: str
    parent: Run | None = None
    entries: list[Entry] = field(default_factory=list)
    sequence: int = 0
    open_indexes: set[int] = field(default_factory=set)


@dataclass
class Entry:
    """Something a run says: an event of `run`, its result, or the place where a child may begin to speak."""

    run: Run
    event: Any = None
    result: HarnessRunResult[Any] | None = None
    child: Run | None = None


# --- parts ---------------------------------------------------------------------------------------------------


def text_part(source: Source, index: int) -> list[Any]:
    """Start, deltas and end of a text part; each of them may be missing."""
    identity = f"msg-{source.number()}" if source.chance(30) else None
    provider: dict[str, Any] = {"provider_name": "openai"} if identity else {}
    whole = ""
    events: list[Any] = []
    started = source.chance(88) or (identity is not None and not (source.rare and source.chance(10)))
    if started:
        whole = source.text()
        events.append(ai.PartStartEvent(index=index, part=ai.TextPart(whole, id=identity, **provider)))
    for _ in range(source.below(5)):
        delta = source.text()
        whole += delta
        details = {"a": 1} if source.chance(5) else None
        events.append(ai.PartDeltaEvent(index=index, delta=ai.TextPartDelta(delta, provider_details=details)))
    if source.chance(90):
        if source.rare and source.chance(15):
            whole += source.text()
        ended = ai.TextPart("" if source.chance(5) else whole, id=None if source.chance(10) else identity, **provider)
        events.append(ai.PartEndEvent(index=index, part=ended, next_part_kind=source.pick((None, "text", "tool-call"))))
    return events


def thinking_part(source: Source, index: int) -> list[Any]:
    # Providers give the summaries of one reasoning item one id.
    shared = source.pick((None, "rs_1", "rs_1"))
    provider: dict[str, Any] = {"provider_name": "openai"} if shared else {}
    events: list[Any] = []
    whole = ""
    signature: str | None = None
    if source.chance(85):
        whole = source.text()
        signature = source.pick((None, None, "sig-a"))
        events.append(ai.PartStartEvent(index=index, part=ai.ThinkingPart(whole, id=shared, signature=signature)))
    for _ in range(source.below(4)):
        delta = source.pick((None, "", source.text()))
        whole += delta or ""
        signed = source.pick((None, None, "", "sig-b"))
        signature = signed or signature
        # A merge callback of a provider has no JSON form and is not meant to have one.
        details: Any = source.pick((None, {"k": 1}, lambda details: details or {}))
        change = ai.ThinkingPartDelta(content_delta=delta, signature_delta=signed, provider_details=details)
        events.append(ai.PartDeltaEvent(index=index, delta=change))
    if source.chance(90):
        if source.rare and source.chance(15):
            whole += source.text()
        if source.chance(20):
            signature = signature or "sig-end"
        part = ai.ThinkingPart(whole, id=shared, signature=signature, **provider)
        events.append(ai.PartEndEvent(index=index, part=part))
    return events


def tool_part(source: Source, index: int, calls: list[ai.ToolCallPart]) -> list[Any]:
    """Stream a tool call as providers do; its completed part is added to `calls`."""
    call_id = f"call_{source.number()}" if source.complete else source.pick((f"call_{source.number()}", "call_1"))
    name = source.pick(NAMES)
    form = source.below(4)
    args: Any = None if form == 0 else source.mapping() if form == 1 else json.dumps(source.mapping())
    if form == 3 and not source.complete and source.chance(30):
        args = source.text()
    events: list[Any] = []
    started = source.chance(88)
    if started:
        begun = source.pick((None, "", args))
        events.append(ai.PartStartEvent(index=index, part=ai.ToolCallPart(name, begun, call_id)))
    for number in range(source.below(4)):
        delta: Any = source.pick((None, "", '{"a', {"b": 1}, source.text()))
        known = started or number > 0
        identity = source.pick((None, call_id)) if known else call_id
        if source.rare and not known and source.chance(30):
            identity = None
        change = ai.ToolCallPartDelta(
            tool_name_delta=source.pick((None, None, name)), args_delta=delta, tool_call_id=identity
        )
        events.append(ai.PartDeltaEvent(index=index, delta=change))
    if source.chance(92):
        late = source.rare and source.chance(8)
        part = ai.ToolCallPart(name, args, "call_late" if late else call_id)
        events.append(ai.PartEndEvent(index=index, part=part))
        calls.append(part)
    return events


def native_part(source: Source, index: int) -> list[Any]:
    call_id = f"native_{source.number()}"
    args: Any = source.pick((None, '{"query":"x"}', {"query": source.text()}))
    call = ai.NativeToolCallPart("web_search", args, call_id, provider_name="openai")
    events: list[Any] = [ai.PartStartEvent(index=index, part=call)]
    if source.chance(30):
        delta = ai.ToolCallPartDelta(args_delta=source.text(), tool_call_id=source.pick((None, call_id)))
        events.append(ai.PartDeltaEvent(index=index, delta=delta))
    if source.chance(90):
        events.append(ai.PartEndEvent(index=index, part=call))
    return events


def native_return_part(source: Source, index: int) -> list[Any]:
    content: Any = source.json()
    if source.rare and source.chance(20):
        content = [content, binary(source)]
    part = ai.NativeToolReturnPart("web_search", content, "native_1", provider_name="openai", timestamp=moment(source))
    return [ai.PartStartEvent(index=index, part=part), ai.PartEndEvent(index=index, part=part)]


def other_part(source: Source, index: int) -> list[Any]:
    choice = source.below(3)
    part: Any
    if choice == 0:
        part = ai.CompactionPart(source.pick((None, source.text())), provider_details={"encrypted_content": "zz"})
        return [ai.PartStartEvent(index=index, part=part), ai.PartEndEvent(index=index, part=part)]
    if choice == 1 or not source.rare:
        part = ai.SpeechPart(speaker="assistant", transcript=source.text())
        deltas = [
            ai.SpeechPartDelta(
                speaker="assistant",
                transcript_delta=source.text(),
                transcript=source.pick((None, source.text())),
                audio_chunk=source.pick((b"\xff\x00", b"plain")) if source.rare and source.chance(30) else None,
            )
            for _ in range(source.below(3))
        ]
        return [
            ai.PartStartEvent(index=index, part=part),
            *(ai.PartDeltaEvent(index=index, delta=delta) for delta in deltas),
            ai.PartEndEvent(index=index, part=part),
        ]
    part = ai.FilePart(binary(source))
    return [ai.PartStartEvent(index=index, part=part), ai.PartEndEvent(index=index, part=part)]


# --- values --------------------------------------------------------------------------------------------------


def moment(source: Source) -> dt.datetime:
    return dt.datetime(2026, 3, 1 + source.below(28), 12, 0, 0, source.below(1_000_000), tzinfo=dt.UTC)


def binary(source: Source) -> ai.BinaryContent:
    return ai.BinaryContent(source.pick((b"\x89PNG\xff", b"", b"text")), media_type=source.pick(MEDIA_TYPES))


ZONES = (dt.UTC, dt.UTC, dt.UTC, dt.timezone(dt.timedelta(hours=-7, minutes=30)), None)
MEDIA_TYPES = ("image/png", "audio/mpeg", "video/mp4", "application/pdf", "text/plain")


def media(source: Source) -> Any:
    match source.below(9):
        case 0:
            return binary(source)
        case 1:
            return ai.ImageUrl(source.pick(("https://example.com/a.png", "https://example.com/none")))
        case 2:
            return ai.ImageUrl("data:image/png;base64,AAAA", media_type="image/png")
        case 3:
            return ai.AudioUrl("https://example.com/a.mp3")
        case 4:
            return ai.VideoUrl("https://youtu.be/x" if source.chance(30) else "https://example.com/a.mp4")
        case 5:
            return ai.DocumentUrl("s3://bucket/a.pdf", media_type=source.pick(("application/pdf", "text/plain")))
        case 6:
            return ai.UploadedFile("file-1", "openai", media_type=source.pick((None, "image/png", "application/pdf")))
        case 7:
            return ai.TextContent(source.text(), metadata=source.pick((None, {"display": False}, {"k": 1}, "opaque")))
        case _:
            value: Any = source.text() if source.chance(50) else binary(source)
            return ContentItem(value, ContentMetadata(display=not source.chance(40), source_id="s"))


def result_value(source: Source) -> Any:
    match source.below(12):
        case 0 | 1 | 2:
            return source.text()
        case 3 | 4:
            return source.json()
        case 5:
            return Weather(source.text(), source.pick((1.5, -3.0)), source.pick((None, moment(source))))
        case 6:
            return Preview(title=source.text(), when=source.pick((None, moment(source))))
        case 7:
            return media(source)
        case 8:
            return [source.pick((source.text(), source.json())), media(source)]
        case 9:
            return {"b": media(source), "a": [source.json()], "when": moment(source)}
        case 10:
            return source.pick(((1, "two"), {1: "one", "2": 2}, Decimal("1.50"), {"n": {"m": b"\xff\x00"}}, b"bytes"))
        case _:
            return [Weather("x", 1.0), {"preview": Preview(title="p")}, None, True]


def tool_result(source: Source, call: ai.ToolCallPart) -> Any:
    outcome: Any = source.pick(("success", "success", "success", "failed", "denied", "retried", "interrupted"))
    content, metadata = result_value(source), None
    if source.chance(15):
        content = ["model only", content]
        metadata = {"a13n.tool-content": {"result_index": 1}}
    elif source.chance(15):
        metadata = {"k": source.json(1)}
    retry: Any = ai.RetryInfo("tool_retry", attempt=1) if outcome == "retried" and source.chance(50) else None
    part: Any = ai.ToolReturnPart(
        call.tool_name,
        content,
        call.tool_call_id,
        metadata=metadata,
        outcome=outcome,
        retry=retry,
        timestamp=moment(source),
    )
    if source.rare and source.chance(15):
        errors: Any = [{"type": "missing", "loc": ("a", 0), "msg": "Field required", "input": {"a": 1}}]
        part = retry_prompt(source.pick(("Try again", errors)), call)
    if source.chance(12):
        return ai.OutputToolResultEvent(part)
    extra = source.pick((None, None, "supplement", [binary(source)]))
    return ai.FunctionToolResultEvent(part, content=extra)


def retry_prompt(content: Any, call: ai.ToolCallPart) -> Any:
    """Return the deprecated form of a retry, which older code still hands over."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ai.RetryPromptPart(content, tool_name=call.tool_name, tool_call_id=call.tool_call_id)


# --- observations --------------------------------------------------------------------------------------------


def _extension(kind: Any, payload: Any) -> HarnessExtensionEvent:
    return HarnessExtensionEvent(kind=kind, payload=payload)


def extension(source: Source) -> HarnessExtensionEvent:
    # An extension holds at most 64 KiB: no large text but one that fits.
    allowed, source.large_left = source.large_left, 0
    event = _small_extension(source)
    source.large_left = allowed
    if allowed and source.chance(3):
        source.large_left -= 1
        return _extension(event.kind, {"text": "x" * 49_000})
    return event


def _small_extension(source: Source) -> HarnessExtensionEvent:
    kind = source.pick(
        ("context", "state", "recovery", "invocation", "delegation", "usage", "lifecycle", "tool", "diagnostic")
    )
    if kind == "tool":
        name = source.pick(("filesystem.changed", "Not A Name", "x"))
        payload: Any = {
            "type": "tool_extra",
            "tool_call_id": "call_1",
            "tool_name": "edit",
            "tool_id": "fs",
            "name": name,
            "value": source.json(),
        }
        if source.chance(20):
            payload = source.json()
        return _extension(kind, payload)
    payload = source.json()
    if isinstance(payload, dict) and source.chance(50):
        payload = {**payload, "type": source.pick(("model_request_completed", "context_snapshot", "usage_report"))}
    if kind == "delegation" and isinstance(payload, dict) and payload.get("type") == "inline_delegation":
        payload["type"] = "other"
    return _extension(kind, payload)


def capability(source: Source) -> Any:
    match source.below(4):
        case 0:
            return ProgressEvent(
                done=source.below(9),
                ratio=source.pick((0.25, 1e16, 1e-9)),
                note=source.text(),
                when=source.pick((None, moment(source))),
                cost=source.pick((None, Decimal("1.10"))),
                tags=source.pick((set(), {"one"})),
                data_=source.mapping(),
                tool_call_id=source.pick((None, "call_1")),
            )
        case 1:
            return PreviewEvent(preview=Preview(title=source.text(), when=moment(source)))
        case 2:
            kind = "a13n.stream.fragment" if source.rare and source.chance(10) else "elsewhere.thing"
            payload = {f"p_{key}": value for key, value in source.mapping().items()}
            return ai.UnknownCapabilityEvent(kind=kind, data=payload or None, capability_id="cap")
        case _:
            kind = "elsewhere.other.字"
            return ai.UnknownCapabilityEvent(kind=kind, data={"payload": source.json()}, tool_name=source.pick(NAMES))


def authored_input(source: Source) -> Any:
    origin: Any = source.pick(("user", "steering", "context", "recovery", "async_subagent", "background_process"))
    identity = f"input-{source.number()}"
    if source.chance(40):
        projected = input_events([media(source), ai.CachePoint()], source=origin, input_id=identity)
        if projected:
            return projected[0]
    if source.chance(15):
        content: Any = {"kind": "binary", "size_bytes": 3, "extra": source.json()}
        return InputMediaEvent(input_id=identity, source=origin, content=content)
    metadata = ContentMetadata.model_validate({"display": not source.chance(20), "k": source.json(1)})
    return InputTextEvent(input_id=identity, source=origin, content=source.text(), metadata=metadata)


def delegation(source: Source) -> Any:
    """Observe a delegation that fits nothing else in the stream."""
    if source.complete:
        return extension(source)
    payload = {
        "type": "inline_delegation",
        "invocation_id": "delegation-odd",
        "action": source.pick(("started", "completed", "failed")),
        "child_instance_id": "instance",
        "subagent": "odd",
        "status": "odd",
        "parent_run_id": source.pick(("run-1", "child-1", "child-2", "unknown")),
        "parent_agent_instance_id": "parent",
        "child_run_id": source.pick(("child-1", "child-2", "unknown")),
    }
    return _extension("delegation", payload)


def enqueued(source: Source) -> Any:
    request = ai.ModelRequest(parts=[ai.UserPromptPart([source.text(), binary(source)])])
    parts = (ai.UserPromptPart("late"),) if source.chance(30) else ()
    return ai.EnqueuedMessagesEvent(enqueue_id=f"enqueue-{source.number()}", messages=(request,), parts=parts)


def deferred_results(source: Source) -> Any:
    results = NativeResults(calls={"call_1": binary(source), "字": 2}, approvals={"call_2": source.chance(50)})
    return ai.DeferredToolResultsEvent(results)


def deferred_requests(source: Source) -> Any:
    call = ai.ToolCallPart("ask", source.mapping(), "call_1")
    return ai.DeferredToolRequestsEvent(NativeRequests(calls=[call], metadata={"call_1": {"k": source.json(1)}}))


def realtime(source: Source) -> Any:
    return source.pick(
        (
            ai.RealtimeTurnCompleteEvent(),
            ai.RealtimeInputSpeechStartEvent(item_id="i"),
            ai.RealtimeInputSpeechEndEvent(),
            ai.RealtimeOutputSpeechStartEvent(),
            ai.RealtimeOutputSpeechEndEvent(),
            ai.RealtimeResponseInterruptedEvent(),
            ai.RealtimeInputTranscriptionErrorEvent("no", code="c", content_index=1),
            ai.RealtimeSessionReconnectEvent(state_restored=True),
            ai.RealtimeSessionErrorEvent("broken", recoverable=False),
        )
    )


def application(source: Source) -> Any:
    return source.pick(
        (
            StepEvent(step=3, text=source.text()),
            ai.UnknownCustomEvent(name="elsewhere_step", data={"k": source.json(1)}),
            MeterEvent(source.pick((1.5, 1e16)), source.text()),
            GaugeEvent(level=7),
        )
    )


def tool_notice(source: Source) -> Any:
    call = ai.ToolCallPart(source.pick(NAMES), source.pick((None, source.mapping(), '{"a":1}')), "call_1")
    return source.pick(
        (
            ai.FunctionToolCallEvent(call, args_valid=source.pick((None, True, False))),
            ai.OutputToolCallEvent(call),
            ai.FinalResultEvent(tool_name=source.pick((None, "final")), tool_call_id=None),
            ai.ToolAvailabilityDeltaEvent(part=ai.ToolAvailabilityDeltaPart(tools_added=["a"], tool_call_id="call_1")),
        )
    )


OBSERVATIONS: tuple[Callable[[Source], Any], ...] = (
    extension,
    extension,
    capability,
    authored_input,
    enqueued,
    deferred_results,
    deferred_requests,
    realtime,
    application,
    tool_notice,
    delegation,
)


# --- results -------------------------------------------------------------------------------------------------


def usage(source: Source) -> RunUsageSummary:
    if source.chance(30):
        return RunUsageSummary()
    return RunUsageSummary(
        requests=1,
        input_tokens=source.below(5000),
        output_tokens=source.below(3),
        cache_read_tokens=source.below(3) * 7,
        cache_write_tokens=source.below(2) * 9,
        details=source.pick(({}, {"reasoning_tokens": 5}, {"other": 1})),
    )


def output(source: Source) -> tuple[Any, TypeAdapter[Any] | None]:
    match source.below(9):
        case 0 | 1:
            return source.text(), None
        case 2:
            return source.json(), None
        case 3:
            return Preview(title=source.text(), when=moment(source)), TypeAdapter(Preview)
        case 4:
            return Weather(source.text(), 1.0, moment(source)), None
        case 5:
            return source.pick((float("nan"), {"x": [float("inf")]})), None
        case 6:
            return Opaque(), None
        case 7:
            return source.pick(({1: "a"}, {"when": moment(source)}, (1, 2), b"\xff")), None
        case _:
            return None, None


def deferred_call(source: Source, metadata: dict[str, dict[str, Any]]) -> DeferredToolCall:
    args: Any = source.pick((None, '{"a":1}', source.mapping()))
    model_call = ai.ToolCallPart("ask_client", args, f"call_{source.number()}")
    target = ai.ToolCallPart("target", args, f"target_{source.number()}") if source.chance(30) else model_call
    if source.chance(40):
        metadata[target.tool_call_id] = {CLIENT_TOOL_MARKER_KEY: {"declared_name": source.pick(("ask", "", 3))}}
    elif source.chance(30):
        metadata[target.tool_call_id] = {"k": source.json(1)}
    return DeferredToolCall(model_call=model_call, target_call=target, target_identity="identity")


def run_result(source: Source, run: Run) -> HarnessRunResult[Any]:
    common: dict[str, Any] = {"thread_id": run.thread_id, "run_id": run.run_id, "usage": usage(source)}
    state = HarnessState.new(thread_id=run.thread_id)
    match source.pick(("completed", "completed", "suspended", "failed", "cancelled")):
        case "completed":
            value, adapter = output(source)
            return HarnessRunResult(**common, status="completed", output=value, state=state, _output_adapter=adapter)
        case "suspended":
            metadata: dict[str, dict[str, Any]] = {}
            deferred = DeferredToolRequests(
                calls=[deferred_call(source, metadata) for _ in range(1 + source.below(2))],
                approvals=[deferred_call(source, metadata) for _ in range(source.below(2))],
                metadata=metadata,
            )
            return HarnessRunResult(
                **common, status="suspended", output=None, state=state, suspend_reason="deferred", deferred=deferred
            )
        case "failed":
            failure = SafeFailure.model_validate(
                {
                    "code": source.pick(("model_error", "tool_error")),
                    "message": source.text() or "failed",
                    "details": source.mapping(),
                    "retry_hint": source.pick(("none", "new_run")),
                }
            )
            return HarnessRunResult(**common, status="failed", output=None, state=None, failure=failure)
        case _:
            return HarnessRunResult(**common, status="cancelled", output=None, state=None)


# --- runs ----------------------------------------------------------------------------------------------------


def request(source: Source, run: Run, number: int, children: int) -> None:
    """Let one model request of `run` say what it says: its parts, then the calls it leads to."""

    def say(event: Any) -> None:
        run.entries.append(Entry(run, event))

    if source.complete or source.chance(90):
        payload = {"type": "model_request_started", "request_id": "model-request-1", "message_count": 1}
        payload["request_index"] = source.pick((number, number, number, number, -1, "x")) if source.rare else number
        say(_extension("lifecycle", payload))
    calls: list[ai.ToolCallPart] = []
    parts: list[list[Any]] = []
    indexes = itertools.count(source.pick((0, 0, 0, 0, 7, 2**40)))
    for _ in range(source.below(4)):
        index = next(indexes)
        while index in run.open_indexes and not (source.rare and source.chance(20)):
            index = next(indexes)
        replaces = index in run.open_indexes
        kind = source.below(12)
        if kind <= 3:
            part = text_part(source, index)
        elif kind <= 5:
            part = thinking_part(source, index)
        elif kind <= 8:
            part = tool_part(source, index, calls)
        elif kind == 9:
            part = native_part(source, index)
        elif kind == 10:
            part = native_return_part(source, index)
        else:
            part = other_part(source, index)
        if replaces and not (part and isinstance(part[0], ai.PartStartEvent)):
            # Only a start may come where another part is open.
            continue
        run.open_indexes.discard(index)
        if part and not isinstance(part[-1], ai.PartEndEvent):
            run.open_indexes.add(index)
        parts.append(part)
    together = source.chance(15)
    while any(parts):
        waiting = [part for part in parts if part]
        say((source.pick(waiting) if together else waiting[0]).pop(0))
        if source.chance(12):
            say(source.pick(OBSERVATIONS)(source))
    if source.chance(80):
        payload = {"type": "model_request_completed", "request_id": "model-request-1", "request_index": number}
        if source.chance(10):
            payload = {**payload, "type": "model_request_failed", "error_code": "overloaded", "status_code": 529}
        say(_extension("lifecycle", payload))
    for call in calls:
        if source.chance(80):
            say(ai.FunctionToolCallEvent(call, args_valid=True))
    if children and source.chance(35):
        delegate(source, run, source.pick(calls).tool_call_id if calls else None, children)
    for call in calls:
        if source.chance(90):
            say(tool_result(source, call))
        if source.chance(5):
            say(source.pick(OBSERVATIONS)(source))


def delegate(source: Source, run: Run, call_id: str | None, depth: int) -> None:
    """Let `run` hand over to a child whose items are its own and come in between."""
    number = source.number()
    child = Run(source.pick((f"child-{number}", f'child "{number}" \\字')), f"thread_child{number}", parent=run)
    ends = source.pick(("completed", "completed", "failed", "never"))

    def fact(action: str, status: str, known: bool = True) -> Entry:
        payload = {
            "type": "inline_delegation",
            "invocation_id": f"delegation-{number}",
            "action": action,
            "child_instance_id": "instance",
            "subagent": source.pick(("researcher", "字")),
            "status": status,
            "parent_run_id": run.run_id,
            "parent_agent_instance_id": "parent",
            "parent_tool_call_id": call_id,
            "child_run_id": child.run_id if known else None,
        }
        return Entry(run, _extension("delegation", payload))

    if source.chance(10):
        run.entries.append(fact("failed", "unavailable", known=False))
        return
    grow(source, child, depth - 1)
    if source.complete or source.chance(92):
        child.entries.insert(0, fact("started", "running"))
    if ends != "never":
        child.entries.append(fact(ends, ends if source.chance(80) else "timed_out"))
        if not source.complete and source.chance(8):
            # Whoever was thought to be done speaks again.
            child.entries.extend(Entry(child, event) for event in text_part(source, 0))
            if source.chance(30):
                child.entries.append(fact(source.pick(("completed", "failed", "started")), "again"))
    run.entries.append(Entry(run, child=child))


def grow(source: Source, run: Run, children: int) -> None:
    started = source.chance(93) or run.parent is None
    if started:
        run.entries.append(Entry(run, _extension("lifecycle", {"type": "run_started"})))
    for _ in range(source.below(4)):
        run.entries.append(Entry(run, source.pick(OBSERVATIONS)(source)))
    for number in range(source.below(3) + (run.parent is None)):
        request(source, run, number, children)
        if source.chance(30):
            run.entries.append(Entry(run, source.pick(OBSERVATIONS)(source)))
    if (source.complete and run.parent is None) or source.chance(85):
        run.entries.append(Entry(run, result=run_result(source, run)))


def interleave(source: Source, root: Run) -> list[Item]:
    """Give every entry its place, sequence and time. A child speaks from where it was called, among the others."""
    queues = [root.entries]
    items: list[Item] = []
    now = dt.datetime(2026, 11, 29, 19, 46, 39, source.pick((507_757, 0)), tzinfo=source.pick(ZONES))
    ending: Entry | None = None
    while queues:
        # Mostly the youngest speaks, because its parent waits for it.
        at = len(queues) - 1 if source.chance(80) else source.below(len(queues))
        queue = queues[at]
        entry = queue.pop(0)
        if not queue:
            queues.pop(at)
        if entry.child is not None:
            if entry.child.entries:
                queues.append(entry.child.entries)
            continue
        if entry.result is not None and entry.run is root and queues and (source.complete or source.chance(80)):
            ending = entry
            continue
        now += dt.timedelta(microseconds=source.below(3) * 1_234_567)
        items.append(envelope(source, entry, now))
    if ending is not None:
        items.append(envelope(source, ending, now))
    return items


def envelope(source: Source, entry: Entry, now: dt.datetime) -> Item:
    run = entry.run
    run.sequence += 1 + (source.below(3) == 2)
    fields: dict[str, Any] = {
        "thread_id": run.thread_id,
        "run_id": run.run_id,
        "sequence": run.sequence,
        "occurred_at": now,
    }
    if entry.result is not None:
        return HarnessRunResultEvent(**fields, result=entry.result)
    return HarnessEvent(**fields, event=entry.event)


@st.composite
def streams(draw: st.DrawFn, *, children: int = 2, rare: bool = True, complete: bool = False) -> list[Item]:
    """Grow one valid stream, at most `children` delegations deep.

    `rare` lets one stream in eight hold what the reference is known to get wrong. `complete` grows a run that
    announces and ends all it should, except that a child may stay without an end.
    """
    source = Source(draw, complete=complete)
    source.rare = rare and source.chance(12)
    root = Run("run-1", "thread_root")
    grow(source, root, children)
    return interleave(source, root)


@st.composite
def invalid_streams(draw: st.DrawFn) -> list[Item]:
    """Put items into a valid stream that no source means: a part changes its kind, a call its id, a run its thread."""
    items = draw(streams(rare=False))
    source = Source(draw)
    events = [item for item in items if isinstance(item, HarnessEvent)]
    for _ in range(1 + source.below(3)):
        model = source.pick(events)
        fields: dict[str, Any] = {
            "thread_id": model.thread_id,
            "run_id": model.run_id,
            "sequence": model.sequence,
            "occurred_at": model.occurred_at,
            "event": model.event,
        }
        index = model.event.index if isinstance(model.event, ai.PartStartEvent | ai.PartDeltaEvent) else 0
        match source.below(6):
            case 0:
                fields["thread_id"] = "thread_other"
            case 1:
                fields["event"] = ai.PartDeltaEvent(index=index, delta=ai.TextPartDelta("x"))
            case 2:
                fields["event"] = ai.PartDeltaEvent(index=index, delta=ai.ThinkingPartDelta(content_delta="x"))
            case 3:
                fields["event"] = ai.PartDeltaEvent(
                    index=index, delta=ai.ToolCallPartDelta(args_delta="x", tool_call_id="call_other")
                )
            case 4:
                fields["event"] = ai.PartEndEvent(index=index, part=ai.ThinkingPart("x"))
            case _:
                fields["event"] = ai.PartEndEvent(index=index, part=ai.TextPart("x"))
        items.insert(items.index(model) + 1, HarnessEvent(**fields))
    return items
