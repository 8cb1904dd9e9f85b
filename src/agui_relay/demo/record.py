"""Records the demo's run: ``python -m agui_relay.demo.record``.

Needs the `harness` extra and a13n-stream-protocol. To be repeated when the script in `agent`, the wire form or the
Harness changes; a test says so.
"""

import asyncio
import gzip
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from a13n_harness.events import HarnessStreamEvent
from a13n_stream_protocol import HarnessAguiStreamObserver
from ag_ui.core import CustomEvent

from agui_relay.demo.agent import demo_agent, live_items
from agui_relay.demo.recording import EVENTS_NAME, ITEMS_NAME
from agui_relay.source import encode_item, from_harness

PACE = 0.045  # seconds between the chunks of the scripted model


async def record(*, pace: float = PACE) -> tuple[list[bytes], list[bytes]]:
    """Run the agent; give its items in wire form, and the events of the reference as JSON."""
    items = [item async for item in live_items(demo_agent(pace=pace))]
    return [encode_item(from_harness(item)) for item in items], reference_events(items)


def reference_events(items: Iterable[HarnessStreamEvent[str]]) -> list[bytes]:
    """Project live items with a13n-stream-protocol, fragments joined: JSON as it encoded each event."""
    observer = HarnessAguiStreamObserver()
    events: list[bytes] = []
    pieces: list[str] = []
    for item in items:
        for event in observer.observe(item):
            if not isinstance(event, CustomEvent) or event.name != "a13n.stream.fragment":
                events.append(event.model_dump_json(by_alias=True).encode())
                continue
            pieces.append(event.value["data"])
            if len(pieces) == event.value["count"]:
                events.append("".join(pieces).encode())
                pieces.clear()
    return events


def write(path: Path, lines: Sequence[bytes]) -> None:
    """Write JSON Lines, packed; the same bytes for the same lines."""
    path.write_bytes(gzip.compress(b"".join(line + b"\n" for line in lines), mtime=0))
    sys.stdout.write(f"{path}: {len(lines)} lines, {sum(map(len, lines)):,} bytes, {path.stat().st_size:,} packed\n")


def main() -> None:
    """Replace the recording of this installation."""
    items, events = asyncio.run(record())
    write(Path(__file__).with_name(ITEMS_NAME), items)
    write(Path(__file__).with_name(EVENTS_NAME), events)


if __name__ == "__main__":
    main()
