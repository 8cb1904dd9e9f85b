"""Each event's encoded form is AG-UI's own JSON, and its model is what validation would build."""

from typing import Any

import msgspec
import pytest
from ag_ui.core import Event
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from pydantic import TypeAdapter
from pydantic_core import to_json

from agui_relay import events
from agui_relay.events import encode_event, to_model

ADAPTER: TypeAdapter[Any] = TypeAdapter(Event)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ['"', "\\", "\x00\x1f\x7f", "\u2028", "字😀", "</script>"]
)
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
RAW = JSON.map(lambda value: Raw(to_json(value)))
OBJECT = st.dictionaries(TEXT, JSON, max_size=3).map(lambda value: Raw(to_json(value)))
SEQUENCE = st.integers(0, 2**53 - 1)
USAGE = st.none() | st.lists(
    st.builds(events.TokenUsage, input_tokens=st.none() | SEQUENCE, reasoning_tokens=st.none() | SEQUENCE), max_size=2
)
VALUE = st.builds(events.SourceValue, TEXT, TEXT, SEQUENCE, TEXT, RAW)
INPUT = st.builds(
    events.SourceValue,
    TEXT,
    TEXT,
    SEQUENCE,
    TEXT,
    st.builds(events.InputValue, TEXT, TEXT, RAW, TEXT, st.sampled_from(("user", "system"))),
)
TERMINAL = st.builds(
    events.TerminalSource,
    TEXT,
    TEXT,
    SEQUENCE,
    TEXT,
    TEXT,
    st.just(True) | st.just(msgspec.UNSET),
    OBJECT | st.just(msgspec.UNSET),
)
INTERRUPT = st.builds(
    events.Interrupt,
    subagent_run_id=st.none() | TEXT,
    id=TEXT,
    reason=TEXT,
    message=st.none() | TEXT,
    tool_call_id=st.none() | TEXT,
    response_schema=OBJECT | st.just(msgspec.UNSET),
    expires_at=st.none() | TEXT,
    metadata=OBJECT | st.just(msgspec.UNSET),
)
OUTCOME = (
    st.just(events.SuccessOutcome())
    | st.just(events.CancelledOutcome())
    | st.builds(events.InterruptOutcome, st.lists(INTERRUPT, min_size=1, max_size=2))
)
PARTS = st.lists(TEXT.map(lambda text: {"type": "text", "text": text}), max_size=2).map(lambda v: Raw(to_json(v)))

FIELDS: dict[type, dict[str, st.SearchStrategy[Any]]] = {
    events.TextMessageStartEvent: {"message_id": TEXT, "role": st.just("assistant"), "name": st.none() | TEXT},
    events.TextMessageContentEvent: {"message_id": TEXT, "delta": TEXT},
    events.TextMessageEndEvent: {"message_id": TEXT},
    events.ReasoningMessageStartEvent: {"message_id": TEXT, "role": st.just("reasoning")},
    events.ReasoningMessageContentEvent: {"message_id": TEXT, "delta": TEXT},
    events.ReasoningMessageEndEvent: {"message_id": TEXT},
    events.ReasoningEncryptedValueEvent: {
        "subtype": st.sampled_from(("message", "tool-call")),
        "entity_id": TEXT,
        "encrypted_value": TEXT,
    },
    events.ToolCallStartEvent: {"tool_call_id": TEXT, "tool_call_name": TEXT, "parent_message_id": st.none() | TEXT},
    events.ToolCallArgsEvent: {"tool_call_id": TEXT, "delta": TEXT},
    events.ToolCallEndEvent: {"tool_call_id": TEXT},
    events.ToolCallResultEvent: {
        "message_id": TEXT,
        "tool_call_id": TEXT,
        "content": TEXT | PARTS,
        "role": st.just("tool"),
    },
    events.SubagentStartedEvent: {
        "subagent_run_id": TEXT,
        "name": TEXT,
        "parent_subagent_run_id": st.none() | TEXT,
        "parent_tool_call_id": st.none() | TEXT,
    },
    events.SubagentFinishedEvent: {"subagent_run_id": TEXT, "outcome": st.none() | st.just(events.SuccessOutcome())},
    events.SubagentErrorEvent: {"subagent_run_id": TEXT, "message": TEXT, "code": st.none() | TEXT},
    events.CustomEvent: {"name": TEXT, "value": VALUE | INPUT | RAW, "metadata": st.none() | OBJECT},
    events.RunStartedEvent: {"thread_id": TEXT, "run_id": TEXT, "protocol_version": st.none() | st.just("1.0")},
    events.RunFinishedEvent: {
        "thread_id": TEXT,
        "run_id": TEXT,
        "raw_event": st.none() | TERMINAL,
        "result": st.none() | JSON.filter(lambda value: value is not None).map(lambda value: Raw(to_json(value))),
        "outcome": st.none() | OUTCOME,
        "usage": USAGE,
    },
    events.RunErrorEvent: {
        "raw_event": st.none() | TERMINAL,
        "message": TEXT,
        "code": st.none() | TEXT,
        "usage": USAGE,
    },
}


