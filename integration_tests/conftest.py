"""In which order the tests run: the chaos session takes minutes and begins first, so that others run beside it."""

from __future__ import annotations

import pytest

FIRST = "test_chaos.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the chaos session before all others, the same for every process of pytest-xdist."""
    items.sort(key=lambda item: item.path.name != FIRST)
