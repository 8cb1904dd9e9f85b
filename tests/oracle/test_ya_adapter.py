"""The adapter of ya-agent-sdk streams gives what ya-agent-stream-protocol's gives, where that is right.

The streams are those that an SDK run makes: parts of a response one after the other, deltas that add up to their part,
agents interleaved, results that come later, ids that come again. Where the reference is wrong is in
tests/test_ya_agent.py. Two of these differences are part of every stream, and looked at here: CUSTOM events carry their
agent, and arguments that come as a mapping are sent when they are complete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_ai.messages import (
    BinaryImage,
    EnqueuedMessagesEvent,
    FilePart,
    FinalResultEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelRequest,
    OutputToolResultEvent,
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
    UserPromptPart,
)
from pydantic_ai.usage import RunUsage
from ya_agent_sdk import events as sdk  # type: ignore[import-untyped]
from ya_agent_sdk.context import StreamEvent  # type: ignore[import-untyped]
from ya_agent_sdk.usage import CostEstimate, UsageSnapshot  # type: ignore[import-untyped]
from ya_agent_stream_protocol import sdk as reference  # type: ignore[import-untyped]
from ya_agent_stream_protocol.agui import compact_agui_events as compact_by_reference  # type: ignore[import-untyped]

from agui_relay.replay import compact_agui_events
from agui_relay.source import ya_agent

TOTAL = int(os.environ.get("AGUI_RELAY_TEST_EXAMPLES", "400"))
"""Streams that the tests of this file together compare."""
SEED = int(os.environ.get("AGUI_RELAY_TEST_SEED", "20261129"))

pytestmark = pytest.mark.timeout(120 + TOTAL // 4)

Event = dict[str, Any]


def examples(part: float) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        count = max(10, round(TOTAL * part))
        quiet = settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        return seed(SEED)(quiet(test))

    return decorate


@dataclass
class Record:
    name: str
    when: datetime
    inner: Any = None


class Model(BaseModel):
    name: str
    when: datetime


# No lone surrogates: these are where the reference's text cannot be sent.
_letters = st.characters(blacklist_categories=["Cs"])
_text = st.one_of(st.sampled_from(["a", "Hello ", "ü", "\U0001f600", '"', "\\", "\n"]), st.text(_letters, max_size=6))
_some_text = st.one_of(st.sampled_from(["a", "Hello ", "ü"]), st.text(_letters, min_size=1, max_size=6))
_when = st.datetimes(timezones=st.just(UTC), min_value=datetime(1970, 1, 2), max_value=datetime(2100, 1, 1))
_whole = st.integers(-(2**53), 2**53)
_number = st.one_of(_whole, st.floats(allow_nan=False, allow_infinity=False))
_leaf = st.one_of(st.none(), st.booleans(), _number, _text, _when, _when.map(lambda when: Path(f"/a/{when.year}")))
_payload = st.recursive(
    _leaf,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(_text, inner, max_size=3),
        st.dictionaries(st.integers(), inner, max_size=3),
        st.sets(_text, max_size=1),
        st.builds(Record, _text, _when, inner),
        st.builds(Model, name=_text, when=_when),
    ),
    max_leaves=6,
)
_arguments = st.dictionaries(_text, st.one_of(_leaf, st.lists(_leaf, max_size=2)), max_size=3)
_bounded = st.one_of(_text, st.sampled_from(["x" * 199, "ü" * 200, "x" * 201, "x" * 1_000, "ü" * 1_001]))
_finite = st.floats(allow_nan=False, allow_infinity=False)
_outcomes: st.SearchStrategy[Literal["success", "failed", "denied", "interrupted", "retried"]] = st.sampled_from(
    ["success", "failed", "denied", "interrupted", "retried"]
)

_cost = st.builds(
    CostEstimate,
    input_amount=st.decimals(0, 100, places=3),
    total_amount=st.decimals(0, 100, places=6),
    priced_requests=st.integers(0, 9),
)
_usage = st.builds(
    RunUsage,
    input_tokens=st.integers(0, 10**9),
    audio_seconds=_finite,
    details=st.dictionaries(_text, st.integers(), max_size=2),
    cost=st.one_of(st.none(), st.decimals(0, 100, places=6)),
)
_by_field: dict[str, st.SearchStrategy[Any]] = {
    "changes": st.lists(
        st.builds(
            sdk.FileChange,
            path=_text,
            action=st.sampled_from(list(sdk.FileChangeAction)),
            destination=st.one_of(st.none(), _text),
            replacements=st.lists(st.builds(sdk.TextReplacement, _text, _text), max_size=1),
        ),
        max_size=2,
    ),
    "tasks": st.lists(
        st.builds(sdk.TaskInfo, id=_text, subject=_text, description=_text, owner=_text, blocks=st.lists(_text)),
        max_size=2,
    ),
    "entries": st.dictionaries(_text, _text, max_size=3),
    "namespace_status": st.dictionaries(_text, st.sampled_from(list(sdk.NamespaceStatus)), max_size=2),
    "snapshot": st.one_of(
        st.none(),
        st.builds(
            UsageSnapshot,
            run_id=_text,
            total_usage=_usage,
            total_cost_estimate=st.one_of(st.none(), _cost),
            model_cost_estimates=st.dictionaries(_text, _cost, max_size=2),
        ),
    ),
    "timestamp": _when,
    "condense_result": st.just(object()),
    "deferred_tool_results": st.none(),
}
_by_type: dict[str, st.SearchStrategy[Any]] = {
    "str": _bounded,
    "int": _whole,
    "float": _finite,
    "bool": st.booleans(),
}


def _lifecycle(kind: type) -> st.SearchStrategy[Any]:
    strategies = {
        field.name: _by_field.get(field.name, _by_type.get(str(field.type), st.one_of(st.none(), _text)))
        for field in fields(kind)
    }
    return st.builds(kind, **strategies)


LIFECYCLE = [
    kind
    for kind in vars(sdk).values()
    if isinstance(kind, type) and issubclass(kind, sdk.AgentEvent) and kind is not sdk.ModelRequestStartEvent
]
_asides = st.one_of(
    *map(_lifecycle, LIFECYCLE),
    st.builds(FinalResultEvent, tool_name=st.one_of(st.none(), _text), tool_call_id=st.one_of(st.none(), _text)),
    st.integers(0, 3).map(
        lambda count: EnqueuedMessagesEvent(enqueue_id="id", messages=(ModelRequest([UserPromptPart("x")]),) * count)
    ),
)


@st.composite
def message_parts(draw: st.DrawFn, index: int, may_stay_open: bool) -> list[Any]:
    """The events of a text or a thought whose deltas add up, or that comes whole with its start or its end."""
    is_text = draw(st.booleans())
    made: Callable[[str], Any]
    given_id = draw(st.sampled_from([None, None, "m-1", "m-2"]))
    if is_text:
        made = lambda content: TextPart(content, id=given_id)  # noqa: E731
    else:
        made = lambda content: ThinkingPart(content, id=given_id)  # noqa: E731
    first = draw(st.one_of(st.just(""), _some_text))
    pieces = draw(st.lists(_some_text, max_size=4))
    events: list[Any] = []
    has_start = draw(st.integers(0, 9)) > 0
    if has_start:
        events.append(PartStartEvent(index=index, part=made(first)))
    whole = first if has_start else ""
    for piece in pieces:
        if is_text:
            events.append(PartDeltaEvent(index=index, delta=TextPartDelta(piece)))
            whole += piece
        else:
            signature = draw(st.sampled_from([None, None, "signed"]))
            content = draw(st.sampled_from([piece, piece, None, ""]))
            delta = ThinkingPartDelta(content_delta=content, signature_delta=signature)
            events.append(PartDeltaEvent(index=index, delta=delta))
            whole += content or ""
    if not whole and draw(st.booleans()):
        whole = draw(_some_text)
    if not may_stay_open or draw(st.integers(0, 9)):
        events.append(PartEndEvent(index=index, part=made(whole)))
    return events


@st.composite
def call_parts(draw: st.DrawFn, loop: int, index: int, call_id: str, mappings: bool, may_stay_open: bool) -> list[Any]:
    """The events of a tool call: arguments as text in pieces, or as one mapping that its start has already."""
    name = draw(st.sampled_from(["search", "write"]))
    if mappings and draw(st.booleans()):
        arguments = draw(_arguments)
        part = ToolCallPart(name, arguments, call_id)
        return [PartStartEvent(index=index, part=part), PartEndEvent(index=index, part=part)]
    first = draw(st.one_of(st.none(), _text))
    pieces = draw(st.lists(st.one_of(_some_text, st.none()), max_size=4))
    split_name = draw(st.integers(0, 5)) == 0
    began = name[:2] if split_name else name
    events: list[Any] = []
    if draw(st.integers(0, 9)):
        events.append(PartStartEvent(index=index, part=ToolCallPart(began, first, call_id)))
    else:
        first = None
        pieces = [*pieces, "x"]
        split_name = True
        began = ""
        call_id = f"{call_id} without a start, {loop}.{index}"
    for number, piece in enumerate(pieces):
        delta = ToolCallPartDelta(
            tool_name_delta=name[len(began) :] if split_name and number == 0 else None,
            args_delta=piece,
            tool_call_id=call_id,
        )
        events.append(PartDeltaEvent(index=index, delta=delta))
    given_arguments = [piece for piece in (first, *pieces) if piece is not None]
    whole = "".join(given_arguments) if given_arguments else None
    if not may_stay_open or draw(st.integers(0, 9)):
        events.append(PartEndEvent(index=index, part=ToolCallPart(name, whole, call_id)))
    return events


@st.composite
def results(draw: st.DrawFn, call_id: str) -> Any:
    part = ToolReturnPart("search", draw(_payload), call_id, outcome=draw(_outcomes), metadata={"a": 1})
    way = draw(st.integers(0, 5))
    if way == 0:
        return OutputToolResultEvent(part=part)
    if way == 1:
        whole = draw(st.booleans())
        given_part: Any = part
        return PartStartEvent(index=98, part=given_part) if whole else PartEndEvent(index=99, part=given_part)
    content = draw(st.one_of(st.none(), st.none(), _text, st.lists(_text, max_size=2)))
    return FunctionToolResultEvent(part=part, content=content)


@st.composite
def agent_runs(draw: st.DrawFn, agent_id: str, mappings: bool) -> list[StreamEvent]:
    events: list[Any] = []
    waiting: list[str] = []
    loops = draw(st.integers(1, 3))
    for loop in range(loops):
        is_last = loop == loops - 1  # What is open then has been cut.
        events.append(sdk.ModelRequestStartEvent("id", loop_index=loop, message_count=draw(_whole)))
        for index in range(draw(st.integers(0, 4))):
            kind = draw(st.integers(0, 9))
            if kind == 0:
                file: Any = FilePart(BinaryImage(b"x", media_type="image/png"))
                events += [PartStartEvent(index=index, part=file), PartEndEvent(index=index, part=file)]
            elif kind < 5:
                call_id = draw(st.sampled_from(["call-1", "call-2", "call-3"]))
                events += draw(call_parts(loop, index, call_id, mappings, is_last))
                waiting.append(call_id)
            else:
                events += draw(message_parts(index, is_last))
        events += draw(st.lists(_asides, max_size=2))
        while waiting and draw(st.integers(0, 3)) > 0:
            call_id = waiting.pop(draw(st.integers(0, len(waiting) - 1)))
            events += [FunctionToolCallEvent(ToolCallPart("search", "{}", call_id)), draw(results(call_id))]
    name = draw(st.sampled_from(["Main", "Explorer"]))
    return [StreamEvent(agent_id, name, event) for event in events]


@st.composite
def streams(draw: st.DrawFn, mappings: bool = False) -> list[StreamEvent]:
    """A stream of up to three agents, each in its own order."""
    agents = draw(st.integers(1, 3))
    waiting = [draw(agent_runs(agent_id, mappings)) for agent_id in ("main", "child", "child 2")[:agents]]
    stream: list[StreamEvent] = []
    while any(waiting):
        runs = [run for run in waiting if run]
        source = runs[draw(st.integers(0, len(runs) - 1))]
        take = draw(st.integers(1, 5))
        stream += source[:take]
        del source[:take]
    return stream


_prefixes = st.sampled_from([None, "app", "yaacli"])


def without_time(events: list[Event]) -> Iterator[Event]:
    for event in events:
        assert abs(event["timestamp"] - datetime.now(UTC).timestamp() * 1000) < 60_000
        yield {name: value for name, value in event.items() if name != "timestamp"}


def with_known_agent(events: Iterator[Event], prefix: str | None, stream_event: StreamEvent) -> Iterator[Event]:
    """Make sure that every event names its agent, and take that off those of which the reference does not say it."""
    for event in events:
        if prefix is not None:
            assert event[f"{prefix}AgentId"] == stream_event.agent_id
            assert event[f"{prefix}AgentName"] == stream_event.agent_name
            if event["type"] == "CUSTOM" and not event["name"].endswith(".reasoning_signature_delta"):
                del event[f"{prefix}AgentId"], event[f"{prefix}AgentName"]
        yield event


def adapt(stream: list[StreamEvent], prefix: str | None) -> tuple[list[list[Event]], list[list[Event]]]:
    """Return ours and the reference's events for each stream event."""
    named: Any = {"run_event_prefix": "app", "stream_metadata_prefix": prefix}
    ours = ya_agent.AguiEventAdapter(session_id="s", run_id="r", config=ya_agent.AguiAdapterConfig(**named))
    theirs = reference.AguiEventAdapter(session_id="s", run_id="r", config=reference.AguiAdapterConfig(**named))
    got, expected = [], []
    for stream_event in stream:
        events = without_time(ours.adapt_stream_event(stream_event))
        got.append(list(with_known_agent(events, prefix, stream_event)))
        expected.append(list(without_time(theirs.adapt_stream_event(stream_event))))
    return got, expected


