"""`python -m integration_tests.chaos --seed S --runs N --minutes M`: one session, and its table."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
from pathlib import Path

from integration_tests.chaos.driver import run_session


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m integration_tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**9))
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument(
        "--minutes", type=float, default=3.0, help="within which the runs begin; faults go on to the end"
    )
    parser.add_argument("--most-items", type=int, default=5000, help="of a run; at least 50")
    parser.add_argument("--readers", type=int, default=2, help="processes that read every run")
    parser.add_argument("--faults-a-second", type=float, default=2.0)
    parser.add_argument("--directory", type=Path, default=None, help="for logs and data, which are kept")
    options = parser.parse_args()
    if options.directory is not None:
        options.directory.mkdir(parents=True, exist_ok=True)
    print(f"seed {options.seed}", flush=True)
    report = asyncio.run(run_session(**vars(options)))
    print(report.table())
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
