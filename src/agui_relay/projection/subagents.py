"""Child runs inside a root's stream: how their lifecycle shows, and what is remembered of those that ended.

A child that ended leaves the projector; only a trace stays, so that a late item of it is judged as before (a wrong
thread is refused, message ids go on with its request). Traces are fingerprints of the two ids, and the latest
:data:`TRACES_KEPT` of them: a child that ended before those is taken for a new one when it speaks again.
"""

from base64 import b64encode
from hashlib import blake2b

from msgspec import Struct

from agui_relay.events import (
    Event,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    SuccessOutcome,
)
from agui_relay.projection.errors import AguiObservationError
from agui_relay.projection.parts import RunState, end_all
from agui_relay.source.reading import Delegation

TRACES_KEPT = 256
"""So many ended children are remembered."""

CHILDREN_KEPT = 256
"""Above this many children, those without anything open are reduced to a trace, the oldest first."""

_SUCCESS = SuccessOutcome()


class Trace(Struct, frozen=True, gc=False, array_like=True):
    """What stays of an ended child: the fingerprint of its thread, and its request index."""

    thread: str
    request_index: int = 0


class Traces:
    """The latest ended children, by the fingerprint of their run id."""

    __slots__ = ("_by_run",)

    def __init__(self, by_run: dict[str, Trace] | None = None) -> None:
        self._by_run = by_run if by_run is not None else {}

    def __len__(self) -> int:
        return len(self._by_run)

    def as_dict(self) -> dict[str, Trace]:
        """Return the traces, oldest first."""
        return dict(self._by_run)

    def revived(self, run_id: str, thread_id: str) -> RunState:
        """Return the state with which a child begins, or goes on after its end. Changes nothing.

        Raises:
            AguiObservationError: the child ended in another thread.

        """
        trace = self._by_run.get(_fingerprint(run_id, 9)) if self._by_run else None
        if trace is None:
            return RunState(run_id=run_id, thread_id=thread_id, child=run_id)
        if trace.thread != _fingerprint(thread_id, 6):
            raise AguiObservationError(f"the thread of child run {run_id!r} changed; {thread_id!r} is another one")
        return RunState(run_id=run_id, thread_id=thread_id, child=run_id, request_index=trace.request_index)

    def knows(self, run_id: str) -> bool:
        """Tell whether this child ended lately."""
        return bool(self._by_run) and _fingerprint(run_id, 9) in self._by_run

    def keep(self, run: RunState, *, request_index: int) -> None:
        """Remember a child that leaves; one that never spoke has nothing to remember."""
        if run.thread_id is None:
            return
        key = _fingerprint(run.run_id, 9)
        self._by_run.pop(key, None)
        while len(self._by_run) >= TRACES_KEPT:
            del self._by_run[next(iter(self._by_run))]
        self._by_run[key] = Trace(_fingerprint(run.thread_id, 6), request_index)

    def restart(self, run_id: str) -> None:
        """Let an ended child, should it speak again, count its requests from the beginning."""
        if self._by_run and (trace := self._by_run.get(key := _fingerprint(run_id, 9))) is not None:
            self._by_run[key] = Trace(trace.thread)

    def forget(self, run_id: str) -> None:
        """Drop the trace of a child that speaks again."""
        if self._by_run:
            self._by_run.pop(_fingerprint(run_id, 9), None)


def lifecycle(delegation: Delegation, child: RunState, root_run_id: str, timestamp: int) -> list[Event]:
    """Return what a delegation is to a client, in front of the fact itself. ``child`` is the delegated run."""
    child_id = child.run_id
    if delegation.action == "started":
        parent = delegation.parent_run_id
        return [
            SubagentStartedEvent(
                timestamp=timestamp,
                subagent_run_id=child_id,
                name=delegation.subagent,
                parent_subagent_run_id=parent if parent != root_run_id else None,
                parent_tool_call_id=delegation.parent_tool_call_id,
            )
        ]
    events = end_all(child, timestamp)
    if delegation.action == "completed":
        events.append(SubagentFinishedEvent(timestamp=timestamp, subagent_run_id=child_id, outcome=_SUCCESS))
    else:
        events.append(
            SubagentErrorEvent(
                timestamp=timestamp,
                subagent_run_id=child_id,
                message=f"Inline delegation {delegation.status}.",
                code=delegation.status,
            )
        )
    return events


def _fingerprint(text: str, size: int) -> str:
    return b64encode(blake2b(text.encode(), digest_size=size).digest()).decode()
