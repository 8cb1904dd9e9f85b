"""The public face of projection: observers that take items and give typed AG-UI events, and keep them if asked to.

Same names, same meaning as in a13n-stream-protocol, so that changing the import is enough.
"""

from collections.abc import AsyncIterable, Callable
from typing import Any, Self, cast

import ag_ui.core as agui
import msgspec
from pydantic import BaseModel, ConfigDict, JsonValue

from agui_relay.events import CustomEvent, Event, encode_event, to_model
from agui_relay.framing.fragments import WHOLE_BYTES, fragment_custom_event
from agui_relay.projection.continuation import VERSION
from agui_relay.projection.errors import AguiObservationError, ContinuationError
from agui_relay.projection.projector import Projector
from agui_relay.source.errors import ItemError
from agui_relay.source.harness import LIVE_ITEM, from_harness
from agui_relay.source.items import HarnessItem

type AguiEventProcessor = Callable[[Any, agui.Event], agui.Event | None]
"""Sees an item and one of its events, whole. Returns the event, with other content if it likes, or None to drop it.

Gets the item as it was given to ``observe``. It is synchronous and has to do the same on a replay.
"""

# A kept event: as a struct, from which any number of models can be made; or a frame of a large one.
type _Kept = Event | agui.CustomEvent


class ObserverContinuation(BaseModel):
    """What an observer needs to go on in the middle of parts, as a model that survives JSON. Kept events are not in it.

    Its size follows what is open, not what was said.
    """

    model_config = ConfigDict(extra="forbid")
    version: int = VERSION
    thread_id: str | None = None
    run_id: str | None = None
    state: dict[str, JsonValue] | None = None


