"""Runs one stream through the reference and through ours, and says where they differ."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import a13n_stream_protocol as reference
from ag_ui.core import Event
from pydantic import BaseModel, TypeAdapter

from agui_relay.framing.fragments import FRAME_BYTES, CustomEventAssembler
from agui_relay.projection import AguiObservationError
from agui_relay.projection.observer import HarnessAguiObserver, HarnessAguiStreamObserver
from agui_relay.source import decode_item, encode_item, from_harness
from tests.oracle.known_faults import Watch, known_fault
from tests.oracle.streams import Item

TOTAL = int(os.environ.get("AGUI_RELAY_TEST_EXAMPLES", "2400"))
"""Streams that all differential tests together compare."""
SEED = int(os.environ.get("AGUI_RELAY_TEST_SEED", "20261129"))

COUNTS: Counter[str] = Counter()
"""What this process has compared and excused, for the summary."""

_EVENT: TypeAdapter[Any] = TypeAdapter(Event)

type Processor = Callable[[Any, Any], Any]


def share(part: float) -> int:
    """Return the number of streams that a test with this part of the total runs."""
    return max(10, round(TOTAL * part))


def as_json(event: Any) -> str:
    """Return one event as text that differs exactly when its JSON value does (1 and 1.0 are two values)."""
    payload = event if isinstance(event, dict) else event.model_dump(mode="json", by_alias=True)
    return json.dumps(payload, sort_keys=True, ensure_ascii=False)


def reassembled(frames: Sequence[Any], assembler: Any) -> list[str]:
    """Return the complete events of one item's frames."""
    events = [assembler.accept(frame.model_dump(mode="json", by_alias=True)) for frame in frames]
    assert not assembler.gap
    return [as_json(event) for event in events if event is not None]


def checked(frames: Sequence[Any]) -> Sequence[Any]:
    """Return ours, after making sure that each is an AG-UI event that reads back as itself and fits a frame."""
    for frame in frames:
        encoded = frame.model_dump_json(by_alias=True).encode()
        assert _EVENT.validate_json(encoded).model_dump_json(by_alias=True).encode() == encoded
        if frame.type.value == "CUSTOM":
            assert len(encoded) <= FRAME_BYTES
    return frames


def live(item: Item) -> Any:
    return item


def over_the_wire(item: Item) -> Any:
    return decode_item(encode_item(from_harness(item)))


def state(observer: Any) -> str:
    """Return the whole state of an observer of ours as text."""
    saved = observer.export()
    return saved.model_dump_json() if isinstance(saved, BaseModel) else repr(saved)


def restored(observer: Any, processor: Processor | None) -> Any:
    """Return an observer that has been through JSON."""
    saved = observer.export()
    if isinstance(saved, BaseModel):
        saved = type(saved).model_validate_json(saved.model_dump_json())
    return type(observer).restore(saved, processor=processor)


def compare(
    items: Sequence[Item],
    *,
    way: Callable[[Item], Any] = live,
    restore: bool = False,
    single: bool = False,
    processor: Processor | None = None,
) -> None:
    """Assert that ours gives the events and refusals of the reference, item by item.

    `way` is how an item reaches ours, `restore` puts ours through JSON after each item, `single` compares the
    observers of one run instead of those of a stream with children.
    """
    theirs: Any
    ours: Any
    if single:
        theirs = reference.HarnessAguiObserver(processor=processor, retain_events=False)
        ours = HarnessAguiObserver(processor=processor, retain_events=False)
    else:
        theirs = reference.HarnessAguiStreamObserver(processor=processor, retain_events=False)
        ours = HarnessAguiStreamObserver(processor=processor, retain_events=False)
    their_assembler, our_assembler = reference.CustomEventAssembler(), CustomEventAssembler()
    watch = Watch()
    COUNTS["streams"] += 1
    for number, item in enumerate(items):
        fault = known_fault(watch, item)
        if fault is not None:
            COUNTS[f"excused {fault[0]}"] += 1
            if fault[1] == "state":
                return
        expected: list[str] | None
        try:
            # Frames of what is excused are not looked at: an event named like a fragment would upset the assembler.
            observed = theirs.observe(item)
            expected = reassembled(observed, their_assembler) if fault is None else None
        except reference.AguiObservationError:
            expected = None
        except Exception:
            if fault is None:
                raise
            expected = None
        before = state(ours) if expected is None else ""
        got: list[str] | None
        try:
            got = reassembled(checked(ours.observe(way(item))), our_assembler)
        except AguiObservationError:
            got = None
        COUNTS["items"] += 1
        if fault is None:
            assert got == expected, f"item {number}: {item}"
            if expected is None:
                COUNTS["refused"] += 1
                assert state(ours) == before, f"item {number} was refused and left a trace: {item}"
        if got is not None:
            watch.take(item)
        if restore:
            ours = restored(ours, processor)
    assert (ours.thread_id, ours.run_id) == (theirs.thread_id, theirs.run_id)
