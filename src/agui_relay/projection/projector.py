"""From a Harness item to its AG-UI events: whose item it is, who reads it, and that a refused one leaves no trace.

Deciding and writing are two steps. An item is decided about first, which raises or gives its events and *one* change;
a processor sees the events; only then is the change written. So nothing has to be copied beforehand or undone.
"""

from collections.abc import Callable
from functools import partial

import ag_ui.core as agui

from agui_relay.events import CustomEvent, Event, RunStartedEvent, encode_event
from agui_relay.projection import fallback, parts, results, subagents
from agui_relay.projection.continuation import Continuation, read_continuation, write_continuation
from agui_relay.projection.errors import AguiObservationError, ContinuationError
from agui_relay.projection.parts import Cursor, RunState
from agui_relay.projection.processor import processed
from agui_relay.projection.terminal import run_end
from agui_relay.source.deltas import observed, read_delta
from agui_relay.source.errors import ItemError
from agui_relay.source.items import HarnessItem
from agui_relay.source.reading import (
    Delegation,
    ExtensionEvent,
    Lifecycle,
    NativeEvent,
    read,
    read_native,
    read_or_none,
)
from agui_relay.source.result import read_result
from agui_relay.source.returns import read_return

__all__ = ["ContinuationError", "Process", "Projector"]

type Process = Callable[[HarnessItem, agui.Event], agui.Event | None]

# What an item changes: the cursor of one part, anything else as a step to take, or nothing.
type _Change = tuple[int, Cursor | None] | Callable[[], None] | None


