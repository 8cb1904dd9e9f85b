"""Every Python block of the README and of docs/ runs, in order, one page in one namespace."""

from __future__ import annotations

import asyncio
import re
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")

by_name = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@by_name
def test_blocks_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page.read_text(encoding="utf-8")
    module = types.ModuleType(f"docs_{page.stem.replace('-', '_')}")
    # Dataclasses and pydantic look the module of a class up.
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        # A block may await, as it could inside of an application.
        code = compile("\n" * line + match[1], str(page), "exec", flags=0x2000, dont_inherit=True)
        coroutine = eval(code, module.__dict__)
        if coroutine is not None:
            asyncio.run(coroutine)


@by_name
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), target


def test_there_are_blocks_to_run() -> None:
    assert sum(len(BLOCK.findall(page.read_text(encoding="utf-8"))) for page in PAGES) >= 10


def test_each_difference_names_a_test_that_exists() -> None:
    named = re.findall(r"`(test_\w+|tests/[\w/.-]+)`", (ROOT / "docs/compatibility.md").read_text(encoding="utf-8"))
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 15
    for name in named:
        assert (ROOT / name).exists() if "/" in name else f"def {name}(" in sources, name
