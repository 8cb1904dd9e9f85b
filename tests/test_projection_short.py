"""The short way of a delta or a tool's return, from bytes to event, gives what the long way gives, or nothing."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agui_relay.bench import recorded
from agui_relay.broker.drain import Batch, project_batch
from agui_relay.broker.scripts import Fetched
from agui_relay.events import encode_event
from agui_relay.framing.fragments import CustomEventAssembler
from agui_relay.projection.errors import AguiObservationError
from agui_relay.projection.projector import Projector
from agui_relay.source import ItemError, canonical_item, decode_item
from agui_relay.source.items import MAX_LEVELS
from tests.test_mutations import Mutator, or_why

ROOT, CHILD = ("run-1", "thread-1"), ("Kind „2“", "Faden\\2")


def item(event: Any, run: tuple[str, str] = ROOT, *, timestamp: int = 1_767_225_600_000, **changed: Any) -> bytes:
    fields = {
        "v": 1,
        "source": "pydantic_ai",
        "thread_id": run[1],
        "run_id": run[0],
        "sequence": 7,
        "occurred_at": "2026-01-01T00:00:00.000001+00:00",
        "event": event,
        "projection": {"timestamp": timestamp},
    }
    return canonical_item(msgspec.json.encode(fields | changed))[1]


def delta(kind: str, index: int = 0, **fields: Any) -> dict[str, Any]:
    rest = {"provider_name": None, "provider_details": None, "part_delta_kind": kind}
    return {"index": index, "delta": fields | rest, "event_kind": "part_delta"}


def started(index: int, **part: Any) -> dict[str, Any]:
    return {"index": index, "part": part, "event_kind": "part_start"}


def opened() -> bytes:
    """Return the state of a projector with parts of every kind open, in the root and in a child."""
    projector = Projector(run_id=ROOT[0], thread_id=ROOT[1])
    for run in (ROOT, CHILD):
        for event in (
            started(0, part_kind="text", content="so"),
            started(1, part_kind="thinking", content="hm"),
            started(2, part_kind="tool-call", tool_name="dig", tool_call_id="call-2"),
            started(3, part_kind="tool-call", tool_name="dig"),
        ):
            projector.project(decode_item(item(event, run)))
    return projector.export()


OPENED = opened()


def goes_short(data: bytes, state: bytes = OPENED) -> bool:
    """Tell whether an item goes the short way, after making sure that it does not matter."""
    short, long = Projector.restore(state), Projector.restore(state)
    event = short.project_short(data)
    if event is None:
        assert not short.changed
        assert short.export() == state
        return False
    events = long.project(decode_item(data))
    assert [(type(expected), encode_event(expected)) for expected in events] == [event]
    assert short.changed == long.changed
    assert short.export() == long.export()
    return True


@pytest.mark.parametrize("run", [ROOT, CHILD])
def test_deltas_of_open_parts_go_the_short_way(run: tuple[str, str]) -> None:
    text = 'plain, “quoted”, "escaped"\n\\ 漢字 \x7f\u2028'
    assert goes_short(item(delta("text", content_delta=text, citations_delta=None), run))
    assert goes_short(item(delta("thinking", 1, content_delta=text, signature_delta=None), run))
    for index, call in ((2, "call-2"), (2, None), (3, None)):
        more = delta("tool_call", index, tool_name_delta=None, args_delta=text, tool_call_id=call)
        assert goes_short(item(more, run))


@pytest.mark.parametrize(
    "event",
    [
        delta("text", 4, content_delta="nothing is open"),
        delta("text", 1, content_delta="another kind is open"),
        delta("thinking", 0, content_delta="another kind is open", signature_delta=None),
        delta("tool_call", 1, tool_name_delta=None, args_delta="{", tool_call_id=None),
        delta("text", content_delta=""),
        delta("thinking", 1, content_delta=None, signature_delta=None),
        delta("thinking", 1, content_delta="signed", signature_delta="c2ln"),
        delta("tool_call", 2, tool_name_delta=None, args_delta="{", tool_call_id="call-3"),
        delta("tool_call", 3, tool_name_delta=None, args_delta="{", tool_call_id="the id comes late"),
        delta("text", content_delta="long" * 5_000),
        started(0, part_kind="text", content=""),
    ],
)
def test_what_changes_more_than_a_count_goes_the_long_way(event: Any) -> None:
    assert not goes_short(item(event))


def test_another_run_or_thread_goes_the_long_way() -> None:
    event = delta("text", content_delta="a")
    assert not goes_short(item(event, ("run-3", "thread-1")))
    assert not goes_short(item(event, ("run-1", "thread-3")))


def test_items_of_other_forms_go_the_long_way() -> None:
    event = delta("text", content_delta="a")
    assert goes_short(item(event))
    assert not goes_short(item(event, projection=None))
    assert not goes_short(item(event, projection={"timestamp": 1_767_225_600_000, "failure": "a"}))
    assert not goes_short(item(event, timestamp=-1))
    assert not goes_short(item(event, source="capability"))
    more = delta("tool_call", 2, tool_name_delta=None, args_delta="{", tool_call_id="call-2")
    assert goes_short(item(more))
    spaced = item(more).replace(b'"sequence":7', b'"sequence": 7')
    assert decode_item(spaced).sequence == 7
    assert not goes_short(spaced)


def test_what_is_not_utf_8_goes_the_long_way() -> None:
    data = item(delta("text", content_delta="a")).replace(b'"provider_name":null', b'"provider_name":"\xff"')
    assert not goes_short(data)
    with pytest.raises(ItemError, match="UTF-8"):
        decode_item(data)


TEXTS = st.none() | st.text(max_size=20)


@settings(max_examples=300, deadline=None)
@given(
    run=st.sampled_from([ROOT, CHILD, ("run-3", "thread-1")]),
    kind=st.sampled_from(["text", "thinking", "tool_call", "speech"]),
    index=st.integers(-1, 4),
    fields=st.fixed_dictionaries(
        {},
        optional={
            "content_delta": TEXTS,
            "signature_delta": TEXTS,
            "tool_name_delta": TEXTS,
            "args_delta": TEXTS | st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2),
            "tool_call_id": st.sampled_from([None, "", "call-2", "call-3"]),
            "event": st.just({}),
        },
    ),
    timestamp=st.sampled_from([0, -5, 1_767_225_600_000, 9_999_999_999_999, 2**53 - 1]),
)
def test_any_delta_is_the_same_on_both_ways(
    run: tuple[str, str], kind: str, index: int, fields: dict[str, Any], timestamp: int
) -> None:
    goes_short(item(delta(kind, index, **fields), run, timestamp=timestamp))


def test_damaged_deltas_are_the_same_on_both_ways() -> None:
    pool = [
        item(delta("text", content_delta='a\n"b"', citations_delta=None)),
        item(delta("thinking", 1, content_delta="漢字", signature_delta=None), CHILD),
        item(delta("tool_call", 2, tool_name_delta=None, args_delta='{"a":\n', tool_call_id="call-2")),
    ]
    chance = random.Random(20261130)
    mutator = Mutator(chance, pool)
    short = 0
    for _ in range(4_000):
        data = mutator(chance.choice(pool))
        try:
            data = canonical_item(data)[1]
        except ItemError:
            # It is not stored; but should it be met, it is refused or read as it stands.
            try:
                decode_item(data)
            except ItemError:
                assert Projector.restore(OPENED).project_short(data) is None
            continue
        try:
            short += goes_short(data)
        except AguiObservationError:
            pytest.fail(f"the short way took what the long one refuses: {data!r}")
    assert short > 100


def returned(content: Any, **part: Any) -> dict[str, Any]:
    usual = {"tool_kind": None, "metadata": None, "timestamp": "2026-01-01T00:00:00Z", "outcome": "success"}
    whole = {"tool_name": "dig", "content": content, "tool_call_id": "call-2", **usual, "part_kind": "tool-return"}
    return {"part": whole | part, "content": None, "event_kind": "function_tool_result"}


def nested(levels: int, value: Any = 1) -> Any:
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


INVALID_UTF8 = "here is a byte that is no text"


def projected(**projection: Any) -> dict[str, Any]:
    return {"timestamp": 1_767_225_600_000} | projection


TEXT_PART = {"type": "text", "text": 'plain, “quoted”, "escaped"\n\\ 漢字'}
URL = {"type": "url", "value": "https://example.org/a.png", "mimeType": "image/png"}
PARTS = [TEXT_PART, {"type": "image", "source": URL}, {"type": "document", "source": {"type": "data", "value": "YQ=="}}]


@pytest.mark.parametrize("run", [ROOT, CHILD])
@pytest.mark.parametrize(
    "content",
    [
        'plain, “quoted”, "escaped"\n\\ 漢字 \x00\x7f\u2028',
        "",
        None,
        True,
        0,
        2**70,
        1.5,
        {"b": [1, 2.5, {"d": "漢", "c": None}], "a": {}, "é": "\x00"},
        [],
        [{"id": number, "score": number / 7} for number in range(5_000)],
        "x" * 3_000_000,
        {"path": "a.py", "content": 'def f(a):\n    return a[{"k": ("\\\\")}]\n' * 500},
        nested(MAX_LEVELS - 3),
        [nested(MAX_LEVELS - 4)] * 40,
        nested(MAX_LEVELS - 4, []),
    ],
    ids=lambda content: f"{content!r:.20}",
)
def test_what_a_tool_returned_goes_the_short_way(run: tuple[str, str], content: Any) -> None:
    assert goes_short(item(returned(content), run))
    assert goes_short(item(returned(content, outcome=None) | {"event_kind": "output_tool_result"}, run))
    assert goes_short(item(returned(content, metadata=PARTS, retry={"cause": "漢"}) | {"content": [TEXT_PART]}, run))


@pytest.mark.parametrize("field", ["content", "metadata", "retry"])
@pytest.mark.parametrize(
    "bad", [nested(MAX_LEVELS - 2), nested(MAX_LEVELS - 3, {}), [nested(MAX_LEVELS - 3)] * 40, INVALID_UTF8]
)
def test_a_return_that_is_too_deep_or_no_text_is_refused_on_both_ways(field: str, bad: Any) -> None:
    event = returned(**{"content": "a", field: bad})
    data = msgspec.json.encode(msgspec.json.decode(item(returned("a"))) | {"event": event})
    data = data.replace(INVALID_UTF8.encode(), b"\xff")
    with pytest.raises(ItemError):
        decode_item(data)
    assert Projector.restore(OPENED).project_short(data) is None


@pytest.mark.parametrize(
    "content",
    [
        "text",
        PARTS,
        [],
        [TEXT_PART | {"text": "x" * 2_000_000}],
        [TEXT_PART | {"id": "a"}],
        [TEXT_PART | {"metadata": {"a": 1}}],
        [{"text": "a", "type": "text"}],
        [{"type": "video", "source": URL}],
        [{"type": "image", "source": URL | {"type": "file"}}],
        [{"type": "image", "source": {"mimeType": "image/png", "type": "url", "value": "u"}}],
    ],
    ids=lambda content: f"{content!r:.60}",
)
def test_readable_content_beside_the_event_is_shown_on_both_ways(content: Any) -> None:
    assert goes_short(item(returned({"b": 1}), projection=projected(content=content)))
    assert goes_short(item(returned({"b": 1}), projection=projected(content=content, call_id="call-7")))


@pytest.mark.parametrize("parts", [[{"type": "text", "text": 1}], [{"type": "text"}], [{"type": "sound"}], [1], [None]])
def test_content_that_is_no_list_of_parts_is_refused_on_both_ways(parts: Any) -> None:
    data = item(returned("a"), projection=projected(content=parts))
    with pytest.raises(AguiObservationError) as long:
        Projector.restore(OPENED).project(decode_item(data))
    with pytest.raises(AguiObservationError) as short:
        Projector.restore(OPENED).project_short(data)
    assert str(short.value) == str(long.value)


@pytest.mark.parametrize("content", [{}, 1, None, True])
def test_content_that_is_neither_text_nor_a_list_is_left_to_the_long_way(content: Any) -> None:
    data = msgspec.json.encode(msgspec.json.decode(item(returned("a"))) | {"projection": projected(content=content)})
    with pytest.raises(ItemError, match="expected a string or a list"):
        decode_item(data)
    assert Projector.restore(OPENED).project_short(data) is None


@pytest.mark.parametrize(
    "data",
    [
        item(returned("a", outcome="failed")),
        item(returned("a", outcome="denied"), projection=projected(failure="no")),
        item(returned("a", part_kind="retry-prompt")),
        item(returned([1e-7, 1e20])),
        item(returned("a"), ("run-3", "thread-1")),
        item(returned("a"), ("run-1", "thread-3")),
        item(returned("a"), projection=None),
        item(returned("a"), source="capability"),
        item({"index": 1} | returned("a")),
        item(returned("a") | {"event_kind": "function_tool_call"}),
    ],
)
def test_any_other_outcome_of_a_call_goes_the_long_way(data: bytes) -> None:
    state = OPENED
    try:
        Projector.restore(state).project(decode_item(data))
    except AguiObservationError:
        assert Projector.restore(state).project_short(data) is None
    else:
        assert not goes_short(data)


@pytest.mark.parametrize(
    "changed", [{"tool_call_id": None}, {"tool_name": 1}, {"id": 1}, {"signature": []}, {"outcome": 1}]
)
def test_a_return_that_the_long_way_refuses_is_left_to_it(changed: dict[str, Any]) -> None:
    data = item(returned("a", **changed))
    with pytest.raises(AguiObservationError):
        Projector.restore(OPENED).project(decode_item(data))
    assert Projector.restore(OPENED).project_short(data) is None


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(content=JSON)
def test_any_return_is_the_same_on_both_ways(content: Any) -> None:
    goes_short(item(returned(content)))


def test_damaged_returns_are_the_same_on_both_ways() -> None:
    pool = [
        item(returned({"b": [1, 2.5, "漢"], "a": "x\ny"})),
        item(returned('a\n"b"'), CHILD),
        item(returned([{"b": 1}]), projection=projected(content=PARTS, call_id="call-7")),
    ]
    chance = random.Random(20261130)
    mutator = Mutator(chance, pool)
    short = 0
    for _ in range(4_000):
        data = mutator(chance.choice(pool))
        events, refusal = or_why(lambda data: Projector.restore(OPENED).project(decode_item(data)), data)
        if events is not None:
            short += goes_short(data)
            continue
        # Left to the long way, or refused in the same words.
        event, why = or_why(Projector.restore(OPENED).project_short, data)
        assert event is None
        assert why in ("", refusal)
    assert short > 100


@pytest.mark.parametrize("name", recorded.names())
def test_a_recorded_run_is_the_same_on_both_ways(name: str) -> None:
    items = recorded.load(name)
    first = decode_item(items[0])
    short, long = (Projector(run_id=first.run_id, thread_id=first.thread_id) for _ in range(2))
    batch, _ = project_batch(Fetched("items", items=items), lambda: short, None)
    expected = Batch()
    for data in items:
        item = decode_item(data)
        expected.add(item, long.project(item))
    assert batch.rejected == []
    assert batch.frames == expected.frames
    assert short.export() == long.export()


def test_a_long_name_stands_once_in_an_event_and_not_beside_each_of_its_frames() -> None:
    kind = "k" * 1_000_000
    item = b'{"v":1,"source":"capability","thread_id":"t","run_id":"r","sequence":1,"occurred_at":"2026-01-01"'
    item += b',"event":{"kind":"%b"}}' % kind.encode()
    batch, _ = project_batch(Fetched("items", items=[item]), lambda: Projector(run_id="r", thread_id="t"), None)
    assert len(batch.frames) > 30
    assert sum(len(meta) for _, meta in batch.frames) < 300 * len(batch.frames)
    assembler = CustomEventAssembler()
    *_, event = [assembler.accept_encoded(frame) for frame, _ in batch.frames]
    assert event is not None
    assert msgspec.json.decode(event)["name"] == kind


def test_small_items_that_make_large_frames_fill_a_batch_early() -> None:
    part = {"part_kind": "text", "content": "", "id": "m" * 10_000}
    delta = {"part_delta_kind": "text", "content_delta": "x"}
    items = [item({"index": 0, "part": part, "event_kind": "part_start"})]
    items += [item({"index": 0, "delta": delta, "event_kind": "part_delta"}) for _ in range(30)]
    whole, projector = project_batch(
        Fetched("items", items=items), lambda: Projector(run_id="run-1", thread_id="thread-1"), None
    )
    assert (whole.items, whole.consumed) == (len(items), sum(map(len, items)))
    frames, cursor, parts = [], 0, Projector(run_id="run-1", thread_id="thread-1")
    while cursor < len(items):
        batch, parts = project_batch(Fetched("items", items=items[cursor:]), Projector, parts, most_bytes=50_000)
        assert 0 < batch.items <= 6
        assert batch.size == sum(len(data) for data, _ in batch.frames) < 61_000
        frames += batch.frames
        cursor += batch.items
    assert frames == whole.frames
    assert parts.export() == projector.export()
