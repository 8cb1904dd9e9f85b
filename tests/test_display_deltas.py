"""A delta goes on where the one before did, unless something else has happened to its item."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from agui_relay.display import DisplayError, DisplayFold, Item, ItemRef, Observed
from agui_relay.display.items import MAX_FIELD_CHARS
from tests.test_display_fold import (
    AT,
    arguments,
    call,
    content,
    custom,
    extension,
    folded,
    only,
    state,
    text,
    through_json,
)

RESPONSE = extension("lifecycle", {"type": "model_request_started"})


def replace(fold: DisplayFold, **content: Any) -> None:
    item = only(fold)
    fold.items[item.id] = item.model_copy(update={"content": {**item.content, **content}})


def cut(fold: DisplayFold) -> None:
    replace(fold, truncated=True)
    child = only(fold).content.get("subagentRunId")
    for delta in "cde":
        fold.fold([content(delta) if child is None else content(delta, subagentRunId=child)])


def untimed(fold: DisplayFold) -> list[dict[str, Any]]:
    """Return the items without the times, which are not the events' own when those say none."""
    return [item.model_dump(exclude={"started_at", "ended_at"}) for item in fold.items.values()]


BETWEEN: dict[str, Callable[[DisplayFold], Any]] = {
    "nothing": lambda fold: None,
    "the end": lambda fold: fold.fold([text("END")]),
    "an observation": lambda fold: fold.fold([custom("a.name", {})]),
    "a response": lambda fold: fold.fold([RESPONSE]),
    "a response in a batch": lambda fold: fold.fold([RESPONSE, custom("a.name", {})]),
    "all that fits": lambda fold: fold.fold([content("x" * (MAX_FIELD_CHARS - 3))]),
    "more than fits": lambda fold: [fold.fold([content(x)]) for x in ("x" * (MAX_FIELD_CHARS - 1), "y", "z")],
    "the item is taken out": lambda fold: fold.items.pop(only(fold).id),
    "the item is replaced": lambda fold: replace(fold, text="other"),
    "the item lacks something, and goes on": cut,
    "a baseline": lambda fold: fold.take_changes(),
    "a checkpoint": lambda fold: fold.capture_delta(),
    "a delta in a batch": lambda fold: fold.fold([content("c"), content("d")]),
    "metadata": lambda fold: fold.fold([content("c", metadata={"a": 1})]),
}
AFTER: dict[str, dict[str, Any]] = {
    "the next": content("more"),
    "more than ever fits": content("x" * MAX_FIELD_CHARS),
    "what no UTF-8 carries": content("\ud83d\ude00 \ud800"),
    "without a time": {key: value for key, value in content("more").items() if key != "timestamp"},
    "another child's of that id": content("more", subagentRunId="another"),
    "one with a field more": content("more", role="assistant"),
    "another": content("more", "m2"),
    "another type": {"type": "REASONING_MESSAGE_CONTENT", "timestamp": AT, "messageId": "m1", "delta": "more"},
    "arguments": call("ARGS", "m1", delta="more"),
}


@pytest.mark.parametrize("child", [None, "child"])
@pytest.mark.parametrize("after", AFTER.values(), ids=AFTER)
@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_a_delta_is_folded_as_by_a_display_that_saw_none_before(
    between: Callable[[DisplayFold], Any], after: dict[str, Any], child: str | None
) -> None:
    own = {} if child is None else {"subagentRunId": child}
    fold = folded(text("START", role="assistant", **own), content("a", **own), content("b", **own))
    between(fold)
    other = through_json(fold)
    event = {**own, **after}
    assert fold.fold([event]) == other.fold([event])
    assert untimed(fold) == untimed(other)
    assert fold.export_continuation() == other.export_continuation()


