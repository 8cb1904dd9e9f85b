"""Small runs as wire items, made without any agent library."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from agui_relay.source import HarnessItem

_START = datetime(2026, 1, 1, tzinfo=UTC)


def item(
    sequence: int,
    event: dict[str, Any],
    *,
    run_id: str = "run-1",
    thread_id: str = "thread-1",
    source: str = "pydantic_ai",
) -> HarnessItem:
    """Make one item that carries an event."""
    return msgspec.convert(
        {
            "v": 1,
            "source": source,
            "thread_id": thread_id,
            "run_id": run_id,
            "sequence": sequence,
            "occurred_at": (_START + timedelta(milliseconds=sequence)).isoformat(),
            "event": msgspec.Raw(msgspec.json.encode(event)),
        },
        HarnessItem,
    )


def started(sequence: int, **ids: str) -> HarnessItem:
    """Make the item that a run begins with."""
    event = {"schema_version": "1", "kind": "lifecycle", "payload": {"type": "run_started"}}
    return item(sequence, event, source="harness", **ids)


def text_start(sequence: int, **ids: str) -> HarnessItem:
    """Make the item that opens a text part."""
    part = {"content": "", "id": None, "provider_name": None, "provider_details": None, "part_kind": "text"}
    return item(sequence, {"index": 0, "part": part, "event_kind": "part_start"}, **ids)


def text_delta(sequence: int, text: str, **ids: str) -> HarnessItem:
    """Make an item with a piece of text."""
    delta = {"content_delta": text, "provider_name": None, "provider_details": None, "part_delta_kind": "text"}
    return item(sequence, {"index": 0, "delta": delta, "event_kind": "part_delta"}, **ids)


def text_end(sequence: int, text: str, **ids: str) -> HarnessItem:
    """Make the item that closes a text part."""
    part = {"content": text, "id": None, "provider_name": None, "provider_details": None, "part_kind": "text"}
    return item(sequence, {"index": 0, "part": part, "next_part_kind": None, "event_kind": "part_end"}, **ids)


def custom(sequence: int, kind: str, data: Any, **ids: str) -> HarnessItem:
    """Make a capability event, which becomes a CUSTOM event."""
    return item(sequence, {"event_kind": "capability", "kind": kind, "data": data}, source="capability", **ids)


def result(
    sequence: int, status: str = "completed", *, run_id: str = "run-1", thread_id: str = "thread-1", **fields: Any
) -> HarnessItem:
    """Make a terminal item."""
    if status == "completed":
        fields.setdefault("output", "done")
    if status == "failed":
        fields.setdefault("failure", {"code": "boom", "message": "It broke.", "details": {}, "retry_hint": "none"})
    body = {"status": status, **fields}
    return msgspec.convert(
        {
            "v": 1,
            "source": "result",
            "thread_id": thread_id,
            "run_id": run_id,
            "sequence": sequence,
            "occurred_at": (_START + timedelta(milliseconds=sequence)).isoformat(),
            "result": msgspec.Raw(msgspec.json.encode(body)),
        },
        HarnessItem,
    )


def text_run(deltas: int, *, status: str = "completed", **ids: str) -> Iterator[HarnessItem]:
    """Make a whole run that says numbered words."""
    words = [f"w{number} " for number in range(deltas)]
    yield started(1, **ids)
    yield text_start(2, **ids)
    for number, word in enumerate(words):
        yield text_delta(3 + number, word, **ids)
    yield text_end(3 + deltas, "".join(words), **ids)
    yield result(4 + deltas, status, **ids)
