"""One suite, two packages: what the observers promise besides events holds for the reference and for ours alike."""

from __future__ import annotations

import asyncio
import datetime as dt
import types
from collections.abc import AsyncIterator, Callable
from typing import Any

import a13n_stream_protocol as reference
import pytest
from a13n_harness.events import HarnessEvent, HarnessExtensionEvent, HarnessRunResultEvent
from a13n_harness.result import HarnessRunResult, SafeFailure
from a13n_harness.state import HarnessState
from a13n_harness.usage import RunUsageSummary
from ag_ui.core import CustomEvent, RunErrorEvent, TextMessageContentEvent
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_ai import messages as ai

import agui_relay
from tests.oracle.compare import SEED, share
from tests.oracle.streams import Source, media, result_value

NOW = dt.datetime(2026, 11, 29, 19, 46, tzinfo=dt.UTC)

pytestmark = pytest.mark.parametrize("package", [reference, agui_relay], ids=["reference", "ours"])


def item(sequence: int, event: Any, run_id: str = "run-1", thread_id: str = "thread_root") -> HarnessEvent:
    return HarnessEvent(thread_id=thread_id, run_id=run_id, sequence=sequence, occurred_at=NOW, event=event)


def started(sequence: int = 1, **fields: Any) -> HarnessEvent:
    return item(sequence, HarnessExtensionEvent(kind="lifecycle", payload={"type": "run_started"}), **fields)


def text(sequence: int, delta: str = "Hello") -> HarnessEvent:
    return item(sequence, ai.PartDeltaEvent(index=0, delta=ai.TextPartDelta(delta)))


def refused(sequence: int) -> HarnessEvent:
    """Return an item that is refused while a text is open."""
    return item(sequence, ai.PartDeltaEvent(index=0, delta=ai.ThinkingPartDelta(content_delta="x")))


def kinds(events: Any) -> list[str]:
    return [event.type.value for event in events]


async def items(*given: Any) -> AsyncIterator[Any]:
    for entry in given:
        await asyncio.sleep(0)
        yield entry


def test_public_names(package: types.ModuleType) -> None:
    assert set(reference.__all__) <= set(package.__all__)
    assert all(hasattr(package, name) for name in package.__all__)


def test_binding_on_the_first_success(package: types.ModuleType) -> None:
    observer = package.HarnessAguiObserver()
    assert (observer.thread_id, observer.run_id, observer.event_count) == (None, None, 0)
    broken = package.HarnessAguiObserver(processor=lambda item, event: "no event")
    with pytest.raises(package.AguiObservationError):
        broken.observe(started())
    assert (broken.thread_id, broken.run_id) == (None, None)
    observer.observe(started())
    assert (observer.thread_id, observer.run_id, observer.event_count) == ("thread_root", "run-1", 1)
    for other in ({"run_id": "run-2"}, {"thread_id": "thread_2"}, {"run_id": "run-2", "thread_id": "thread_2"}):
        with pytest.raises(package.AguiObservationError):
            observer.observe(started(2, **other))
    assert observer.event_count == 1
    with pytest.raises(AttributeError):
        observer.run_id = "other"


def test_a_stream_observer_binds_each_run_to_its_thread(package: types.ModuleType) -> None:
    observer = package.HarnessAguiStreamObserver()
    observer.observe(started())
    observer.observe(started(1, run_id="child-1", thread_id="thread_child"))
    with pytest.raises(package.AguiObservationError):
        observer.observe(started(2, run_id="child-1", thread_id="thread_other"))
    with pytest.raises(package.AguiObservationError):
        observer.observe(started(2, thread_id="thread_child"))
    assert (observer.thread_id, observer.run_id) == ("thread_root", "run-1")


@pytest.mark.parametrize("other", [None, {}, "item", 5, b"{}", object()])
def test_what_is_no_item_is_a_type_error(package: types.ModuleType, other: Any) -> None:
    observer = package.HarnessAguiStreamObserver()
    with pytest.raises(TypeError):
        observer.observe(other)
    assert observer.run_id is None


