"""Loads the cases in `tests/cases`: what goes in as items, and which events must come out.

A case is behaviour as data, so that everything that claims to project can be held to it: the library, the
worker through Redis, a reader in another language. Its file holds

- `items`: items in their wire form, in order;
- `events`: the AG-UI events that they give, reassembled;
- `refused`, if any: the places of the items that are refused, counted from 0; the run goes on behind them;
- `delivered`, if it differs: the events that a relay delivers, which stores an item only once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class Case:
    name: str
    description: str
    items: list[dict[str, Any]]
    events: list[dict[str, Any]]
    refused: frozenset[int]
    delivered: list[dict[str, Any]]

    @property
    def run_id(self) -> str:
        """The root run, which says the first item."""
        return str(self.items[0]["run_id"])

    @property
    def thread_id(self) -> str:
        return str(self.items[0]["thread_id"])

    def encoded(self) -> list[bytes]:
        """Return each item as some JSON writer would send it, not as ours does."""
        return [json.dumps(item).encode() for item in self.items]


def load_cases() -> list[Case]:
    """Return all cases, by name."""
    return [_load(path) for path in sorted(FOLDER.glob("*.json"))]


def _load(path: Path) -> Case:
    content = json.loads(path.read_text(encoding="utf-8"))
    unknown = content.keys() - {"name", "description", "items", "events", "refused", "delivered"}
    if unknown or content["name"] != path.stem:
        raise ValueError(f"{path.name}: expected the case {path.stem!r} and no other keys, got {sorted(unknown)}")
    return Case(
        name=content["name"],
        description=content["description"],
        items=content["items"],
        events=content["events"],
        refused=frozenset(content.get("refused", ())),
        delivered=content.get("delivered", content["events"]),
    )
