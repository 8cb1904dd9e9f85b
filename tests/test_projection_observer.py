"""The observers: what they promise beside the projection, equal to the reference where that is right."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

import a13n_stream_protocol as reference
import pytest
from a13n_harness.events import HarnessEvent, HarnessExtensionEvent
from ag_ui.core import Event
from pydantic import TypeAdapter
from pydantic_ai import messages as ai

from agui_relay.framing.fragments import CustomEventAssembler
from agui_relay.projection import AguiObservationError, ContinuationError
from agui_relay.projection.observer import HarnessAguiObserver, HarnessAguiStreamObserver, ObserverContinuation
from agui_relay.source import decode_item, encode_item, from_harness

AT = datetime(2026, 11, 29, 19, 46, 39, 507757, tzinfo=UTC)
ADAPTER: TypeAdapter[Any] = TypeAdapter(Event)


def live(event: Any, run_id: str = "run", thread_id: str = "thread", sequence: int = 1) -> HarnessEvent:
    return HarnessEvent(thread_id, run_id, sequence, AT, event)


def delta(text: str, **more: Any) -> HarnessEvent:
    return live(ai.PartDeltaEvent(index=0, delta=ai.TextPartDelta(text)), **more)


def extension(kind: Any, payload: Any, **more: Any) -> HarnessEvent:
    return live(HarnessExtensionEvent(kind=kind, payload=payload), **more)


STREAM = [
    extension("lifecycle", {"type": "run_started"}),
    delta("Hello "),
    live(ai.PartDeltaEvent(index=1, delta=ai.ToolCallPartDelta(args_delta='{"a"', tool_call_id="c"))),
    delta("world"),
    live(ai.PartEndEvent(index=0, part=ai.TextPart("Hello world!"))),
    live(ai.PartEndEvent(index=1, part=ai.ToolCallPart("tool", '{"a":1}', "c"))),
    live(ai.FunctionToolResultEvent(ai.ToolReturnPart("tool", {"big": "字" * 40_000}, "c", timestamp=AT))),
    live(ai.UnknownCapabilityEvent(kind="test.big", data={"big": "字" * 40_000}), sequence=9),
]


def dumps(events: Sequence[Any]) -> list[str]:
    return [event.model_dump_json(by_alias=True) for event in events]


def observed(observer: Any, items: Sequence[Any]) -> list[Any]:
    return [event for item in items for event in observer.observe(item)]


async def history(items: Sequence[Any]) -> AsyncIterator[Any]:
    for item in items:
        await asyncio.sleep(0)
        yield item


def test_live_and_wire_items_give_the_same_typed_events() -> None:
    from_live = observed(HarnessAguiStreamObserver(), STREAM)
    from_wire = observed(HarnessAguiStreamObserver(), [decode_item(encode_item(from_harness(one))) for one in STREAM])
    assert from_live == from_wire
    for event in from_live:
        encoded = event.model_dump_json(by_alias=True)
        assert ADAPTER.validate_json(encoded) == event
        assert ADAPTER.validate_json(encoded).model_dump_json(by_alias=True) == encoded


def test_large_custom_events_come_in_fragments() -> None:
    observer = HarnessAguiStreamObserver()
    frames = [one for one in observed(observer, STREAM) if getattr(one, "name", "") == "a13n.stream.fragment"]
    assert len(frames) == 2
    assert frames[0].value["id"] == "thread:run:9:0"
    assembler = CustomEventAssembler()
    (whole,) = [
        event
        for frame in frames
        if (event := assembler.accept(frame.model_dump(mode="json", by_alias=True))) is not None
    ]
    expected = reference.HarnessAguiStreamObserver()
    pieces = [
        frame.value["data"] for frame in observed(expected, STREAM) if getattr(frame, "name", "") == frames[0].name
    ]
    assert whole == json.loads("".join(pieces))
    assert observer.event_count == len(observed(HarnessAguiStreamObserver(), STREAM))
    assert dumps(observer.snapshot()[-2:]) == dumps(frames)


@pytest.mark.parametrize("kind", [HarnessAguiObserver, HarnessAguiStreamObserver])
def test_identity_is_bound_by_success(kind: type[HarnessAguiObserver]) -> None:
    observer = kind()
    assert (observer.thread_id, observer.run_id, observer.event_count) == (None, None, 0)
    with pytest.raises(AguiObservationError):
        observer.observe(live(ai.PartEndEvent(index=0, part=ai.TextPart(None))))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"expected a HarnessItem or a live item of .*HarnessEvent.* got dict$"):
        observer.observe({"type": "item"})
    with pytest.raises(TypeError, match="got bytes; decode_item makes an item"):
        observer.observe(b"{}")
    assert (observer.thread_id, observer.run_id) == (None, None)
    observer.observe(delta("x"))
    assert (observer.thread_id, observer.run_id, observer.event_count) == ("thread", "run", 2)
    with pytest.raises(AguiObservationError):
        observer.observe(delta("x", thread_id="other"))
    assert observer.event_count == 2


def test_one_run_or_a_stream() -> None:
    with pytest.raises(AguiObservationError):
        observed(HarnessAguiObserver(), [delta("x"), delta("x", run_id="other")])
    events = observed(HarnessAguiStreamObserver(), [delta("x"), delta("x", run_id="other", thread_id="t2")])
    assert [event.subagent_run_id for event in events] == [None, None, "other", "other"]


def test_snapshots_are_detached_ranges() -> None:
    observer = HarnessAguiStreamObserver()
    returned = observed(observer, STREAM[:4])
    assert dumps(observer.snapshot()) == dumps(returned)
    returned[-1].delta = "changed"
    returned[3].value["event"]["delta"]["args_delta"] = "changed"
    first = observer.snapshot()
    assert "changed" not in "".join(dumps(first))
    first[3].value["event"].clear()  # type: ignore[union-attr]
    assert dumps(observer.snapshot(start=1, stop=3)) == dumps(returned[1:3])
    assert observer.snapshot(start=observer.event_count) == ()
    assert "args_delta" in "".join(dumps(observer.snapshot(start=3)))
    for start, stop in ((-1, None), (3, 2), (0, observer.event_count + 1)):
        with pytest.raises(ValueError, match="range"):
            observer.snapshot(start=start, stop=stop)
    with pytest.raises(AguiObservationError, match="retain_events"):
        HarnessAguiStreamObserver(retain_events=False).snapshot()


def test_export_and_restore_go_on_in_the_middle() -> None:
    undisturbed = observed(HarnessAguiStreamObserver(), STREAM)
    observer = HarnessAguiStreamObserver()
    events: list[Any] = []
    for item in STREAM:
        events += observer.observe(item)
        saved = observer.export()
        read = ObserverContinuation.model_validate_json(saved.model_dump_json())
        assert read == saved
        observer = HarnessAguiStreamObserver.restore(read)
        assert (observer.thread_id, observer.run_id, observer.event_count) == ("thread", "run", 0)
    assert events == undisturbed
    with pytest.raises(AguiObservationError):
        observer.snapshot()
    fresh = HarnessAguiObserver.restore(ObserverContinuation())
    assert fresh.run_id is None
    assert dumps(fresh.observe(delta("x")))
    with pytest.raises(AguiObservationError):
        HarnessAguiObserver.restore(observer.export()).observe(delta("x", run_id="other"))


def test_an_export_is_detached() -> None:
    observer = HarnessAguiStreamObserver()
    observer.observe(delta("x"))
    saved = observer.export()
    written = saved.model_dump_json()
    observer.observe(delta("y"))
    assert saved.model_dump_json() == written
    assert len(written) < 400


def test_continuations_of_newer_releases_are_left_alone() -> None:
    for saved in (
        ObserverContinuation(version=99),
        ObserverContinuation(state={"v": 99}),
        ObserverContinuation(state={"x": 1}),
    ):
        with pytest.raises(ContinuationError):
            HarnessAguiStreamObserver.restore(saved)


async def test_resume_rebuilds_a_fresh_observer_once() -> None:
    observer = HarnessAguiStreamObserver()
    await observer.resume(history(STREAM[:4]))
    undisturbed = HarnessAguiStreamObserver()
    observed(undisturbed, STREAM[:4])
    assert observer.snapshot() == undisturbed.snapshot()
    assert observer.observe(STREAM[4]) == undisturbed.observe(STREAM[4])
    for used in (observer, HarnessAguiStreamObserver.restore(ObserverContinuation())):
        with pytest.raises(AguiObservationError, match="fresh"):
            await used.resume(history([]))
    empty = HarnessAguiStreamObserver()
    await empty.resume(history([]))
    with pytest.raises(AguiObservationError, match="fresh"):
        await empty.resume(history([]))
    with pytest.raises(TypeError, match="async iterable"):
        await HarnessAguiStreamObserver().resume(STREAM)  # type: ignore[arg-type]


async def test_a_failed_or_cancelled_resume_leaves_the_observer_fresh() -> None:
    observer = HarnessAguiStreamObserver()
    with pytest.raises(AguiObservationError):
        await observer.resume(history([*STREAM[:3], delta("x", thread_id="other")]))
    with pytest.raises(TypeError):
        await observer.resume(history([*STREAM[:3], "no item"]))
    begun = asyncio.Event()

    async def endless() -> AsyncIterator[Any]:
        for item in STREAM[:3]:
            yield item
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(observer.resume(endless()))
    await begun.wait()
    for refused in (lambda: observer.observe(STREAM[0]), observer.export):
        with pytest.raises(AguiObservationError):
            refused()
    with pytest.raises(AguiObservationError, match="already"):
        await observer.resume(history([]))
    assert (observer.run_id, observer.event_count) == (None, 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await observer.resume(history(STREAM))
    assert observer.event_count == len(observed(HarnessAguiStreamObserver(), STREAM))


def test_a_processor_gets_the_item_as_it_was_given() -> None:
    given: list[Any] = []

    def process(item: Any, event: Any) -> Any:
        given.append(item)
        return event

    observer = HarnessAguiObserver(processor=process)
    observer.observe(STREAM[0])
    assert given[-1] is STREAM[0]
    wire: Any = from_harness(STREAM[1])
    observer.observe(wire)
    assert given[-1] is wire


@pytest.mark.parametrize(
    ("name", "value"), [("elsewhere.thing", {"a": 1}), ("a13n.stream.fragment", {"id": "x", "index": 0, "count": 2})]
)
def test_names_of_others_pass_the_assembler(name: str, value: dict[str, Any]) -> None:
    event = ai.UnknownCapabilityEvent(kind=name, data=value)
    assembler = CustomEventAssembler()
    (frame,) = HarnessAguiStreamObserver().observe(live(event))
    assert assembler.accept(frame.model_dump(mode="json", by_alias=True)) is not None
    assert not assembler.gap
