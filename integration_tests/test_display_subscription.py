"""Subscriptions that begin with a run's display, and those that are given it for what was trimmed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agui_relay.broker.announcement import Cursor
from agui_relay.broker.errors import RunNotFound
from agui_relay.broker.keys import RunKeys
from agui_relay.broker.packed import pack
from agui_relay.broker.settings import RelaySettings
from agui_relay.broker.subscription import Delivery, DisplayCheckpoint, GapNotice
from agui_relay.cli import main
from agui_relay.display import DisplayFold
from agui_relay.projection.errors import ContinuationError
from agui_relay.relay import Relay
from integration_tests.cluster import Cluster
from integration_tests.displays import Screen, folded, items_of, message, observation, store
from integration_tests.frames import FrameWriter
from integration_tests.proxy import Proxy
from integration_tests.waiting import eventually

KEYS = RunKeys("agui", "run-1")
SETTINGS = RelaySettings(subscription_lease=1.2)


@pytest.fixture
async def relay(redis_url: str) -> AsyncIterator[Relay]:
    async with Relay(redis_url, settings=SETTINGS) as relay:
        yield relay


@pytest.fixture
def writer(relay: Relay) -> FrameWriter:
    return FrameWriter(relay.scripts, KEYS)


async def calls(relay: Relay, command: str) -> int:
    stats = await relay.client.info("commandstats")
    return int(stats.get(f"cmdstat_{command}", {}).get("calls", 0))


# -- where a reader begins ---------------------------------------------------------------------------------------------


async def test_the_checkpoint_comes_first_and_then_what_follows_it(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    await writer.commit(*message(1), *message(2))
    await store(relay.scripts, writer, 7)
    async with relay.subscribe("run-1", start="display") as subscription:
        first = await anext(subscription)
        assert isinstance(first, DisplayCheckpoint)
        assert (first.position, first.cursor) == (7, f"{writer.epoch}:7")
        # Of the second message the start and one delta: it is still open.
        assert [item.state for item in first.snapshot.items] == ["completed", "in_progress"]
        assert first.snapshot is first.snapshot
        assert first.snapshot.model_dump_json().encode() == first.data
        screen = Screen()
        screen.take(first)
        reading = asyncio.create_task(screen.follow(subscription))
        await writer.commit(*message(3))
        await writer.commit(outcome="finished")
        await reading
        assert screen.events == writer.events[7:]
        assert screen.items == folded(writer.events)
        assert (subscription.delivered, subscription.repaired, subscription.outcome) == (8, 0, "finished")


async def test_the_checkpoint_and_what_follows_are_the_fold_of_all_frames_to_the_byte(
    relay: Relay, writer: FrameWriter
) -> None:
    await writer.open()
    for number in range(4):
        await writer.commit(*message(number))
        await store(relay.scripts, writer, 5 * number + 3)
    await writer.commit(outcome="finished")
    whole = DisplayFold("run-1")
    whole.fold_frames(writer.events)
    async with relay.subscribe("run-1", start="display") as subscription:
        screen = await Screen().follow(subscription)
    assert screen.checkpoints == [18]
    assert screen.fold.export() == whole.export()


async def test_without_a_checkpoint_the_empty_one_comes_first(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    await writer.commit(*message(1), outcome="failed")
    async with relay.subscribe("run-1", start="display") as subscription:
        first = await anext(subscription)
        assert isinstance(first, DisplayCheckpoint)
        assert (first.position, first.cursor, subscription.cursor) == (0, f"{writer.epoch}:0", f"{writer.epoch}:0")
        assert first.snapshot == DisplayFold("run-1").export()
        assert first.data == first.snapshot.model_dump_json().encode()
        screen = await Screen().follow(subscription)
    assert screen.events == writer.events
    assert subscription.outcome == "failed"


@pytest.mark.parametrize("view", ["full", "chat"])
@pytest.mark.parametrize("stored", [0, 20])
async def test_a_late_reader_begins_at_the_head(relay: Relay, writer: FrameWriter, view: str, stored: int) -> None:
    """Of more frames behind what is stored than are given as they are, it is given the display."""
    await writer.open()
    written: list[bytes] = []
    for number in range(100):
        await writer.commit(*(events := list(message(number, deltas=18, size=400))))
        written += events
        await writer.commit(observation(number), hidden=True)
        if number == stored - 1:
            await store(relay.scripts, writer, writer.position)
    heads = [writer.position]
    async with asyncio.timeout(30), relay.subscribe("run-1", start="display", view=view) as one:
        first = await anext(one)
        assert isinstance(first, DisplayCheckpoint)
        # A second one, later: what was folded for the first is gone on with.
        await writer.commit(*(events := list(message(100))))
        written += events
        heads.append(writer.position)
        before = await calls(relay, "xrange")
        async with relay.subscribe("run-1", start="display", view=view) as two:
            second = await anext(two)
            assert isinstance(second, DisplayCheckpoint)
            assert await calls(relay, "xrange") - before < 10
            assert [first.position, second.position] == heads
            await writer.commit(*(events := list(message(101))), outcome="finished")
            written += events
            screens = [Screen(), Screen()]
            screens[0].take(first)
            screens[1].take(second)
            await screens[0].follow(one)
            await screens[1].follow(two)
    for screen in screens:
        assert screen.items == folded(writer.events if view == "full" else written)
    assert [len(screen.events) for screen in screens] == [10, 5]
    if view == "full":
        whole = DisplayFold("run-1")
        whole.fold_frames(writer.events)
        assert [screen.fold.export() == whole.export() for screen in screens] == [True, True]


async def test_a_late_reader_of_frames_that_cannot_be_folded_begins_with_what_is_stored(
    relay: Relay, writer: FrameWriter
) -> None:
    await writer.open()
    for number in range(40):
        await writer.commit(*message(number, deltas=48, size=400))
        if number == 2:
            await store(relay.scripts, writer, writer.position)
    await writer.commit(outcome="finished")
    await relay.client.xdel(KEYS.frames, "1000-0")
    async with asyncio.timeout(30), relay.subscribe("run-1", start="display") as subscription:
        given = [item async for item in subscription]
    assert [item.position for item in given if isinstance(item, DisplayCheckpoint)] == [150]
    assert [(item.first, item.last) for item in given if isinstance(item, GapNotice)] == [(1000, 1000)]
    assert [item.data for item in given if isinstance(item, Delivery)] == writer.events[150:999] + writer.events[1000:]


async def test_a_late_reader_that_is_cancelled_costs_the_next_one_nothing(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    for number in range(40):
        await writer.commit(*message(number, deltas=48, size=400))

    async def begin() -> Screen:
        screen = Screen()
        async with relay.subscribe("run-1", start="display") as subscription:
            screen.take(await anext(subscription))
        return screen

    async with relay.subscribe("run-1") as steady:
        for steps in range(0, 120, 3):
            begun = asyncio.create_task(begin())
            for _ in range(steps):
                await asyncio.sleep(0)
            begun.cancel()
            await asyncio.gather(begun, return_exceptions=True)
            await writer.commit(*message(100 + steps))
        screen = await begin()
        await writer.commit(outcome="finished")
        assert screen.checkpoints[0] > 2000
        assert screen.items == folded(writer.events[: screen.checkpoints[0]])
        assert [item.data async for item in steady if isinstance(item, Delivery)] == writer.events


async def test_a_reader_that_was_there_first_begins_with_the_empty_checkpoint(
    relay: Relay, writer: FrameWriter
) -> None:
    async with relay.subscribe("run-1", start="display") as subscription:
        assert subscription.cursor is None
        reading = asyncio.create_task(Screen().follow(subscription))
        await writer.open()
        for number in range(10):
            await writer.commit(*message(number))
        await writer.commit(outcome="finished")
        screen = await reading
    assert screen.checkpoints == [0]
    assert screen.events == writer.events


async def test_a_run_that_nobody_opens_is_not_found(relay: Relay) -> None:
    async with relay.subscribe("run-1", start="display", wait_for_run=0.2) as subscription:
        with pytest.raises(RunNotFound):
            await anext(subscription)


async def test_an_ended_run_that_is_covered_whole_is_its_checkpoint(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    await writer.commit(*message(1), outcome="finished")
    await store(relay.scripts, writer, 5)
    async with relay.subscribe("run-1", start="display") as subscription:
        screen = await Screen().follow(subscription)
    assert (screen.checkpoints, screen.events, screen.items) == ([5], [], folded(writer.events))
    assert (subscription.cursor, subscription.outcome) == (f"{writer.epoch}:5", "finished")


async def test_frames_that_a_checkpoint_covers_and_the_log_holds_are_left_out(
    relay: Relay, writer: FrameWriter
) -> None:
    await writer.open()
    await writer.commit(*message(1), outcome="finished")
    await store(relay.scripts, writer, 3, keep=True)
    async with relay.subscribe("run-1", start="display") as subscription:
        screen = await Screen().follow(subscription)
    assert (screen.checkpoints, screen.events, screen.notices) == ([3], writer.events[3:], [])
    async with relay.subscribe("run-1") as subscription:
        screen = await Screen().follow(subscription)
    assert (screen.checkpoints, screen.events, screen.notices) == ([], writer.events, [])


async def test_malformed_arguments_are_refused_at_once(relay: Relay) -> None:
    with pytest.raises(ValueError, match=r"log, display, got 'here'"):
        relay.subscribe("run-1", start="here")


async def test_a_checkpoint_that_cannot_be_read_is_told_to_who_reads_it(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    await writer.commit(*message(1), outcome="finished")
    await store(relay.scripts, writer, 3)
    await relay.client.hset(KEYS.display, "full", pack(b'{"items":[],"continuation":{"version":99}}'))
    async with relay.subscribe("run-1", start="display") as subscription:
        first, *rest = [item async for item in subscription]
    assert isinstance(first, DisplayCheckpoint)
    with pytest.raises(ContinuationError, match="version 99"):
        _ = first.snapshot
    assert [item.data for item in rest if isinstance(item, Delivery)] == writer.events[3:]


async def test_a_damaged_checkpoint_is_as_good_as_none(
    relay: Relay, writer: FrameWriter, caplog: pytest.LogCaptureFixture
) -> None:
    await writer.open()
    await writer.commit(*message(1), outcome="finished")
    await store(relay.scripts, writer, 3, keep=True)
    await relay.client.hset(KEYS.display, "full", b"damaged")
    async with relay.subscribe("run-1", start="display") as subscription:
        screen = await Screen().follow(subscription)
    assert (screen.checkpoints, screen.events) == ([0], writer.events)
    assert "display checkpoint cannot be read" in caplog.text


# -- resuming, gaps ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["log", "display"])
async def test_a_cursor_wins_as_long_as_the_log_holds_what_follows_it(
    relay: Relay, writer: FrameWriter, start: str
) -> None:
    await writer.open()
    await writer.commit(*message(1), *message(2), outcome="finished")
    await store(relay.scripts, writer, 5)
    for position in (5, 7, 10):
        async with relay.subscribe("run-1", after=f"{writer.epoch}:{position}", start=start) as subscription:
            screen = await Screen().follow(subscription)
        assert (screen.checkpoints, screen.notices, screen.events) == ([], [], writer.events[position:])


@pytest.mark.parametrize("start", ["log", "display"])
@pytest.mark.parametrize("position", [0, 1, 4])
async def test_a_cursor_whose_next_frames_are_gone_leads_to_the_checkpoint(
    relay: Relay, writer: FrameWriter, start: str, position: int
) -> None:
    await writer.open()
    await writer.commit(*message(1), *message(2), outcome="finished")
    await store(relay.scripts, writer, 5)
    async with relay.subscribe("run-1", after=f"{writer.epoch}:{position}", start=start) as subscription:
        notice = await anext(subscription)
        assert notice == GapNotice(position + 1, 5, cursor=f"{writer.epoch}:{position}")
        assert subscription.cursor == notice.cursor
        checkpoint = await anext(subscription)
        assert isinstance(checkpoint, DisplayCheckpoint)
        assert subscription.cursor == checkpoint.cursor == f"{writer.epoch}:5"
        screen = Screen()
        screen.take(checkpoint)
        await screen.follow(subscription)
    assert screen.items == folded(writer.events)


async def test_a_late_reader_of_a_trimmed_log_is_given_the_checkpoint(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    await writer.commit(*message(1), *message(2), *message(3), outcome="finished")
    await store(relay.scripts, writer, 8)
    async with relay.subscribe("run-1") as subscription:
        screen = await Screen().follow(subscription)
    assert (screen.notices, screen.checkpoints, screen.events) == ([(1, 8)], [8], writer.events[8:])
    assert screen.items == folded(writer.events)


@pytest.mark.parametrize("start", ["log", "display"])
async def test_a_log_that_was_trimmed_without_a_checkpoint_begins_where_it_begins(
    relay: Relay, writer: FrameWriter, start: str
) -> None:
    await writer.open()
    await writer.commit(*message(1), *message(2), outcome="finished")
    await store(relay.scripts, writer, 3)
    await relay.client.xtrim(KEYS.frames, minid="6-0", approximate=False)
    # What it covers ends before the gap does.
    async with relay.subscribe("run-1", after=f"{writer.epoch}:3", start=start) as subscription:
        notice, *rest = [item async for item in subscription]
    assert notice == GapNotice(4, 5, cursor=f"{writer.epoch}:5")
    assert [item.data for item in rest if isinstance(item, Delivery)] == writer.events[5:]


async def test_a_cursor_of_another_life_begins_with_the_checkpoint(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    await writer.commit(*message(1), outcome="finished")
    await store(relay.scripts, writer, 3)
    async with relay.subscribe("run-1", after="0123abcd:7", start="display") as subscription:
        notice, checkpoint, *rest = [item async for item in subscription]
    assert notice == GapNotice(8, 7, restarts=True, cursor=f"{writer.epoch}:0")
    assert isinstance(checkpoint, DisplayCheckpoint)
    assert checkpoint.position == 3
    assert [item.data for item in rest if isinstance(item, Delivery)] == writer.events[3:]


async def test_every_cursor_leads_to_the_same_display(relay: Relay, writer: FrameWriter) -> None:
    """Also those of a notice, of a checkpoint and of an event that was fragmented."""
    await writer.open()
    await writer.commit(*message(1), observation(2, 120_000), *message(3))
    await store(relay.scripts, writer, 5)
    await writer.commit(observation(4, 60_000), *message(5), outcome="finished")
    cursors: list[str] = []
    async with relay.subscribe("run-1") as subscription:
        async for item in subscription:
            assert subscription.cursor == item.cursor or subscription.backlog
            cursors.append(item.cursor)
    for number, cursor in enumerate(cursors):
        async with relay.subscribe("run-1") as first, relay.subscribe("run-1", after=cursor) as second:
            screen = Screen()
            for _ in range(number + 1):
                screen.take(await anext(first))
            screen.leave()
            await screen.follow(second)
            assert screen.items == folded(writer.events)


# -- views -------------------------------------------------------------------------------------------------------------


async def test_each_view_has_its_own_display(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    seen: list[bytes] = []
    for number in range(6):
        await writer.commit(*message(number))
        seen += message(number)
        await writer.commit(observation(number, 60_000 * (number % 2)), hidden=True)
        if number == 3:
            await store(relay.scripts, writer, writer.position)
    await writer.commit(outcome="finished")
    for start in ("log", "display"):
        async with relay.subscribe("run-1", start=start, view="chat") as chat:
            screen = await Screen().follow(chat)
            assert len(screen.checkpoints) == 1
            assert screen.items == folded(seen)
            assert chat.cursor == f"{writer.epoch}:{writer.position}"
        async with relay.subscribe("run-1", start=start) as full:
            screen = await Screen().follow(full)
            assert screen.items == folded(writer.events)


# -- lives, ends -------------------------------------------------------------------------------------------------------


async def test_the_next_life_begins_with_its_own_display(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    await writer.commit(*message(1))
    await store(relay.scripts, writer, 3)
    async with relay.subscribe("run-1", start="display") as subscription:
        for _ in range(3):
            last = await anext(subscription)
        assert last.cursor == f"{writer.epoch}:5"
        await relay.client.delete(*KEYS.all)
        again = await FrameWriter(relay.scripts, KEYS).open()
        await again.commit(*message(7), outcome="finished")
        assert await anext(subscription) == GapNotice(6, 5, restarts=True, cursor=f"{again.epoch}:0")
        checkpoint = await anext(subscription)
        assert isinstance(checkpoint, DisplayCheckpoint)
        assert checkpoint.cursor == f"{again.epoch}:0"
        screen = await Screen().follow(subscription)
    assert screen.events == again.events


async def test_a_head_that_falls_back_starts_over_with_the_display(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    await writer.commit(*message(1))
    await store(relay.scripts, writer, 2)
    async with relay.subscribe("run-1", start="display") as subscription:
        for _ in range(4):
            await anext(subscription)
        # What a failover to a replica without the last two frames leaves.
        async with relay.client.pipeline() as pipeline:
            pipeline.hset(KEYS.state, "position", "3")
            pipeline.xdel(KEYS.frames, "4-0", "5-0")
            await pipeline.execute()
        assert await anext(subscription) == GapNotice(4, 5, restarts=True, cursor=f"{writer.epoch}:0")
        checkpoint, delivery = await anext(subscription), await anext(subscription)
    assert isinstance(checkpoint, DisplayCheckpoint)
    assert (checkpoint.position, delivery.cursor) == (2, f"{writer.epoch}:3")


async def test_a_deleted_run_is_lost_to_who_began_with_its_display(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    await writer.commit(*message(1))
    await store(relay.scripts, writer, 5)
    async with relay.subscribe("run-1", start="display") as subscription:
        assert isinstance(await anext(subscription), DisplayCheckpoint)
        assert await relay.delete("run-1")
        async with asyncio.timeout(2):
            assert [item async for item in subscription] == []
    assert subscription.outcome == "lost"
    assert await relay.client.exists(KEYS.display) == 0


# -- bad lines, slow readers, many readers -----------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["log", "display"])
async def test_cut_connections_lose_and_double_nothing(
    redis_url: str, relay: Relay, writer: FrameWriter, start: str
) -> None:
    await writer.open()
    path = Path(redis_url.removeprefix("unix://").partition("?")[0])
    async with Proxy(path) as proxy, Relay(proxy.url, settings=SETTINGS) as shaky:
        await writer.commit(*message(0))
        async with shaky.subscribe("run-1", start=start) as subscription:
            screen = Screen()
            reading = asyncio.create_task(screen.follow(subscription))
            for number in range(1, 12):
                await writer.commit(*message(number), observation(number, 60_000))
                # While it is away the log goes on, and what it misses is trimmed.
                proxy.cut()
                await writer.commit(*message(number + 100))
                await store(relay.scripts, writer, writer.position - 2)
                await writer.commit(*message(number + 200))
                await eventually(lambda: _listens(proxy))
            await writer.commit(outcome="finished")
            await reading
        assert screen.items == folded(writer.events)
        assert subscription.reconnects > 0
        assert screen.checkpoints[-1] > 0


async def _listens(proxy: Proxy) -> bool:
    return bool(proxy.listening)


@pytest.mark.parametrize("start", ["log", "display"])
async def test_a_slow_reader_is_given_the_display_for_what_it_was_too_late_for(
    relay: Relay, writer: FrameWriter, start: str
) -> None:
    await writer.open()
    async with relay.subscribe("run-1", start=start) as subscription:
        screen, most = Screen(), 0
        for number in range(60):
            await writer.commit(*message(number, deltas=40, size=400))
            if number % 5 == 4:
                await store(relay.scripts, writer, writer.position)
                # Paused for long; it takes a little of what it has.
                for _ in range(20):
                    screen.take(await anext(subscription))
            most = max(most, subscription._queued_bytes)
        await writer.commit(*message(60), outcome="finished")
        await screen.follow(subscription)
    assert screen.items == folded(writer.events)
    assert len(screen.notices) == len(screen.checkpoints) - (start == "display") > 0
    assert most < 3 * 1024 * 1024


async def test_a_large_checkpoint_counts_in_what_waits_for_a_reader(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    for number in range(20):
        await writer.commit(*message(number, deltas=4, size=40_000))
    await store(relay.scripts, writer, writer.position)
    async with relay.subscribe("run-1", start="display") as subscription:
        await eventually(lambda: _waits(subscription.backlog))
        for number in range(20, 100):
            await writer.commit(*message(number, deltas=1, size=40_000))
        # Nothing is put on top of it; what was announced is read from the log once there is room.
        assert subscription.backlog == 1
        await writer.commit(outcome="finished")
        screen = await Screen().follow(subscription)
    assert screen.checkpoints == [120]
    assert screen.items == folded(writer.events)


async def _waits(backlog: int) -> bool:
    return backlog > 0


async def test_thousands_of_readers_who_come_at_once_read_the_display_a_few_times(
    relay: Relay, writer: FrameWriter
) -> None:
    await writer.open()
    await writer.commit(*message(1, size=20_000), *message(2))
    await store(relay.scripts, writer, 7)
    before = await calls(relay, "evalsha")
    joined = asyncio.Semaphore(0)

    async def visit() -> tuple[str, list[bytes]]:
        async with relay.subscribe("run-1", start="display") as subscription:
            first = await anext(subscription)
            joined.release()
            assert isinstance(first, DisplayCheckpoint)
            assert first.position == 7
            return first.cursor, [item.data async for item in subscription if isinstance(item, Delivery)]

    async with asyncio.TaskGroup() as group:
        visits = [group.create_task(visit()) for _ in range(3000)]
        for _ in visits:
            await joined.acquire()
        # Each beat of the feed and each read of the display is one script.
        assert await calls(relay, "evalsha") - before < 40
        await writer.commit(*message(3), outcome="finished")
    assert all(task.result() == (f"{writer.epoch}:7", writer.events[7:]) for task in visits)


async def test_readers_at_different_places_of_one_run(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()

    async def visit(start: str, view: str, pause: float) -> Screen:
        async with relay.subscribe("run-1", start=start, view=view) as subscription:
            screen = Screen()
            async for item in subscription:
                screen.take(item)
                if pause:
                    await asyncio.sleep(pause)
            return screen

    async with asyncio.TaskGroup() as group:
        visits = []
        for number in range(30):
            visits.append(
                group.create_task(visit(["log", "display"][number % 2], "full", 0.0005 if number % 3 == 0 else 0))
            )
            await writer.commit(*message(number, deltas=20, size=2_000))
            if number % 4 == 3:
                await store(relay.scripts, writer, writer.position - number % 7)
        await writer.commit(outcome="finished")
    wanted = folded(writer.events)
    assert all(task.result().items == wanted for task in visits)
    assert any(task.result().checkpoints for task in visits[::2])


async def test_the_display_on_a_cluster() -> None:
    async with Cluster() as cluster, Relay(cluster.url, settings=RelaySettings(partitions=3)) as relay:
        for name in ("one", "two", "three"):
            writer = await FrameWriter(relay.scripts, RunKeys("agui", name, 3)).open()
            await writer.commit(*message(1))
            await store(relay.scripts, writer, 3)
            await writer.commit(*message(2), outcome="finished")
            for start in ("log", "display"):
                async with relay.subscribe(name, start=start) as subscription:
                    screen = await Screen(name).follow(subscription)
                assert screen.checkpoints == [3]
                assert screen.items == folded(writer.events, name)


def test_the_fold_of_a_checkpoint_leaves_the_checkpoint_as_it_is() -> None:
    fold = DisplayFold("run-1")
    fold.fold_frames(list(message(1))[:2])
    data = fold.export().model_dump_json().encode()
    checkpoint = DisplayCheckpoint(2, data, Cursor("e1", 2), "run-1")
    one, two = checkpoint.fold(), checkpoint.fold()
    one.fold_frames(list(message(1))[2:])
    assert items_of(two) == items_of(fold)
    assert checkpoint.snapshot.model_dump_json().encode() == data


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def begun(relay: Relay, writer: FrameWriter) -> FrameWriter:
    """Give a run whose display covers all but its last two events."""
    await writer.open()
    await writer.commit(*message(1), *message(2), outcome="finished")
    await store(relay.scripts, writer, 8)
    return writer


async def tail(
    redis_url: str, capture: pytest.CaptureFixture[str], *options: str
) -> tuple[int | None, list[str], list[str]]:
    """Run the command in this process: status, lines of output, lines of errors."""
    status = await asyncio.to_thread(main, ["tail", "run-1", "--redis", redis_url, *options])
    captured = capture.readouterr()
    return status, captured.out.splitlines(), captured.err.splitlines()


@pytest.mark.parametrize("start", ["log", "display"])
async def test_a_display_is_printed_as_its_items(
    redis_url: str, begun: FrameWriter, capsys: pytest.CaptureFixture[str], start: str
) -> None:
    status, output, errors = await tail(redis_url, capsys, "--start", start)
    assert output == [
        f"{begun.epoch}:8  DISPLAY 2 items, of frames 1 to 8",
        "  text_message completed 1.0 xxxx1.1 xxxx1.2 xxxx",
        "  text_message in_progress 2.0 xxxx2.1 xxxx",
        f"{begun.epoch}:9  TEXT_MESSAGE_CONTENT 2.2 xxxx",
        f"{begun.epoch}:10  TEXT_MESSAGE_END",
    ]
    told = ["frames 1 to 8 can be seen only as part of the display that follows"] if start == "log" else []
    assert errors == [*told, f"finished, at {begun.epoch}:10"]
    assert status == 0


async def test_a_display_is_one_line_of_json(
    redis_url: str, begun: FrameWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    _, (display, *events), _ = await tail(redis_url, capsys, "--start", "display", "--json")
    assert [item["state"] for item in json.loads(display)["items"]] == ["completed", "in_progress"]
    assert "type" not in json.loads(display)
    assert [event.encode() for event in events] == begun.events[8:]


def test_an_unknown_start_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tail", "run-1", "--redis", "redis://localhost", "--start", "middle"]) == 2
    assert "middle" in capsys.readouterr().err
