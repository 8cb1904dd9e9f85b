"""Whatever order events come in: nothing is raised, everything is AG-UI, and what is told apart stays apart."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from ag_ui.core import Event as AguiEvent
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pydantic_ai.messages import (
    FunctionToolResultEvent,
    NativeToolCallPart,
    NativeToolReturnPart,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
)
from ya_agent_sdk.context import StreamEvent  # type: ignore[import-untyped]
from ya_agent_sdk.events import ModelRequestStartEvent  # type: ignore[import-untyped]

from agui_relay.replay import compact_agui_events
from agui_relay.source.ya_agent import AguiAdapterConfig, AguiEventAdapter

_AGUI: TypeAdapter[Any] = TypeAdapter(AguiEvent)
_text = st.sampled_from(["", "a", "ab", "{", "\ud800"])
_id = st.sampled_from(["call-1", "call-2"])
_arguments = st.one_of(st.none(), _text, st.dictionaries(_text, st.integers(), max_size=1))
_part = st.one_of(
    st.builds(TextPart, _text),
    st.builds(ThinkingPart, _text),
    st.builds(ToolCallPart, st.just("tool"), _arguments, _id),
    st.builds(NativeToolCallPart, st.just("tool"), _arguments, _id),
    st.builds(ToolReturnPart, st.just("tool"), _text, _id),
    st.builds(NativeToolReturnPart, st.just("tool"), _text, _id),
)
_delta = st.one_of(
    st.builds(TextPartDelta, _text),
    st.builds(
        ThinkingPartDelta, content_delta=st.one_of(st.none(), _text), signature_delta=st.sampled_from([None, "s"])
    ),
    st.builds(ToolCallPartDelta, tool_name_delta=_text, args_delta=_arguments, tool_call_id=st.one_of(st.none(), _id)),
)
_index = st.integers(0, 1)
_event = st.one_of(
    st.builds(PartStartEvent, index=_index, part=_part),
    st.builds(PartDeltaEvent, index=_index, delta=_delta),
    st.builds(PartEndEvent, index=_index, part=_part),
    st.builds(FunctionToolResultEvent, st.builds(ToolReturnPart, st.just("tool"), _text, _id)),
    st.builds(ModelRequestStartEvent, st.just("id"), loop_index=st.integers(0, 1)),
)
_steps = st.lists(st.tuples(st.sampled_from(["main", "child"]), _event), max_size=40)


@settings(max_examples=150, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(steps=_steps)
def test_any_order(steps: list[tuple[str, Any]]) -> None:
    adapter = AguiEventAdapter(
        session_id="session", run_id="run", config=AguiAdapterConfig("app", stream_metadata_prefix="app")
    )
    events: list[dict[str, Any]] = []
    latest: dict[tuple[str, str], str] = {}
    for agent_id, event in steps:
        for made in adapter.adapt_stream_event(StreamEvent(agent_id, "Name", event)):
            _AGUI.validate_json(json.dumps(made, allow_nan=False, ensure_ascii=False).encode())
            assert made["appAgentId"] == agent_id
            events.append(made)
            if "toolCallKey" not in made:
                continue
            if made["type"] == "TOOL_CALL_RESULT":
                assert latest.setdefault((agent_id, made["toolCallId"]), made["toolCallKey"]) == made["toolCallKey"]
                assert made["messageId"] == f"{made['toolCallKey']}:result"
            latest[agent_id, made["toolCallId"]] = made["toolCallKey"]
            if isinstance(event, PartEndEvent) and made["type"] == "TOOL_CALL_END":
                part: Any = event.part
                latest[agent_id, part.tool_call_id] = made["toolCallKey"]
    starts = Counter(
        (event["type"], event.get("toolCallKey") or event["messageId"])
        for event in events
        if event["type"].endswith("_START")
    )
    assert set(starts.values()) <= {1}
    text = Counter(event["messageId"] for event in compact_agui_events(events) if event["type"] == "TEXT_MESSAGE_CHUNK")
    assert set(text.values()) <= {1}
