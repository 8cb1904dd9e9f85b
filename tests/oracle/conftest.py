"""Says after a run how much was compared, from which seed, and what was excused by name."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.oracle.compare import COUNTS, SEED

_PROPERTY = "oracle"


@pytest.fixture(autouse=True)
def _count(record_property: Any) -> Iterator[None]:
    """Give each test's counts to its report, which also travels between processes."""
    before = COUNTS.copy()
    yield
    if counted := COUNTS - before:
        record_property(_PROPERTY, json.dumps(counted))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    total: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == _PROPERTY and getattr(report, "when", "") == "teardown":
                    total.update(json.loads(value))
    if total:
        terminalreporter.section("compared with the reference")
        terminalreporter.line(f"AGUI_RELAY_TEST_SEED={SEED}")
        for name, count in sorted(total.items()):
            terminalreporter.line(f"{count:9,} {name}")