class HarnessAguiObserver:
    """Observes one run: its first item binds the thread and the run, items of others are refused."""

    _children = False

    def __init__(self, *, processor: AguiEventProcessor | None = None, retain_events: bool = True) -> None:
        """Begin with nothing observed.

        Args:
            processor: Sees each event before it is kept or returned.
            retain_events: Whether events are kept for :meth:`snapshot`.

        """
        self._processor = processor
        self._retain_events = retain_events
        self._projector = Projector(children=self._children)
        self._kept: list[_Kept] = []
        self._resuming = False
        self._resumed = False

    @property
    def thread_id(self) -> str | None:
        """The thread of the run, once something was observed."""
        return self._projector.thread_id

    @property
    def run_id(self) -> str | None:
        """The run, once something was observed."""
        return self._projector.run_id

    @property
    def event_count(self) -> int:
        """How many events are kept; a boundary for :meth:`snapshot`."""
        return len(self._kept)

    def observe(self, item: Any) -> tuple[agui.Event, ...]:
        """Return the events of one item: a ``HarnessItem``, or a live item of a13n-harness.

        CUSTOM events above 48 KiB come as their fragments. The events are the caller's own.

        Raises:
            TypeError: it is no item.
            AguiObservationError: the item contradicts what came before or cannot be read, the processor returned what
                it may not, or :meth:`resume` is running. The observer is as it was before.

        """
        if self._resuming:
            raise AguiObservationError("nothing can be observed while the observer resumes")
        if type(item) is HarnessItem:
            source = item
        else:
            try:
                source = from_harness(item)
            except ItemError as error:
                raise AguiObservationError(str(error)) from error
            except TypeError:
                got = type(item).__name__
                hint = "; decode_item makes an item of JSON" if isinstance(item, bytes | bytearray | str) else ""
                raise TypeError(f"expected a HarnessItem or {LIVE_ITEM}, got {got}{hint}") from None
        process = self._processor
        if process is None:
            events = self._projector.project(source)
        else:
            events = self._projector.project(source, lambda _, event: process(item, event))
        kept = self._kept if self._retain_events else None
        frames: list[agui.Event] = []
        for index, event in enumerate(events):
            if type(event) is CustomEvent and (pieces := _fragments(source, event, index)) is not None:
                frames.extend(pieces)
                if kept is not None:
                    kept.extend(piece.model_copy(deep=True) for piece in pieces)
                continue
            frames.append(to_model(event))
            if kept is not None:
                kept.append(event)
        return tuple(frames)

    def snapshot(self, *, start: int = 0, stop: int | None = None) -> tuple[agui.Event, ...]:
        """Return copies of the kept events of a half-open range of positions, all of them by default.

        Raises:
            AguiObservationError: the observer does not keep events.
            ValueError: the range is outside of what is kept.

        """
        if not self._retain_events:
            raise AguiObservationError("a snapshot needs an observer with retain_events=True")
        end = len(self._kept) if stop is None else stop
        if start < 0 or end < start or end > len(self._kept):
            raise ValueError(f"expected a range within 0 and {len(self._kept)}, got {start} to {end}")
        return tuple(
            event.model_copy(deep=True) if isinstance(event, agui.CustomEvent) else to_model(event)
            for event in self._kept[start:end]
        )

    async def resume(self, history: AsyncIterable[Any]) -> None:
        """Observe the items of a finite history, once, on a fresh observer. Their events are kept, not returned.

        All or nothing: should anything fail, or be cancelled, the observer is fresh as before.

        Raises:
            TypeError: the history is no async iterable.
            AguiObservationError: the observer is not fresh, is resuming already, or refuses an item.

        """
        if not isinstance(history, AsyncIterable):
            raise TypeError(f"expected an async iterable of items, got {type(history).__name__}")
        if self._resuming:
            raise AguiObservationError("the observer is resuming already")
        if self._resumed or self.run_id is not None:
            raise AguiObservationError("only a fresh observer can resume")
        staged = type(self)(processor=self._processor, retain_events=self._retain_events)
        self._resuming = True
        try:
            async for item in history:
                staged.observe(item)
            self._projector, self._kept = staged._projector, staged._kept
            self._resumed = True
        finally:
            self._resuming = False

    def export(self) -> ObserverContinuation:
        """Return what :meth:`restore` needs to go on from here.

        Raises:
            AguiObservationError: the observer is resuming.

        """
        if self._resuming:
            raise AguiObservationError("an observer that resumes cannot be exported")
        state = cast(dict[str, JsonValue], msgspec.json.decode(self._projector.export()))
        return ObserverContinuation(thread_id=self.thread_id, run_id=self.run_id, state=state)

    @classmethod
    def restore(cls, continuation: ObserverContinuation, *, processor: AguiEventProcessor | None = None) -> Self:
        """Return an observer that goes on from a continuation. It needs the same processor, and keeps no events.

        Raises:
            ContinuationError: the continuation is damaged, or was written by a newer release.

        """
        if continuation.version > VERSION:
            raise ContinuationError(
                f"the continuation has version {continuation.version}, this release reads up to {VERSION}"
            )
        observer = cls(processor=processor, retain_events=False)
        if continuation.state is not None:
            observer._projector = Projector.restore(msgspec.json.encode(continuation.state), children=cls._children)
        observer._resumed = True
        return observer


class HarnessAguiStreamObserver(HarnessAguiObserver):
    """Observes a root run and the inline children in its stream.

    Each run has parts of its own. Events of children carry ``subagentRunId``; only the root has RUN_* events, and
    delegations of the parent make a child's SUBAGENT_* events. The root is the run that announces its start first.
    """

    _children = True


def _fragments(item: HarnessItem, event: CustomEvent, index: int) -> list[agui.CustomEvent] | None:
    """Return the frames of an event that is too large for one, else None."""
    # Most events are far from the bound. JSON needs at most six bytes for a character.
    names = 6 * (len(item.thread_id) + 2 * len(item.run_id) + len(event.name))
    if event.metadata is None and len(memoryview(item.event)) + names < WHOLE_BYTES - 1024:
        return None
    if len(encode_event(event)) <= WHOLE_BYTES:
        return None
    whole = cast(agui.CustomEvent, to_model(event))
    return fragment_custom_event(whole, identity=f"{item.thread_id}:{item.run_id}:{item.sequence}:{index}")
