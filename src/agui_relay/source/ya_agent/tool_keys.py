"""Which invocation a tool event belongs to: `toolCallKey`, one for each invocation that a display run shows.

A provider's `toolCallId` may come back: another call of the same agent may carry it, and the result of a deferred call
comes segments later. The key tells these apart, and is the same from an invocation's first event to its result.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Invocation:
    """One invocation of a tool: its key, and whether all of its call, or its result, has been seen."""

    key: str
    over: bool = False


class ToolKeys:
    """The invocations of one display run, found by agent and provider id."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._count = 0
        self._latest: dict[tuple[str, str], Invocation] = {}

    def start(self, agent_id: str, call_id: str) -> Invocation:
        """Return a new invocation."""
        self._count += 1
        invocation = Invocation(f"{self._run_id}:tool:{self._count}")
        self._latest[agent_id, call_id] = invocation
        return invocation

    def go_on(self, agent_id: str, call_id: str) -> Invocation:
        """Return the invocation that a piece of a call belongs to whose start was not seen."""
        known = self._latest.get((agent_id, call_id))
        return self.start(agent_id, call_id) if known is None or known.over else known

    def finish(self, agent_id: str, call_id: str) -> Invocation:
        """Return the invocation that a result answers: the latest with this id, in whichever segment it was."""
        invocation = self._latest.get((agent_id, call_id)) or self.start(agent_id, call_id)
        invocation.over = True
        return invocation

    def rename(self, agent_id: str, call_id: str, invocation: Invocation) -> None:
        """Let an invocation be found by an id that its provider gave late."""
        self._latest[agent_id, call_id] = invocation
