"""A fold as bytes: the same bytes as its snapshot's model, and the same fold behind them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from agui_relay.display import ContentRef, DisplayFold, DisplaySnapshot, Item
from agui_relay.projection.errors import ContinuationError
from tests.test_display_fold import AT, POLICIES, Policy, arguments, call, content, custom, extension, folded, text

EVENTS: tuple[dict[str, Any], ...] = (
    extension("lifecycle", {"type": "model_request_started"}),
    text("START", role="assistant"),
    content('é\x00\ud800"'),
    content("child's", subagentRunId="child"),
    text("END", metadata={"deep": [[{"n": 10**30, "x": 1e16, "y": -0.0}]]}),
    custom("number", {"kind": "x"}, metadata=7),
    {"type": "CUSTOM", "timestamp": AT + 1, "name": "plain", "value": 10**30},
    call("START", toolCallName="search"),
    arguments("{"),
    arguments('"a'),
)


def item(**fields: Any) -> Item:
    values: dict[str, Any] = {
        "id": "itm_1",
        "ordinal": 1,
        "kind": "text_message",
        "state": "completed",
        "first_stream_id": "0-1",
        "last_stream_id": "0-2",
        "started_at": datetime.fromtimestamp(AT / 1000, UTC),
        "content": {"text": "x"},
    }
    return Item(**{**values, **fields})


@pytest.mark.parametrize("count", range(len(EVENTS) + 1))
@pytest.mark.parametrize("policy", POLICIES)
def test_saved_bytes_are_those_of_the_snapshot(count: int, policy: Policy) -> None:
    fold = folded(*EVENTS[:count], **policy)
    data = fold.save()
    assert json.loads(data) == json.loads(fold.export().model_dump_json())
    assert DisplaySnapshot.read(data) == fold.export()
    loaded = DisplayFold.load(data)
    assert loaded.export() == fold.export()
    assert loaded.changed == DisplayFold.restore(fold.export()).changed == set(fold.items)
    for event in EVENTS[count:]:
        assert loaded.fold([event]) == fold.fold([event])
    assert loaded.export() == fold.export()
    assert loaded.save() == fold.save()


def test_what_a_host_put_in_is_saved_too() -> None:
    ref = ContentRef(id="r", size_bytes=9, media_type="text/plain", preview="x")
    fold = DisplayFold("run", [item(content_refs={"text": ref}), item(id="itm_2", started_at=datetime(2026, 1, 1))])
    assert DisplayFold.load(fold.save()).export() == fold.export()
    assert fold.save() == fold.export().model_dump_json().encode()


@pytest.mark.parametrize(
    "change",
    [
        lambda snapshot: snapshot["continuation"].update(version=99),
        lambda snapshot: snapshot["items"][0].update(ordinal=0),
        lambda snapshot: snapshot["items"][0].update(more=1),
        lambda snapshot: snapshot["items"][0].update(kind="other"),
        lambda snapshot: snapshot.pop("continuation"),
        lambda snapshot: snapshot["items"][0].pop("id"),
    ],
)
def test_what_is_no_snapshot_is_refused(change: Any) -> None:
    snapshot = json.loads(folded(*EVENTS).save())
    change(snapshot)
    with pytest.raises(ContinuationError):
        DisplayFold.load(json.dumps(snapshot).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ContinuationError):
        DisplayFold.load(data)


def test_a_snapshot_of_another_writer_is_loaded() -> None:
    fold = folded(*EVENTS)
    snapshot = json.loads(fold.save())
    for saved in snapshot["items"]:
        saved["started_at"] = AT / 1000
    loaded = DisplayFold.load(json.dumps(snapshot, indent=1).encode())
    assert {one.started_at for one in loaded.items.values()} == {datetime.fromtimestamp(AT / 1000, UTC)}
    assert [one.content for one in loaded.items.values()] == [one.content for one in fold.items.values()]
