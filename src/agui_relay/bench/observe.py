"""The library, no server: live items to typed events, beside the reference's observe."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from agui_relay.bench.data import Run, harness_missing, runs
from agui_relay.bench.measure import Case, at_least, timed
from agui_relay.bench.peers import REFERENCE
from agui_relay.bench.session import Session, Step
from agui_relay.projection.observer import HarnessAguiStreamObserver

GOALS = {"text deltas": 6, "argument deltas": 8}
"""Of the made runs; no recorded one is to be slower than the reference."""


def observe(kind: Any, items: Sequence[Any]) -> int:
    """Turn live items into typed events; `kind` is either observer."""
    observer = kind(retain_events=False)
    for item in items:
        observer.observe(item)
    return len(items)


async def beside_reference(run: Run, session: Session) -> list[Case]:
    """Measure one run."""
    name, goal = f"{run.name}: live item to typed events", at_least(GOALS.get(run.name, 1))
    if missing := harness_missing():
        return [Case(name, "items/s", None, f"{REFERENCE.distribution} observe", None, goal, missing)]
    items = await run.live()
    missing = REFERENCE.missing
    peer = None
    if not missing:
        kind = REFERENCE.load().HarnessAguiStreamObserver
        peer = timed(partial(observe, kind, items), at_least=session.at_least)
    ours = timed(partial(observe, HarnessAguiStreamObserver, items), at_least=session.at_least)
    return [
        await session.compare(
            name, ours, peer, peer_name=f"{REFERENCE.distribution} observe", goal=goal, missing=missing
        )
    ]


def steps(session: Session) -> list[Step]:
    """Return a step for each run."""
    return [Step(run.name, partial(beside_reference, run)) for run in runs(session, session.size(2_000, 50))]
