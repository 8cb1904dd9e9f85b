"""Subscriptions on a server that works: where they begin, how they end, what they do when the consumer is slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from agui_relay.broker.errors import CursorError, RunNotFound
from agui_relay.broker.keys import RunKeys
from agui_relay.broker.settings import RelaySettings
from agui_relay.broker.subscription import QUEUE_EVENTS, Delivery, GapNotice, Subscription
from agui_relay.relay import Relay
from integration_tests.frames import FrameWriter, event
from integration_tests.waiting import eventually

KEYS = RunKeys("agui", "run-1")


@pytest.fixture
async def relay(redis_url: str) -> AsyncIterator[Relay]:
    # A third of it without an answer is a lost connection, also when it is only this process that is slow.
    async with Relay(redis_url, settings=RelaySettings(subscription_lease=1.5)) as relay:
        yield relay


@pytest.fixture
def writer(relay: Relay) -> FrameWriter:
    return FrameWriter(relay.scripts, KEYS)


async def read(subscription: Subscription) -> list[bytes]:
    """Read to the end; there must be no notice."""
    given = []
    async for delivery in subscription:
        assert isinstance(delivery, Delivery)
        given.append(delivery.data)
    return given


async def test_a_run_is_followed_from_before_its_beginning_to_its_end(relay: Relay, writer: FrameWriter) -> None:
    async with relay.subscribe("run-1") as subscription:
        assert (subscription.cursor, subscription.outcome) == (None, None)
        reading = asyncio.create_task(read(subscription))
        await writer.open()
        for number in range(50):
            await writer.commit(event(number), event(-number))
        await writer.commit(event(99), outcome="finished")
        assert await reading == writer.events
        assert subscription.outcome == "finished"
        assert subscription.cursor == f"{writer.epoch}:101"
        assert (subscription.delivered, subscription.repaired, subscription.reconnects) == (101, 0, 0)


async def test_a_delivery_is_an_event_with_its_bytes_and_its_cursor(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    await writer.commit(event(1), event(2, 100_000), outcome="failed")
    async with relay.subscribe("run-1") as subscription:
        deliveries = [delivery async for delivery in subscription]
    small, large = deliveries
    assert isinstance(small, Delivery)
    assert isinstance(large, Delivery)
    assert small.event == {"type": "CUSTOM", "name": "n", "value": {"n": 1, "x": ""}}
    assert small.event is small.event
    assert (small.data, small.cursor) == (event(1), f"{writer.epoch}:1")
    assert (large.data, large.cursor) == (event(2, 100_000), f"{writer.epoch}:3")
    assert subscription.outcome == "failed"


async def test_a_late_reader_gets_all_of_a_run_that_goes_on(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    for number in range(200):
        await writer.commit(event(number))
    async with relay.subscribe("run-1") as subscription:
        reading = asyncio.create_task(read(subscription))
        for number in range(200):
            await writer.commit(event(number, 10))
        await writer.commit(outcome="suspended")
        assert await reading == writer.events
    assert subscription.outcome == "suspended"


@pytest.mark.parametrize("position", [0, 1, 4, 5])
async def test_a_cursor_resumes_behind_itself(relay: Relay, writer: FrameWriter, position: int) -> None:
    await writer.open()
    await writer.commit(*map(event, range(4)))
    await writer.commit(event(4), outcome="cancelled")
    async with relay.subscribe("run-1", after=f"{writer.epoch}:{position}") as subscription:
        assert await read(subscription) == writer.events[position:]
    assert subscription.outcome == "cancelled"


async def test_every_cursor_that_was_given_resumes_with_the_next_event(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    await writer.commit(event(0), event(1, 200_000), event(2), event(3, 60_000))
    await writer.commit(event(4), outcome="finished")
    async with relay.subscribe("run-1") as subscription:
        cursors = [delivery.cursor async for delivery in subscription]
    for number, cursor in enumerate(cursors):
        async with relay.subscribe("run-1", after=cursor) as subscription:
            assert await read(subscription) == writer.events[number + 1 :]


async def test_two_resumes_at_once_are_alike(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    await writer.commit(*map(event, range(10)))
    cursor = f"{writer.epoch}:3"
    async with relay.subscribe("run-1", after=cursor) as one, relay.subscribe("run-1", after=cursor) as two:
        reading = asyncio.gather(read(one), read(two))
        await writer.commit(event(10), outcome="finished")
        assert list(await reading) == [writer.events[3:], writer.events[3:]]


async def test_a_cursor_of_another_life_starts_over(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    await writer.commit(event(1), outcome="finished")
    async with relay.subscribe("run-1", after="0123abcd:7") as subscription:
        notice, delivery = [item async for item in subscription]
    assert notice == GapNotice(8, 7, restarts=True, cursor=f"{writer.epoch}:0")
    assert isinstance(delivery, Delivery)
    assert delivery.data == event(1)


@pytest.mark.parametrize("cursor", ["-1", "", "x:y", "a:-3", "7", "a:1:2", "a:1\n"])
def test_a_malformed_cursor_is_refused_at_once(cursor: str) -> None:
    relay = Relay("redis://127.0.0.1:1")
    with pytest.raises((CursorError, RuntimeError)):
        relay.subscribe("run-1", after=cursor)


async def test_malformed_arguments_are_refused_at_once(relay: Relay) -> None:
    with pytest.raises(CursorError, match="'-1'"):
        relay.subscribe("run-1", after="-1")
    with pytest.raises(ValueError, match="full, chat"):
        relay.subscribe("run-1", view="half")
    with pytest.raises(ValueError, match="wait_for_run"):
        relay.subscribe("run-1", wait_for_run=float("nan"))


async def test_a_run_that_nobody_opens_is_not_found(relay: Relay) -> None:
    async with relay.subscribe("run-1", wait_for_run=0.2) as subscription:
        with pytest.raises(RunNotFound, match=r"'run-1', waited 0\.2 s"):
            await anext(subscription)
    assert await relay.client.zcard(KEYS.subs) == 0


async def test_without_patience_a_missing_run_is_told_on_entering(relay: Relay, writer: FrameWriter) -> None:
    with pytest.raises(RunNotFound):
        await relay.subscribe("run-1", wait_for_run=0).__aenter__()
    assert await relay.client.zcard(KEYS.subs) == 0
    await writer.open()
    await writer.commit(event(1), outcome="finished")
    async with relay.subscribe("run-1", wait_for_run=0) as subscription:
        assert await read(subscription) == writer.events


async def test_frames_too_large_for_an_announcement_come_from_the_log(relay: Relay) -> None:
    writer = await FrameWriter(relay.scripts, KEYS, announcement_bytes=10).open()
    async with relay.subscribe("run-1") as subscription:
        reading = asyncio.create_task(read(subscription))
        for number in range(20):
            await writer.commit(event(number), event(number, 70_000))
        await writer.commit(outcome="finished")
        assert await reading == writer.events
        assert (subscription.repaired, subscription.reconnects) == (0, 0)


async def test_a_lost_announcement_shows_at_the_next_heartbeat(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    async with relay.subscribe("run-1") as subscription:
        await writer.commit(event(1))
        await anext(subscription)
        # Without a lease the server tells nobody.
        await relay.client.delete(KEYS.subs)
        await writer.commit(event(2))
        async with asyncio.timeout(15):
            delivery = await anext(subscription)
        assert isinstance(delivery, Delivery)
        assert delivery.data == event(2)
        assert subscription.repaired == 1


async def test_the_lost_message_of_the_end_shows_at_the_next_heartbeat(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    async with relay.subscribe("run-1") as subscription:
        await relay.client.delete(KEYS.subs)
        await writer.commit(event(1), outcome="failed")
        async with asyncio.timeout(15):
            assert await read(subscription) == writer.events
    assert subscription.outcome == "failed"


async def test_an_abandoned_run_ends_its_readers(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    await writer.commit(event(1))
    async with relay.subscribe("run-1") as subscription:
        reading = asyncio.create_task(read(subscription))
        assert await relay.scripts.abandon(KEYS, token=writer._token, kept_ms=60_000) == "abandoned"
        assert await reading == writer.events
    assert subscription.outcome == "abandoned"


async def test_a_deleted_run_is_lost_to_its_readers(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    await writer.commit(event(1))
    async with relay.subscribe("run-1") as subscription:
        await anext(subscription)
        assert await relay.delete("run-1")
        async with asyncio.timeout(15):
            assert await read(subscription) == []
    assert subscription.outcome == "lost"


async def test_the_next_life_of_a_run_is_told_and_read_from_its_start(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    await writer.commit(event(1), event(2))
    async with relay.subscribe("run-1") as subscription:
        assert [(await anext(subscription)).cursor for _ in range(2)][-1] == f"{writer.epoch}:2"
        await relay.client.delete(*KEYS.all)
        again = await FrameWriter(relay.scripts, KEYS).open()
        await again.commit(event(7), outcome="finished")
        assert await anext(subscription) == GapNotice(3, 2, restarts=True, cursor=f"{again.epoch}:0")
        assert await read(subscription) == again.events
    assert subscription.outcome == "finished"


async def test_what_was_trimmed_is_told_exactly(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    await writer.commit(*map(event, range(10)), outcome="finished")
    await relay.client.xtrim(KEYS.frames, minid="5-0", approximate=False)
    async with relay.subscribe("run-1") as subscription:
        notice = await anext(subscription)
        assert notice == GapNotice(1, 4, cursor=f"{writer.epoch}:4")
        assert subscription.cursor == f"{writer.epoch}:4"
        assert await read(subscription) == writer.events[4:]


async def test_a_head_that_falls_back_starts_over(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    await writer.commit(*map(event, range(4)))
    async with relay.subscribe("run-1") as subscription:
        for _ in range(4):
            await anext(subscription)
        # What a failover to a replica without the last two frames leaves.
        async with relay.client.pipeline() as pipeline:
            pipeline.hset(KEYS.state, "position", "2")
            pipeline.xdel(KEYS.frames, "3-0", "4-0")
            await pipeline.execute()
        assert await anext(subscription) == GapNotice(3, 4, restarts=True, cursor=f"{writer.epoch}:0")
        again = [await anext(subscription) for _ in range(2)]
        assert [item.data for item in again if isinstance(item, Delivery)] == writer.events[:2]


@pytest.mark.parametrize("announcement_bytes", [65_536, 5], ids=["announced", "read"])
async def test_a_view_leaves_out_what_it_hides_and_its_cursor_moves_on(relay: Relay, announcement_bytes: int) -> None:
    writer = await FrameWriter(relay.scripts, KEYS, announcement_bytes=announcement_bytes).open()
    async with relay.subscribe("run-1", view="chat") as chat, relay.subscribe("run-1") as full:
        await writer.commit(event(1))
        await writer.commit(event(2), event(3, 100_000), hidden=True)
        await writer.commit(event(4, 100_000))
        given = [await anext(chat) for _ in range(2)]
        assert [item.data for item in given if isinstance(item, Delivery)] == [event(1), event(4, 100_000)]
        assert [item.cursor for item in given] == [f"{writer.epoch}:1", f"{writer.epoch}:6"]
        await writer.commit(event(5), hidden=True)
        await writer.commit(outcome="finished")
        assert await read(chat) == []
        assert chat.cursor == full_cursor(writer)
        assert (chat.outcome, chat.repaired) == ("finished", 0)
        assert await read(full) == writer.events
    async with relay.subscribe("run-1", view="chat") as chat:
        assert await read(chat) == [event(1), event(4, 100_000)]
        assert chat.cursor == full_cursor(writer)


def full_cursor(writer: FrameWriter) -> str:
    return f"{writer.epoch}:{writer.position}"


async def test_a_slow_reader_is_paused_and_loses_nothing(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    async with relay.subscribe("run-1") as subscription:
        for start in range(0, 8000, 100):
            await writer.commit(*map(event, range(start, start + 100)))
        await writer.commit(outcome="finished")
        most = 0
        given = []
        async for delivery in subscription:
            most = max(most, subscription.backlog)
            assert isinstance(delivery, Delivery)
            given.append(delivery.data)
            if len(given) % 100 == 0:
                await asyncio.sleep(0)
        assert given == writer.events
        assert most <= QUEUE_EVENTS + 256
        assert subscription.repaired > 0


async def test_a_long_replay_is_held_in_small_parts(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    for start in range(0, 36_000, 1000):
        await writer.commit(*map(event, range(start, start + 1000)))
    await writer.commit(outcome="finished")
    async with relay.subscribe("run-1") as subscription:
        most = count = 0
        async for delivery in subscription:
            assert isinstance(delivery, Delivery)
            assert delivery.data == writer.events[count]
            count += 1
            most = max(most, subscription.backlog)
        assert count == 36_000
        assert most <= QUEUE_EVENTS + 256


async def test_an_idle_reader_keeps_its_lease_and_its_connection(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    async with relay.subscribe("run-1") as subscription:
        member = f"full:{subscription.subscription_id}"
        begun = await relay.client.zscore(KEYS.subs, member)
        assert begun is not None

        async def two_leases_later() -> bool:
            expiry = await relay.client.zscore(KEYS.subs, member)
            return expiry is not None and expiry > begun + 3000

        await eventually(two_leases_later)
        await writer.commit(event(1), outcome="finished")
        assert await read(subscription) == writer.events
        assert (subscription.repaired, subscription.reconnects) == (0, 0)


async def test_heartbeats_do_not_need_the_consumer(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    async with relay.subscribe("run-1") as subscription:
        for start in range(0, 2000, 10):
            await writer.commit(*(event(number, 1000) for number in range(start, start + 10)))
        # Paused for long by now, without a look at the iterator.
        assert 0 < subscription.backlog <= QUEUE_EVENTS + 256
        assert await relay.client.zscore(KEYS.subs, f"full:{subscription.subscription_id}") is not None
        await writer.commit(outcome="finished")
        assert await read(subscription) == writer.events


async def channels(relay: Relay) -> list[bytes | str]:
    return list(await relay.client.pubsub_channels())


async def test_leaving_ends_lease_and_channel(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    async with relay.subscribe("run-1") as subscription:
        assert await relay.client.zcard(KEYS.subs) == 1
        assert await channels(relay) == [KEYS.channel(subscription.subscription_id).encode()]
    assert await relay.client.zcard(KEYS.subs) == 0
    assert await channels(relay) == []
    with pytest.raises(RuntimeError, match="not open"):
        await anext(subscription)
    with pytest.raises(RuntimeError, match="entered once"):
        await subscription.__aenter__()


async def test_readers_that_leave_at_any_moment_leave_nothing_behind(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    await writer.commit(*map(event, range(10)))
    before = len(asyncio.all_tasks())

    async def visit() -> None:
        async with relay.subscribe("run-1") as subscription:
            async for _ in subscription:
                pass

    for steps in range(40):
        visitor = asyncio.create_task(visit())
        for _ in range(steps):
            await asyncio.sleep(0)
        visitor.cancel()
        await asyncio.gather(visitor, return_exceptions=True)
    # One lease may outlive its reader when it was cancelled while joining: it ends by itself.
    await eventually(lambda: _is(channels(relay), []))
    async with relay.subscribe("run-1") as subscription:
        first = await anext(subscription)
        assert first.cursor == f"{writer.epoch}:1"
        # The hub's own tasks are there from the first visit on.
        assert len(asyncio.all_tasks()) <= before + 6


async def _is(found: object, wanted: object) -> bool:
    return await found == wanted  # type: ignore[misc,no-any-return]


async def test_an_iteration_that_was_cancelled_goes_on_where_it_was(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    async with relay.subscribe("run-1") as subscription:
        for number in range(20):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001 * (number % 3)):
                    await anext(subscription)
            await writer.commit(event(number))
            await anext(subscription)
        await writer.commit(outcome="finished")
        assert await read(subscription) == []
        assert subscription.delivered == 20


async def test_many_readers_share_one_connection(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    async with asyncio.TaskGroup() as group:
        ready = asyncio.Semaphore(0)

        async def visit() -> list[bytes]:
            async with relay.subscribe("run-1") as subscription:
                ready.release()
                return await read(subscription)

        visits = [group.create_task(visit()) for _ in range(100)]
        for _ in visits:
            await ready.acquire()
        clients = await relay.client.client_list()
        assert sum(client["sub"] != "0" for client in clients) == 1
        for number in range(10):
            await writer.commit(event(number), event(number, 60_000))
        await writer.commit(outcome="finished")
    assert all(visit.result() == writer.events for visit in visits)


async def test_a_server_that_is_not_there_is_told_on_entering() -> None:
    relay = Relay("redis://127.0.0.1:1")
    with pytest.raises(RedisConnectionError):
        async with relay, relay.subscribe("run-1"):
            pass