@st.composite
def event(draw: st.DrawFn, kind: type) -> Any:
    fields = {name: draw(values) for name, values in FIELDS[kind].items()}
    fields["timestamp"] = draw(st.none() | st.integers(-(2**53) + 1, 2**53 - 1))
    if issubclass(kind, events.AttributableEvent) and "subagent_run_id" not in fields:
        fields["subagent_run_id"] = draw(st.none() | TEXT)
    return kind(**fields)


def leaves(base: type) -> set[type]:
    found: set[type] = set()
    kind: type
    for kind in base.__subclasses__():
        found |= {kind} | leaves(kind)
    return found


def test_every_event_is_covered() -> None:
    assert set(FIELDS) == leaves(events.BaseEvent) - {events.AttributableEvent}


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.__name__)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_encoded_form_is_what_ag_ui_reads_and_writes(kind: type, data: st.DataObject) -> None:
    sample = data.draw(event(kind))
    encoded = encode_event(sample)
    assert min(encoded) >= 0x20
    validated = ADAPTER.validate_json(encoded)
    assert validated.model_dump_json(by_alias=True).encode() == encoded
    model = to_model(sample)
    assert type(model) is type(validated)
    assert model == validated
    assert model.model_fields_set == validated.model_fields_set
    assert list(model.__dict__) == list(validated.__dict__)
    assert model.model_dump() == validated.model_dump()
    assert model.model_dump_json(by_alias=True).encode() == encoded
    assert sample.type_name == model.type.value


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.__name__)
def test_fields_stand_in_the_order_of_ag_ui(kind: type) -> None:
    model = getattr(__import__("ag_ui.core.events", fromlist=["x"]), kind.__name__)
    order = list(model.model_fields)
    ours = list(kind.__struct_fields__)  # type: ignore[attr-defined]
    assert ours == [name for name in order if name in ours]


def test_models_share_nothing() -> None:
    custom = events.CustomEvent(name="n", value=events.SourceValue("t", "r", 1, "o", Raw(b'{"a":[1]}')))
    first, second = to_model(custom), to_model(custom)
    first.value["event"]["a"].append(2)  # type: ignore[union-attr]
    first.model_fields_set.add("metadata")
    assert second.value["event"] == {"a": [1]}  # type: ignore[union-attr]
    assert "metadata" not in to_model(custom).model_fields_set
    copied = second.model_copy(deep=True)
    assert copied == second


@pytest.mark.parametrize(
    ("metadata", "hidden"), [(None, False), (b"{}", False), (b'{"display":true}', False), (b'{"display":false}', True)]
)
def test_hidden(metadata: bytes | None, hidden: bool) -> None:
    raw = None if metadata is None else Raw(metadata)
    assert events.CustomEvent(name="n", value=Raw(b"1"), metadata=raw).hidden is hidden
