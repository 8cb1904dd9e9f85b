"""How a case and its peer are measured: interleaved rounds, the median of each side, ratios round by round.

The ratio of a case is the median of the ratios within each round: what slows a round down slows both sides.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, NamedTuple


class Figure(NamedTuple):
    """What one side of a case gave, round by round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.rounds)

    @property
    def spread(self) -> float:
        """The distance between the quartiles of the rounds, relative to their median; 0 for a single round."""
        return spread(self.rounds)


class Goal(NamedTuple):
    """What the ratio of a case, ours divided by the peer's, is to be."""

    direction: Literal["at least", "at most"]
    bound: float

    def holds(self, ratio: float) -> bool:
        """Whether a ratio is good enough."""
        return ratio >= self.bound if self.direction == "at least" else ratio <= self.bound


def at_least(bound: float) -> Goal:
    """Return the goal of a case in which more is better."""
    return Goal("at least", bound)


def at_most(bound: float) -> Goal:
    """Return the goal of a case in which less is better."""
    return Goal("at most", bound)


class Case(NamedTuple):
    """One row of the table: our figure, the peer's in the same unit, and what their ratio is to be.

    `ours` is None when nothing could be measured, `peer` when there is no figure of the peer: `missing` then says what
    is not installed.
    """

    name: str
    unit: str
    ours: Figure | None
    peer_name: str = ""
    peer: Figure | None = None
    goal: Goal | None = None
    missing: str = ""
    note: str = ""
    """What else is to be said of it."""

    @property
    def ratios(self) -> Figure | None:
        """Ours divided by the peer's, round by round."""
        if self.ours is None or self.peer is None:
            return None
        return Figure(tuple(mine / theirs for mine, theirs in zip(self.ours.rounds, self.peer.rounds, strict=True)))

    @property
    def ratio(self) -> float | None:
        """The median of the ratios; None without a peer's figure."""
        return None if self.ratios is None else self.ratios.median

    @property
    def holds(self) -> bool | None:
        """Whether the goal holds; None when there is none, or nothing to judge it by."""
        return None if self.goal is None or self.ratio is None else self.goal.holds(self.ratio)


class Sample(NamedTuple):
    """One round of one side: units done, and the seconds they took."""

    units: int
    seconds: float

    @property
    def rate(self) -> float:
        """Units a second."""
        return self.units / self.seconds

    @property
    def cost(self) -> float:
        """Microseconds a unit."""
        return self.seconds / self.units * 1e6


type Side[T] = Callable[[], Awaitable[T]]
"""Does one round."""


def spread(values: Sequence[float]) -> float:
    """Return the distance between the quartiles, relative to the median; 0 for a single value."""
    if len(values) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / middle


def percentile(values: Sequence[float], percent: int) -> float:
    """Return a percentile of at least two values, between the smallest and the largest of them."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def timed(function: Callable[[], int], *, at_least: float = 0.0) -> Side[Sample]:
    """Return a side that calls a function, which returns its units, for at least so many seconds of CPU time.

    CPU time, because that is what the function takes; the clock also counts what other processes take.
    """

    async def side() -> Sample:
        units = 0
        start = time.process_time()
        while True:
            units += function()
            seconds = time.process_time() - start
            # A clock that ticks rarely may show nothing yet.
            if seconds >= at_least and seconds > 0:
                return Sample(units, seconds)

    return side


async def interleave[T](
    sides: Sequence[Side[T]], rounds: int, tell: Callable[[int], None] = lambda number: None
) -> list[list[T]]:
    """Let the sides take turns, each round in the opposite order; return what each gave, in the order of `sides`.

    `tell` is told the number of each round before it begins, from 1. What exists already is no concern of Python's
    garbage collector meanwhile: neither side shall pay for the other's data.
    """
    results: list[list[T]] = [[] for _ in sides]
    gc.collect()
    gc.freeze()
    try:
        for number in range(rounds):
            tell(number + 1)
            order = range(len(sides)) if number % 2 == 0 else reversed(range(len(sides)))
            for index in order:
                gc.collect()
                results[index].append(await sides[index]())
    finally:
        gc.unfreeze()
    return results
