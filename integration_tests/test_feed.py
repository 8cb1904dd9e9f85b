"""Feeds: many readers of one run in one process on one subscription, none at the expense of another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from agui_relay.broker.keys import RunKeys
from agui_relay.broker.settings import RelaySettings
from agui_relay.broker.subscription import QUEUE_EVENTS, Delivery, Subscription
from agui_relay.embedded import EmbeddedRedis
from agui_relay.relay import Relay
from integration_tests.frames import FrameWriter, event
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


async def read(subscription: Subscription, pause: Callable[[int], float | None] = lambda _: None) -> list[bytes]:
    """Read to the end; `pause` tells how long to rest after which delivery."""
    given: list[bytes] = []
    async for delivery in subscription:
        assert isinstance(delivery, Delivery), delivery
        given.append(delivery.data)
        if (seconds := pause(len(given))) is not None:
            await asyncio.sleep(seconds)
    return given


async def subscriptions(relay: Relay) -> int:
    run = await relay.run("run-1")
    assert run is not None
    return run.subscriptions


async def channels(relay: Relay) -> list[bytes]:
    return list(await relay.client.pubsub_channels())


async def calls(relay: Relay, command: str) -> int:
    stats = await relay.client.info("commandstats")
    return int(stats.get(f"cmdstat_{command}", {}).get("calls", 0))


async def test_many_readers_with_cursors_and_paces_of_their_own(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    for number in range(40):
        await writer.commit(event(number))
    joined = asyncio.Semaphore(0)

    async def visit(number: int) -> list[bytes]:
        after = None if number % 3 == 0 else f"{writer.epoch}:{number % 40}"
        async with relay.subscribe("run-1", after=after) as subscription:
            joined.release()
            # Some read on at once, some rest after each event, some stop for long.
            pace = (None, None, 0.0, 0.002)[number % 4]
            return await read(subscription, lambda count: 0.5 if number % 50 == 7 and count == 20 else pace)

    async with asyncio.TaskGroup() as group:
        visits = [group.create_task(visit(number)) for number in range(100)]
        for _ in visits:
            await joined.acquire()
        assert await subscriptions(relay) == len(await channels(relay)) == 1
        for number in range(100):
            await writer.commit(event(number), event(-number, 70_000 if number % 20 == 0 else 10))
            # The others come while these read.
            visits.append(group.create_task(visit(len(visits))))
        for _ in range(100):
            await joined.acquire()
        assert await subscriptions(relay) == len(await channels(relay)) == 1
        await writer.commit(event(0), outcome="finished")
    assert len(visits) == 200
    for number, task in enumerate(visits):
        assert task.result() == (writer.events if number % 3 == 0 else writer.events[number % 40 :]), number
    assert await channels(relay) == []
    assert await subscriptions(relay) == 0


async def test_a_reader_that_stands_still_holds_nobody(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    async with relay.subscribe("run-1") as slow, relay.subscribe("run-1") as fast:
        assert await subscriptions(relay) == 1
        reading = asyncio.create_task(read(fast))
        for start in range(0, 4000, 50):
            await writer.commit(*map(event, range(start, start + 50)))
        await writer.commit(outcome="finished")
        assert await reading == writer.events
        assert fast.outcome == "finished"
        assert slow.outcome is None
        assert 0 < slow.backlog <= QUEUE_EVENTS + 256
        assert await read(slow) == writer.events
        assert slow.repaired > 0
        assert slow.outcome == "finished"


async def test_a_reader_that_fails_costs_the_others_nothing(
    relay: Relay, writer: FrameWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    await writer.open()
    async with relay.subscribe("run-1") as broken, relay.subscribe("run-1") as well:

        def fail(*_: Any) -> None:
            raise RuntimeError("broken")

        monkeypatch.setattr(broken, "announcement", fail)
        await writer.commit(event(1))
        await writer.commit(event(2), outcome="finished")
        assert await read(well) == writer.events
        with pytest.raises(RuntimeError, match="broken"):
            await read(broken)


async def test_who_is_cancelled_while_joining_does_not_cut_the_others_off(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    await writer.commit(*map(event, range(10)))

    async def visit() -> list[bytes]:
        async with relay.subscribe("run-1") as subscription:
            return await read(subscription)

    for steps in range(30):
        visits = [asyncio.create_task(visit()) for _ in range(3)]
        for _ in range(steps):
            await asyncio.sleep(0)
        # The first of them is the one who made the subscription.
        visits[0].cancel()
        for task in visits[1:]:
            task.add_done_callback(lambda task: task.cancelled() or task.result())
        await asyncio.gather(visits[0], return_exceptions=True)
        async with relay.subscribe("run-1", after=f"{writer.epoch}:9") as subscription:
            assert isinstance(last := await anext(subscription), Delivery)
            assert last.data == event(9)
        for task in visits[1:]:
            assert not task.done()
            task.cancel()
        await asyncio.gather(*visits, return_exceptions=True)
    async with relay.subscribe("run-1") as subscription:
        await writer.commit(outcome="finished")
        assert await read(subscription) == writer.events
    await eventually(lambda: _is_empty(channels(relay)))


async def _is_empty(found: Any) -> bool:
    return not await found


async def test_each_view_has_a_subscription_and_so_has_each_run(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    other = await FrameWriter(relay.scripts, RunKeys("agui", "run-2")).open()
    async with relay.subscribe("run-1") as full, relay.subscribe("run-1", view="chat") as chat:
        async with relay.subscribe("run-2") as second:
            assert len({full.subscription_id, chat.subscription_id, second.subscription_id}) == 3
            assert await subscriptions(relay) == 2
            await writer.commit(event(1), hidden=True)
            await writer.commit(event(2), outcome="finished")
            await other.commit(event(3), outcome="failed")
            assert await read(full) == [event(1), event(2)]
            assert await read(chat) == [event(2)]
            assert await read(second) == [event(3)]


async def test_the_last_to_leave_ends_the_subscription_and_the_next_makes_another(
    relay: Relay, writer: FrameWriter
) -> None:
    await writer.open()
    async with relay.subscribe("run-1") as one:
        async with relay.subscribe("run-1") as two:
            name = two.subscription_id
            assert one.subscription_id == name
        assert await channels(relay) == [KEYS.channel(name).encode()]
        assert await subscriptions(relay) == 1
        await writer.commit(event(1))
        assert isinstance(await anext(one), Delivery)
    assert await channels(relay) == []
    assert await subscriptions(relay) == 0
    async with relay.subscribe("run-1") as three:
        assert three.subscription_id != name
        assert isinstance(await anext(three), Delivery)


async def test_what_all_must_read_is_read_once(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    joined = asyncio.Semaphore(0)

    async def visit() -> list[bytes]:
        async with relay.subscribe("run-1") as subscription:
            joined.release()
            return await read(subscription)

    async with asyncio.TaskGroup() as group:
        visits = [group.create_task(visit()) for _ in range(50)]
        for _ in visits:
            await joined.acquire()
        before = await calls(relay, "xrange")
        for number in range(10):
            # Too large to be announced.
            await writer.commit(event(number, 150_000))
        await writer.commit(outcome="finished")
    assert all(task.result() == writer.events for task in visits)
    # The scripts read the log, too; each reader on its own would read it 500 times.
    assert await calls(relay, "xrange") - before < 150


async def test_a_cut_heals_all(redis_url: str, relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    path = Path(redis_url.removeprefix("unix://").partition("?")[0])
    async with Proxy(path) as proxy, Relay(proxy.url, settings=SETTINGS) as shaky:
        joined = asyncio.Semaphore(0)

        async def visit() -> tuple[list[bytes], int]:
            async with shaky.subscribe("run-1") as subscription:
                joined.release()
                return await read(subscription), subscription.reconnects

        async with asyncio.TaskGroup() as group:
            visits = [group.create_task(visit()) for _ in range(100)]
            for _ in visits:
                await joined.acquire()
            for number in range(6):
                await writer.commit(event(number), event(number, 60_000))
                proxy.cut()
                await writer.commit(event(number + 100))
                await eventually(lambda: _listens(proxy))
            await writer.commit(outcome="finished")
        for task in visits:
            given, reconnects = task.result()
            assert given == writer.events
            assert reconnects >= 1
        assert await subscriptions(relay) == 0


async def _listens(proxy: Proxy) -> bool:
    return bool(proxy.listening)


async def test_a_dumb_connection_is_replaced_once_for_all(redis_url: str, relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    path = Path(redis_url.removeprefix("unix://").partition("?")[0])
    async with Proxy(path) as proxy, Relay(proxy.url, settings=SETTINGS) as shaky:
        async with asyncio.TaskGroup() as group:
            joined = asyncio.Semaphore(0)

            async def visit() -> list[bytes]:
                async with shaky.subscribe("run-1") as subscription:
                    joined.release()
                    return await read(subscription)

            visits = [group.create_task(visit()) for _ in range(50)]
            for _ in visits:
                await joined.acquire()
            # So that the connection which reads the log stands already.
            await shaky.scripts.read_log(KEYS, first=1, most=1)
            accepted = proxy.accepted
            proxy.stall(*proxy.listening)
            await writer.commit(event(1), outcome="finished")
        assert all(task.result() == writer.events for task in visits)
        assert proxy.accepted == accepted + 1


async def test_readers_of_a_server_that_is_not_there_are_all_told() -> None:
    async with EmbeddedRedis() as server:
        async with Relay(server.url) as relay:
            await server.close()

            async def visit() -> None:
                async with relay.subscribe("run-1"):
                    pass

            results = await asyncio.gather(*(visit() for _ in range(5)), return_exceptions=True)
            assert all(isinstance(result, RedisConnectionError) for result in results), results
