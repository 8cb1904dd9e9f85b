"""The recorded run that ships with the package: its items, their pace, and the projection they must give.

The events were written by a13n-stream-protocol from the live items (see `record`), not by this package: playing them
is a comparison with somebody else's answer.
"""

import gzip
from datetime import datetime
from importlib.resources import files

import msgspec

ITEMS_NAME = "items.jsonl.gz"
EVENTS_NAME = "events.jsonl.gz"

_LONGEST_PAUSE = 0.4  # seconds; nobody wants to watch an agent think


class Recording(msgspec.Struct, frozen=True):
    """One run, item by item."""

    run_id: str
    thread_id: str
    items: tuple[bytes, ...]
    """In wire form."""
    pauses: tuple[float, ...]
    """Seconds to wait before each item."""
    events: tuple[bytes, ...]
    """The projection: complete AG-UI events as JSON, in order."""


class _Envelope(msgspec.Struct):
    run_id: str
    thread_id: str
    occurred_at: str


def load_recording() -> Recording:
    """Read the recording from the package."""
    items = _read_lines(ITEMS_NAME)
    envelopes = [msgspec.json.decode(item, type=_Envelope) for item in items]
    moments = [datetime.fromisoformat(envelope.occurred_at) for envelope in envelopes]
    pauses = [
        min(max((moment - before).total_seconds(), 0.0), _LONGEST_PAUSE)
        for before, moment in zip(moments[:1] + moments, moments, strict=False)
    ]
    return Recording(
        run_id=envelopes[0].run_id,
        thread_id=envelopes[0].thread_id,
        items=items,
        pauses=tuple(pauses),
        events=_read_lines(EVENTS_NAME),
    )


def _read_lines(name: str) -> tuple[bytes, ...]:
    return tuple(gzip.decompress(files(__package__).joinpath(name).read_bytes()).splitlines())
