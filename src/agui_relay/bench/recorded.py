"""The recorded runs that ship with the package: what agents do, as items in wire form, for measuring.

Made by scripted models through real Harness runs (see `record`); texts come from a grammar and a seed.
"""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("runs")
_ENDING = ".jsonl.gz"


def names() -> tuple[str, ...]:
    """Return the names of the runs.

    ``chat`` reasons and answers, ``coding`` streams arguments of up to 200 KB, ``research`` has five children at once,
    ``results`` has 5 MB of tool results.
    """
    return tuple(sorted(path.name.removesuffix(_ENDING) for path in FOLDER.glob(f"*{_ENDING}")))


def load(name: str) -> list[bytes]:
    """Return the items of a run, in wire form and in order; the last one is its terminal result.

    Raises:
        KeyError: there is no such run.

    """
    if name not in names():
        raise KeyError(f"there is no recorded run {name!r}, there are {', '.join(names())}")
    return gzip.decompress((FOLDER / f"{name}{_ENDING}").read_bytes()).splitlines()


def live(name: str) -> list[Any]:
    """Return the same run as live items of a13n-harness, by running its scripted agent again.

    Other ids and moments, all else as recorded. Needs the `harness` extra, and no event loop that runs; takes seconds.
    """
    from agui_relay.bench.record import run

    return asyncio.run(run(name))
