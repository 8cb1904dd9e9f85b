"""Compact replay, server-sent events and checks of stored events: the same as ya-agent-stream-protocol's."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from typing import Any

import pytest
import ya_agent_stream_protocol.agui as reference  # type: ignore[import-untyped]
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from agui_relay import replay, sse

TOTAL = int(os.environ.get("AGUI_RELAY_TEST_EXAMPLES", "600"))
"""Streams that the tests of this file together compare."""
SEED = int(os.environ.get("AGUI_RELAY_TEST_SEED", "20261129"))

pytestmark = pytest.mark.timeout(120 + TOTAL // 10)

Event = dict[str, Any]


def examples(part: float) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        count = max(10, round(TOTAL * part))
        quiet = settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        return seed(SEED)(quiet(test))

    return decorate


CHUNKS = ["TEXT_MESSAGE_CHUNK", "REASONING_MESSAGE_CHUNK", "TOOL_CALL_CHUNK"]
OTHERS = [
    "TEXT_MESSAGE_START",
    "TEXT_MESSAGE_CONTENT",
    "TEXT_MESSAGE_END",
    "REASONING_START",
    "REASONING_MESSAGE_START",
    "REASONING_MESSAGE_CONTENT",
    "REASONING_MESSAGE_END",
    "TOOL_CALL_START",
    "TOOL_CALL_ARGS",
    "TOOL_CALL_END",
    "TOOL_CALL_RESULT",
    "RUN_STARTED",
    "RUN_FINISHED",
    "CUSTOM",
    "FUTURE",
    " TEXT_MESSAGE_END ",
    " CUSTOM",
    "",
    " ",
]
NOTHING = object()
_ids = st.sampled_from([*"aaabbc", " a", "b ", "", " ", None, 5, NOTHING])
_text = st.one_of(st.sampled_from(["", "x", "Hello ", "{", "ü", "\U0001f600"]), st.text(max_size=5))
# A blank key, or one that is no text, is where the reference is wrong: tests/test_replay.py.
_keys = st.sampled_from(["a", "b", " a ", "", None, NOTHING, NOTHING, NOTHING])


@st.composite
def events(draw: st.DrawFn) -> Event:
    kind = draw(st.one_of(st.sampled_from(CHUNKS), st.sampled_from(OTHERS)))
    event: Event = {} if draw(st.integers(0, 30)) == 0 else {"type": kind}
    fields: dict[str, st.SearchStrategy[Any]] = {
        "messageId": _ids,
        "message_id": _ids,
        "toolCallKey": _keys,
        "tool_call_key": _keys,
        "toolCallId": _ids,
        "tool_call_id": _ids,
        "role": st.sampled_from(["assistant", "user", None, NOTHING, NOTHING]),
        "name": st.sampled_from(["One", "Two", None, NOTHING, NOTHING]),
        "toolCallName": st.sampled_from(["search", None, NOTHING, NOTHING]),
        "tool_call_name": st.sampled_from(["search", None, NOTHING, NOTHING, NOTHING]),
        "parentMessageId": st.sampled_from(["m", None, NOTHING, NOTHING]),
        "parent_message_id": st.sampled_from(["m", None, NOTHING, NOTHING, NOTHING]),
        "delta": st.one_of(_text, _text, _text, st.sampled_from([None, 5, 1.5, True, NOTHING])),
        "appAgentId": st.sampled_from(["main", "child", " main ", "", None, 5, NOTHING, NOTHING]),
        "app_agent_id": st.sampled_from(["main", "child", NOTHING, NOTHING]),
        "value": st.sampled_from([NOTHING, NOTHING, [1], {"a": None}]),
    }
    for name in draw(st.permutations(sorted(fields)))[: draw(st.integers(4, 16))]:
        value = draw(fields[name])
        if value is not NOTHING:
            event[name] = value
    return event


CONFIGS = [
    {},
    {"agent_id_field": "appAgentId"},
    {"agent_id_field": "appAgentId", "drop_subagent_detail_events": True},
    {"agent_id_field": "appAgentId", "main_agent_id": "child", "drop_subagent_detail_events": True},
    {"drop_subagent_detail_events": True},
]


def same(ours: Any, theirs: Any) -> None:
    """Assert the same JSON text: the same members in the same order."""
    assert json.dumps(ours) == json.dumps(theirs)


@examples(0.5)
@given(stream=st.lists(events(), max_size=40), config=st.sampled_from(CONFIGS))
def test_compact_events(stream: list[Event], config: dict[str, Any]) -> None:
    given_events = copy.deepcopy(stream)
    expected = reference.compact_agui_events(copy.deepcopy(stream), config=reference.AguiReplayConfig(**config))
    same(replay.compact_agui_events(stream, config=replay.AguiReplayConfig(**config)), expected)
    same(stream, given_events)
    if not config:
        same(replay.compact_agui_events(stream), expected)
    for event in stream:
        assert replay.is_subagent_event(event, agent_id_field="appAgentId") == reference.is_subagent_event(
            event, agent_id_field="appAgentId"
        )
        assert replay.is_subagent_detail_event(
            event, agent_id_field="appAgentId", main_agent_id="child"
        ) == reference.is_subagent_detail_event(event, agent_id_field="appAgentId", main_agent_id="child")


_steps = st.one_of(events(), events(), events(), st.sampled_from(["snapshot", "restore", "clear"]))


@examples(0.25)
@given(steps=st.lists(_steps, max_size=40), config=st.sampled_from(CONFIGS))
def test_a_buffer_in_use(steps: list[Any], config: dict[str, Any]) -> None:
    ours = replay.AguiReplayBuffer(replay.AguiReplayConfig(**config))
    theirs = reference.AguiReplayBuffer(config=reference.AguiReplayConfig(**config))
    snapshots: list[tuple[Any, str]] = []
    for step in steps:
        if isinstance(step, dict):
            ours.append(step)
            theirs.append(dict(step))
            continue
        snapshot = ours.snapshot()
        snapshots.append((snapshot, json.dumps(snapshot)))
        if step == "restore":
            ours.extend_snapshot(json.loads(json.dumps(snapshot)))
            theirs.extend_snapshot(json.loads(json.dumps(snapshot)))
        elif step == "clear":
            ours.clear()
            theirs.clear()
        same(ours.snapshot(), theirs.snapshot())
    same(ours.snapshot(), theirs.snapshot())
    same(ours.events, theirs.events)
    for snapshot, text in snapshots:
        assert json.dumps(snapshot) == text


_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)
_line = st.text(st.characters(blacklist_characters="\r\n\0", blacklist_categories=["Cs"]), max_size=10)


@examples(0.15)
@given(
    event_id=st.one_of(st.integers(), _line),
    payload=st.dictionaries(st.text(max_size=5), _json, max_size=4),
    kind=st.one_of(st.just(NOTHING), _line, st.none(), st.integers()),
    terminal=st.booleans(),
)
def test_server_sent_events(event_id: int | str, payload: dict[str, Any], kind: Any, terminal: bool) -> None:
    payload.pop("type", None)
    if kind is not NOTHING:
        payload["type"] = kind
    ours = sse.build_buffered_stream_event(event_id, payload, terminal=terminal)
    theirs = reference.build_buffered_stream_event(event_id, payload, terminal=terminal)
    assert (ours.id, ours.payload, ours.terminal) == (theirs.id, theirs.payload, theirs.terminal)
    same(sse.format_sse_event(ours), reference.format_sse_event(theirs))


@examples(0.05)
@given(cursor=st.one_of(st.none(), st.integers().map(str), st.text(max_size=8), st.text("0123456789 -+_.", max_size=8)))
def test_cursors(cursor: str | None) -> None:
    assert sse.resolve_event_cursor(cursor) == reference.resolve_event_cursor(cursor)


def outcome(check: Callable[..., Any], *given_values: Any, **named: Any) -> tuple[str, Any]:
    """Return what a check returns, or the beginning of what it raises (ours goes on with what it got)."""
    try:
        return "returned", check(*given_values, **named)
    except TypeError as error:
        return "raised", str(error).split(", got")[0]


@examples(0.05)
@given(payload=st.one_of(_json, st.lists(st.one_of(st.dictionaries(st.text(max_size=3), _json, max_size=2), _json))))
def test_checks_of_stored_events(payload: Any) -> None:
    for name in ("validate_agui_events", "parse_message_events", "parse_required_message_events"):
        assert outcome(getattr(replay, name), payload) == outcome(getattr(reference, name), payload), name
    kinds = [outcome(module.validate_display_events, payload)[0] for module in (replay, reference)]
    assert kinds[0] == kinds[1]
    for none in (True, False):
        named = {"payload_name": "archive", "allow_none": none}
        assert outcome(replay.validate_agui_events, payload, **named) == outcome(
            reference.validate_agui_events, payload, **named
        )