class Projector:
    """The state of one root run and its inline children, between items.

    The root is the run that the projector was told. A projector that was told none takes the first run it sees, and
    gives that up for the first other run that announces its start, unless its own did so before: a child can be seen
    before its root.
    """

    __slots__ = ("_children", "_root", "_runs", "_settled", "_traces", "changed")

    def __init__(self, *, run_id: str | None = None, thread_id: str | None = None, children: bool = True) -> None:
        """Begin a stream.

        Args:
            run_id: The root run. The first run seen, when not given.
            thread_id: The root's thread. That of its first item, when not given.
            children: Whether other runs are the root's children, or refused.

        """
        self._children = children
        self._root = RunState(run_id=run_id, thread_id=thread_id) if run_id is not None else None
        self._settled = run_id is not None
        self._runs: dict[str, RunState] = {} if self._root is None else {self._root.run_id: self._root}
        self._traces = subagents.Traces()
        self.changed = False
        """True when :meth:`export` differs from what was restored or last exported."""

    @property
    def run_id(self) -> str | None:
        """The root run, as far as it is known."""
        return None if self._root is None else self._root.run_id

    @property
    def thread_id(self) -> str | None:
        """The thread of the root run, as far as it is known."""
        return None if self._root is None else self._root.thread_id

    def project(self, item: HarnessItem, process: Process | None = None) -> list[Event]:
        """Return the events of one item, complete, before any is split into frames.

        Raises:
            AguiObservationError: the item contradicts what came before, or cannot be read; or the processor returned
                what it may not. Then, and when the processor raises, nothing has changed.

        """
        run = self._runs.get(item.run_id)
        known = run is not None and run.thread_id == item.thread_id
        try:
            if run is None or not known:
                run = self._enter(item, run)
            events, change = self._native(item, run) if item.source == "pydantic_ai" else self._decide(item, run)
        except ItemError as error:
            raise AguiObservationError(str(error)) from error
        if process is not None:
            offered = (processed(process, item, event) for event in events)
            events = [event for event in offered if event is not None]
        if not known:
            self._settle(item, run)
        if isinstance(change, tuple):
            index, cursor = change
            if cursor is not None:
                run.parts[index] = cursor
            else:
                run.parts.pop(index, None)
            self.changed = True
        elif change is not None:
            change()
            self.changed = True
        return events

    def project_short(self, data: bytes) -> tuple[type[Event], bytes] | None:
        """Return the only event of an item, its class and its JSON, if the item is one that is read in one decode.

        Those are a plain delta of a part that is open, and what a tool returned. It is the event that :meth:`project`
        would have given, and it fits a frame if it is a CUSTOM. None for any other item; then nothing has changed.
        """
        item = read_delta(data)
        if item is None:
            return self._returned(data)
        run = self._runs.get(item.run_id)
        if run is None or run.thread_id != item.thread_id:
            return None
        event = item.event
        delta = event.delta
        if delta.part_delta_kind == "tool_call":
            if not parts.continues(run, event.index, delta) or (shown := observed(item, data)) is None:
                return None
            return CustomEvent, fallback.encoded_delta(shown, item.projection.timestamp, run.child)
        more = parts.more_text(run, event.index, delta, item.projection.timestamp)
        if more is None:
            return None
        self.changed = True
        return type(more), encode_event(more)

    def _returned(self, data: bytes) -> tuple[type[Event], bytes] | None:
        item = read_return(data)
        if item is None:
            return None
        run = self._runs.get(item.run_id)
        if run is None or run.thread_id != item.thread_id:
            return None
        event = results.returned(item, run.child)
        return None if event is None else (type(event), encode_event(event))

    def export(self) -> bytes:
        """Return a continuation: JSON that a projector of this or a newer release goes on from.

        It holds cursors only; its size follows what is open, not what was said.
        """
        self.changed = False
        root = self._root
        return write_continuation(
            Continuation(
                root=root,
                settled=self._settled,
                runs=[run for run in self._runs.values() if run is not root],
                traces=self._traces.as_dict(),
            )
        )

    @classmethod
    def restore(cls, continuation: bytes, *, children: bool = True) -> "Projector":
        """Go on from a continuation. ``children`` as when it began.

        Raises:
            ContinuationError: it is not one of ours, or was written by a newer release.

        """
        saved = read_continuation(continuation)
        projector = cls(children=children)
        projector._root, projector._settled = saved.root, saved.settled
        known = saved.runs if saved.root is None else [saved.root, *saved.runs]
        projector._runs = {run.run_id: run for run in known}
        projector._traces = subagents.Traces(saved.traces)
        return projector

    # Whose item it is

    def _enter(self, item: HarnessItem, run: RunState | None) -> RunState:
        """Return the state of a run that speaks for the first time, or in another thread. Writes nothing."""
        if run is not None:
            if run.thread_id is not None:
                raise AguiObservationError(
                    f"the thread of run {item.run_id!r} is {run.thread_id!r}, an item says {item.thread_id!r}"
                )
            return run
        root = self._root
        if root is None or self._takes_over(item):
            return RunState(run_id=item.run_id, thread_id=item.thread_id)
        if not self._children:
            if root.thread_id is not None and item.thread_id != root.thread_id:
                raise AguiObservationError(f"the thread is {root.thread_id!r}, an item says {item.thread_id!r}")
            raise AguiObservationError(f"the run is {root.run_id!r}, an item says {item.run_id!r}")
        return self._traces.revived(item.run_id, item.thread_id)

    def _takes_over(self, item: HarnessItem) -> bool:
        """Tell whether a run unheard of is the root, and the one taken for it a child that was seen before."""
        return (
            not self._settled
            and self._children
            and item.source == "harness"
            and not self._traces.knows(item.run_id)
            and _is_start(read(item.event, ExtensionEvent))
        )

    def _settle(self, item: HarnessItem, run: RunState) -> None:
        """Write down a run that was entered."""
        self.changed = True
        run.thread_id = item.thread_id
        if run.run_id in self._runs:
            return
        if run.child is None:
            former, self._root = self._root, run
            if former is not None:
                former.child = former.run_id
        else:
            self._traces.forget(run.run_id)
        self._add(run)

    def _add(self, run: RunState) -> None:
        self._runs[run.run_id] = run
        if len(self._runs) <= subagents.CHILDREN_KEPT:
            return
        for other in list(self._runs.values()):
            if other.child is not None and other is not run and not other.parts:
                self._leave(other, other.request_index)
            if len(self._runs) <= subagents.CHILDREN_KEPT:
                return

    def _leave(self, run: RunState, request_index: int) -> None:
        """Reduce a child to a trace."""
        self._traces.keep(run, request_index=request_index)
        self._runs.pop(run.run_id, None)

    # What it says

    def _decide(self, item: HarnessItem, run: RunState) -> tuple[list[Event], _Change]:
        if item.source == "harness":
            return self._extension(item, run)
        if item.source == "capability":
            return [fallback.capability(item, item.timestamp, run.child)], None
        return self._result(item, run)

    def _native(self, item: HarnessItem, run: RunState) -> tuple[list[Event], _Change]:
        projection = item.projection
        timestamp = projection.timestamp if projection is not None else None
        if timestamp is None:
            timestamp = item.timestamp
        event = read_native(item.event)
        kind = event.event_kind
        index = event.index
        events: list[Event]
        cursor: Cursor | None
        if kind == "part_delta":
            delta = event.delta
            if delta is None:
                raise AguiObservationError("a part_delta event needs a `delta`")
            delta_kind = delta.part_delta_kind
            if delta_kind == "text":
                if not delta.content_delta:
                    return [fallback.native(item, kind, timestamp, run.child)], None
                events, cursor = parts.text_delta(run, index, delta.content_delta, timestamp)
                return events, (index, cursor)
            if delta_kind == "tool_call":
                cursor = parts.tool_delta(run, index, delta)
                change = None if cursor is run.parts.get(index) else (index, cursor)
                return [fallback.native(item, kind, timestamp, run.child)], change
            if delta_kind == "thinking":
                events, cursor = parts.thinking_delta(run, index, delta, timestamp)
                return events or [fallback.native(item, kind, timestamp, run.child)], (index, cursor)
            return [fallback.native(item, kind, timestamp, run.child)], None
        return self._other_native(item, run, event, timestamp)

    def _other_native(
        self, item: HarnessItem, run: RunState, event: NativeEvent, timestamp: int
    ) -> tuple[list[Event], _Change]:
        kind, index, part = event.event_kind, event.index, event.part
        child = run.child
        if kind in ("part_start", "part_end"):
            if part is None:
                raise AguiObservationError(f"a {kind} event needs a `part`")
            cursor: Cursor | None = None
            if kind == "part_start":
                events, cursor, observed = parts.start(run, index, part, timestamp)
            else:
                arguments = item.projection.arguments if item.projection is not None else None
                if arguments is None and part.part_kind == "tool-call":
                    arguments = part.arguments
                events, observed = parts.end(run, index, part, arguments, timestamp)
            if observed:
                events.append(fallback.native(item, kind, timestamp, child))
            return events, (index, cursor) if cursor is not None or index in run.parts else None
        if kind in ("function_tool_result", "output_tool_result"):
            if part is None:
                raise AguiObservationError(f"a {kind} event needs a `part`")
            result = results.tool_result(item, part, timestamp, child)
            if result is not None:
                return [result], None
        return [fallback.native(item, kind, timestamp, child)], None

    def _extension(self, item: HarnessItem, run: RunState) -> tuple[list[Event], _Change]:
        event = read(item.event, ExtensionEvent)
        timestamp = item.timestamp
        if event.kind == "delegation" and self._children:
            delegation = read_or_none(event.payload, Delegation)
            if delegation is not None:
                return self._delegation(item, run, event, delegation, timestamp)
        elif event.kind == "lifecycle" and (lifecycle := read_or_none(event.payload, Lifecycle)) is not None:
            if lifecycle.type == "run_started":
                if run.child is not None:
                    return [], None
                started = RunStartedEvent(
                    timestamp=timestamp, thread_id=item.thread_id, run_id=item.run_id, protocol_version="1.0"
                )
                return [started], None if self._settled else self._settle_root
            if lifecycle.type == "model_request_started":
                index = lifecycle.request_index
                if isinstance(index, int) and index >= 0 and index != run.request_index:
                    # What is open keeps its name: the next request can be announced before the last part ends.
                    return [fallback.extension(item, event, timestamp, run.child)], partial(_set_request, run, index)
        return [fallback.extension(item, event, timestamp, run.child)], None

    def _delegation(
        self, item: HarnessItem, run: RunState, event: ExtensionEvent, delegation: Delegation, timestamp: int
    ) -> tuple[list[Event], _Change]:
        child_id = delegation.child_run_id
        if child_id is None:
            # It failed before there was a child; the fact stands alone, and at the root.
            return [fallback.extension(item, event, timestamp, None)], None
        root_id = item.run_id if self._root is None or run.child is None else self._root.run_id
        # A run takes part in its own delegation only when the source is confused; the root then stays the root.
        child = run if child_id == run.run_id and run.child is not None else self._runs.get(child_id)
        if child is None or child.child is None:
            child = RunState(run_id=child_id, child=child_id)
        events = subagents.lifecycle(delegation, child, root_id, timestamp)
        events.append(fallback.extension(item, event, timestamp, run.child))
        if child_id == root_id:
            return events, None
        if delegation.action == "started":
            return events, partial(self._expect_child, child)
        return events, partial(self._end_child, child)

    def _result(self, item: HarnessItem, run: RunState) -> tuple[list[Event], _Change]:
        result = read_result(item.result)
        timestamp = item.timestamp
        events = parts.end_all(run, timestamp)
        if run.child is not None:
            return events, partial(self._end_run, run)
        events.append(run_end(item, result, timestamp))
        return events, partial(self._end_run, run)

    # What it changes

    def _settle_root(self) -> None:
        self._settled = True

    def _expect_child(self, child: RunState) -> None:
        if child.run_id not in self._runs and not self._traces.knows(child.run_id):
            self._add(child)

    def _end_child(self, child: RunState) -> None:
        if child.run_id in self._runs:
            self._leave(child, 0)
        else:
            self._traces.restart(child.run_id)

    def _end_run(self, run: RunState) -> None:
        run.parts.clear()
        if run.child is None:
            self._settled = True
        else:
            self._leave(run, run.request_index)


def _set_request(run: RunState, index: int) -> None:
    run.request_index = int(index)


def _is_start(event: ExtensionEvent) -> bool:
    if event.kind != "lifecycle":
        return False
    lifecycle = read_or_none(event.payload, Lifecycle)
    return lifecycle is not None and lifecycle.type == "run_started"
