"""A small chaos session; a large one is run by hand, with `python -m integration_tests.chaos`."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from integration_tests.chaos.driver import run_session

SEED = int(os.environ.get("AGUI_RELAY_SEED", str(secrets.randbelow(10**9))))
RUNS = int(os.environ.get("AGUI_RELAY_CHAOS_RUNS", "20"))
MINUTES = float(os.environ.get("AGUI_RELAY_CHAOS_MINUTES", "0.6"))


@pytest.mark.timeout(240 + 180 * MINUTES)
async def test_nothing_is_lost_doubled_or_hung(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    report = await run_session(
        seed=SEED, runs=RUNS, minutes=MINUTES, most_items=1000, faults_a_second=1.5, directory=tmp_path
    )
    print(report.table())
    assert report.good