def test_snapshots(package: types.ModuleType) -> None:
    observer = package.HarnessAguiObserver()
    observer.observe(started())
    observer.observe(text(2))
    assert observer.event_count == 3
    assert kinds(observer.snapshot()) == ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"]
    assert kinds(observer.snapshot(start=1, stop=2)) == ["TEXT_MESSAGE_START"]
    assert observer.snapshot(start=3) == observer.snapshot(start=1, stop=1) == ()
    for bounds in ({"start": -1}, {"stop": 4}, {"start": 2, "stop": 1}, {"start": 4}, {"stop": -1}):
        with pytest.raises(ValueError, match=r"range|events"):
            observer.snapshot(**bounds)
    forgetful = package.HarnessAguiObserver(retain_events=False)
    forgetful.observe(started())
    assert forgetful.event_count == 0
    with pytest.raises(package.AguiObservationError):
        forgetful.snapshot()


def test_returned_events_are_detached(package: types.ModuleType) -> None:
    observer = package.HarnessAguiObserver()
    payload: Any = {"list": [1]}
    (custom,) = observer.observe(item(1, ai.UnknownCapabilityEvent(kind="elsewhere.thing", data=payload)))
    payload["list"].append(2)
    custom.value["event"]["list"].append(3)
    custom.name = "changed"
    (kept,) = observer.snapshot()
    assert (kept.name, kept.value["event"]["list"]) == ("elsewhere.thing", [1])
    kept.value["event"]["list"].append(4)
    assert observer.snapshot()[0].value["event"]["list"] == [1]


def test_a_refused_item_leaves_no_trace(package: types.ModuleType) -> None:
    observer = package.HarnessAguiObserver()
    observer.observe(text(1))
    before, count = observer.export(), observer.event_count
    for _ in range(3):
        with pytest.raises(package.AguiObservationError):
            observer.observe(refused(2))
    assert (observer.export(), observer.event_count) == (before, count)
    assert kinds(observer.observe(text(3))) == ["TEXT_MESSAGE_CONTENT"]


def test_a_processor_that_raises_leaves_no_trace(package: types.ModuleType) -> None:
    def process(item: Any, event: Any) -> Any:
        if event.type.value == "TEXT_MESSAGE_CONTENT":
            raise LookupError("of the processor")
        return event

    observer = package.HarnessAguiObserver(processor=process)
    observer.observe(started())
    with pytest.raises(LookupError):
        observer.observe(text(2))
    assert observer.event_count == 1
    # The text was not opened.
    end = item(3, ai.PartEndEvent(index=0, part=ai.TextPart("")))
    assert kinds(observer.observe(end)) == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_END"]


async def test_resume_rebuilds(package: types.ModuleType) -> None:
    observer = package.HarnessAguiStreamObserver()
    assert await observer.resume(items(started(), text(2))) is None
    assert (observer.run_id, observer.event_count) == ("run-1", 3)
    assert kinds(observer.observe(text(3))) == ["TEXT_MESSAGE_CONTENT"]
    with pytest.raises(package.AguiObservationError):
        await observer.resume(items(started()))
    forgetful = package.HarnessAguiStreamObserver(retain_events=False)
    await forgetful.resume(items(started(), text(2)))
    assert (forgetful.run_id, forgetful.event_count) == ("run-1", 0)


async def test_resume_needs_a_fresh_observer_and_an_async_iterable(package: types.ModuleType) -> None:
    observed = package.HarnessAguiStreamObserver()
    observed.observe(started())
    with pytest.raises(package.AguiObservationError):
        await observed.resume(items())
    empty = package.HarnessAguiStreamObserver()
    await empty.resume(items())
    with pytest.raises(package.AguiObservationError):
        await empty.resume(items(started()))
    for wrong in (None, [], [started()]):
        with pytest.raises(TypeError):
            await package.HarnessAguiStreamObserver().resume(wrong)
    restored = package.HarnessAguiStreamObserver.restore(package.HarnessAguiStreamObserver().export())
    with pytest.raises(package.AguiObservationError):
        await restored.resume(items(started()))


