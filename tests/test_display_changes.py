"""What a reader is sent of a display that changes, and when it must not be applied."""

from __future__ import annotations

from typing import Any

import pytest

from agui_relay.display import (
    AppendChange,
    Change,
    ChangeError,
    DisplayFold,
    Item,
    SetChange,
    apply_changes,
    item_id,
    read_changes,
)
from agui_relay.display.items import MAX_FIELD_CHARS
from agui_relay.source import decode_item
from tests.test_display_fold import CASES, arguments, call, content, custom, text

MESSAGE = item_id("run", "text_message", "m1")


def started() -> tuple[DisplayFold, dict[str, Item]]:
    """Return a fold in the middle of a message, and a reader that has what it shows."""
    fold = DisplayFold("run")
    fold.fold([text("START", role="assistant"), content("Hel")])
    fold.take_changes()
    return fold, {item.id: item for item in fold.export().items}


def test_text_that_grew_is_appended() -> None:
    fold, reader = started()
    fold.fold([content("lo")])
    fold.fold([content(" world")])
    (change,) = changes = fold.take_changes()
    assert change == AppendChange(id=MESSAGE, field="text", delta="lo world", after_stream_id="0-2", stream_id="0-4")
    apply_changes(reader, changes)
    assert reader == dict(fold.items)


def test_arguments_that_grew_are_appended() -> None:
    fold = DisplayFold("run")
    fold.fold([call("START", toolCallName="t"), call("ARGS", delta="{")])
    fold.take_changes()
    fold.fold([call("ARGS", delta="}")])
    (change,) = fold.take_changes()
    assert isinstance(change, AppendChange)
    assert (change.field, change.delta) == ("arguments", "}")


def test_the_first_text_of_an_item_is_appended_too() -> None:
    fold = DisplayFold("run")
    fold.fold([text("START", role="assistant")])
    reader = {item.id: item for item in fold.export().items}
    fold.take_changes()
    fold.fold([content("x")])
    apply_changes(reader, fold.take_changes())
    assert reader == dict(fold.items)


@pytest.mark.parametrize(
    "event",
    [
        text("END"),
        content("x", metadata={"a": 1}),
        content("x", role="user"),
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m2", "delta": "new"},
        call("START", toolCallName="t"),
        custom("elsewhere", {"event_kind": "capability"}),
        arguments("{}"),
    ],
)
def test_everything_else_sets_the_item(event: dict[str, Any]) -> None:
    fold, reader = started()
    fold.fold([content("lo"), event, content("!")])
    changes = fold.take_changes()
    assert any(isinstance(change, SetChange) for change in changes)
    apply_changes(reader, changes)
    assert reader == dict(fold.items)


def test_a_full_text_still_moves_on() -> None:
    fold, reader = started()
    fold.fold([content("x" * MAX_FIELD_CHARS)])
    apply_changes(reader, fold.take_changes())
    fold.fold([content("more")])
    (change,) = fold.take_changes()
    assert isinstance(change, AppendChange)
    assert change.delta == ""
    apply_changes(reader, [change])
    assert reader == dict(fold.items)


def test_changes_survive_json() -> None:
    fold, _ = started()
    fold.fold([content("lo"), call("START", toolCallName="t")])
    changes = fold.take_changes()
    data = "[" + ",".join(change.model_dump_json() for change in changes) + "]"
    assert read_changes(data) == changes


def test_an_item_that_the_host_put_in_is_set() -> None:
    fold, _ = started()
    fold.fold([content("lo")])
    fold.items[MESSAGE] = fold.items[MESSAGE].model_copy(update={"content": {"messageId": "m1", "text": "other"}})
    fold.fold([content("!")])
    (change,) = fold.take_changes()
    assert isinstance(change, SetChange)
    assert change.item.content["text"] == "other!"


def test_an_item_that_was_taken_out_is_not_sent() -> None:
    fold, _ = started()
    fold.fold([content("lo")])
    del fold.items[MESSAGE]
    assert fold.take_changes() == []
    assert fold.capture_delta().items == []


def append(**changes: Any) -> AppendChange:
    fields = {"id": MESSAGE, "field": "text", "delta": "lo", "after_stream_id": "0-2", "stream_id": "0-3"}
    return AppendChange.model_validate({**fields, **changes})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (append(id="itm_unknown"), "is not there"),
        (append(after_stream_id="0-1"), "follows 0-1, the item stands at"),
        (append(after_stream_id="0-3"), "follows 0-3"),
    ],
)
def test_one_that_does_not_follow_refuses_the_batch(change: AppendChange, message: str) -> None:
    fold, reader = started()
    fold.fold([call("START", toolCallName="t"), content("!")])
    before = {key: item.model_copy(deep=True) for key, item in reader.items()}
    with pytest.raises(ChangeError, match=message):
        apply_changes(reader, [*fold.take_changes(), change])
    with pytest.raises(ChangeError, match=message):
        apply_changes(reader, [change, *fold.take_changes()])
    assert reader == before


def test_an_append_to_what_is_no_text_is_refused() -> None:
    _, reader = started()
    reader[MESSAGE].content["text"] = ["x"]
    with pytest.raises(ChangeError, match="needs text"):
        apply_changes(reader, [append()])


def test_a_batch_can_append_to_what_it_set() -> None:
    _, reader = started()
    new = reader[MESSAGE].model_copy(update={"id": "itm_new", "last_stream_id": "0-7"})
    batch: list[Change] = [SetChange(item=new), append(id="itm_new", after_stream_id="0-7", stream_id="0-8"), append()]
    before = reader[MESSAGE]
    apply_changes(reader, batch)
    assert reader["itm_new"].content["text"] == reader[MESSAGE].content["text"] == "Hello"
    assert reader["itm_new"].last_stream_id == "0-8"
    assert before.content["text"] == new.content["text"] == "Hel"


@pytest.mark.parametrize("every", [1, 3])
def test_a_reader_follows_whole_runs(every: int) -> None:
    for case in CASES.values():
        fold, reader = DisplayFold("run"), dict[str, Item]()
        for number, encoded in enumerate(case.encoded()):
            if number in case.refused:
                continue
            item = decode_item(encoded)
            fold.fold(fold.events(item), item)
            if number % every == 0:
                apply_changes(reader, fold.take_changes())
                assert reader == dict(fold.items)
