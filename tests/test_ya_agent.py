"""The adapter of ya-agent-sdk streams: messages, tool calls, names, and what a payload becomes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import warnings
from collections.abc import Iterable
from typing import Any

import pytest
from ag_ui.core import Event as AguiEvent
from pydantic import TypeAdapter
from pydantic_ai.messages import (
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    NativeToolCallPart,
    NativeToolReturnPart,
    OutputToolResultEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    RetryPromptPart,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
)
from ya_agent_sdk.context import StreamEvent  # type: ignore[import-untyped]
from ya_agent_sdk.events import (  # type: ignore[import-untyped]
    ModelRequestStartEvent,
    NoteEvent,
    SubagentCompleteEvent,
    UsageSnapshotEvent,
)

from agui_relay.replay import compact_agui_events
from agui_relay.source.ya_agent import AguiAdapterConfig, AguiEventAdapter

Event = dict[str, Any]
_AGUI: TypeAdapter[Any] = TypeAdapter(AguiEvent)


class Stream:
    """An adapter, and short names for what goes into it. Every event it gives is checked to be one of AG-UI."""

    def __init__(self, agent_id: str = "main", prefix: str | None = None) -> None:
        config = AguiAdapterConfig(run_event_prefix="app", stream_metadata_prefix=prefix)
        self.adapter = AguiEventAdapter(session_id="session", run_id="run", config=config)
        self.agent_id = agent_id
        self.events: list[Event] = []

    def give(self, event: Any, agent_id: str | None = None) -> list[Event]:
        made = self.adapter.adapt_stream_event(StreamEvent(agent_id or self.agent_id, "Name", event))
        for one in made:
            _AGUI.validate_json(json.dumps(one, allow_nan=False))
            assert isinstance(one.pop("timestamp"), int)
        self.events += made
        return made

    def start(self, index: int, part: Any) -> list[Event]:
        return self.give(PartStartEvent(index=index, part=part))

    def delta(self, index: int, delta: Any) -> list[Event]:
        return self.give(PartDeltaEvent(index=index, delta=delta))

    def end(self, index: int, part: Any) -> list[Event]:
        return self.give(PartEndEvent(index=index, part=part))

    def result(self, part: Any, content: Any = None) -> Event:
        (event,) = self.give(FunctionToolResultEvent(part=part, content=content))
        return event


def kinds(events: Iterable[Event]) -> list[str]:
    return [event["type"] for event in events]


def deltas(events: Iterable[Event]) -> str:
    return "".join(event.get("delta", "") for event in events)


def test_importing_the_adapter_loads_no_agent_library() -> None:
    program = (
        "import sys, agui_relay.source.ya_agent as y\n"
        "a = y.AguiEventAdapter(session_id='s', run_id='r', config=y.AguiAdapterConfig('app'))\n"
        "a.build_run_started_event(); a.build_run_custom_event('x', {'a': [1]})\n"
        "print([name for name in ('pydantic_ai', 'ya_agent_sdk') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_events_of_the_run() -> None:
    adapter = Stream().adapter
    made = [
        adapter.build_run_started_event(input_parts=[{"type": "text", "text": "secret"}]),
        adapter.build_run_finished_event({"answer": 42}),
        adapter.build_run_finished_event(),
        adapter.build_run_error_event(message="it broke", code="internal"),
        adapter.build_run_error_event(message="it broke"),
        adapter.build_run_custom_event("steered", {"count": 1}),
        adapter.build_run_custom_event("nothing", None),
    ]
    for event in made:
        _AGUI.validate_json(json.dumps(event))
        assert isinstance(event.pop("timestamp"), int)
    assert made == [
        {"type": "RUN_STARTED", "threadId": "session", "runId": "run"},
        {"type": "RUN_FINISHED", "threadId": "session", "runId": "run", "result": {"answer": 42}},
        {"type": "RUN_FINISHED", "threadId": "session", "runId": "run"},
        {"type": "RUN_ERROR", "message": "it broke", "code": "internal"},
        {"type": "RUN_ERROR", "message": "it broke"},
        {"type": "CUSTOM", "name": "app.steered", "value": {"count": 1}},
        {"type": "CUSTOM", "name": "app.nothing", "value": None},
    ]


def test_a_text_and_a_thought() -> None:
    stream = Stream()
    stream.start(0, ThinkingPart("", id="thought"))
    stream.delta(0, ThinkingPartDelta(content_delta="hm", signature_delta="signed"))
    stream.end(0, ThinkingPart("hm"))
    stream.start(1, TextPart("Hel"))
    stream.delta(1, TextPartDelta("lo"))
    stream.end(1, TextPart("Hello"))
    message = {"messageId": "run:main:0:text:1"}
    chunk = {"type": "TEXT_MESSAGE_CHUNK", **message, "role": "assistant", "name": "Name"}
    assert stream.events == [
        {"type": "REASONING_MESSAGE_START", "messageId": "thought", "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CHUNK", "messageId": "thought", "delta": "hm"},
        {
            "type": "CUSTOM",
            "name": "ya_agent.reasoning_signature_delta",
            "value": {
                "run_id": "run",
                "session_id": "session",
                "agent_id": "main",
                "agent_name": "Name",
                "payload": {"message_id": "thought", "signature_delta": "signed"},
            },
        },
        {"type": "REASONING_MESSAGE_END", "messageId": "thought"},
        {"type": "TEXT_MESSAGE_START", **message, "role": "assistant", "name": "Name"},
        {**chunk, "delta": "Hel"},
        {**chunk, "delta": "lo"},
        {"type": "TEXT_MESSAGE_END", **message},
    ]


@pytest.mark.parametrize("part", [TextPart, ThinkingPart])
@pytest.mark.parametrize("given", ["", "Hel"])
def test_the_rest_of_a_message_that_no_delta_gave_comes_before_its_end(part: Any, given: str) -> None:
    stream = Stream()
    stream.start(0, part(given))
    stream.delta(0, TextPartDelta("") if part is TextPart else ThinkingPartDelta(content_delta=""))
    end = stream.end(0, part("Hello"))
    assert deltas(stream.events) == "Hello"
    assert kinds(end)[-1].endswith("_END")


def test_a_final_text_that_says_something_else_changes_nothing() -> None:
    stream = Stream()
    stream.start(0, TextPart("Hello"))
    assert kinds(stream.end(0, TextPart("Goodbye, all"))) == ["TEXT_MESSAGE_END"]


def test_a_text_delta_that_meets_an_open_thought_is_a_message_of_its_own() -> None:
    stream = Stream()
    stream.start(0, ThinkingPart("hm", id="thought"))
    (chunk,) = stream.delta(0, TextPartDelta("Hello"))
    assert (chunk["type"], chunk["messageId"]) == ("TEXT_MESSAGE_CHUNK", "run:main:0:text:0")
    assert stream.end(0, ThinkingPart("hm")) == [{"type": "REASONING_MESSAGE_END", "messageId": "thought"}]
    assert stream.end(0, TextPart("Hello")) == [{"type": "TEXT_MESSAGE_END", "messageId": "run:main:0:text:0"}]


@pytest.mark.parametrize(
    ("part", "end"),
    [
        (TextPart("a"), "TEXT_MESSAGE_END"),
        (ThinkingPart("a"), "REASONING_MESSAGE_END"),
        (ToolCallPart("search", "{}", "call-1"), "TOOL_CALL_END"),
    ],
)
def test_a_part_that_takes_the_place_of_an_open_one_ends_it_first(part: Any, end: str) -> None:
    stream = Stream()
    stream.start(0, part)
    assert kinds(stream.start(0, TextPart("b")))[:2] == [end, "TEXT_MESSAGE_START"]
    assert kinds(stream.end(0, TextPart("b"))) == ["TEXT_MESSAGE_END"]


def test_messages_without_an_id_of_the_provider_are_told_apart() -> None:
    """Requests of subagents are not announced: every response begins at index 0 of loop 0."""
    stream = Stream("child")
    for word in ("one", "two"):
        stream.start(0, TextPart(word))
        stream.end(0, TextPart(word))
    stream.give(ModelRequestStartEvent("id", loop_index=3))
    stream.start(0, TextPart("three"))
    chunks = [event for event in compact_agui_events(stream.events) if event["type"] == "TEXT_MESSAGE_CHUNK"]
    assert [(chunk["messageId"], chunk["delta"]) for chunk in chunks] == [
        ("run:child:0:text:0", "one"),
        ("run:child:0:text:0:2", "two"),
        ("run:child:3:text:0", "three"),
    ]


def test_a_call_and_its_result() -> None:
    stream = Stream()
    stream.start(0, ToolCallPart("search", None, "call-1"))
    stream.delta(0, ToolCallPartDelta(args_delta='{"q":'))
    stream.delta(0, ToolCallPartDelta(args_delta="1}"))
    stream.end(0, ToolCallPart("search", '{"q":1}', "call-1"))
    assert stream.give(FunctionToolCallEvent(ToolCallPart("search", "{}", "call-1"))) == []
    stream.result(ToolReturnPart("search", {"found": [1, "ü"]}, "call-1", outcome="failed"))
    call = {"toolCallId": "call-1", "toolCallKey": "run:tool:1"}
    assert stream.events == [
        {"type": "TOOL_CALL_START", "toolCallName": "search", **call},
        {"type": "TOOL_CALL_CHUNK", "toolCallName": "search", **call},
        {"type": "TOOL_CALL_CHUNK", "toolCallName": "search", "delta": '{"q":', **call},
        {"type": "TOOL_CALL_CHUNK", "toolCallName": "search", "delta": "1}", **call},
        {"type": "TOOL_CALL_END", **call},
        {
            "type": "TOOL_CALL_RESULT",
            "messageId": "run:tool:1:result",
            "content": '{"found": [1, "ü"]}',
            "role": "tool",
            "outcome": "failed",
            **call,
        },
    ]


@pytest.mark.parametrize("first", [None, "", '{"q"'])
def test_arguments_that_come_with_the_end_are_sent(first: str | None) -> None:
    stream = Stream()
    stream.start(0, ToolCallPart("search", first, "call-1"))
    end = stream.end(0, ToolCallPart("search", '{"q":1}', "call-1"))
    assert deltas(stream.events) == '{"q":1}'
    assert kinds(end) == ["TOOL_CALL_CHUNK", "TOOL_CALL_END"]


@pytest.mark.parametrize("first", [None, {}, {"a": 0, "b": "ü"}])
@pytest.mark.parametrize("seen_at_the_end", [True, False])
def test_arguments_that_come_as_mappings_are_one_json_text(first: Any, seen_at_the_end: bool) -> None:
    stream = Stream()
    whole = {**(first or {}), "a": 1, "c": [2]}
    stream.start(0, ToolCallPart("search", first, "call-1"))
    stream.delta(0, ToolCallPartDelta(args_delta={"a": 1}))
    stream.delta(0, ToolCallPartDelta(args_delta={"c": [2]}))
    assert deltas(stream.events) == ""
    stream.end(0, ToolCallPart("search", whole if seen_at_the_end else None, "call-1"))
    assert deltas(stream.events) == json.dumps(whole, ensure_ascii=False, separators=(",", ":"))


def test_mappings_of_a_call_that_is_replaced_are_sent_with_its_end() -> None:
    stream = Stream()
    stream.start(0, ToolCallPart("search", {"a": 1}, "call-1"))
    made = stream.start(0, TextPart(""))
    assert kinds(made) == ["TOOL_CALL_CHUNK", "TOOL_CALL_END", "TEXT_MESSAGE_START"]
    assert deltas(made) == '{"a":1}'


def test_a_key_stays_across_segments_and_a_reused_id_gets_another() -> None:
    stream = Stream()
    for number in (1, 2):
        stream.start(0, ToolCallPart("search", "{}", "call-1"))
        stream.end(0, ToolCallPart("search", "{}", "call-1"))
        stream.give(ModelRequestStartEvent("id", loop_index=number))
        result = stream.result(ToolReturnPart("search", "late", "call-1"))
        assert result["messageId"] == f"run:tool:{number}:result"
    assert [event["toolCallKey"] for event in stream.events if "toolCallKey" in event] == [
        *["run:tool:1"] * 4,
        *["run:tool:2"] * 4,
    ]
    assert {event["toolCallId"] for event in stream.events if "toolCallKey" in event} == {"call-1"}


def test_agents_with_one_id_have_keys_of_their_own() -> None:
    stream = Stream()
    for agent in ("main", "child"):
        stream.give(PartStartEvent(index=0, part=ToolCallPart("search", "{}", "call-1")), agent)
    for agent, key in (("main", "run:tool:1"), ("child", "run:tool:2")):
        (result,) = stream.give(OutputToolResultEvent(part=ToolReturnPart("search", "x", "call-1")), agent)
        assert result["toolCallKey"] == key


def test_a_call_without_a_start_that_reuses_an_id_is_another_invocation() -> None:
    stream = Stream()
    for _ in range(2):
        stream.delta(0, ToolCallPartDelta(tool_name_delta="sea", args_delta="{", tool_call_id="call-1"))
        stream.delta(0, ToolCallPartDelta(tool_name_delta="rch", args_delta="}"))
        stream.end(0, ToolCallPart("search", "{}", "call-1"))
    chunks = compact_agui_events(stream.events)
    assert [(chunk["toolCallKey"], chunk["delta"]) for chunk in chunks] == [("run:tool:1", "{}"), ("run:tool:2", "{}")]


def test_an_id_that_comes_late_is_of_the_same_invocation() -> None:
    stream = Stream()
    stream.start(0, ToolCallPart("search", "{", "made up"))
    stream.delta(0, ToolCallPartDelta(args_delta="}", tool_call_id="call-1"))
    stream.end(0, ToolCallPart("search", "{}", "call-2"))
    stream.result(ToolReturnPart("search", "x", "call-2"))
    assert {event["toolCallKey"] for event in stream.events} == {"run:tool:1"}
    assert [event["toolCallId"] for event in stream.events] == ["made up", "made up", "call-1", "call-1", "call-2"]


def test_native_tools_are_tools() -> None:
    stream = Stream()
    part = NativeToolCallPart("web_search", {"q": 1}, "call-1")
    stream.start(0, part)
    stream.end(0, part)
    answer = NativeToolReturnPart("web_search", {"found": 2}, "call-1")
    stream.start(1, answer)
    stream.end(1, answer)
    assert kinds(stream.events) == [
        "TOOL_CALL_START",
        "TOOL_CALL_CHUNK",
        "TOOL_CALL_CHUNK",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
    ]
    assert {event["toolCallKey"] for event in stream.events} == {"run:tool:1"}
    assert stream.events[-1]["content"] == '{"found": 2}'


def test_a_return_is_shown_once() -> None:
    stream = Stream()
    answer = ToolReturnPart("search", "x", "call-1")
    assert kinds(stream.start(0, answer)) == ["TOOL_CALL_RESULT"]
    assert stream.end(0, answer) == []
    assert kinds(stream.end(0, answer)) == ["TOOL_CALL_RESULT"]


@pytest.mark.parametrize("content", ["try again", [{"type": "missing", "loc": ("q",), "msg": "required", "input": {}}]])
def test_a_retry_prompt_is_the_retried_result_of_its_call(content: Any) -> None:
    stream = Stream()
    stream.start(0, ToolCallPart("search", "{}", "call-1"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        part: Any = RetryPromptPart(content, tool_name="search", tool_call_id="call-1")
    result = stream.result(part)
    same = stream.result(ToolReturnPart("search", content, "call-1", outcome="retried"))
    assert result == same
    assert (result["outcome"], result["toolCallKey"]) == ("retried", "run:tool:1")


def test_the_content_that_goes_with_a_result_is_shown_in_its_place() -> None:
    stream = Stream()
    assert stream.result(ToolReturnPart("search", "x", "call-1"), "see below")["content"] == "see below"


def test_every_event_of_an_agent_carries_its_id_and_name() -> None:
    stream = Stream(prefix="app")
    stream.start(0, ThinkingPart("a"))
    stream.delta(0, ThinkingPartDelta(content_delta="b", signature_delta="c"))
    stream.start(1, ToolCallPart("search", "{}", "call-1"))
    stream.result(ToolReturnPart("search", "x", "call-1"))
    stream.give(ModelRequestStartEvent("id"))
    assert kinds(stream.events).count("CUSTOM") == 2
    assert {(event["appAgentId"], event["appAgentName"]) for event in stream.events} == {("main", "Name")}


def test_applications_name_what_is_theirs() -> None:
    adapter = AguiEventAdapter(
        session_id="s", run_id="r", config=AguiAdapterConfig(run_event_prefix="claw", agent_event_prefix="claw.agent")
    )
    assert adapter.build_run_custom_event("queued", 1)["name"] == "claw.queued"
    (event,) = adapter.adapt_stream_event(StreamEvent("main", "Main", ModelRequestStartEvent("id", loop_index=2)))
    assert event["name"] == "claw.agent.model_request_start"


def test_previews_and_errors_are_bounded() -> None:
    stream = Stream()
    (event,) = stream.give(SubagentCompleteEvent("id", result_preview="r" * 201, error="e" * 1_001))
    payload = event["value"]["payload"]
    assert payload["result_preview"] == "r" * 197 + "..."
    assert payload["error"] == "e" * 997 + "..."
    (event,) = stream.give(SubagentCompleteEvent("id", result_preview="r" * 200, error="e" * 1_000))
    assert (len(event["value"]["payload"]["result_preview"]), len(event["value"]["payload"]["error"])) == (200, 1_000)


def test_a_snapshot_that_is_missing_is_null() -> None:
    (event,) = Stream().give(UsageSnapshotEvent("id"))
    assert event["value"]["payload"] is None


def test_lone_surrogates_are_replaced_everywhere() -> None:
    stream = Stream()
    stream.start(0, TextPart("a\ud800", id="m\ud800"))
    stream.start(1, ToolCallPart("t\ud800", '"\ud800"', "c\ud800"))
    stream.result(ToolReturnPart("t", "x\ud800", "c\ud800"))
    stream.give(NoteEvent("id", entries={"k\ud800": "v\ud800"}))
    stream.events.append(stream.adapter.build_run_error_event(message="\ud800"))
    written = json.dumps(stream.events, ensure_ascii=False)
    assert written.encode().decode() == written
    assert written.count("\ufffd") >= 9


def test_numbers_of_the_lifecycle_that_are_not_finite_are_null() -> None:
    (event,) = Stream().give(SubagentCompleteEvent("id", duration_seconds=math.inf))
    assert event["value"]["payload"]["duration_seconds"] is None
