"""What the suites share while they run: how often and how much, where the server is, who is told of the progress."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from agui_relay.bench.measure import Case, Figure, Goal, Sample, Side, interleave


class Session:
    """One run of the command: `rounds` of each case, `quick` for small data whose figures mean little."""

    def __init__(self, *, rounds: int, quick: bool, tell: Callable[[str], None] = lambda text: None) -> None:
        self.rounds = rounds
        self.quick = quick
        self.url = ""
        """Where the server is; only for suites that need one."""
        self.server: str | None = None
        """Which server it is, with its version; None before one was started."""
        self.tell = tell
        """Told what is measured."""

    def size(self, full: int, quick: int) -> int:
        """Return how much to measure with."""
        return quick if self.quick else full

    @property
    def at_least(self) -> float:
        """Seconds that a round of pure computation takes at least."""
        return 0.0 if self.quick else 0.15

    async def interleave[T](self, name: str, sides: Sequence[Side[T]], rounds: int | None = None) -> list[list[T]]:
        """Let the sides of a case take turns."""
        rounds = rounds or self.rounds
        return await interleave(sides, rounds, lambda number: self.tell(f"{name}, {number} of {rounds}"))

    async def compare(
        self,
        name: str,
        ours: Side[Sample],
        peer: Side[Sample] | None,
        *,
        peer_name: str,
        unit: str = "items/s",
        goal: Goal | None = None,
        missing: str = "",
        value: Callable[[Sample], float] = lambda sample: sample.rate,
    ) -> Case:
        """Measure one case; a peer that is `missing` is None."""
        sides = [ours] if peer is None else [ours, peer]
        figures = [Figure(tuple(value(sample) for sample in samples)) for samples in await self.interleave(name, sides)]
        return Case(name, unit, figures[0], peer_name, figures[1] if peer is not None else None, goal, missing)


class Step(NamedTuple):
    """A part of a suite that is measured at a time."""

    name: str
    measure: Callable[[Session], Awaitable[list[Case]]]


type Suite = Callable[[Session], Sequence[Step]]
"""Tells its steps."""