async def test_a_failed_resume_leaves_the_observer_fresh(package: types.ModuleType) -> None:
    observer = package.HarnessAguiStreamObserver()
    with pytest.raises(package.AguiObservationError):
        await observer.resume(items(started(), text(2), refused(3)))
    assert (observer.run_id, observer.event_count, observer.snapshot()) == (None, 0, ())

    async def breaking() -> AsyncIterator[Any]:
        yield started()
        raise OSError("the journal is gone")

    with pytest.raises(OSError, match="journal"):
        await observer.resume(breaking())
    assert observer.run_id is None
    await observer.resume(items(started(), text(2)))
    assert observer.event_count == 3


async def test_while_it_resumes_nothing_else_is_taken(package: types.ModuleType) -> None:
    observer = package.HarnessAguiStreamObserver()
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def waiting() -> AsyncIterator[Any]:
        yield started()
        reached.set()
        await go_on.wait()
        yield text(2)

    task = asyncio.create_task(observer.resume(waiting()))
    await reached.wait()
    assert (observer.run_id, observer.event_count) == (None, 0)
    with pytest.raises(package.AguiObservationError):
        observer.observe(text(2))
    with pytest.raises(package.AguiObservationError):
        observer.export()
    with pytest.raises(package.AguiObservationError):
        await observer.resume(items(started()))
    go_on.set()
    await task
    assert observer.event_count == 3


async def test_a_cancelled_resume_leaves_the_observer_fresh(package: types.ModuleType) -> None:
    observer = package.HarnessAguiStreamObserver()
    reached = asyncio.Event()

    async def endless() -> AsyncIterator[Any]:
        yield started()
        reached.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(observer.resume(endless()))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (observer.run_id, observer.event_count) == (None, 0)
    assert kinds(observer.observe(started())) == ["RUN_STARTED"]


def test_export_and_restore(package: types.ModuleType) -> None:
    observer = package.HarnessAguiStreamObserver()
    observer.observe(started())
    observer.observe(text(2))
    saved = observer.export()
    observer.observe(text(3))
    assert isinstance(saved, BaseModel)
    saved = type(saved).model_validate_json(saved.model_dump_json())
    seen: list[str] = []

    def process(item: Any, event: Any) -> Any:
        seen.append(event.type.value)
        return event

    restored = package.HarnessAguiStreamObserver.restore(saved, processor=process)
    assert isinstance(restored, package.HarnessAguiStreamObserver)
    assert (restored.thread_id, restored.run_id, restored.event_count) == ("thread_root", "run-1", 0)
    assert kinds(restored.observe(text(3))) == seen == ["TEXT_MESSAGE_CONTENT"]
    with pytest.raises(package.AguiObservationError):
        restored.snapshot()
    # A saved state can be restored again: what was restored first did not change it.
    again = package.HarnessAguiStreamObserver.restore(saved)
    assert kinds(again.observe(text(3))) == ["TEXT_MESSAGE_CONTENT"]


def result(status: str) -> HarnessRunResultEvent[Any]:
    completed = status == "completed"
    value: HarnessRunResult[Any] = HarnessRunResult(
        thread_id="thread_root",
        run_id="run-1",
        status="completed" if completed else "failed",
        output={"answer": 1} if completed else None,
        state=HarnessState.new(thread_id="thread_root") if completed else None,
        usage=RunUsageSummary(),
        failure=None if completed else SafeFailure(code="c", message="broken"),
    )
    return HarnessRunResultEvent(thread_id="thread_root", run_id="run-1", sequence=9, occurred_at=NOW, result=value)


CALL = ai.ToolCallPart("search", '{"q":1}', "call_1")
SIGNED = ai.PartDeltaEvent(index=1, delta=ai.ThinkingPartDelta(content_delta="hm", signature_delta="s"))


