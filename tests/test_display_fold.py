"""What a display shows of a run, event by event, and that it can be saved at any moment."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, TypedDict, Unpack

import pytest
from ag_ui.core import RunStartedEvent

from agui_relay.display import DisplayError, DisplayFold, DisplaySnapshot, Item, StreamPosition, item_id
from agui_relay.display.folding import SCOPES_KEPT
from agui_relay.display.items import MAX_FIELD_CHARS, MAX_OBSERVATION_BYTES
from agui_relay.framing.fragments import fragment_encoded
from agui_relay.projection.errors import ContinuationError
from agui_relay.source import HarnessItem, decode_item
from tests.case_files import Case, load_cases

AT = 1_795_981_599_644


class Policy(TypedDict, total=False):
    """What a fold keeps."""

    retain_content: bool
    full_content: bool


POLICIES: tuple[Policy, ...] = ({}, {"retain_content": True}, {"full_content": True})
CASES = {case.name: case for case in load_cases()}


def text(step: str, message: str = "m1", **fields: Any) -> dict[str, Any]:
    return {"type": f"TEXT_MESSAGE_{step}", "timestamp": AT, "messageId": message, **fields}


def content(delta: str, message: str = "m1", **fields: Any) -> dict[str, Any]:
    return text("CONTENT", message, delta=delta, **fields)


def call(step: str, call_id: str = "call-1", **fields: Any) -> dict[str, Any]:
    return {"type": f"TOOL_CALL_{step}", "timestamp": AT, "toolCallId": call_id, **fields}


def custom(name: str, event: Any, **fields: Any) -> dict[str, Any]:
    value = {"thread_id": "t", "run_id": "r", "sequence": 1, "occurred_at": "2026-11-29T19:46:39+00:00", "event": event}
    return {"type": "CUSTOM", "timestamp": AT, "name": name, "value": value, **fields}


def extension(kind: str, payload: Any, **fields: Any) -> dict[str, Any]:
    return custom(f"a13n.harness.{kind}", {"schema_version": "1", "kind": kind, "payload": payload}, **fields)


def arguments(delta: str, index: int = 0) -> dict[str, Any]:
    part = {"tool_name_delta": None, "args_delta": delta, "tool_call_id": "call-1", "part_delta_kind": "tool_call"}
    return custom("a13n.pydantic_ai.part_delta", {"index": index, "delta": part, "event_kind": "part_delta"})


def folded(*events: dict[str, Any], **policy: Unpack[Policy]) -> DisplayFold:
    fold = DisplayFold("run", **policy)
    for event in events:
        fold.fold([event])
    return fold


def only(fold: DisplayFold) -> Item:
    (item,) = fold.items.values()
    return item


def through_json(fold: DisplayFold) -> DisplayFold:
    return DisplayFold.restore(DisplaySnapshot.model_validate_json(fold.export().model_dump_json()))


def state(fold: DisplayFold) -> str:
    return fold.export().model_dump_json()


# --- the examples of the documentation -------------------------------------------------------------------------


def test_the_first_example_of_the_documentation() -> None:
    prefix = [
        {"type": "TEXT_MESSAGE_START", "messageId": "message-1", "role": "assistant", "timestamp": 1000},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "message-1", "delta": "Hello", "timestamp": 1001},
    ]
    suffix = [
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "message-1", "delta": " world", "timestamp": 1002},
        {"type": "TEXT_MESSAGE_END", "messageId": "message-1", "timestamp": 1003},
    ]
    fold = DisplayFold("run-example")
    fold.fold(prefix)
    checkpoint_json = fold.export().model_dump_json()

    restored = DisplayFold.restore(DisplaySnapshot.model_validate_json(checkpoint_json))
    restored.fold(suffix)

    uninterrupted = DisplayFold("run-example")
    uninterrupted.fold(prefix + suffix)
    assert restored.export() == uninterrupted.export()
    item = next(iter(restored.items.values()))
    assert item.content["text"] == "Hello world"
    assert item.state == "completed"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_the_second_example_of_the_documentation(case: Case) -> None:
    refused = {number for number, _ in enumerate(case.items) if number in case.refused}
    run_id = "run-1"
    persisted: list[Any] = []

    async def stream() -> AsyncIterator[HarnessItem]:
        for number, encoded in enumerate(case.encoded()):
            if number not in refused:
                yield decode_item(encoded)

    class Host:
        async def persist_and_publish(self, observed: list[Any]) -> None:
            persisted.extend(json.loads(seen.model_dump_json()) for seen in observed)

    run_stream, host = stream(), Host()
    fold = DisplayFold(run_id)
    async for source in run_stream:
        observed = fold.fold(fold.events(source), source)
        await host.persist_and_publish(observed)

    assert [seen["sequence"] for seen in persisted] == list(range(1, len(persisted) + 1))
    assert [item.ordinal for item in fold.items.values()] == list(range(1, len(fold.items) + 1))
    if "large" not in case.name:
        assert [seen["event"] for seen in persisted] == case.events


# --- items -------------------------------------------------------------------------------------------------------


def test_a_message_grows_and_ends() -> None:
    fold = DisplayFold("run", attempt=2)
    (first,) = fold.fold([text("START", role="assistant")])
    assert first.item is not None
    assert (first.item.kind, first.item.state, first.item.ordinal) == ("text_message", "in_progress", 1)
    fold.fold([content("Hello"), content(" world", timestamp=AT + 500)])
    (last,) = fold.fold([text("END", timestamp=AT + 1000)])
    assert last.sequence == 4
    assert last.item is not None
    assert last.item.state == "completed"
    item = only(fold)
    assert item.id == first.item.id == item_id("run", "text_message", "m1")
    assert item.content == {"messageId": "m1", "role": "assistant", "text": "Hello world"}
    assert (item.first_stream_id, item.last_stream_id) == ("2-1", "2-4")
    assert item.started_at == datetime.fromtimestamp(AT / 1000, UTC)
    assert item.ended_at == datetime.fromtimestamp(AT / 1000 + 1, UTC)
    assert fold.position == StreamPosition(attempt=2, sequence=4)
    assert str(fold.position) == "2-4"


def test_the_same_id_is_another_item_in_a_child_and_in_another_kind() -> None:
    reasoning = {"type": "REASONING_MESSAGE_CONTENT", "timestamp": AT, "messageId": "m1", "delta": "c"}
    fold = folded(content("a"), content("b", subagentRunId="child"), reasoning, content("d", subagentRunId="child"))
    assert [(item.kind, item.content["text"]) for item in fold.items.values()] == [
        ("text_message", "a"),
        ("text_message", "bd"),
        ("reasoning_message", "c"),
    ]


def test_a_tool_call_from_its_start_to_its_result() -> None:
    fold = folded(
        call("START", toolCallName="search"),
        call("ARGS", delta='{"q":'),
        call("ARGS", delta="1}"),
        call("END"),
        call("RESULT", messageId="call-1:result", content="found", role="tool"),
    )
    item = only(fold)
    assert item.state == "completed"
    assert item.content["arguments"] == '{"q":1}'
    assert item.content["arguments_complete"] is True
    assert item.content["result"] == "found"


def test_a_failed_call_says_why() -> None:
    case = CASES["failing-tools"]
    fold = DisplayFold("run")
    failures = {}
    for item in map(decode_item, case.encoded()):
        for seen in fold.fold(fold.events(item), item):
            if seen.item is not None and seen.item.failure is not None:
                failures[seen.item.id] = seen.item.failure["message"]
                assert seen.item.state == "failed"
    shown = {item.id: item.content["failure"] for item in fold.items.values() if "failure" in item.content}
    assert shown == {key: {"code": "tool_failed", "message": message} for key, message in failures.items()}
    assert len(shown) == 3


def test_a_retry_prompt_fails_its_call() -> None:
    case = CASES["retry-prompt"]
    fold = DisplayFold("run")
    for item in map(decode_item, case.encoded()):
        fold.fold(fold.events(item), item)
    assert [item.state for item in fold.items.values() if item.kind == "tool_call"] == ["failed"]


def test_streamed_arguments_are_one_observation_until_something_comes_between() -> None:
    fold = folded(arguments('{"a":'), arguments('"b'), arguments('"}'), content("x"), arguments("later"))
    first, _, third = fold.items.values()
    assert isinstance(first.content["value"], dict)
    assert first.content["value"]["event"] == arguments('{"a":"b"}')["value"]["event"]
    assert (first.first_stream_id, first.last_stream_id) == ("0-1", "0-3")
    assert third.content["value"] == arguments("later")["value"]


def test_streamed_arguments_are_omitted_once_they_are_too_large() -> None:
    fold = folded(*(arguments("字" * 1000) for _ in range(12)))
    assert only(fold).content["value"] == {"omitted": True}
    kept = folded(*(arguments("字" * 1000) for _ in range(12)), retain_content=True)
    assert isinstance(only(kept).content["value"], dict)
    assert arguments("字" * 12_000)["value"] == only(kept).content["value"]


def test_items_belong_to_the_response_that_is_given() -> None:
    started = {"type": "model_request_started", "request_index": 0}
    fold = folded(
        content("before"),
        extension("lifecycle", started),
        content("a", "m2"),
        extension("lifecycle", started, subagentRunId="child"),
        content("b", "m3"),
        content("c", "m4", subagentRunId="child"),
    )
    groups = [item.content.get("responseGroup") for item in fold.items.values() if item.kind == "text_message"]
    assert groups == [None, "run:0:2", "run:0:2", "run:0:4"]
    (seen,) = fold.fold([content("!")])
    assert seen.item is not None
    assert seen.item.response_group == "run:0:2"


def test_a_response_knows_what_was_remembered_for_it() -> None:
    record = {"id": "r1", "sha256": "00"}
    recalled = {"type": "memory_recall", "memories": [{"memory": "m", "recall": "recalled", "records": [record]}]}
    fold = folded(extension("context", recalled), text("START", role="assistant"), content("x"))
    (seen,) = fold.fold([text("END")])
    assert seen.item is not None
    (source,) = seen.item.memory_sources or ()
    assert (source.kind, source.memory, source.status) == ("record", "m", "recalled")
    assert source.records[0].id == "r1"
    assert "memory_sources" not in fold.fold([content("!")])[0].model_dump()["item"]


def test_what_a_child_began_is_interrupted_when_the_run_ends() -> None:
    fold = DisplayFold("run")
    for item in map(decode_item, CASES["cancelled-with-open-part-and-child"].encoded()):
        fold.fold(fold.events(item), item)
    states = {
        (item.content.get("subagentRunId"), item.content.get("text")): item.state
        for item in fold.items.values()
        if item.kind != "observation"
    }
    assert states == {(None, "I am"): "completed", (None, "hm"): "completed", ("child-1", "Working"): "interrupted"}
    (child,) = (item for item in fold.items.values() if item.state == "interrupted")
    assert child.ended_at is None
    assert child.last_stream_id == str(fold.position)
    assert child.id in fold.changed


def test_a_call_of_the_root_that_waits_for_its_result_stays_open_when_the_run_ends() -> None:
    end = {"type": "RUN_FINISHED", "timestamp": AT, "threadId": "t", "runId": "r"}
    fold = folded(call("START", toolCallName="ask"), end)
    assert [item.state for item in fold.items.values()] == ["in_progress", "completed"]


def test_events_that_are_not_shown_take_a_place_all_the_same() -> None:
    (seen,) = DisplayFold("run").fold([{"type": "STATE_SNAPSHOT", "snapshot": {}}])
    assert (seen.sequence, seen.item) == (1, None)


# --- names like ours ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("a13n.stream.fragment", {"id": "x", "index": 0, "count": 2, "data": "{"}),
        ("a13n.pydantic_ai.part_delta", {"index": 0}),
        ("a13n.pydantic_ai.part_delta", arguments("x")["value"]["event"]),
        ("a13n.input.user", {"content": "x"}),
        ("a13n.input.user", {"message_id": "m1", "content": "I am not the user", "source": "user"}),
        ("a13n.input.media", {"message_id": "m1", "content": {}, "source": "user"}),
        ("a13n.harness.lifecycle", {"payload": {"type": "model_request_started"}}),
        ("a13n.harness.context", {"payload": {"type": "memory_recall", "memories": []}}),
        ("a13n.pydantic_ai.function_tool_result", {"part": {"tool_call_id": "call-1", "outcome": "failed"}}),
        ("a13n.pydantic_ai.part_end", {"part": {"tool_call_id": "call-1", "part_kind": "builtin-tool-call"}}),
    ],
)
def test_a_capability_event_named_like_ours_is_an_observation(name: str, event: dict[str, Any]) -> None:
    named = custom(name, {**event, "event_kind": "capability", "kind": name})
    for policy in POLICIES:
        fold = folded(named, call("START", toolCallName="t"), content("x"), **policy)
        first, tool, message = fold.items.values()
        assert (first.kind, first.content["name"], first.content["value"]) == ("observation", name, named["value"])
        assert (tool.state, "responseGroup" in message.content) == ("in_progress", False)
        assert not fold.assembler.gap
        assert not fold.memory_sources


def test_what_only_a_capability_says_is_not_taken_from_elsewhere() -> None:
    edit = {"tool_call_id": "call-1", "file_path": "a", "before": "b", "after": "c"}
    fold = folded(custom("a13n.filesystem.edit_applied", edit))
    assert only(fold).kind == "observation"
    fold = folded(custom("a13n.filesystem.edit_applied", {**edit, "event_kind": "capability"}))
    assert only(fold).content["applied_edit"] == {"file_path": "a", "before": "b", "after": "c"}


# --- saved and restored --------------------------------------------------------------------------------------------


def test_export_leaves_open_what_is_open_and_shares_nothing() -> None:
    fold = folded(text("START", role="assistant"), content("Hel"), call("START", toolCallName="search"))
    snapshot = fold.export()
    assert [item.state for item in snapshot.items] == ["in_progress", "in_progress"]
    before = snapshot.model_dump_json()
    fold.fold([content("lo"), text("END"), call("ARGS", delta="{}")])
    assert snapshot.model_dump_json() == before
    snapshot.items[0].content["text"] = "changed"
    assert fold.export().items[0].content["text"] == "Hello"


def test_a_fold_goes_on_in_the_middle_of_a_large_event() -> None:
    large = custom("elsewhere.large", {"event_kind": "capability", "data": "x" * 200_000})
    frames = fragment_encoded(json.dumps(large).encode(), identity="e1", timestamp=AT)
    assert len(frames) > 3
    fold = DisplayFold("run", retain_content=True)
    for frame in frames:
        fold.fold([json.loads(frame)])
        fold = through_json(fold)
    assert only(fold).content["value"] == large["value"]
    assert fold.sequence == len(frames)
    assert only(fold).first_stream_id == f"0-{len(frames)}"


@pytest.mark.parametrize("policy", POLICIES)
def test_restore_keeps_the_policies(policy: Policy) -> None:
    long = "x" * (MAX_FIELD_CHARS - 1)
    events = [content(long), arguments("a" * MAX_OBSERVATION_BYTES), content("yz"), arguments("b")]
    fold = DisplayFold("run", **policy)
    for event in events:
        fold.fold([event])
        fold = through_json(fold)
    assert state(fold) == state(folded(*events, **policy))
    kept = next(iter(fold.items.values())).content
    assert kept["text"] == long + ("yz" if policy else "y")
    assert ("truncated" in kept) is not bool(policy)


def test_a_continuation_of_another_run_is_refused() -> None:
    saved = folded(content("x")).export().continuation
    with pytest.raises(ValueError, match="got that of"):
        DisplayFold("other", continuation=saved)
    with pytest.raises(ValueError, match="got that of"):
        DisplayFold("run", attempt=1, continuation=saved)
    with pytest.raises(ValueError, match="got that of"):
        DisplayFold("run", full_content=True, continuation=saved)


def test_a_snapshot_of_a_newer_release_is_refused() -> None:
    saved = json.loads(folded(content("x")).export().model_dump_json())
    saved["continuation"]["version"] += 1
    saved["continuation"]["unheard_of"] = True
    with pytest.raises(ContinuationError, match="version 2"):
        DisplaySnapshot.read(json.dumps(saved))
    with pytest.raises(ContinuationError, match="not a display snapshot"):
        DisplaySnapshot.read(b"{}")


def test_a_later_attempt_goes_on_in_the_items_of_an_earlier_one() -> None:
    before = folded(call("START", toolCallName="search"), content("x"))
    fold = DisplayFold("run", before.export().items, attempt=1)
    fold.fold([call("RESULT", messageId="r", content="found"), content("new", "m2")])
    first, _, third = fold.items.values()
    assert (first.state, first.first_stream_id, first.last_stream_id) == ("completed", "0-1", "1-1")
    assert (third.ordinal, third.first_stream_id) == (3, "1-2")


def test_items_can_be_retired_and_paged() -> None:
    fold = folded(content("a"), text("END"), content("b", "m2"))
    done, _ = fold.items
    last_page = fold.items.pop(done)
    assert last_page.content["text"] == "a"
    assert done not in fold.items
    fold.fold([content("c", "m2"), content("d", "m3")])
    assert [item.ordinal for item in fold.items.values()] == [2, 3]
    again = DisplayFold("run", [fold.items[key] for key in fold.items], continuation=fold.export().continuation)
    again.fold([content("e", "m4")])
    assert [item.ordinal for item in again.items.values()] == [2, 3, 4]
    assert [item.content["text"] for item in again.items.values()] == ["bc", "d", "e"]
    with pytest.raises(KeyError):
        del fold.items[done]
    with pytest.raises(ValueError, match="expected an item with the id"):
        fold.items["other"] = last_page


def test_a_retired_observation_of_streamed_arguments_begins_anew() -> None:
    fold = folded(arguments("a"))
    fold.items.clear()
    uninterrupted = through_json(fold)
    for one in (fold, uninterrupted):
        one.fold([arguments("b")])
        assert only(one).content["value"] == arguments("b")["value"]
        assert only(one).ordinal == 2


def test_an_item_that_was_looked_up_stays_as_it_was() -> None:
    fold = folded(content("a"))
    (item,) = fold.items.values()
    assert fold.items[item.id] is item
    fold.fold([content("b")])
    assert item.content["text"] == "a"
    assert fold.items[item.id].content["text"] == "ab"


def test_captured_deltas_do_not_depend_on_who_clears_changed() -> None:
    fold = folded(content("a"), content("b", "m2"))
    assert [item.content["messageId"] for item in fold.capture_delta().items] == ["m1", "m2"]
    fold.changed.clear()
    assert fold.capture_delta().items == []
    fold.fold([content("c", "m2")])
    assert fold.changed == {item_id("run", "text_message", "m2")}
    fold.changed.clear()
    delta = fold.capture_delta()
    assert [item.content["text"] for item in delta.items] == ["bc"]
    assert delta.continuation == fold.export_continuation()


# --- refused, or made fit -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"type": ["TEXT_MESSAGE_START"]},
        ["TEXT_MESSAGE_START"],
        None,
        text("START", message=None),  # type: ignore[arg-type]
        content(delta=1),  # type: ignore[arg-type]
        content("x", subagentRunId=7),
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1"},
        text("START", metadata={"a": {1, 2}}),
        text("START", metadata={"a": b"bytes"}),
        call("RESULT", messageId="r", content=[{"type": "text", "at": datetime.now(UTC)}]),
        {"type": "RUN_STARTED", 1: "x"},
        {"type": "CUSTOM", "value": 1},
        custom("a13n.pydantic_ai.part_delta", {**arguments("x")["value"]["event"], "more": object()}),
        extension("lifecycle", {"type": "model_request_started", "more": object()}),
    ],
)
def test_a_refused_batch_changes_nothing(bad: Any) -> None:
    large = fragment_encoded(b'{"type":"CUSTOM","name":"n","value":"' + b"x" * 100_000 + b'"}', identity="e")
    fold = folded(
        content("a"), call("START", toolCallName="t"), json.loads(large[0]), arguments("{"), content("b", "m2")
    )
    good = [
        extension("lifecycle", {"type": "model_request_started"}),
        content("c"),
        json.loads(large[1]),
        text("START", "m9"),
        {"type": "RUN_ERROR", "message": "x"},
    ]
    fold.capture_delta(), fold.take_changes()
    before, changed = state(fold), set(fold.changed)
    with pytest.raises(DisplayError):
        fold.fold([*good, bad])
    with pytest.raises(DisplayError):
        fold.fold([bad])
    assert state(fold) == before
    assert fold.changed == changed
    assert fold.take_changes() == []
    assert fold.capture_delta().items == []
    assert not fold.assembler.gap
    assert len(fold.fold(good)) == len(good)


@pytest.mark.parametrize("bad", [{"name": "a13n.pydantic_ai.part_delta"}, {"name": "x"}, {}])
def test_what_has_no_type_is_no_event(bad: dict[str, Any]) -> None:
    with pytest.raises(DisplayError, match="`type`"):
        DisplayFold("run-1").fold([bad])


def test_a_refused_batch_of_frames_changes_nothing() -> None:
    fold = folded(content("a"))
    before = state(fold)
    for bad in (b"{", b"[]", b'{"type":"TEXT_MESSAGE_END"}', b"\xff"):
        with pytest.raises(DisplayError):
            fold.fold_frames([json.dumps(content("b")).encode(), bad])
    assert state(fold) == before


def test_a_cycle_is_refused() -> None:
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    with pytest.raises(DisplayError, match="expected a JSON value"):
        DisplayFold("run").fold([custom("n", cycle)])


def test_values_that_json_has_no_form_for_are_made_fit() -> None:
    value = {"nan": float("nan"), "big": 2**70, "lone": "a\ud800b", "pair": "\ud83d\ude00", "tuple": (1,)}
    fold = folded(
        {"type": "CUSTOM", "name": "n\ud800", "timestamp": AT, "value": value},
        content("x\udfff", "m\ud800"),
        content("\ud83d\ude00", "m\ud800"),
        {"type": "CUSTOM", "name": "number", "timestamp": AT, "value": float("inf")},
        call("RESULT", messageId="r", content="\udc00"),
    )
    seen, message, number, result = fold.items.values()
    assert seen.content == {
        "name": "n\ufffd",
        "value": {"nan": None, "big": 2**70, "lone": "a\ufffdb", "pair": "😀", "tuple": [1]},
    }
    assert message.content == {"messageId": "m\ufffd", "text": "x\ufffd😀"}
    assert number.content["value"] is None
    assert result.content["result"] == "\ufffd"
    assert state(through_json(fold)) == state(fold)


def test_what_nests_too_deep_for_a_snapshot_is_omitted() -> None:
    deep: Any = 1
    for _ in range(196):
        deep = [deep]
    fold = folded({"type": "CUSTOM", "name": "fits", "value": deep}, {"type": "CUSTOM", "name": "n", "value": [deep]})
    fits, omitted = fold.items.values()
    assert fits.content["value"] == deep
    assert omitted.content["value"] == {"omitted": True}
    through_json(fold)


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (1500.5, datetime.fromtimestamp(1.5005, UTC)),
        (2**53 - 1, datetime.fromtimestamp(253_402_300_799.999, UTC)),
        (-(2**53), datetime(1, 1, 1, tzinfo=UTC)),
        (-1, datetime.fromtimestamp(-0.001, UTC)),
    ],
)
def test_times_are_those_of_the_events(timestamp: float, expected: datetime) -> None:
    assert only(folded(content("x", timestamp=timestamp))).started_at == expected


@pytest.mark.parametrize("timestamp", [None, "soon", True, float("nan")])
def test_without_a_time_it_is_now(timestamp: Any) -> None:
    before = datetime.now(UTC)
    started = only(folded(content("x", timestamp=timestamp))).started_at
    assert before <= started <= datetime.now(UTC)


def test_limits_count_bytes_for_values_and_characters_for_text() -> None:
    at_limit = {"type": "CUSTOM", "name": "n", "value": "字" * ((MAX_OBSERVATION_BYTES - 2) // 3)}
    over = {"type": "CUSTOM", "name": "n", "value": "字" * ((MAX_OBSERVATION_BYTES - 2) // 3 + 1)}
    first, second = folded(at_limit, over).items.values()
    assert first.content["value"] == at_limit["value"]
    assert second.content["value"] == {"omitted": True}
    assert only(folded(content("字" * MAX_FIELD_CHARS))).content == {"messageId": "m1", "text": "字" * MAX_FIELD_CHARS}
    cut = only(folded(content("字" * MAX_FIELD_CHARS), content("x"), content("y"))).content
    assert cut == {"messageId": "m1", "text": "字" * MAX_FIELD_CHARS, "truncated": True}


def test_an_input_that_is_cut_says_so_beside_its_text() -> None:
    event = {"message_id": "m1", "content": "x" * (MAX_FIELD_CHARS + 1), "source": "user", "input_id": "i"}
    cut = only(folded(custom("a13n.input.user", event))).content
    assert list(cut) == ["messageId", "role", "text", "truncated", "input_source", "input_group"]


def test_the_parts_of_a_result_that_fit_survive_beside_one_that_does_not() -> None:
    parts = [{"type": "text", "text": text} for text in ("before", "x" * MAX_FIELD_CHARS, "after")]
    result = call("RESULT", messageId="r", content=parts)
    assert only(folded(result)).content["result_parts"] == [parts[0], parts[2]]
    assert only(folded(result)).content["truncated"] is True
    assert only(folded(result, retain_content=True)).content["result_parts"] == parts
    nothing = only(folded(call("RESULT", messageId="r", content=[]))).content
    assert nothing["result_parts"] == []
    assert "truncated" not in nothing


def test_what_is_known_of_children_is_bounded() -> None:
    fold = DisplayFold("run")
    fold.fold([extension("lifecycle", {"type": "model_request_started"})])
    for number in range(SCOPES_KEPT + 50):
        payload = {"type": "model_request_started"}
        fold.fold([extension("lifecycle", payload, subagentRunId=f"child-{number}")])
    assert len(fold.response_groups) == SCOPES_KEPT
    assert fold.response_groups["root"] == "run:0:1"
    assert f"child-{SCOPES_KEPT + 49}" in fold.response_groups


def test_a_large_event_that_is_no_event_is_a_gap() -> None:
    bad = b'{"type":"CUSTOM","name":"n","subagentRunId":7,"value":"' + b"x" * 60_000 + b'"}'
    fold = DisplayFold("run")
    for frame in fragment_encoded(bad, identity="e"):
        assert fold.fold([json.loads(frame)])[0].item is None
    assert fold.assembler.gap
    assert not fold.items


def test_growing_text_is_not_joined_before_somebody_asks() -> None:
    fold = folded(*(content("x") for _ in range(1000)))
    (record,) = fold._records.by_id.values()
    pieces = record.text("text").pieces
    assert len(pieces) == 1000
    assert fold.fold([content("y")])[0].item is fold.fold([content("z")])[0].item
    assert only(fold).content["text"] == "x" * 1000 + "yz"
    assert len(pieces) == 1


def test_an_event_can_be_given_its_place() -> None:
    fold = folded(content("a"))
    (seen,) = fold.fold([content("b")], position=7)
    assert (seen.sequence, fold.sequence) == (7, 7)
    first, last = fold.fold([content("c"), content("d")], position=20)
    assert (first.sequence, last.sequence) == (19, 20)
    assert only(fold).content["text"] == "abcd"
    for events, position in (([content("e")], 20), ([content("e"), content("f")], 21)):
        with pytest.raises(ValueError, match=f"at least {20 + len(events)}, got {position}"):
            fold.fold(events, position=position)
    with pytest.raises(DisplayError):
        fold.fold([{"no": "type"}], position=30)
    assert fold.sequence == 20
    assert fold.fold([content("g")])[0].sequence == 21


def test_a_model_is_no_event_and_the_error_says_what_is() -> None:
    with pytest.raises(DisplayError, match=r"a model: fold its `model_dump\(mode='json', by_alias=True\)`"):
        DisplayFold("run").fold([RunStartedEvent(thread_id="t", run_id="r")])  # type: ignore[list-item]


@pytest.mark.parametrize("about", [{}, {"subagentRunId": "child"}, {"subagentRunId": ""}, {"subagentRunId": None}])
@pytest.mark.parametrize("more", [{}, {"metadata": {"by": ["me"]}}, {"responseGroup": "g"}, {"rawEvent": 1}])
@pytest.mark.parametrize("at", [{"timestamp": 1}, {"timestamp": 1.5}, {"timestamp": -1}, {"timestamp": 10**18}])
def test_frames_say_what_the_events_say(about: dict[str, Any], more: dict[str, Any], at: dict[str, Any]) -> None:
    rest = {**at, **about, **more}
    events: list[dict[str, Any]] = [
        {"type": "CUSTOM", "name": "a", "value": {"b": [1, 2]}, **rest},
        {"type": "CUSTOM", "name": "a.b", "value": "é", **rest},
        {"type": "CUSTOM", "name": "without a value", **rest},
    ]
    for kind, key, field in (("TEXT_MESSAGE", "messageId", "CONTENT"), ("REASONING_MESSAGE", "messageId", "CONTENT")):
        own = {key: kind, **rest}
        events.append({"type": f"{kind}_START", "role": "assistant", **own})
        events += [{"type": f"{kind}_{field}", "delta": delta, **own} for delta in ("one ", "", "zwölf")]
        # Another one comes between.
        events.append({"type": f"{kind}_{field}", "delta": "other", **own, key: "other"})
        events += [{"type": f"{kind}_{field}", "delta": "more", **own}, {"type": f"{kind}_END", **own}]
        events.append({"type": f"{kind}_{field}", "delta": "late", **own})
    own = {"toolCallId": "call", **rest}
    events += [
        {"type": "TOOL_CALL_START", "toolCallName": "search", **own},
        {"type": "TOOL_CALL_START", "toolCallName": "find", "parentMessageId": "m", **own},
        *({"type": "TOOL_CALL_ARGS", "delta": delta, **own} for delta in ("{", "}")),
        {"type": "TOOL_CALL_END", **own},
        {"type": "TOOL_CALL_RESULT", "messageId": "r", "content": "done", "role": "tool", **own},
        {"type": "TOOL_CALL_RESULT", "messageId": "r", "content": [{"type": "text", "text": "t"}], **own},
    ]
    one_by_one, at_once = DisplayFold("run"), DisplayFold("run")
    for event in events:
        one_by_one.fold([event])
    at_once.fold_frames(json.dumps(event).encode() for event in events)
    expected, got = json.loads(one_by_one.export().model_dump_json()), json.loads(at_once.export().model_dump_json())
    assert got == expected
    assert [list(item["content"]) for item in got["items"]] == [list(item["content"]) for item in expected["items"]]
    assert at_once.changed == one_by_one.changed
    assert at_once.take_changes() == one_by_one.take_changes()
