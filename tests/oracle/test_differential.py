"""Ours and the reference on the same random streams: same events, same refusals, same state."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import a13n_stream_protocol as reference
import pytest
from ag_ui.core import CustomEvent
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from agui_relay.framing.fragments import CustomEventAssembler
from agui_relay.projection.observer import HarnessAguiStreamObserver
from tests.oracle.compare import SEED, TOTAL, as_json, compare, live, over_the_wire, reassembled, share
from tests.oracle.streams import Item, invalid_streams, streams

pytestmark = pytest.mark.timeout(120 + TOTAL // 10)


def examples(part: float) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a property on its part of all streams, from the seed that the summary names."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        quiet = settings(
            max_examples=share(part), deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        return seed(SEED)(quiet(test))

    return decorate


WAYS = st.sampled_from([live, over_the_wire])


@examples(0.25)
@given(items=streams())
def test_live_items(items: list[Item]) -> None:
    compare(items)


@examples(0.25)
@given(items=streams())
def test_items_that_went_over_the_wire(items: list[Item]) -> None:
    compare(items, way=over_the_wire)


@examples(0.15)
@given(items=streams(), way=WAYS)
def test_saved_and_restored_after_every_item(items: list[Item], way: Callable[[Item], Any]) -> None:
    compare(items, way=way, restore=True)


@examples(0.15)
@given(items=invalid_streams(), way=WAYS, restore=st.booleans())
def test_streams_that_no_source_means(items: list[Item], way: Callable[[Item], Any], restore: bool) -> None:
    compare(items, way=way, restore=restore)


@examples(0.08)
@given(items=streams(children=0), way=WAYS, restore=st.booleans())
def test_the_observer_of_one_run(items: list[Item], way: Callable[[Item], Any], restore: bool) -> None:
    compare(items, way=way, restore=restore, single=True)


@examples(0.04)
@given(items=streams(children=1), way=WAYS)
def test_the_observer_of_one_run_refuses_children(items: list[Item], way: Callable[[Item], Any]) -> None:
    compare(items, way=way, single=True)


def changing(salt: int) -> Callable[[Any, Any], Any]:
    """Return a processor that drops, rewrites and breaks events, chosen by the event alone."""

    def process(item: Any, event: Any) -> Any:
        assert item is not None
        # A processor may change what it is given; that must reach nothing.
        given = event.model_copy(deep=True)
        event.timestamp = -1
        choice = zlib.crc32(f"{salt}{as_json(given)}".encode()) % 40
        if choice < 8:
            return None
        if given.type.value == "RUN_STARTED":
            # A refused start of the root leaves open who the root is; that is a test of its own.
            return given
        if choice < 24:
            for name in ("delta", "encrypted_value", "content", "message", "result"):
                if getattr(given, name, None) is not None:
                    return given.model_copy(update={name: "changed"})
            return given
        if choice == 24:
            return given.model_copy(update={"timestamp": 5})
        if choice == 25:
            return given.model_copy(update={"raw_event": {"sequence": 9}})
        if choice == 26:
            return CustomEvent(name="other", value=None)
        if choice == 27 and isinstance(given, CustomEvent):
            return given.model_copy(update={"value": {**given.value, "event": None}})
        if choice == 28:
            return "no event"
        if choice == 29 and hasattr(given, "message_id"):
            return given.model_copy(update={"message_id": "other"})
        if choice == 30 and hasattr(given, "delta"):
            return given.model_copy(update={"delta": 5})
        if choice == 31:
            return given.model_copy(update={"metadata": {"added": 1}})
        if choice == 32 and hasattr(given, "subagent_run_id"):
            return given.model_copy(update={"subagent_run_id": "other"})
        return given

    return process


@examples(0.08)
@given(items=streams(), salt=st.integers(0, 1000), way=WAYS, restore=st.booleans())
def test_processors(items: list[Item], salt: int, way: Callable[[Item], Any], restore: bool) -> None:
    compare(items, way=way, restore=restore, processor=changing(salt))


async def history(items: list[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item


@examples(0.05)
@given(items=streams(rare=False), at=st.integers(0, 60), way=WAYS)
def test_resume_and_snapshot(items: list[Item], at: int, way: Callable[[Item], Any]) -> None:
    theirs, ours = reference.HarnessAguiStreamObserver(), HarnessAguiStreamObserver()
    before, after = items[:at], items[at:]
    asyncio.run(theirs.resume(history(list(before))))
    asyncio.run(ours.resume(history([way(item) for item in before])))
    for item in after:
        observed = ours.observe(way(item))
        expected = theirs.observe(item)
        assert reassembled(observed, CustomEventAssembler()) == reassembled(expected, reference.CustomEventAssembler())
    kept = ours.snapshot()
    assert len(kept) == ours.event_count
    assert reassembled(kept, CustomEventAssembler()) == reassembled(theirs.snapshot(), reference.CustomEventAssembler())
    middle = len(kept) // 2
    assert ours.snapshot(stop=middle) + ours.snapshot(start=middle) == kept