@pytest.mark.parametrize(
    ("source", "kind", "field", "value"),
    [
        (text(1), "TEXT_MESSAGE_CONTENT", "delta", "other"),
        (item(1, SIGNED), "REASONING_MESSAGE_CONTENT", "delta", "other"),
        (item(1, SIGNED), "REASONING_ENCRYPTED_VALUE", "encrypted_value", "other"),
        (item(1, ai.PartEndEvent(index=0, part=CALL)), "TOOL_CALL_ARGS", "delta", "{}"),
        (
            item(1, ai.FunctionToolResultEvent(ai.ToolReturnPart("search", "x", "call_1"))),
            "TOOL_CALL_RESULT",
            "content",
            "other",
        ),
        (result("completed"), "RUN_FINISHED", "result", {"other": [1, None]}),
        (result("completed"), "RUN_FINISHED", "result", None),
        (result("failed"), "RUN_ERROR", "message", "other"),
    ],
)
def test_what_a_processor_may_replace(
    package: types.ModuleType, source: Any, kind: str, field: str, value: Any
) -> None:
    def process(item: Any, event: Any) -> Any:
        assert item is source
        return event.model_copy(update={field: value}) if event.type.value == kind else event

    observer = package.HarnessAguiObserver(processor=process)
    (changed,) = [event for event in observer.observe(source) if event.type.value == kind]
    assert getattr(changed, field) == value
    assert changed in observer.snapshot()


def replace(**fields: Any) -> Callable[[Any, Any], Any]:
    return lambda item, event: event.model_copy(update=fields)


@pytest.mark.parametrize(
    "process",
    [
        lambda item, event: 5,
        lambda item, event: event.model_dump(),
        lambda item, event: TextMessageContentEvent(message_id="other", delta="x"),
        lambda item, event: RunErrorEvent(message="x"),
        replace(timestamp=1),
        replace(timestamp=None),
        replace(raw_event={}),
        replace(metadata={}),
        replace(subagent_run_id="other"),
        replace(name="other"),
        replace(value={}),
        replace(value=None),
        replace(extra="field"),
    ],
)
def test_what_a_processor_may_not(package: types.ModuleType, process: Any) -> None:
    observer = package.HarnessAguiObserver(processor=process)
    with pytest.raises(package.AguiObservationError):
        observer.observe(item(1, ai.FinalResultEvent(tool_name=None, tool_call_id=None)))
    assert (observer.run_id, observer.event_count) == (None, 0)


def test_a_processor_sees_whole_events_before_they_are_split(package: types.ModuleType) -> None:
    seen: list[str] = []

    def process(item: Any, event: Any) -> Any:
        seen.append(event.name)
        return event if len(seen) == 1 else None

    observer = package.HarnessAguiObserver(processor=process)
    large = ai.UnknownCapabilityEvent(kind="elsewhere.large", data={"text": "x" * 100_000})
    frames = observer.observe(item(1, large))
    assert len(frames) > 1
    assert {frame.name for frame in frames if isinstance(frame, CustomEvent)} == {"a13n.stream.fragment"}
    assert observer.observe(item(2, large)) == ()
    assert seen == ["elsewhere.large", "elsewhere.large"]


def test_identities_of_fragments(package: types.ModuleType) -> None:
    observer = package.HarnessAguiObserver()
    frames = observer.observe(item(7, ai.UnknownCapabilityEvent(kind="elsewhere.large", data={"text": "x" * 50_000})))
    assert {frame.value["id"] for frame in frames} == {"thread_root:run-1:7:0"}
    assert [frame.value["index"] for frame in frames] == list(range(len(frames)))


def test_constants_and_metadata(package: types.ModuleType) -> None:
    assert reference.AUTHORED_INPUT_EVENT_NAMES == package.AUTHORED_INPUT_EVENT_NAMES
    metadata = package.ContentMetadata()
    assert metadata.model_dump() == {"display": True, "source_id": None, "media": False}
    opaque = package.ContentMetadata.from_native({"display": False, "mine": [1]})
    assert opaque.model_dump() == {"display": False, "source_id": None, "media": False, "mine": [1]}
    for other in (None, "text", 5, [1]):
        assert package.ContentMetadata.from_native(other) == metadata
    with pytest.raises(ValueError, match="frozen"):
        metadata.display = False


def test_tool_result_content(package: types.ModuleType) -> None:
    @st.composite
    def values(draw: st.DrawFn) -> Any:
        source = Source(draw)
        return media(source) if source.chance(40) else result_value(source)

    @seed(SEED)
    @settings(max_examples=share(0.05), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(value=values())
    def check(value: Any) -> None:
        assert dumped(package.tool_result_content(value)) == dumped(reference.tool_result_content(value))

    check()


def dumped(content: Any) -> Any:
    return content if isinstance(content, str) else [part.model_dump(mode="json", by_alias=True) for part in content]
