"""The compact replay buffer, and the checks of stored events."""

from __future__ import annotations

import gc
import json
import tracemalloc
from typing import Any

import pytest
from ag_ui.core import EventType

from agui_relay.replay import (
    AguiReplayBuffer,
    AguiReplayConfig,
    compact_agui_events,
    is_subagent_detail_event,
    is_subagent_event,
    parse_message_events,
    parse_required_message_events,
    validate_agui_events,
    validate_display_events,
)

Event = dict[str, Any]


def text(message_id: str | None, delta: Any = None, **more: Any) -> Event:
    return {"type": "TEXT_MESSAGE_CHUNK", "messageId": message_id, "delta": delta, **more}


def call(delta: str | None = None, **more: Any) -> Event:
    return {"type": "TOOL_CALL_CHUNK", "toolCallId": "call-1", "delta": delta, **more}


def test_a_message_becomes_one_chunk_at_the_place_of_its_first() -> None:
    events: list[Event] = [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"},
        text("m", "Hel"),
        {"type": "CUSTOM", "name": "app.note", "value": None},
        {"type": "REASONING_MESSAGE_START", "messageId": "m", "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CHUNK", "messageId": "m", "delta": "I "},
        text("m", "lo", role="assistant", name="Main"),
        {"type": "REASONING_MESSAGE_CHUNK", "messageId": "m", "delta": "think"},
        {"type": "REASONING_MESSAGE_END", "messageId": "m"},
        {"type": "TEXT_MESSAGE_END", "messageId": "m"},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
    ]
    assert compact_agui_events(events) == [
        events[0],
        text("m", "Hello", role="assistant", name="Main"),
        events[3],
        {"type": "REASONING_MESSAGE_CHUNK", "messageId": "m", "delta": "I think"},
        events[10],
    ]


def test_a_call_that_was_cut_before_its_first_argument_is_still_seen() -> None:
    start = {"type": "TOOL_CALL_START", "toolCallId": "call-1", "toolCallName": "search", "toolCallKey": "k"}
    assert compact_agui_events([start, {"type": "TOOL_CALL_END", "toolCallId": "call-1"}]) == [start]


def test_calls_are_told_apart_by_key_then_by_id() -> None:
    events = [
        call("{", toolCallKey="k1"),
        call("a", toolCallKey="k2"),
        call("}", tool_call_key="k1"),
        call("older "),
        call("event", toolCallName="search", parent_message_id="m"),
    ]
    assert compact_agui_events(events) == [
        call("{}", toolCallKey="k1"),
        call("a", toolCallKey="k2"),
        call("older event", toolCallName="search", parentMessageId="m"),
    ]


@pytest.mark.parametrize("key", ["", "  ", 5, None])
def test_a_key_that_says_nothing_leaves_the_id(key: Any) -> None:
    events = [call("a", toolCallKey=key), call("b", toolCallKey=key)]
    assert compact_agui_events(events) == [call("ab", toolCallKey=key)]


def test_identities_are_compared_without_the_space_around_them() -> None:
    assert compact_agui_events([text(" m ", "a"), text("m", "b"), text("m\n", "c")]) == [text(" m ", "abc")]


def test_chunks_without_an_identity_stay_apart() -> None:
    events = [text(None, "a"), text(None, "b"), text(" ", "c"), {"type": "TOOL_CALL_CHUNK", "delta": "d"}]
    assert compact_agui_events(events) == events


def test_the_first_spelling_of_a_field_counts_even_when_it_is_null() -> None:
    events = [{"type": "TEXT_MESSAGE_CHUNK", "messageId": None, "message_id": "m", "delta": "a"}] * 2
    assert compact_agui_events(events) == events


def test_what_was_said_first_stays() -> None:
    events = [text("m", "a", role="assistant", name="One"), text("m", "b", role="user", name="Two")]
    assert compact_agui_events(events) == [text("m", "ab", role="assistant", name="One")]


