"""Projection, no server: item bytes to frame bytes, beside the reference's observe and dump, and beside the floor."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from agui_relay.bench.data import Run, runs
from agui_relay.bench.measure import Case, at_least, at_most, timed
from agui_relay.bench.peers import REFERENCE
from agui_relay.bench.session import Session, Step
from agui_relay.broker.drain import project_batch
from agui_relay.broker.scripts import Fetched
from agui_relay.projection.projector import Projector
from agui_relay.source import decode_item

BATCH = 256


def project(encoded: Sequence[bytes]) -> int:
    """Turn item bytes into frame bytes, in batches and with a continuation after each, as a worker does."""
    root = decode_item(encoded[0])
    projector = Projector(run_id=root.run_id, thread_id=root.thread_id)

    def restore() -> Projector:
        raise AssertionError("the projector is at hand")

    for start in range(0, len(encoded), BATCH):
        fetched = Fetched("items", cursor=start, items=encoded[start : start + BATCH])
        batch, projector = project_batch(fetched, restore, projector)
        if batch.rejected:
            raise RuntimeError(f"item {batch.rejected[0].ordinal} was rejected: {batch.rejected[0].error}")
        if projector.changed:
            projector.export()
    return len(encoded)


def reference_dump(reference: Any, items: Sequence[Any]) -> int:
    """Observe each live item and dump its events to JSON, by the reference."""
    observer = reference.HarnessAguiStreamObserver(retain_events=False)
    for item in items:
        for event in observer.observe(item):
            event.model_dump_json(by_alias=True)
    return len(items)


def floor(encoded: Sequence[bytes]) -> int:
    """Parse each item into objects and write these as JSON again, by msgspec: the floor."""
    decode, encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
    for data in encoded:
        encode(decode(data))
    return len(encoded)


async def beside_both(run: Run, session: Session) -> list[Case]:
    """Measure one run."""
    encoded = run.encoded()
    ours = timed(partial(project, encoded), at_least=session.at_least)
    missing = REFERENCE.missing
    peer = None
    if not missing:
        peer = timed(partial(reference_dump, REFERENCE.load(), await run.live()), at_least=session.at_least)
    return [
        await session.compare(
            f"{run.name}: item bytes to frame bytes",
            ours,
            peer,
            peer_name=f"{REFERENCE.distribution} observe + dump",
            goal=at_least(15),
            missing=missing,
        ),
        await session.compare(
            f"{run.name}: times the floor",
            ours,
            timed(partial(floor, encoded), at_least=session.at_least),
            peer_name="decode + encode alone",
            unit="µs an item",
            goal=at_most(2),
            value=lambda sample: sample.cost,
        ),
    ]


def steps(session: Session) -> list[Step]:
    """Return a step for each run."""
    return [Step(run.name, partial(beside_both, run)) for run in runs(session, session.size(5_000, 50))]
