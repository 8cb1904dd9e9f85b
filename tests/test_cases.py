"""Every case through the library: whole, item by item with a restore in between, by observer and by projector."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from ag_ui.core import CustomEvent, Event
from pydantic import TypeAdapter

from agui_relay.events import encode_event
from agui_relay.framing.fragments import FRAME_BYTES, CustomEventAssembler
from agui_relay.projection import AguiObservationError
from agui_relay.projection.observer import HarnessAguiStreamObserver
from agui_relay.projection.projector import Projector
from agui_relay.source import HarnessItem, canonical_item, decode_item, encode_item
from tests.agui_rules import violations
from tests.case_files import Case, load_cases

CASES = load_cases()
EVENT: TypeAdapter[Any] = TypeAdapter(Event)

# What a client objects to, and the source meant.
OBJECTIONS = {
    # The provider named two messages alike. They are told apart by their owner alone.
    "children-with-equal-message-ids": {"text-open-twice", "owner-changed", "text-ended-unopened"},
    "terminal-item-twice": {"after-terminal"},
}
UNENDED = {"cancelled-with-open-part-and-child": {"child-1"}}

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def check(case: Case, observe: Callable[[int, bytes], list[dict[str, Any]]]) -> None:
    """Assert that the events of `case` come out of `observe`, and that it refuses what it must."""
    events: list[dict[str, Any]] = []
    for number, data in enumerate(case.encoded()):
        try:
            observed = observe(number, data)
        except AguiObservationError:
            assert number in case.refused, f"item {number} was refused"
        else:
            assert number not in case.refused, f"item {number} was not refused"
            events += observed
    assert [text(event) for event in events] == [text(event) for event in case.events]


@each_case
def test_whole(case: Case) -> None:
    observer, assembler = HarnessAguiStreamObserver(), CustomEventAssembler()

    def observe(number: int, data: bytes) -> list[dict[str, Any]]:
        frames = observer.observe(decode_item(data))
        assert all(len(frame.model_dump_json(by_alias=True).encode()) <= FRAME_BYTES for frame in frames)
        complete = [assembler.accept(frame.model_dump(mode="json", by_alias=True)) for frame in frames]
        return [dict(event) for event in complete if event is not None]

    check(case, observe)
    assert not assembler.gap


@each_case
def test_item_by_item_through_canonical_bytes_and_a_restore(case: Case) -> None:
    saved = Projector(run_id=case.run_id, thread_id=case.thread_id).export()

    def observe(number: int, data: bytes) -> list[dict[str, Any]]:
        nonlocal saved
        item, canonical = canonical_item(data)
        assert decode_item(canonical) == item
        assert encode_item(item) == canonical
        assert canonical_item(canonical) == (item, canonical)
        projector = Projector.restore(saved)
        try:
            return [json.loads(encode_event(event)) for event in projector.project(item)]
        finally:
            if number in case.refused:
                assert projector.export() == saved
            saved = projector.export()

    check(case, observe)


@each_case
def test_the_events_are_agui_and_keep_its_rules(case: Case) -> None:
    for event in case.events:
        assert EVENT.validate_python(event).model_dump(mode="json", by_alias=True) == event
    found = {violation.rule for violation in violations(case.events, unended=UNENDED.get(case.name, ()))}
    assert found == OBJECTIONS.get(case.name, set())


@each_case
def test_the_terminal_item_says_how_the_run_ended(case: Case) -> None:
    outcomes = {"completed": "finished", "suspended": "suspended", "cancelled": "cancelled", "failed": "failed"}
    for item in case.items:
        decoded: HarnessItem = decode_item(json.dumps(item).encode())
        expected = outcomes[item["result"]["status"]] if item["source"] == "result" else None
        assert decoded.terminal == expected


def test_what_is_large_is_fragmented_on_its_way() -> None:
    (case,) = [case for case in CASES if case.name == "large-custom-events"]
    observer = HarnessAguiStreamObserver()
    frames = [frame for data in case.encoded() for frame in observer.observe(decode_item(data))]
    names = [frame.name for frame in frames if isinstance(frame, CustomEvent)]
    assert names.count("a13n.stream.fragment") == 4


def test_the_inputs_of_public_reports_are_there() -> None:
    expected = {
        "arguments-after-the-call-ended",
        "text-for-an-ended-part",
        "error-in-mid-text",
        "error-in-mid-tool-call",
        "empty-thinking-deltas",
        "nameless-tool-delta-first",
        "call-id-used-again",
        "thinking-parts-with-one-id",
        "parallel-tool-calls",
        "name-and-arguments-in-one-chunk",
        "children-with-equal-message-ids",
        "terminal-item-twice",
        "cancelled-with-open-part-and-child",
    }
    assert expected <= {case.name for case in CASES}
