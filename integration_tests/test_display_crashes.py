"""Displays that workers make while they are killed: whoever comes, whenever, ends with the fold of all events.

In the view `full` the items are equal to those of the fold of all frames, in everything, once the reader counts frames
as well: it is given whole events, but knows their positions. In `chat`, where positions say nothing of how many frames
are shown, they are equal in everything but stream ids, and the ids of observations, which are made of these.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from agui_relay.broker.keys import RunKeys
from agui_relay.broker.worker import create_worker
from agui_relay.display import DisplayFold
from agui_relay.embedded import EmbeddedRedis
from agui_relay.projection.observer import HarnessAguiStreamObserver
from agui_relay.relay import Relay
from agui_relay.source import HarnessItem
from integration_tests import items
from integration_tests.displays import Screen, items_of
from integration_tests.processes import Fleet
from integration_tests.test_views import belongs
from integration_tests.test_worker import projection, running
from integration_tests.waiting import eventually

SEED = int(os.environ.get("AGUI_RELAY_TEST_SEED", str(secrets.randbelow(10**9))))
KEYS = RunKeys("agui", "run-1")
SMALL = {
    "AGUI_RELAY_FRAME_LOG_BYTES": "60000",
    "AGUI_RELAY_DISPLAY_TAIL_BYTES": "20000",
    "AGUI_RELAY_CLAIM_IDLE": "0.3",
    "AGUI_RELAY_BATCH_ITEMS": "64",
}


def conversation(messages: int, chance: random.Random, deltas: int = 60) -> Iterator[HarnessItem]:
    """Make a run of many messages, with an observation now and then, of which some are fragmented."""
    sequence = iter(range(1, 1 << 30))
    yield items.started(next(sequence))
    for number in range(messages):
        words = [f"{number}.{word} " + "é" * chance.randrange(12) for word in range(chance.randrange(1, deltas))]
        yield items.text_start(next(sequence))
        for word in words:
            yield items.text_delta(next(sequence), word)
        yield items.text_end(next(sequence), "".join(words))
        if number % 5 == 0:
            size = 70_000 if number % 20 == 0 else 500
            yield items.custom(next(sequence), "demo.document", {"number": number, "text": "字" * (size // 3)})
    yield items.result(next(sequence))


def folded(events: Sequence[dict[str, Any]]) -> DisplayFold:
    fold = DisplayFold("run-1")
    fold.fold(events)
    return fold


def frames(run: Sequence[HarnessItem]) -> list[dict[str, Any]]:
    """Return the frames that the library gives for the items."""
    observer = HarnessAguiStreamObserver(retain_events=False)
    return [event.model_dump(mode="json", by_alias=True) for item in run for event in observer.observe(item)]


async def watch(relay: Relay, start: str, view: str, chance: random.Random, *, slow: bool, restless: bool) -> Screen:
    """Read to the end: with rests in which the log goes on, or as one who leaves and resumes."""
    screen, cursor = Screen(), None
    while True:
        async with relay.subscribe("run-1", after=cursor, start=start, view=view) as subscription:
            async for item in subscription:
                screen.take(item)
                cursor = item.cursor
                if slow and chance.random() < 0.001:
                    await asyncio.sleep(chance.uniform(0.3, 1.2))
                if restless and chance.random() < 0.003:
                    break
            else:
                assert subscription.outcome == "finished"
                return screen
        screen.leave()
        await asyncio.sleep(chance.uniform(0, 0.3))


@pytest.mark.timeout(120)
async def test_workers_that_are_killed_while_they_make_displays() -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    run = list(conversation(120, chance))
    async with EmbeddedRedis() as server, Relay(server.url) as relay:
        with Fleet(server.url, 2, environment=SMALL) as fleet:
            readers: list[tuple[str, str, asyncio.Task[Screen]]] = []

            def join(start: str, view: str, *, slow: bool = False, restless: bool = False) -> None:
                own = random.Random(chance.random())
                task = asyncio.create_task(watch(relay, start, view, own, slow=slow, restless=restless))
                readers.append((start, view, task))

            join("log", "full")
            async with relay.publisher("run-1", thread_id="thread-1") as publisher:
                for number, item in enumerate(run):
                    await publisher.publish(item)
                    if number % 100 == 0:
                        await asyncio.sleep(0.06)
                    if number % 300 == 299:
                        start, view = chance.choice(["log", "display"]), chance.choice(["full", "full", "chat"])
                        join(start, view, slow=chance.random() < 0.4, restless=chance.random() < 0.4)
                    if number % 600 == 599:
                        fleet.kill_one(chance)
                        fleet.fill()
            # The last to come find much of it trimmed.
            await eventually(lambda: _covers(relay, 1500), within=30)
            fleet.kill_one(chance)
            fleet.fill()
            for start, view in (("display", "full"), ("display", "chat"), ("log", "full"), ("log", "chat")):
                join(start, view)
            async with asyncio.timeout(60):
                screens = [(start, view, await task) for start, view, task in readers]
        full = folded(frames(run))
        chat = folded([event for event in projection(run) if belongs(event)])
        for start, view, screen in screens:
            what = (start, view, screen.checkpoints, screen.notices)
            assert screen.items == items_of(full if view == "full" else chat), what
            assert view != "full" or screen.fold.export() == full.export(), what
        # It was what it was meant to be.
        info = await relay.run("run-1")
        covered = await relay.client.hget(KEYS.state, "covered")
        oldest, _ = (await relay.client.xrange(KEYS.frames, count=1))[0]
    assert info is not None
    assert (info.rejected, info.status) == (0, "finished")
    assert 1 < int(oldest.split(b"-")[0]) <= int(covered) + 1 <= info.frames + 1
    assert all(screen.checkpoints[0] > 0 for _, _, screen in screens[-4:])
    assert all(screen.notices[0][0] == 1 for _, _, screen in screens[-2:])


async def _covers(relay: Relay, position: int) -> bool:
    return int(await relay.client.hget(KEYS.state, "covered") or 0) > position


async def test_a_long_run_begins_with_little(redis_url: str) -> None:
    """A tenth of a run of 100,000 text items, within a tenth of the 2 MB that such a run may take."""
    settings = {"frame_log_bytes": 400_000, "display_tail_bytes": 50_000}
    given, events = await begin_late(redis_url, 10_000, **settings)
    assert given < 200_000 < events / 5


async def begin_late(url: str, deltas: int, **settings: int) -> tuple[int, int]:
    """Publish a run of so many text items; return the bytes that a late reader is given, and those of all events."""
    run = [items.started(1)]
    for number in range(deltas // 100):
        at = 2 + 102 * number
        words = [f"w{number}.{word} " for word in range(100)]
        run.append(items.text_start(at))
        run += [items.text_delta(at + 1 + index, word) for index, word in enumerate(words)]
        run.append(items.text_end(at + 101, "".join(words)))
    run.append(items.result(2 + 102 * (deltas // 100)))
    async with Relay(url) as relay:
        relay.settings = relay.settings.model_copy(update=settings)
        async with running(create_worker(relay)):
            async with relay.publisher("run-1", thread_id="thread-1") as publisher:
                for item in run:
                    await publisher.publish(item)
            async with relay.subscribe("run-1", start="display") as subscription:
                # Whoever is the first may come before the last checkpoint.
                first = await Screen().follow(subscription)
            async with relay.subscribe("run-1", start="display") as subscription:
                late = await Screen().follow(subscription)
    events = projection(run)
    assert first.items == late.items == items_of(folded(events))
    return late.bytes, sum(len(json.dumps(event)) for event in events)
