"""Run the benchmarks and print one table: `uv run python -m agui_relay.bench [projection] [worker] ...`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from agui_relay.bench import fanout, fold, latency, projection, publish, replay, worker
from agui_relay.bench.measure import Comparison

SUITES = {
    "projection": projection.run,
    "worker": worker.run,
    "publish": publish.run,
    "latency": latency.run,
    "replay": replay.run,
    "fold": fold.run,
    "fanout": fanout.run,
}


def main() -> None:
    """Run the suites that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m agui_relay.bench", description=__doc__)
    parser.add_argument("suites", nargs="*", choices=[*SUITES, []], metavar="suite", help=", ".join(SUITES))
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()

    rows: list[Comparison] = []
    for name in arguments.suites or SUITES:
        sys.stderr.write(f"{name} ...\n")
        rows += SUITES[name]()
    Console(width=140).print(_table(rows))
    if arguments.json:
        arguments.json.write_text(
            json.dumps([{**row._asdict(), "ratio": row.ratio, "cpus": os.cpu_count()} for row in rows], indent=1)
        )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _table(rows: list[Comparison]) -> Table:
    table = Table(title=f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}")
    for heading in ("case", "ours", "peer", "ratio", "goal"):
        table.add_column(heading, justify="left" if heading == "case" else "right")
    for row in rows:
        table.add_row(
            row.name,
            f"{_figure(row.ours.median)} {row.unit} ±{row.ours.spread:.0%}",
            f"{row.peer_name} {_figure(row.peer.median)} ±{row.peer.spread:.0%}",
            f"{row.ratio:.2f}",
            "" if row.goal is None else f"{row.goal:g}",
        )
    return table


if __name__ == "__main__":
    main()