@examples(0.6)
@given(stream=streams(), prefix=_prefixes)
def test_the_same_events(stream: list[StreamEvent], prefix: str | None) -> None:
    got, expected = adapt(stream, prefix)
    for stream_event, ours, theirs in zip(stream, got, expected, strict=True):
        # As text: the same members in the same order.
        assert json.dumps(ours) == json.dumps(theirs), f"{stream_event}\nours   {ours}\ntheirs {theirs}"


@examples(0.3)
@given(stream=streams(mappings=True), prefix=_prefixes)
def test_the_same_compact_events_when_arguments_are_mappings(stream: list[StreamEvent], prefix: str | None) -> None:
    got, expected = ([event for events in made for event in events] for made in adapt(stream, prefix))
    assert compact_agui_events(got) == compact_by_reference(expected)
    rest = [[json.dumps(event) for event in events if event["type"] != "TOOL_CALL_CHUNK"] for events in (got, expected)]
    assert rest[0] == rest[1]


@examples(0.1)
@given(
    name=_text,
    payload=_payload.filter(lambda payload: payload is not None),
    result=st.one_of(st.none(), st.recursive(_text, lambda inner: st.lists(inner, max_size=2))),
    code=st.one_of(st.none(), _text),
)
def test_the_same_events_of_the_run(name: str, payload: Any, result: Any, code: str | None) -> None:
    ours: Any = ya_agent.AguiEventAdapter(session_id="s", run_id="r", config=ya_agent.AguiAdapterConfig("app"))
    theirs = reference.AguiEventAdapter(session_id="s", run_id="r", config=reference.AguiAdapterConfig("app"))
    made = [
        list(
            without_time(
                [
                    adapter.build_run_started_event(input_parts=[{"text": name}]),
                    adapter.build_run_finished_event(result),
                    adapter.build_run_finished_event(),
                    adapter.build_run_error_event(message=name, code=code),
                    adapter.build_run_custom_event(name, payload),
                ]
            )
        )
        for adapter in (ours, theirs)
    ]
    assert json.dumps(made[0]) == json.dumps(made[1])
