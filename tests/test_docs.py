"""Every Python block of the README and of docs/ runs, in order, one page in one namespace."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
from redis.asyncio import Redis

from agui_relay import RelaySettings

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS = {name for name, field in RelaySettings.model_fields.items() if field.annotation is float}
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


def shown(default: object, name: str) -> str:
    """Write a default as the table does: bytes also in KiB or MiB, seconds with their unit."""
    if name.endswith("bytes"):
        assert isinstance(default, int)
        return f"{default} ({default >> 20} MiB)" if default >= 1 << 20 else f"{default} ({default >> 10} KiB)"
    return f"{default:g} s" if name in SECONDS else str(default)


def test_the_settings_are_the_ones_there_are() -> None:
    page = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    schema = RelaySettings.model_json_schema()
    rows = []
    for name, field in RelaySettings.model_fields.items():
        meaning = " ".join(schema["properties"][name]["description"].split())
        rows.append(f"| `{name}` | {shown(field.default, name)} | {meaning} |")
    assert [line for line in page.splitlines() if line.startswith("| `")] == rows


async def test_the_server_of_the_documentation_serves(tmp_path: Path) -> None:
    page = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    (block,) = (match[1] for match in BLOCK.finditer(page) if "EmbeddedRedis" in match[1])
    (tmp_path / "serve.py").write_text(block, encoding="utf-8")
    server = await asyncio.create_subprocess_exec(sys.executable, tmp_path / "serve.py", stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        url = (await server.stdout.readline()).decode().strip()
        assert url.startswith("redis://127.0.0.1:")
        async with Redis.from_url(url) as client:
            assert await client.ping()
    finally:
        server.terminate()
        await server.wait()
