"""Records the runs that are measured: ``python -m agui_relay.bench.record``.

Needs the `harness` extra. To be repeated when an agent in `record_agents`, the wire form or the Harness changes; a test
says so.
"""

from __future__ import annotations

import asyncio
import gzip
import sys

from a13n_harness.events import HarnessStreamEvent

from agui_relay.bench.record_agents import AGENTS
from agui_relay.bench.recorded import FOLDER
from agui_relay.demo.agent import live_items
from agui_relay.source import encode_item, from_harness

__all__ = ["run"]


async def run(name: str) -> list[HarnessStreamEvent[str]]:
    """Run the agent of this name; give its live items."""
    return [item async for item in live_items(AGENTS[name](), "Go on.")]


def main() -> None:
    """Replace the recordings of this installation."""
    for name in AGENTS:
        items = [encode_item(from_harness(item)) for item in asyncio.run(run(name))]
        path = FOLDER / f"{name}.jsonl.gz"
        path.write_bytes(gzip.compress(b"".join(item + b"\n" for item in items), mtime=0))
        sys.stdout.write(
            f"{path}: {len(items):,} items, {sum(map(len, items)):,} bytes, {path.stat().st_size:,} packed\n"
        )


if __name__ == "__main__":
    main()