def test_no_delta_at_all_is_not_an_empty_delta() -> None:
    bare = {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m"}
    assert compact_agui_events([bare, bare]) == [bare]
    assert compact_agui_events([bare, text("m", "")]) == [text("m", "")]
    assert compact_agui_events([bare, text("m", "a")]) == [text("m", "a")]
    assert compact_agui_events([text("m", None)]) == [text("m", None)]


def test_a_delta_that_is_no_text_is_written_as_json_or_as_it_reads() -> None:
    assert compact_agui_events([text("m", {"a": "ü"}), text("m", 5)]) == [text("m", '{"a": "ü"}5')]


def test_a_new_run_may_use_ids_again() -> None:
    started = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
    events = [text("m", "a"), text("m", "b"), started, text("m", "c"), text("m", "d")]
    assert compact_agui_events(events) == [text("m", "ab"), started, text("m", "cd")]


def test_events_without_a_type_are_ignored_and_types_are_read_without_space() -> None:
    assert compact_agui_events([{}, {"type": " "}, {"type": " TEXT_MESSAGE_END "}]) == []
    padded = {"type": " TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "a"}
    assert compact_agui_events([padded, text("m", "b")]) == [{**padded, "delta": "ab"}]


def test_the_members_of_ag_uis_event_type_are_types() -> None:
    events = [{**text("m", delta), "type": EventType.TEXT_MESSAGE_CHUNK} for delta in "ab"]
    assert compact_agui_events([*events, {"type": EventType.TEXT_MESSAGE_END}]) == [text("m", "ab")]


def test_a_snapshot_is_not_changed_by_what_follows_nor_the_events_that_were_given() -> None:
    buffer = AguiReplayBuffer()
    first = text("m", "a")
    buffer.append(first)
    before = buffer.snapshot()
    buffer.append(text("m", "b", name="Main"))
    middle = buffer.snapshot()
    middle[0]["name"] = "changed"
    assert before == [first] == [text("m", "a")]
    assert buffer.snapshot() == [text("m", "ab", name="Main")]


def test_a_restored_buffer_goes_on() -> None:
    events = [text("m", "a"), call("x", toolCallKey="k"), text("m", "b"), call("y", toolCallKey="k"), text("n", "c")]
    for cut in range(len(events) + 1):
        buffer = AguiReplayBuffer()
        buffer.append(text("other", "left over"))
        buffer.extend_snapshot(json.loads(json.dumps(compact_agui_events(events[:cut]))))
        for event in events[cut:]:
            buffer.append(event)
        assert buffer.snapshot() == compact_agui_events(events)


def test_a_buffer_can_start_over_from_its_own_events() -> None:
    buffer = AguiReplayBuffer()
    buffer.append({"type": "CUSTOM", "name": "a", "value": 1})
    buffer.extend_snapshot(buffer.events)
    assert buffer.snapshot() == [{"type": "CUSTOM", "name": "a", "value": 1}]


def test_a_cleared_buffer_is_as_new() -> None:
    buffer = AguiReplayBuffer()
    buffer.append(text("m", "a"))
    buffer.clear()
    assert buffer.snapshot() == [] == buffer.events
    buffer.append(text("m", "b"))
    assert buffer.snapshot() == [text("m", "b")]


def test_a_buffer_may_start_with_events() -> None:
    buffer = AguiReplayBuffer(events=[{"type": "CUSTOM", "name": "a", "value": 1}])
    buffer.append(text("m", "a"))
    assert [event["type"] for event in buffer.snapshot()] == ["CUSTOM", "TEXT_MESSAGE_CHUNK"]


def test_subagents_details_can_be_dropped() -> None:
    config = AguiReplayConfig(agent_id_field="appAgentId", main_agent_id="root", drop_subagent_detail_events=True)
    details = [
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CHUNK",
        "REASONING_MESSAGE_CHUNK",
        "TOOL_CALL_START",
        "TOOL_CALL_CHUNK",
        "TOOL_CALL_RESULT",
    ]
    child: list[Event] = [{"type": name, "messageId": "m", "appAgentId": "child"} for name in details]
    lifecycle = {"type": "CUSTOM", "name": "a", "value": None, "app_agent_id": "child"}
    root = {**text("m", "a"), "appAgentId": "root"}
    assert compact_agui_events([*child, lifecycle, root], config=config) == [lifecycle, root]
    config.drop_subagent_detail_events = False
    assert len(compact_agui_events([*child, lifecycle, root], config=config)) == 6


def test_which_events_are_a_subagents() -> None:
    assert is_subagent_event({"yaacliAgentId": "child"})
    assert is_subagent_event({"yaacli_agent_id": " child "})
    assert not is_subagent_event({"yaacliAgentId": "main"})
    assert not is_subagent_event({"yaacliAgentId": " "})
    assert not is_subagent_event({"yaacliAgentId": 5})
    assert not is_subagent_event({})
    assert is_subagent_event({"who": "main"}, agent_id_field="who", main_agent_id="root")
    assert not AguiReplayBuffer().is_subagent_event({"yaacliAgentId": "child"})
    assert is_subagent_detail_event({"type": "TOOL_CALL_END", "yaacliAgentId": "child"})
    assert not is_subagent_detail_event({"type": "TOOL_CALL_END", "yaacliAgentId": "main"})
    assert not is_subagent_detail_event({"type": "CUSTOM", "yaacliAgentId": "child"})
    assert not is_subagent_detail_event({"yaacliAgentId": "child"})


def test_memory_grows_with_the_text_not_with_the_number_of_its_deltas() -> None:
    buffer = AguiReplayBuffer()
    pieces = [chr(97 + number % 26) * 2 for number in range(1_000)]
    gc.collect()
    tracemalloc.start()
    for number in range(50_000):
        buffer.append(text("m", pieces[number % 1_000] + ""))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(buffer.snapshot()[0]["delta"]) == 100_000
    # One string a delta would take about three million bytes.
    assert held < 600_000


def test_events_are_a_list_of_objects() -> None:
    events = [{"type": "CUSTOM"}, {}]
    assert validate_agui_events(events) == events
    assert validate_agui_events(events) is not events
    assert validate_agui_events(None, allow_none=True) is None
    assert parse_message_events(None) is None
    assert parse_message_events(events) == events
    assert parse_required_message_events([]) == []
    assert validate_display_events(events) == events


@pytest.mark.parametrize("payload", [None, {}, "[]", 5, ()])
def test_anything_else_is_refused_by_name(payload: Any) -> None:
    kind = type(payload).__name__
    with pytest.raises(TypeError, match=f"^AGUI events payload must be a top-level JSON array .*got {kind}$"):
        validate_agui_events(payload)
    with pytest.raises(TypeError, match=f"^archive must be a top-level JSON array .*got {kind}$"):
        parse_required_message_events(payload, payload_name="archive")
    with pytest.raises(TypeError, match=f"^display_messages payload must be a top-level JSON array .*got {kind}$"):
        validate_display_events(payload)
    if payload is not None:
        with pytest.raises(TypeError, match=r"^message payload must be a top-level JSON array"):
            parse_message_events(payload)


def test_an_entry_that_is_no_object_is_named() -> None:
    with pytest.raises(TypeError, match=r"^message payload must contain only AGUI event objects, got str at index 1$"):
        parse_message_events([{}, "x"])
