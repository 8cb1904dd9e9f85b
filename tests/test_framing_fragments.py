"""Fragments and their assembler: bounds, round trips, and what a damaged sequence must not do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from a13n_stream_protocol import CustomEventAssembler as ReferenceAssembler
from a13n_stream_protocol import fragment_custom_event as reference_fragments
from ag_ui.core import CustomEvent, TextMessageStartEvent
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agui_relay.framing.fragments import (
    FRAGMENT_EVENT_NAME,
    FRAME_BYTES,
    WHOLE_BYTES,
    CustomEventAssembler,
    FragmentState,
    fragment_custom_event,
    fragment_encoded,
)

type Json = dict[str, Any]


def dumped(event: CustomEvent) -> Json:
    return event.model_dump(mode="json", by_alias=True)


def encoded(event: CustomEvent) -> bytes:
    return event.model_dump_json(by_alias=True).encode()


def piece(identity: object = "e", index: object = 0, count: object = 2, data: object = "x") -> Json:
    value = {"id": identity, "index": index, "count": count, "data": data}
    return {"type": "CUSTOM", "name": FRAGMENT_EVENT_NAME, "value": value}


def large(text: str = "x" * 60_000, **fields: Any) -> CustomEvent:
    return CustomEvent(name="example.document", value={"text": text}, **fields)


def missed(assembler: CustomEventAssembler) -> bool:
    """Return the gap flag, out of reach of a type checker that believes it never changes."""
    return assembler.gap


# Few distinct characters repeated: what escaping and UTF-8 make of them decides where pieces may be cut.
CHARACTERS = st.text(
    st.one_of(st.sampled_from('"\\\n\x00\x1f\x7fu0字é\u2028😀\ud7ff\ue000'), st.characters(exclude_categories=["Cs"])),
    min_size=1,
    max_size=12,
)
TEXTS = st.builds(lambda unit, size: unit * (size // len(unit.encode()) + 1), CHARACTERS, st.integers(1, 200_000))


def test_the_documented_example() -> None:
    original = large()
    frames = fragment_custom_event(original, identity="document-1")
    assembler = CustomEventAssembler()
    complete = None
    for frame in frames:
        assert complete is None
        complete = assembler.accept(frame.model_dump(mode="json", by_alias=True))
    assert complete is not None
    assert complete["name"] == "example.document"
    assert complete["value"] == original.value
    assert not assembler.gap


def test_an_event_of_48_kib_stays_whole_and_one_byte_more_does_not() -> None:
    room = WHOLE_BYTES - len(encoded(large("")))
    whole, above = large("x" * room), large("x" * (room + 1))
    assert fragment_custom_event(whole, identity="e") == [whole]
    assert fragment_encoded(encoded(whole), identity="e") == [encoded(whole)]
    assert [frame.name for frame in fragment_custom_event(above, identity="e")] == [FRAGMENT_EVENT_NAME]


def test_the_bound_of_a_whole_event_counts_bytes_not_characters() -> None:
    event = large("字" * 20_000)
    assert len(event.model_dump_json()) < WHOLE_BYTES
    assert fragment_custom_event(event, identity="e")[0].name == FRAGMENT_EVENT_NAME


def test_fragments_carry_timestamp_and_subagent() -> None:
    for frame in fragment_custom_event(large(timestamp=12, subagent_run_id="child"), identity="e"):
        assert (frame.timestamp, frame.subagent_run_id) == (12, "child")


@settings(max_examples=60, deadline=None)
@given(
    text=TEXTS, timestamp=st.none() | st.integers(0, 2**53 - 1), child=st.none() | st.just('a"字'), identity=CHARACTERS
)
@example(text='"' * 100_000, timestamp=None, child=None, identity="e")
@example(text="\\" * 100_001, timestamp=None, child=None, identity="e")
@example(text="\x01" * 60_001, timestamp=None, child=None, identity="e")
@example(text="x" + "😀" * 60_000, timestamp=1, child="c", identity="e")
def test_any_text_comes_back_in_frames_that_are_full(
    text: str, timestamp: int | None, child: str | None, identity: str
) -> None:
    event = large(text, timestamp=timestamp, subagent_run_id=child)
    whole = encoded(event)
    frames = fragment_custom_event(event, identity=identity)
    sent = fragment_encoded(whole, identity=identity, timestamp=timestamp, subagent_run_id=child)
    assert [encoded(frame) for frame in frames] == sent
    if len(whole) <= WHOLE_BYTES:
        assert sent == [whole]
        return
    assert all(len(frame) <= FRAME_BYTES for frame in sent)
    # As large as the bound allows: what is left could not have held one more character or escape, however long.
    assert all(len(frame) > FRAME_BYTES - 12 for frame in sent[:-1])

    typed, fast = CustomEventAssembler(), CustomEventAssembler()
    completed = [typed.accept(dumped(frame)) for frame in frames]
    joined = [fast.accept_encoded(frame) for frame in sent]
    assert completed == [*[None] * (len(frames) - 1), dumped(event)]
    assert joined == [*[None] * (len(frames) - 1), whole]
    assert not typed.gap
    assert not fast.gap


def test_digits_of_the_count_are_paid_for() -> None:
    event = large("\x02" * 1_100_000)
    sent = fragment_encoded(encoded(event), identity="e")
    assert len(sent) > 100
    assert all(FRAME_BYTES - 12 < len(frame) <= FRAME_BYTES for frame in sent[:-1])
    assembler = CustomEventAssembler()
    assert [assembler.accept_encoded(frame) for frame in sent][-1] == encoded(event)


def test_an_identity_that_fills_a_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="identity"):
        fragment_custom_event(large(), identity="i" * FRAME_BYTES)


@settings(max_examples=15, deadline=None)
@given(text=TEXTS)
def test_reference_and_ours_take_each_others_fragments(text: str) -> None:
    event = large(text, timestamp=5)
    ours, reference = CustomEventAssembler(), ReferenceAssembler()
    theirs = [ours.accept(dumped(frame)) for frame in reference_fragments(event, identity="e")]
    mine = [reference.accept(dumped(frame)) for frame in fragment_custom_event(event, identity="e")]
    assert theirs[-1] == mine[-1] == dumped(event)
    assert not ours.gap
    assert not reference.gap
    encoded_ours = CustomEventAssembler()
    again = [encoded_ours.accept_encoded(encoded(frame)) for frame in reference_fragments(event, identity="e")]
    assert again[-1] == encoded(event)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), texts=st.lists(TEXTS, min_size=2, max_size=5), fast=st.booleans())
def test_interleaved_identities_with_exports_in_between(data: st.DataObject, texts: list[str], fast: bool) -> None:
    events = [large(text, timestamp=number) for number, text in enumerate(texts)]
    queues = [fragment_custom_event(event, identity=f"e{number}") for number, event in enumerate(events)]
    order = data.draw(st.permutations([number for number, queue in enumerate(queues) for _ in queue]))
    assembler = CustomEventAssembler()
    completed = []
    for number in order:
        frame = queues[number].pop(0)
        result: Any
        if fast:
            result = assembler.accept_encoded(encoded(frame))
            result = None if result is None else json.loads(result)
        else:
            result = assembler.accept(dumped(frame))
        if result is not None:
            completed.append(result)
        saved = assembler.export().model_dump_json()
        assembler = CustomEventAssembler.restore(FragmentState.model_validate_json(saved))
        assert assembler.export().model_dump_json() == saved
    assert sorted(completed, key=lambda event: event["timestamp"]) == [dumped(event) for event in events]
    assert not assembler.gap
    assert assembler.export().pending == {}


@settings(max_examples=40, deadline=None)
@given(data=st.data(), fast=st.booleans())
def test_a_dropped_repeated_or_moved_fragment_never_gives_an_event(data: st.DataObject, fast: bool) -> None:
    frames = fragment_custom_event(large("z" * 300_000), identity="e")
    at = data.draw(st.integers(0, len(frames) - 1))
    damage = data.draw(st.sampled_from(["drop", "repeat", "swap"]))
    if damage == "drop":
        sent = frames[:at] + frames[at + 1 :]
    elif damage == "repeat":
        at = max(at, 1)
        sent = frames[: at + 1] + frames[at:]
    else:
        at = max(at, 1)
        sent = [*frames[: at - 1], frames[at], frames[at - 1], *frames[at + 1 :]]
    assembler = CustomEventAssembler()
    results: list[Any] = [
        assembler.accept_encoded(encoded(frame)) if fast else assembler.accept(dumped(frame)) for frame in sent
    ]
    if damage == "repeat" and at == len(frames) - 1:
        assert [result is not None for result in results].count(True) == 1
        assert assembler.gap
    else:
        assert results == [None] * len(sent)
        # A lost last fragment leaves silence, which is not a gap.
        assert assembler.gap == (not (damage == "drop" and at == len(frames) - 1))
    # The flag stays; what comes whole afterwards is delivered all the same.
    before = assembler.gap
    again = [assembler.accept(dumped(frame)) for frame in fragment_custom_event(large(), identity="f")]
    assert again[-1] == dumped(large())
    assert assembler.gap == before


def test_starting_over_from_the_first_fragment_is_no_gap() -> None:
    frames = fragment_custom_event(large("z" * 150_000), identity="e")
    assembler = CustomEventAssembler()
    results = [assembler.accept(dumped(frame)) for frame in [*frames[:2], *frames]]
    assert results[-1] is not None
    assert not assembler.gap


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "text",
        {},
        piece(identity=1)["value"],
        piece(identity=None)["value"],
        piece(identity="\ud800")["value"],
        piece(index=True, count=2)["value"],
        piece(index=0, count=True)["value"],
        piece(index=0.5)["value"],
        piece(index="0")["value"],
        piece(index=-1)["value"],
        piece(index=2)["value"],
        piece(index=0, count=0)["value"],
        piece(index=1, count=2)["value"],
        piece(data=None)["value"],
        piece(data=b"x")["value"],
        piece(data="\ud800")["value"],
        piece(count=1, data="no JSON")["value"],
        piece(count=1, data="[" * 100_000)["value"],
        piece(count=1, data='{"type":"CUSTOM","name":"n"}')["value"],
        piece(count=1, data='{"type":"RAW","event":{}}')["value"],
        piece(count=1, data='{"type":"CUSTOM","name":"n","value":1,"timestamp":"soon"}')["value"],
        piece(count=1, data='{"type":"CUSTOM","name":"a13n.stream.fragment","value":1}')["value"],
        piece(count=1, data='{"type":"CUSTOM","name":"a13n.\\u0073tream.fragment","value":1}')["value"],
    ],
)
def test_a_strangers_fragment_is_a_gap_and_never_raises(value: object) -> None:
    assembler = CustomEventAssembler()
    assert assembler.accept({"type": "CUSTOM", "name": FRAGMENT_EVENT_NAME, "value": value}) is None
    assert assembler.gap
    try:
        frame = json.dumps({"type": "CUSTOM", "name": FRAGMENT_EVENT_NAME, "value": value}).encode()
    except TypeError:
        return
    fast = CustomEventAssembler()
    assert fast.accept_encoded(frame) is None
    assert fast.gap
    # Whatever it was, the assembler works on.
    assert fast.accept_encoded(encoded(large("x"))) == encoded(large("x"))


def test_a_nested_fragment_is_refused() -> None:
    nested = CustomEvent(name=FRAGMENT_EVENT_NAME, value={"text": "x" * 60_000})
    typed, fast = CustomEventAssembler(), CustomEventAssembler()
    for frame in fragment_custom_event(nested, identity="n"):
        assert typed.accept(dumped(frame)) is None
        assert fast.accept_encoded(encoded(frame)) is None
    assert typed.gap
    assert fast.gap


def test_fragments_that_disagree_on_their_count_are_refused() -> None:
    assembler = CustomEventAssembler()
    assert assembler.accept(piece(index=0, count=3)) is None
    assert not missed(assembler)
    assert assembler.accept(piece(index=1, count=4)) is None
    assert missed(assembler)
    assert assembler.export().pending == {}


@pytest.mark.parametrize("bounds", [{"max_bytes": 0}, {"max_bytes": -1}, {"max_pending": 0}, {"max_pending": -3}])
def test_bounds_must_be_positive(bounds: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="positive"):
        CustomEventAssembler(**bounds)


def test_pending_bytes_are_bounded_over_all_identities_and_count_utf8() -> None:
    assembler = CustomEventAssembler(max_bytes=6)
    assert assembler.accept(piece("a", 0, 3, "字")) is None
    assert assembler.accept(piece("b", 0, 3, "abc")) is None
    assert not missed(assembler)
    assert assembler.accept(piece("b", 1, 3, "d")) is None
    assert missed(assembler)
    assert list(assembler.export().pending) == ["a"]
    # What was given up makes room again.
    assert assembler.accept(piece("a", 1, 3, "字")) is None
    assert list(assembler.export().pending) == ["a"]


def test_an_event_that_just_fits_the_bound_is_delivered() -> None:
    whole = encoded(large("字" * 40_000))
    frames = fragment_encoded(whole, identity="e")
    exact, short = CustomEventAssembler(max_bytes=len(whole)), CustomEventAssembler(max_bytes=len(whole) - 1)
    assert [exact.accept_encoded(frame) for frame in frames][-1] == whole
    assert [short.accept_encoded(frame) for frame in frames][-1] is None
    assert (exact.gap, short.gap) == (False, True)


def test_the_ninth_pending_identity_pushes_out_the_oldest() -> None:
    assembler = CustomEventAssembler()
    for number in range(8):
        assembler.accept(piece(f"e{number}"))
    assert not missed(assembler)
    assembler.accept(piece("e8"))
    assert missed(assembler)
    assert list(assembler.export().pending) == [f"e{number}" for number in range(1, 9)]


def test_empty_pieces_are_not_free() -> None:
    assembler = CustomEventAssembler(max_bytes=10)
    for index in range(11):
        assembler.accept(piece("e", index, 1_000_000, ""))
    assert missed(assembler)
    assert assembler.export().pending == {}


def test_what_is_no_fragment_comes_back_as_the_same_object() -> None:
    assembler = CustomEventAssembler()
    sender = TextMessageStartEvent(message_id="m", role="assistant", name=FRAGMENT_EVENT_NAME)
    for payload in (
        dumped(large("small")),
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": FRAGMENT_EVENT_NAME},
        {"no": "type"},
        {"name": None},
        sender.model_dump(mode="json", by_alias=True),
    ):
        assert assembler.accept(payload) is payload
        frame = json.dumps(payload).encode()
        assert assembler.accept_encoded(frame) is frame
    for frame in (b"no JSON", b'"\\u0000', b"", b"\xff", b'{"type":"CUSTOM","name":7,"value":"a13n.stream.fragment"}'):
        assert assembler.accept_encoded(frame) is frame
    assert not missed(assembler)
    assert assembler.accept_encoded(b'{"type":"CUSTOM","name":"a13n.stream.fragment","val') is None
    assert missed(assembler)


def test_a_fragment_is_known_however_its_name_is_escaped() -> None:
    event = large()
    (frame,) = fragment_encoded(encoded(event), identity="e")
    hidden = frame.replace(b'"name":"a13n.stream', b'"name":"\\u0061\\u00313n.stream')
    assert FRAGMENT_EVENT_NAME.encode() not in hidden
    assert CustomEventAssembler().accept_encoded(hidden) == encoded(event)


def test_both_ways_of_accepting_share_one_state() -> None:
    event = large("x" * 150_000)
    first, second, third = fragment_custom_event(event, identity="e")
    assembler = CustomEventAssembler()
    assert assembler.accept(dumped(first)) is None
    assert assembler.accept_encoded(encoded(second)) is None
    assert assembler.accept(dumped(third)) == dumped(event)
    assert not missed(assembler)


def test_an_export_is_detached_and_restores_bounds_and_gap() -> None:
    assembler = CustomEventAssembler(max_bytes=100, max_pending=3)
    assembler.accept(piece("e", 0, 3, "abc"))
    saved = assembler.export()
    assembler.accept(piece("e", 1, 3, "def"))
    assembler.accept(piece("e", 1, 3, "again"))
    assert saved.pending["e"].parts == ["abc"]
    assert not saved.gap
    assert assembler.export().gap
    restored = CustomEventAssembler.restore(saved)
    restored.accept(piece("e", 1, 3, "x"))
    assert saved.pending["e"].parts == ["abc"]
    assert (restored.max_bytes, restored.max_pending, restored.gap) == (100, 3, False)


@pytest.mark.parametrize(
    "changed",
    [
        {"max_bytes": 0},
        {"max_pending": 0},
        {"pending": {"e": {"count": 2, "parts": ["a", "b"]}}},
        {"pending": {"e": {"count": 2, "parts": []}}},
        {"unknown": 1},
    ],
)
def test_a_state_that_no_assembler_wrote_is_refused(changed: Json) -> None:
    with pytest.raises(ValueError, match="validation error"):
        FragmentState.model_validate(changed)


def test_a_state_saved_by_the_reference_restores() -> None:
    event = large("x" * 20_000 + "字" * 20_000)
    frames = reference_fragments(event, identity="e")
    reference = ReferenceAssembler()
    for frame in frames[:-1]:
        reference.accept(dumped(frame))
    saved = reference.export().model_dump_json()
    ours = CustomEventAssembler.restore(FragmentState.model_validate_json(saved))
    assert ours.export().model_dump_json() == saved
    assert ours.accept(dumped(frames[-1])) == dumped(event)


def test_what_is_no_custom_event_is_told_so() -> None:
    with pytest.raises(TypeError, match=r"^expected a CustomEvent of ag_ui.core, got dict$"):
        fragment_custom_event({"type": "CUSTOM"}, identity="x")  # type: ignore[arg-type]
