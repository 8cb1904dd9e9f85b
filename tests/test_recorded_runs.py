"""The recorded runs that speed is measured on: they are what they say, project, and can be made again."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from agui_relay.bench import recorded
from agui_relay.events import encode_event
from agui_relay.projection.projector import Projector
from agui_relay.source import decode_item, encode_item, from_harness
from agui_relay.source.items import canonical_item

_DRAWN = re.compile(
    r"[0-9a-f]{32}|[0-9a-f]{24}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r'|(?<=delegation-)[\w-]{12}|(?<=agent-)[\w-]{16}|-[0-9a-f]{4}(?=")'
)


def shape(lines: list[bytes]) -> list[str]:
    """Keep what does not change from run to run: all but ids that are drawn, moments, and which child is faster."""
    text = b"\n".join(lines).decode()
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(\+00:00|Z)", "<moment>", text)
    text = re.sub(r'"timestamp":\d+', '"timestamp":0', text)
    if '"inline_delegation"' in text:
        text = re.sub(r'"sequence":\d+', '"sequence":0', text)
        return sorted(_DRAWN.sub("<id>", text).split("\n"))
    known: dict[str, str] = {}
    return _DRAWN.sub(lambda match: known.setdefault(match[0], f"<{len(known)}>"), text).split("\n")


@pytest.mark.parametrize("name", recorded.names())
def test_a_run_is_canonical_and_projects_to_its_end(name: str) -> None:
    items = recorded.load(name)
    assert 3_000 < len(items) <= 10_000
    first = decode_item(items[0])
    projector = Projector(run_id=first.run_id, thread_id=first.thread_id)
    for data in items[:-1]:
        item, canonical = canonical_item(data)
        assert canonical == data
        assert item.terminal is None
        projector.project(item)
    last = decode_item(items[-1])
    assert last.terminal == "finished"
    assert encode_event(projector.project(last)[-1]).startswith(b'{"type":"RUN_FINISHED"')


@pytest.mark.parametrize("name", recorded.names())
def test_a_run_has_no_media_in_it(name: str) -> None:
    for data in recorded.load(name):
        assert b"base64" not in data
        assert b"data:" not in data
        assert not re.search(rb"[A-Za-z0-9+/]{512}", data)


def test_the_runs_are_what_their_names_say() -> None:
    assert recorded.names() == ("chat", "coding", "research", "results")
    kinds: dict[str, Counter[str]] = {}
    sizes: dict[str, Counter[str]] = {}
    for name in recorded.names():
        kinds[name], sizes[name] = Counter(), Counter()
        for data in recorded.load(name):
            event = json.loads(data).get("event", {})
            kind = event.get("event_kind", event.get("kind", "result"))
            if kind == "part_delta":
                kind = event["delta"]["part_delta_kind"]
            kinds[name][kind] += 1
            sizes[name][kind] = max(sizes[name][kind], len(data))
    assert min(kinds["chat"]["text"], kinds["chat"]["thinking"]) > 2_000
    assert kinds["coding"]["tool_call"] > 8_000
    assert sizes["coding"]["part_end"] > 150_000
    assert sizes["coding"]["function_tool_result"] > 50_000
    assert sizes["results"]["function_tool_result"] > 1_000_000
    assert len({decode_item(data).run_id for data in recorded.load("research")}) == 1 + 5
    results = [data for data in recorded.load("results") if b'"event_kind":"function_tool_result"' in data]
    assert sum(map(len, results)) > 5_000_000


def test_the_runs_are_small_in_the_package() -> None:
    assert sum(path.stat().st_size for path in Path(recorded.FOLDER).iterdir()) < 1_500_000


def test_a_run_that_does_not_exist_is_named() -> None:
    with pytest.raises(KeyError, match="'chess', there are chat, coding"):
        recorded.load("chess")


@pytest.mark.parametrize("name", recorded.names())
def test_a_run_can_be_made_again(name: str) -> None:
    again = [encode_item(from_harness(item)) for item in recorded.live(name)]
    # Not compared by pytest: what differs in megabytes would take it minutes to show.
    for number, (got, expected) in enumerate(zip(shape(again), shape(recorded.load(name)), strict=True)):
        if got != expected:
            pytest.fail(f"item {number} of {name} is another one now: {got[:400]} instead of {expected[:400]}")