@pytest.mark.parametrize(
    "events",
    [
        [content("a", timestamp=None), content("b", timestamp=None)],
        [arguments("a"), {**arguments("b"), "subagentRunId": None}],
        [{**arguments("a"), "subagentRunId": None}, arguments("b")],
        [{**arguments("a"), "subagentRunId": None}, {**arguments("b"), "subagentRunId": None}],
        [text("END"), text("START", role="assistant"), content("a"), text("END"), content("b"), text("END")],
        [text("START", role="assistant"), RESPONSE, content("a"), RESPONSE, text("END")],
        [call("START", toolCallName="dig"), call("ARGS", delta="{}"), call("END"), call("END")],
    ],
    ids=lambda events: " ".join(event["type"] for event in events),
)
def test_the_usual_is_folded_alone_as_together_and_from_frames(events: list[dict[str, Any]]) -> None:
    begun = text("START", role="assistant")
    alone, together, framed = folded(begun), folded(begun), folded(begun)
    for fold in (alone, together, framed):
        fold.take_changes()
    assert [alone.fold([event])[0] for event in events] == together.fold(events)
    framed.fold_frames(json.dumps(event).encode() for event in events)
    assert untimed(alone) == untimed(together) == untimed(framed)
    assert [type(change) for change in alone.take_changes()] == [type(change) for change in together.take_changes()]


def test_a_continuation_that_says_nothing_of_its_delta_goes_on_without_it() -> None:
    snapshot = folded(arguments("a")).export()
    held = snapshot.continuation.arguments
    assert held is not None
    bare = held.model_copy(update={"stream": (*held.stream[:2], {})})
    fold = DisplayFold.restore(
        snapshot.model_copy(update={"continuation": snapshot.continuation.model_copy(update={"arguments": bare})})
    )
    fold.fold([arguments("b")])
    assert len(fold.items) == 2


def test_an_item_that_was_looked_up_is_another_after_the_next_delta() -> None:
    fold = folded(content("a"), content("b"))
    before = only(fold)
    fold.changed.clear()
    fold.fold([content("c")])
    assert before.content["text"] == "ab"
    assert only(fold).content["text"] == "abc"
    assert fold.changed == {before.id}


def test_what_a_fold_returns_is_as_if_it_had_been_validated() -> None:
    fold = folded(content("a"))
    (seen,) = fold.fold([content("b")])
    assert seen.item is not None
    made: list[BaseModel] = [seen, seen.item, only(fold)]
    kinds: list[type[BaseModel]] = [Observed, ItemRef, Item]
    for value, kind in zip(made, kinds, strict=True):
        assert type(value) is kind
        validated = kind.model_validate(value.model_dump())
        assert value == validated
        assert repr(value) == repr(validated)
        assert value.model_dump_json() == validated.model_dump_json()
        assert value.model_copy() == value.model_copy(deep=True) == pickle.loads(pickle.dumps(value)) == value
        assert value.model_fields_set == set(kind.model_fields)
        assert value.model_extra is None
        with pytest.raises(ValueError, match=r"frozen|no field"):
            value.unheard_of = 1  # type: ignore[attr-defined]
    seen.sequence = 7
    assert seen.model_dump()["sequence"] == 7
    with pytest.raises(ValidationError, match="frozen"):
        seen.item.id = "other"


@pytest.mark.parametrize("as_frames", [False, True])
def test_a_reference_is_that_of_the_item_as_a_batch_has_left_it(as_frames: bool) -> None:
    fold = DisplayFold("run")
    event = {"type": "TEXT_MESSAGE_CONTENT", "timestamp": 1, "messageId": "m", "delta": "x"}
    for _ in range(2):
        fold.fold([event])
    batch = [event | {"responseGroup": "group"}, event]
    if as_frames:
        fold.fold_frames([json.dumps(entry).encode() for entry in batch])
    else:
        fold.fold(batch)
    (seen,) = fold.fold([event])
    assert seen.item is not None
    assert seen.item.response_group == "group"


def test_a_delta_that_is_no_text_is_refused_after_one_that_was() -> None:
    fold = folded(content("a"), content("b"))
    before = state(fold)
    with pytest.raises(DisplayError, match="delta"):
        fold.fold([{**content("c"), "delta": 7}])
    assert state(fold) == before
