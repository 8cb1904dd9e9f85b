"""What a processor may do to an event, for every type of event."""

from collections.abc import Callable
from typing import Any

import pytest
from ag_ui.core import CustomEvent as CustomModel
from ag_ui.core import TextPart
from ag_ui.core.events import TextMessageContentEvent as TextModel
from msgspec import Raw

from agui_relay import events
from agui_relay.events import Event, encode_event, to_model
from agui_relay.projection import AguiObservationError
from agui_relay.projection.processor import REPLACEABLE, processed

SAMPLES: list[Event] = [
    events.TextMessageStartEvent(timestamp=1, message_id="m", role="assistant"),
    events.TextMessageContentEvent(timestamp=1, message_id="m", delta="a", subagent_run_id="c"),
    events.TextMessageEndEvent(timestamp=1, message_id="m"),
    events.ReasoningMessageStartEvent(timestamp=1, message_id="m", role="reasoning"),
    events.ReasoningMessageContentEvent(timestamp=1, message_id="m", delta="a"),
    events.ReasoningMessageEndEvent(timestamp=1, message_id="m"),
    events.ReasoningEncryptedValueEvent(timestamp=1, subtype="message", entity_id="m", encrypted_value="a"),
    events.ToolCallStartEvent(timestamp=1, tool_call_id="c", tool_call_name="n"),
    events.ToolCallArgsEvent(timestamp=1, tool_call_id="c", delta="a"),
    events.ToolCallEndEvent(timestamp=1, tool_call_id="c"),
    events.ToolCallResultEvent(timestamp=1, message_id="m", tool_call_id="c", content="a", role="tool"),
    events.SubagentStartedEvent(timestamp=1, subagent_run_id="c", name="n"),
    events.SubagentFinishedEvent(timestamp=1, subagent_run_id="c", outcome=events.SuccessOutcome()),
    events.SubagentErrorEvent(timestamp=1, subagent_run_id="c", message="a"),
    events.CustomEvent(timestamp=1, name="n", value=events.SourceValue("t", "r", 1, "o", Raw(b'{"a":[1]}'))),
    events.RunStartedEvent(timestamp=1, thread_id="t", run_id="r", protocol_version="1.0"),
    events.RunFinishedEvent(
        timestamp=1, thread_id="t", run_id="r", result=Raw(b'"a"'), outcome=events.SuccessOutcome()
    ),
    events.RunErrorEvent(timestamp=1, message="a", code="c"),
]
OTHER: dict[str, Any] = {
    "type": "TEXT_MESSAGE_END",
    "timestamp": 2,
    "raw_event": {"a": 1},
    "metadata": {"a": 1},
    "role": "user",
    "value": {"thread_id": "t", "run_id": "r", "sequence": 1, "occurred_at": "o", "event": {"a": [2]}},
    "outcome": {"type": "cancelled"},
    "input": None,
    "usage": [],
    "subtype": "tool-call",
    "content": "b",
}


def names(sample: Event) -> list[str]:
    return list(type(to_model(sample)).model_fields)


def name_of(sample: Event) -> str:
    return sample.type_name


@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
def test_pass_and_drop(sample: Event) -> None:
    assert processed(lambda _, event: event, None, sample) is sample
    assert processed(lambda _, event: event.model_copy(deep=True), None, sample) is sample
    assert processed(lambda _, event: None, None, sample) is None


@pytest.mark.parametrize(
    ("sample", "field"),
    [
        (sample, field)
        for sample in SAMPLES
        for field in names(sample)
        if getattr(to_model(sample), field) != OTHER.get(field, "b") and OTHER.get(field, "b") is not None
    ],
    ids=lambda value: value if isinstance(value, str) else value.type_name,
)
def test_only_content_may_be_replaced(sample: Event, field: str) -> None:
    value = OTHER.get(field, "b")

    def replaced(_: None, event: Any) -> Any:
        return event.model_copy(update={field: value})

    def changed(_: None, event: Any) -> Any:
        setattr(event, field, value)
        return event

    for process in (replaced, changed):
        if field == REPLACEABLE.get(type(sample)):
            got = processed(process, None, sample)
            assert got is not None
            assert got != sample
            assert getattr(to_model(got), field) == value
            assert encode_event(got) == to_model(got).model_dump_json(by_alias=True).encode()
        else:
            with pytest.raises(AguiObservationError):
                processed(process, None, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
@pytest.mark.parametrize(
    "candidate",
    [
        "text",
        {},
        CustomModel(name="n", value=1),
        TextModel(message_id="other", delta="a"),
        TextModel.model_construct(message_id="m", delta=5, timestamp=1),
    ],
    ids=range(5),
)
def test_nothing_else_may_be_returned(sample: Event, candidate: Any) -> None:
    with pytest.raises(AguiObservationError):
        processed(lambda _, event: candidate, None, sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
def test_nothing_may_be_added(sample: Event) -> None:
    with pytest.raises(AguiObservationError):
        processed(lambda _, event: event.model_copy(update={"extra": 1}), None, sample)


def replacing(field: str, value: Any) -> Callable[[None, Any], Any]:
    return lambda _, event: event.model_copy(update={field: value})


def test_values_that_json_cannot_hold() -> None:
    finished, text = SAMPLES[16], SAMPLES[1]
    for value in (object(), {"a": object()}, b"\xff"):
        with pytest.raises(AguiObservationError):
            processed(replacing("result", value), None, finished)
    got = processed(replacing("delta", "\ud800"), None, text)
    assert isinstance(got, events.TextMessageContentEvent)
    assert got.delta == "\ufffd"
    for result, encoded in ((None, None), ({"a": [1e16, float("nan")]}, b'{"a":[1e+16,null]}'), ("b", b'"b"')):
        got = processed(replacing("result", result), None, finished)
        assert isinstance(got, events.RunFinishedEvent)
        assert (None if got.result is None else bytes(got.result)) == encoded


def test_content_may_become_parts_and_back() -> None:
    sample = SAMPLES[10]
    got = processed(replacing("content", [TextPart(text="字")]), None, sample)
    assert isinstance(got, events.ToolCallResultEvent)
    assert got.content == Raw('[{"type":"text","text":"字"}]'.encode())
    back = processed(replacing("content", "a"), None, got)
    assert back == sample


def test_the_processor_may_spoil_what_it_was_given() -> None:
    sample = SAMPLES[14]

    def spoil(_: None, event: Any) -> Any:
        event.value["event"].clear()
        return None

    assert processed(spoil, None, sample) is None

    def spoil_and_return(_: None, event: Any) -> Any:
        event.value["event"].clear()
        return event

    with pytest.raises(AguiObservationError, match="value"):
        processed(spoil_and_return, None, sample)
