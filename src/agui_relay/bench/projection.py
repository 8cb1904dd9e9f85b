"""Projection, no server: item bytes to frame bytes, and live items to typed events, beside the reference's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from a13n_stream_protocol import HarnessAguiStreamObserver as Reference

from agui_relay.bench.data import arguments_run, text_run
from agui_relay.bench.measure import Comparison, compare
from agui_relay.broker.drain import project_batch
from agui_relay.broker.scripts import Fetched
from agui_relay.projection.observer import HarnessAguiStreamObserver
from agui_relay.projection.projector import Projector
from agui_relay.source import encode_item, from_harness

BATCH = 256


def reference_dump(items: Sequence[Any]) -> int:
    """Observe each live item and dump its events to JSON, by the reference."""
    observer = Reference(retain_events=False)
    for item in items:
        for event in observer.observe(item):
            event.model_dump_json(by_alias=True)
    return len(items)


def reference_observe(items: Sequence[Any]) -> int:
    """Turn live items into typed events, by the reference."""
    observer = Reference(retain_events=False)
    for item in items:
        observer.observe(item)
    return len(items)


def observe(items: Sequence[Any]) -> int:
    """Ours: live items to typed events."""
    observer = HarnessAguiStreamObserver(retain_events=False)
    for item in items:
        observer.observe(item)
    return len(items)


def project(encoded: Sequence[bytes]) -> int:
    """Ours: item bytes to frame bytes, in batches, with the continuation of each written and restored."""
    continuation = b""
    for start in range(0, len(encoded), BATCH):

        def restore(saved: bytes = continuation) -> Projector:
            return Projector.restore(saved) if saved else Projector(run_id="run-1", thread_id="thread-1")

        fetched = Fetched("items", items=encoded[start : start + BATCH])
        batch, projector = project_batch(fetched, restore, None)
        assert not batch.rejected, batch.rejected[0]
        continuation = projector.export()
    return len(encoded)


def floor(encoded: Sequence[bytes]) -> int:
    """Parse each item into objects and write these as JSON again, by msgspec: the floor."""
    decode, encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
    for data in encoded:
        encode(decode(data))
    return len(encoded)


def run() -> list[Comparison]:
    """Measure text and argument deltas."""
    rows: list[Comparison] = []
    for name, live, typed_goal in (
        ("text deltas", list(text_run(10_000)), 6),
        ("argument deltas", list(arguments_run(10_000)), 8),
    ):
        few = live[:2_000]
        encoded = [encode_item(from_harness(item)) for item in live]

        def bound(function: Callable[[Sequence[Any]], int], data: Sequence[Any]) -> Callable[[], int]:
            return lambda: function(data)

        rows.append(
            compare(
                f"{name}: item bytes to frame bytes",
                bound(project, encoded),
                bound(reference_dump, few),
                peer_name="reference observe + dump",
                goal=15,
            )
        )
        rows.append(
            compare(
                f"{name}: item bytes to frame bytes, against the floor",
                bound(project, encoded),
                bound(floor, encoded),
                peer_name="decode + encode alone",
                goal=0.5,
            )
        )
        rows.append(
            compare(
                f"{name}: live item to typed events",
                bound(observe, few),
                bound(reference_observe, few),
                peer_name="reference observe",
                goal=typed_goal,
            )
        )
    return rows
