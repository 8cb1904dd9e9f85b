"""What the reference gets wrong, and what is right. Every fault that the comparison excuses is here by its name."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import a13n_stream_protocol as reference
import pytest
from a13n_harness.events import HarnessEvent, HarnessExtensionEvent, HarnessRunResultEvent, InputTextEvent
from a13n_harness.result import HarnessRunResult, SafeFailure
from a13n_harness.state import HarnessState
from a13n_harness.tools.deferred import DeferredToolRequests
from a13n_harness.usage import RunUsageSummary
from pydantic_ai import messages as ai

from agui_relay.framing.fragments import CustomEventAssembler
from agui_relay.projection import AguiObservationError
from agui_relay.projection.observer import HarnessAguiStreamObserver
from agui_relay.source import ItemError
from tests.oracle.compare import checked, live, over_the_wire
from tests.oracle.known_faults import FAULTS
from tests.oracle.streams import Item, PreviewEvent, retry_prompt

type Json = dict[str, Any]
type Way = Callable[[Item], Any]

ROOT, THREAD = "run-1", "thread_root"
CALL = ai.ToolCallPart("search", "{}", "call_1")
NOW = dt.datetime(2026, 11, 29, 19, 46, tzinfo=dt.UTC)

both_ways = pytest.mark.parametrize("way", [live, over_the_wire])


class Stream:
    """An observer of ours, and what it is given, item by item."""

    def __init__(self, way: Way) -> None:
        self.way = way
        self.observer = HarnessAguiStreamObserver()
        self.assembler = CustomEventAssembler()
        self.sequence = 0

    def __call__(self, event: Any, run_id: str = ROOT, thread_id: str = THREAD) -> list[Json]:
        self.sequence += 1
        fields: Json = {"thread_id": thread_id, "run_id": run_id, "sequence": self.sequence, "occurred_at": NOW}
        item: Item
        if isinstance(event, HarnessRunResult):
            item = HarnessRunResultEvent(**fields, result=event)
        else:
            item = HarnessEvent(**fields, event=event)
        frames = checked(self.observer.observe(self.way(item)))
        complete = [self.assembler.accept(frame.model_dump(mode="json", by_alias=True)) for frame in frames]
        assert not self.assembler.gap
        return [dict(event) for event in complete if event is not None]


@pytest.fixture(params=[live, over_the_wire], ids=["live", "wire"])
def observe(request: pytest.FixtureRequest) -> Stream:
    stream = Stream(request.param)
    stream(started())
    return stream


def started() -> HarnessExtensionEvent:
    return HarnessExtensionEvent(kind="lifecycle", payload={"type": "run_started"})


def completed(output: Any = None, run_id: str = ROOT, thread_id: str = THREAD) -> HarnessRunResult[Any]:
    return HarnessRunResult(
        thread_id=thread_id,
        run_id=run_id,
        status="completed",
        output=output,
        state=HarnessState.new(thread_id=thread_id),
        usage=RunUsageSummary(),
    )


def types(events: list[Json]) -> list[str]:
    return [event["type"] for event in events]


def reference_fails(event: Any) -> None:
    """Assert that the fault is one: the reference loses this event by an error that is not its own."""
    theirs = reference.HarnessAguiStreamObserver()
    item = HarnessEvent(thread_id=THREAD, run_id=ROOT, sequence=1, occurred_at=NOW, event=event)
    try:
        [frame.model_dump_json(by_alias=True) for frame in theirs.observe(item)]
    except reference.AguiObservationError:
        pytest.fail("the reference refuses this as it should")
    except Exception:
        return
    pytest.fail("the reference has learnt to take this")


def test_every_excused_fault_has_a_test_here() -> None:
    for predicate, _ in FAULTS:
        assert f"test_{predicate.__name__}" in globals()


# --- the reference loses the item ----------------------------------------------------------------------------


@pytest.mark.parametrize("errors", [False, True])
def test_retry_prompt_result(observe: Stream, errors: bool) -> None:
    content: Any = [{"type": "missing", "loc": ("a",), "msg": "Field required", "input": {}}] if errors else "Again"
    part = retry_prompt(content, CALL)
    reference_fails(ai.FunctionToolResultEvent(part))
    (event,) = observe(ai.FunctionToolResultEvent(part))
    assert (event["type"], event["name"]) == ("CUSTOM", "a13n.pydantic_ai.function_tool_result")
    shown = event["value"]["event"]["part"]
    assert shown["tool_call_id"] == "call_1"
    (event,) = observe(ai.OutputToolResultEvent(part))
    assert event["name"] == "a13n.pydantic_ai.output_tool_result"
    assert ("Field required" if errors else "Again") in json.dumps(shown["content"])


class Opaque:
    pass


def cycle() -> list[Any]:
    value: list[Any] = [1]
    value.append(value)
    return value


def nested(depth: int) -> Any:
    value: Any = "deep"
    for _ in range(depth):
        value = [value]
    return value


@dataclass
class Holder:
    value: Any


@pytest.mark.parametrize(
    "content",
    [
        float("nan"),
        {"a": [float("inf"), 1]},
        Opaque(),
        {"kept": 1, "lost": Opaque()},
        cycle(),
        {"cycle": cycle()},
        nested(300),
        Holder(Opaque()),
        {"set": {Opaque()}},
    ],
    ids=["nan", "infinity", "object", "object inside", "cycle", "cycle inside", "deep", "record", "set"],
)
def test_results_without_json_form_still_answer_their_call(observe: Stream, content: Any) -> None:
    observe(ai.PartEndEvent(index=0, part=CALL))
    event = ai.FunctionToolResultEvent(ai.ToolReturnPart("search", content, "call_1", timestamp=NOW))
    reference_fails(event)
    (result,) = observe(event)
    assert (result["type"], result["toolCallId"]) == ("TOOL_CALL_RESULT", "call_1")
    assert isinstance(result["content"], str)
    assert result["content"]
    assert "NaN" not in result["content"].replace("NaN omitted", "")
    assert "Opaque object at" not in result["content"]
    if isinstance(content, dict) and "kept" in content:
        assert json.loads(result["content"])["kept"] == 1


def test_metadata_of_a_failed_result_does_not_leave(observe: Stream) -> None:
    part = ai.ToolReturnPart("search", "no", "call_1", metadata={"app": Opaque()}, outcome="failed", timestamp=NOW)
    reference_fails(ai.FunctionToolResultEvent(part))
    (event,) = observe(ai.FunctionToolResultEvent(part))
    assert event["name"] == "a13n.pydantic_ai.function_tool_result"
    assert event["value"]["event"]["part"]["content"] == "no"
    assert "Opaque" not in json.dumps(event)


@dataclass(kw_only=True)
class BlobEvent(ai.CapabilityEvent, namespace="test.oracle", name="blob"):
    blob: bytes


@pytest.mark.parametrize(
    "event",
    [
        BlobEvent(blob=b"\xff\xfe\x00"),
        ai.UnknownCapabilityEvent(kind="elsewhere.blob", data={"deep": [b"\xff\xfe\x00"]}),
        ai.PartDeltaEvent(index=0, delta=ai.SpeechPartDelta(speaker="assistant", audio_chunk=b"\xff\xfe\x00")),
        ai.FunctionToolCallEvent(ai.ToolCallPart("search", {"blob": b"\xff\xfe\x00"}, "call_1")),
        ai.PartStartEvent(index=0, part=ai.ToolCallPart("search", {"blob": b"\xff\xfe\x00"}, "call_1")),
        ai.PartDeltaEvent(index=0, delta=ai.ToolCallPartDelta(args_delta={"blob": b"\xff\xfe\x00"}, tool_call_id="c")),
    ],
)
def test_bytes_that_are_no_text_are_omitted_with_their_size(observe: Stream, event: Any) -> None:
    reference_fails(event)
    (custom,) = observe(event)
    shown = json.dumps(custom["value"]["event"])
    assert custom["type"] == "CUSTOM"
    assert '"size_bytes": 3' in shown


def test_bytes_in_arguments_leave_a_whole_call(observe: Stream) -> None:
    event = ai.PartEndEvent(index=0, part=ai.ToolCallPart("search", {"blob": b"\xff\xfe\x00", "a": 1}, "call_1"))
    reference_fails(event)
    events = observe(event)
    assert types(events) == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]
    arguments = json.loads(events[1]["delta"])
    assert arguments["a"] == 1
    assert arguments["blob"]["size_bytes"] == 3


LONE = "a\ud800b"
SHOWN = "a\ufffdb"


@pytest.mark.parametrize(
    "event",
    [
        ai.PartStartEvent(index=0, part=ai.TextPart(LONE)),
        ai.PartDeltaEvent(index=0, delta=ai.TextPartDelta(LONE)),
        ai.PartEndEvent(index=0, part=ai.TextPart(LONE)),
        ai.PartStartEvent(index=0, part=ai.ThinkingPart(LONE, signature=LONE)),
        ai.PartDeltaEvent(index=0, delta=ai.ThinkingPartDelta(content_delta=LONE, signature_delta=LONE)),
        ai.PartEndEvent(index=0, part=ai.ThinkingPart(LONE)),
        ai.PartStartEvent(index=0, part=ai.ToolCallPart("search", LONE, "call_1")),
        ai.PartDeltaEvent(index=0, delta=ai.ToolCallPartDelta(args_delta=LONE, tool_call_id="call_1")),
        ai.PartEndEvent(index=0, part=ai.ToolCallPart("search", LONE, "call_1")),
        ai.PartEndEvent(index=0, part=ai.ToolCallPart("search", {"q": LONE}, "call_1")),
        ai.PartEndEvent(index=0, part=ai.ToolCallPart(LONE, "{}", "call_1")),
        ai.FunctionToolCallEvent(ai.ToolCallPart("search", {LONE: LONE}, "call_1")),
        ai.FunctionToolResultEvent(ai.ToolReturnPart("search", LONE, "call_1")),
        ai.FunctionToolResultEvent(ai.ToolReturnPart("search", {"q": [LONE]}, "call_1")),
        ai.FunctionToolResultEvent(ai.ToolReturnPart("search", [ai.TextContent(LONE)], "call_1")),
        ai.FunctionToolResultEvent(ai.ToolReturnPart("search", LONE, "call_1", outcome="failed")),
        ai.UnknownCapabilityEvent(kind="elsewhere.thing", data={"q": LONE}),
        InputTextEvent(input_id="input", source="user", content=LONE),
        ai.RealtimeSessionErrorEvent(LONE),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_lone_surrogate_becomes_a_replacement_character_everywhere(observe: Stream, event: Any) -> None:
    events = observe(event)
    shown = json.dumps(events, ensure_ascii=False)
    assert SHOWN in shown
    assert shown.encode()


def test_a_lone_surrogate_in_a_result(observe: Stream) -> None:
    assert observe(completed({"q": LONE}))[-1]["result"] == {"q": SHOWN}
    failed: HarnessRunResult[Any] = HarnessRunResult(
        thread_id=THREAD,
        run_id=ROOT,
        status="failed",
        output=None,
        state=None,
        usage=RunUsageSummary(),
        failure=SafeFailure.model_construct(code="c", message=LONE, details_json=b"{}", retry_hint="none"),
    )
    assert observe(failed)[-1]["message"] == SHOWN


@pytest.mark.parametrize(
    "event",
    [
        PreviewEvent(preview="not a preview"),  # type: ignore[arg-type]
        HarnessExtensionEvent(kind="delegation", payload={"type": "inline_delegation", "action": "started"}),
        HarnessExtensionEvent(kind="delegation", payload={"type": "inline_delegation", "child_run_id": 5}),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_or_observed(observe: Stream, event: Any) -> None:
    reference_fails(event)
    before = observe.observer.export()
    try:
        (custom,) = observe(event)
    except (AguiObservationError, ItemError):
        assert observe.observer.export() == before
    else:
        assert custom["type"] == "CUSTOM"


def test_a_suspension_that_names_no_request_still_ends_the_run(observe: Stream) -> None:
    result: HarnessRunResult[Any] = HarnessRunResult(
        thread_id=THREAD,
        run_id=ROOT,
        status="suspended",
        output=None,
        state=HarnessState.new(thread_id=THREAD),
        usage=RunUsageSummary(),
        suspend_reason="deferred",
        deferred=DeferredToolRequests(),
    )
    (event,) = observe(result)
    assert (event["type"], event["outcome"]["type"]) == ("RUN_FINISHED", "interrupt")


# --- the reference gives something wrong ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a13n.stream.fragment", "a13n.input.user", "a13n.pydantic_ai.part_delta"])
def test_event_named_like_ours(observe: Stream, name: str) -> None:
    payload = {"id": "x", "index": 0, "count": 2, "data": "y", "content": "injected"}
    (event,) = observe(ai.UnknownCapabilityEvent(kind=name, data=payload))
    # Whole, at once: nobody waits for a second piece. And it says where it came from.
    assert event["name"] != "a13n.stream.fragment"
    assert event["value"]["event"]["event_kind"] == "capability"
    assert event["value"]["event"]["content"] == "injected"
    large = {**payload, "content": "x" * 60_000}
    (event,) = observe(ai.UnknownCapabilityEvent(kind=name, data=large))
    assert len(event["value"]["event"]["content"]) == 60_000


@pytest.mark.parametrize("following", [ai.TextPart("new"), ai.ThinkingPart("new"), CALL, ai.CompactionPart("c")])
@pytest.mark.parametrize(
    ("first", "ended"),
    [(ai.TextPart("old"), "TEXT_MESSAGE_END"), (ai.ThinkingPart("old"), "REASONING_MESSAGE_END")],
)
def test_message_replaced_while_open(observe: Stream, first: Any, ended: str, following: Any) -> None:
    opened = observe(ai.PartStartEvent(index=0, part=first))
    replaced = observe(ai.PartStartEvent(index=0, part=following))
    assert replaced[0]["type"] == ended
    assert replaced[0]["messageId"] == opened[0]["messageId"]
    assert len(replaced) > 1
    assert types(observe(completed())).count(ended) == (type(first) is type(following))


@pytest.mark.parametrize("other", [ai.CompactionPart("c"), ai.NativeToolReturnPart("web_search", "x", "native_1")])
def test_message_forgotten_at_the_end_of_another_part(observe: Stream, other: Any) -> None:
    observe(ai.PartDeltaEvent(index=0, delta=ai.TextPartDelta("open")))
    assert types(observe(ai.PartEndEvent(index=0, part=other))) == ["TEXT_MESSAGE_END", "CUSTOM"]
    assert types(observe(completed())) == ["RUN_FINISHED"]


def test_call_id_known_late(observe: Stream) -> None:
    # Unknown at the start, known at the end.
    observe(ai.PartDeltaEvent(index=0, delta=ai.ToolCallPartDelta(args_delta="{")))
    events = observe(ai.PartEndEvent(index=0, part=CALL))
    assert [event["toolCallId"] for event in events] == ["call_1"] * 3
    # Known from a later delta.
    observe(ai.PartDeltaEvent(index=1, delta=ai.ToolCallPartDelta(args_delta="{")))
    observe(ai.PartDeltaEvent(index=1, delta=ai.ToolCallPartDelta(args_delta="}", tool_call_id="call_2")))
    with pytest.raises(AguiObservationError, match="call_3"):
        observe(ai.PartDeltaEvent(index=1, delta=ai.ToolCallPartDelta(args_delta="}", tool_call_id="call_3")))
    # Another at the start than at the end.
    observe(ai.PartStartEvent(index=2, part=ai.ToolCallPart("search", None, "pending")))
    events = observe(ai.PartEndEvent(index=2, part=ai.ToolCallPart("search", None, "call_4")))
    assert [event["toolCallId"] for event in events] == ["call_4"] * 2
    (result,) = observe(ai.FunctionToolResultEvent(ai.ToolReturnPart("search", "ok", "call_4")))
    assert result["toolCallId"] == "call_4"


def test_text_id_known_late(observe: Stream) -> None:
    opened = observe(ai.PartDeltaEvent(index=0, delta=ai.TextPartDelta("Hello")))
    late = ai.PartEndEvent(index=0, part=ai.TextPart("Hello", id="msg_1", provider_name="openai"))
    ended = observe(late)
    assert types(ended) == ["TEXT_MESSAGE_END"]
    assert ended[0]["messageId"] == opened[0]["messageId"]
    # An id that changes is another thing than one that comes late.
    observe(ai.PartStartEvent(index=1, part=ai.TextPart("Hello", id="msg_2", provider_name="openai")))
    with pytest.raises(AguiObservationError, match="msg_3"):
        observe(ai.PartEndEvent(index=1, part=ai.TextPart("Hello", id="msg_3", provider_name="openai")))


@pytest.mark.parametrize("kind", ["TEXT", "REASONING"])
@pytest.mark.parametrize("rest", [" world", "字", "😀"])
def test_rest_of_a_text_only_at_its_end(observe: Stream, kind: str, rest: str) -> None:
    make: Any = ai.TextPart if kind == "TEXT" else ai.ThinkingPart
    observe(ai.PartStartEvent(index=0, part=make("Hel")))
    delta: Any = ai.TextPartDelta("lo字") if kind == "TEXT" else ai.ThinkingPartDelta(content_delta="lo字")
    observe(ai.PartDeltaEvent(index=0, delta=delta))
    events = observe(ai.PartEndEvent(index=0, part=make(f"Hello字{rest}")))
    assert types(events) == [f"{kind}_MESSAGE_CONTENT", f"{kind}_MESSAGE_END"]
    assert events[0]["delta"] == rest
    # A final text that begins otherwise has no rest that could be sent.
    observe(ai.PartStartEvent(index=0, part=make("Hello")))
    assert types(observe(ai.PartEndEvent(index=0, part=make("Other, longer text")))) == [f"{kind}_MESSAGE_END"]


@both_ways
def test_a_child_seen_before_its_root(way: Way) -> None:
    observe = Stream(way)
    observe(ai.PartStartEvent(index=0, part=ai.TextPart("early")), "child-1", "thread_child")
    (run_started,) = observe(started())
    assert (run_started["type"], run_started["runId"]) == ("RUN_STARTED", ROOT)
    (said,) = observe(ai.PartDeltaEvent(index=0, delta=ai.TextPartDelta("later")), "child-1", "thread_child")
    assert said["subagentRunId"] == "child-1"
    assert "RUN_FINISHED" not in types(observe(completed(None, "child-1", "thread_child"), "child-1", "thread_child"))
    assert types(observe(completed())) == ["RUN_FINISHED"]


IMAGE = ai.BinaryContent(b"\x89PNG\xff" * 20, media_type="image/png")


@pytest.mark.parametrize(
    "part",
    [
        ai.FilePart(IMAGE),
        ai.NativeToolReturnPart("web_search", IMAGE, "native_1"),
        ai.NativeToolReturnPart("web_search", {"images": [IMAGE]}, "native_1"),
        ai.SpeechPart(speaker="assistant", transcript="hello", audio=IMAGE),
    ],
)
def test_binary_in_a_part(observe: Stream, part: Any) -> None:
    for event in (ai.PartStartEvent(index=0, part=part), ai.PartEndEvent(index=0, part=part)):
        shown = json.dumps(observe(event))
        assert IMAGE.base64[:24] not in shown
        assert "size_bytes" in shown
        assert "image/png" in shown
    if isinstance(part, ai.SpeechPart):
        assert "hello" in shown


def test_a_root_that_ends_with_an_open_child_invents_nothing(observe: Stream) -> None:
    payload: Json = {
        "type": "inline_delegation",
        "invocation_id": "delegation-1",
        "action": "started",
        "child_instance_id": "i",
        "subagent": "researcher",
        "status": "running",
        "parent_run_id": ROOT,
        "parent_agent_instance_id": "p",
        "child_run_id": "child-1",
    }
    observe(HarnessExtensionEvent(kind="delegation", payload=payload))
    observe(ai.PartStartEvent(index=0, part=ai.TextPart("open")), "child-1", "thread_child")
    assert types(observe(completed())) == ["RUN_FINISHED"]
