"""A small chaos session; `.ci/run` asks for a longer one. By hand: `python -m integration_tests.chaos`."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from integration_tests.chaos.driver import run_session

SEED = int(os.environ.get("AGUI_RELAY_TEST_SEED", str(secrets.randbelow(10**9))))
RUNS = int(os.environ.get("AGUI_RELAY_TEST_CHAOS_RUNS", "20"))
MINUTES = float(os.environ.get("AGUI_RELAY_TEST_CHAOS_MINUTES", "0.6"))
FAULTS_A_SECOND = 1.5


@pytest.mark.timeout(240 + 180 * MINUTES)
async def test_nothing_is_lost_doubled_or_hung(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    report = await run_session(
        seed=SEED, runs=RUNS, minutes=MINUTES, most_items=1000, faults_a_second=FAULTS_A_SECOND, directory=tmp_path
    )
    print(report.table())
    assert report.good
    # It was harmed, not only let be. The last runs begin before the time is over, and some faults take a second.
    assert report.faults.total() >= 60 * MINUTES * FAULTS_A_SECOND / 3
