"""What a display is given of an item: its events, cut to what is shown, and the call that failed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from a13n_harness.events import HarnessEvent
from ag_ui.core import TextMessageContentEvent
from pydantic_ai import messages as ai

from agui_relay.display import DisplayFold
from agui_relay.display.items import MAX_FIELD_CHARS
from agui_relay.display.source import failed_call
from agui_relay.framing.fragments import FRAGMENT_EVENT_NAME
from agui_relay.projection import AguiObservationError
from agui_relay.source import HarnessItem, decode_item, encode_item, from_harness
from tests.test_display_fold import POLICIES, Policy


def live(event: Any, run_id: str = "run-1", sequence: int = 1) -> HarnessEvent:
    return HarnessEvent(
        thread_id=f"thread-{run_id}",
        run_id=run_id,
        sequence=sequence,
        occurred_at=datetime(2026, 11, 29, 19, 46, 39, 5, tzinfo=UTC),
        event=event,
    )


def completed_call(arguments: str = "{}", run_id: str = "run-1") -> HarnessEvent:
    return live(ai.PartEndEvent(index=0, part=ai.ToolCallPart("search", arguments, "call-1")), run_id)


def returned(content: Any, outcome: Any = "success", run_id: str = "run-1") -> HarnessEvent:
    return live(ai.FunctionToolResultEvent(ai.ToolReturnPart("search", content, "call-1", outcome=outcome)), run_id, 2)


def foreign(part: Any, **projection: Any) -> HarnessItem:
    """Return an item as somebody else may have written it."""
    item = {
        "v": 1,
        "source": "pydantic_ai",
        "thread_id": "thread-run-1",
        "run_id": "run-1",
        "sequence": 2,
        "occurred_at": "2026-11-29T19:46:39+00:00",
        "event": {"event_kind": "function_tool_result", "part": part},
        "projection": projection,
    }
    return decode_item(json.dumps(item).encode())


def test_live_items_and_items_of_the_wire_give_the_same_events() -> None:
    text = live(ai.PartDeltaEvent(index=0, delta=ai.TextPartDelta("Hello")))
    one, other = DisplayFold("run"), DisplayFold("run")
    events = one.events(text)
    assert events == other.events(decode_item(encode_item(from_harness(text))))
    assert [event["type"] for event in events] == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"]


def test_large_events_come_in_fragments() -> None:
    event = live(ai.UnknownCapabilityEvent(kind="elsewhere.thing", data={"text": "x" * 100_000}))
    events = DisplayFold("run").events(event)
    assert len(events) > 1
    assert {event["name"] for event in events} == {FRAGMENT_EVENT_NAME}


@pytest.mark.parametrize("policy", POLICIES)
def test_events_are_cut_to_what_is_shown_unless_all_is_kept(policy: Policy) -> None:
    fold = DisplayFold("run", **policy)
    whole = "x" * (MAX_FIELD_CHARS + 50)
    kept = len(whole) if policy else MAX_FIELD_CHARS + 1
    _, arguments, _ = fold.events(completed_call(whole))
    assert len(arguments["delta"]) == kept
    (result,) = fold.events(returned(whole))
    assert len(result["content"]) == kept
    fold.fold([arguments, result])
    (item,) = fold.items.values()
    assert item.content.get("truncated", False) is not bool(policy)


def test_parts_that_fit_are_kept_and_the_others_are_said_to_be_missing() -> None:
    texts = ["before", "x" * MAX_FIELD_CHARS, "after"]
    content = [ai.TextContent(text, metadata=None) for text in texts]
    (result,) = DisplayFold("run").events(returned(content))
    shown = [part["text"] for part in result["content"]]
    assert shown == ["before", "after", "Result parts omitted: display size limit exceeded."]
    (whole,) = DisplayFold("run", retain_content=True).events(returned(content))
    assert [part["text"] for part in whole["content"]] == texts


def test_a_processor_sees_the_item_that_was_given_and_whole_events() -> None:
    seen: list[Any] = []

    def process(source: Any, event: Any) -> Any:
        seen.append((source, event))
        if isinstance(event, TextMessageContentEvent):
            return event.model_copy(update={"delta": "changed"})
        return None

    source = live(ai.PartDeltaEvent(index=0, delta=ai.TextPartDelta("Hello")))
    fold = DisplayFold("run", processor=process)
    (event,) = fold.events(source)
    assert event["delta"] == "changed"
    assert [given for given, _ in seen] == [source, source]
    again = DisplayFold.restore(fold.export(), processor=process)
    (event,) = again.events(live(ai.PartDeltaEvent(index=0, delta=ai.TextPartDelta("!")), sequence=2))
    assert event["messageId"] == "run-1:request-0:part-0:text"


def test_a_refused_item_changes_nothing() -> None:
    fold = DisplayFold("run")
    fold.events(live(ai.PartDeltaEvent(index=0, delta=ai.TextPartDelta("Hello"))))
    before = fold.export().model_dump_json()
    with pytest.raises(AguiObservationError):
        fold.events(live(ai.PartEndEvent(index=0, part=ai.ThinkingPart("x"))))
    with pytest.raises(TypeError):
        fold.events("no item")
    assert fold.export().model_dump_json() == before


@pytest.mark.parametrize("outcome", ["failed", "denied", "retried", "interrupted"])
@pytest.mark.parametrize("run_id", ["run-1", "child-1"])
def test_a_result_that_is_none_fails_its_call(outcome: str, run_id: str) -> None:
    fold = DisplayFold("run")
    fold.events(live(ai.PartDeltaEvent(index=5, delta=ai.TextPartDelta("root"))))
    fold.fold(fold.events(completed_call(run_id=run_id)))
    result = returned("not allowed", outcome, run_id)
    (seen,) = fold.fold(fold.events(result), result)
    assert seen.item is not None
    assert seen.item.state == "failed"
    assert seen.item.failure == {"code": "tool_failed", "message": "not allowed"}
    (item,) = fold.items.values()
    assert item.content.get("subagentRunId") == (None if run_id == "run-1" else run_id)


def test_a_long_failure_is_cut() -> None:
    assert failed_call(returned("x" * 5000, "failed")) == ("call-1", "x" * 4096)


def test_what_is_no_failure() -> None:
    assert failed_call(returned("fine")) is None
    assert failed_call(completed_call()) is None
    assert failed_call(from_harness(completed_call())) is None
    assert failed_call(object()) is None
    part = {"part_kind": "tool-return", "tool_call_id": "call-1", "content": "fine"}
    assert failed_call(foreign(part)) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [("no", "no"), ({"b": 1, "a": "字"}, '{"a":"字","b":1}'), (None, "null"), ("", "")],
)
def test_items_of_others_fail_their_call_with_what_they_say(content: Any, message: str) -> None:
    part = {"part_kind": "tool-return", "tool_call_id": "call-1", "content": content, "outcome": "denied"}
    assert failed_call(foreign(part)) == ("call-1", message)
    assert failed_call(foreign(part, failure="told")) == ("call-1", "told")
    assert failed_call(foreign({"part_kind": "retry-prompt", "tool_call_id": "call-1"})) == ("call-1", "null")
    assert failed_call(foreign({"part_kind": "retry-prompt"})) is None
