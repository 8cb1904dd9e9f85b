"""How a case and its peer are timed: interleaved repetitions, the median of each, their spread."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple


class Rate(NamedTuple):
    """Units a second: the median of the repetitions and the relative distance between the quartiles."""

    median: float
    spread: float


class Comparison(NamedTuple):
    """One row of a table."""

    name: str
    unit: str
    ours: Rate
    peer: Rate
    peer_name: str
    goal: float | None

    @property
    def ratio(self) -> float:
        """How many times as fast as the peer."""
        return self.ours.median / self.peer.median


def rate(units: int, seconds: list[float]) -> Rate:
    """Return the rate of `units` done in each of `seconds`."""
    rates = sorted(units / duration for duration in seconds)
    spread = 0.0
    if len(rates) > 1:
        low, _, high = statistics.quantiles(rates, n=4, method="inclusive")
        spread = (high - low) / statistics.median(rates)
    return Rate(statistics.median(rates), spread)


def compare(
    name: str,
    ours: Callable[[], int],
    peer: Callable[[], int],
    *,
    peer_name: str,
    unit: str = "items/s",
    goal: float | None = None,
    repeat: int = 5,
) -> Comparison:
    """Time two functions that return how many units they did."""
    times: tuple[list[float], list[float]] = ([], [])
    units = [0, 0]
    for _ in range(repeat):
        for index, run in enumerate((ours, peer)):
            gc.collect()
            start = time.perf_counter()
            units[index] = run()
            times[index].append(time.perf_counter() - start)
    return Comparison(name, unit, rate(units[0], times[0]), rate(units[1], times[1]), peer_name, goal)


async def compare_async(
    name: str,
    ours: Callable[[], Awaitable[tuple[int, float]]],
    peer: Callable[[], Awaitable[tuple[int, float]]],
    *,
    peer_name: str,
    unit: str = "items/s",
    goal: float | None = None,
    repeat: int = 5,
) -> Comparison:
    """Compare two coroutines that time themselves: each returns its units and its seconds."""
    times: tuple[list[float], list[float]] = ([], [])
    units = [0, 0]
    for _ in range(repeat):
        for index, run in enumerate((ours, peer)):
            gc.collect()
            units[index], seconds = await run()
            times[index].append(seconds)
    return Comparison(name, unit, rate(units[0], times[0]), rate(units[1], times[1]), peer_name, goal)
