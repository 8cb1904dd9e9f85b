"""Subscriptions whose connections are cut, stalled, half-closed or refused, and whose server dies."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from agui_relay.broker.hub import Hub
from agui_relay.broker.keys import RunKeys
from agui_relay.broker.scripts import Scripts
from agui_relay.broker.settings import RelaySettings
from agui_relay.broker.subscription import Delivery, GapNotice, Subscription
from agui_relay.embedded import EmbeddedRedis
from agui_relay.relay import Relay
from integration_tests.frames import FrameWriter, event
from integration_tests.proxy import Proxy
from integration_tests.waiting import eventually

KEYS = RunKeys("agui", "run-1")
SETTINGS = RelaySettings(subscription_lease=0.6)
SEED = int(os.environ.get("AGUI_RELAY_TEST_SEED", "20261129"))
READERS = int(os.environ.get("AGUI_RELAY_TEST_READERS", "20"))
RUNS = int(os.environ.get("AGUI_RELAY_TEST_RUNS", "4"))
CUTS = 5


def socket_of(url: str) -> Path:
    """The path in the URL of an embedded server."""
    return Path(unquote(url.removeprefix("unix://").partition("?")[0]))


@pytest.fixture
async def proxy(redis_url: str) -> AsyncIterator[Proxy]:
    async with Proxy(socket_of(redis_url)) as proxy:
        yield proxy


@pytest.fixture
async def relay(redis_url: str) -> AsyncIterator[Relay]:
    """Give a relay whose connections nothing happens to."""
    async with Relay(redis_url) as relay:
        yield relay


@pytest.fixture
async def shaky(proxy: Proxy) -> AsyncIterator[Relay]:
    """Give a relay whose connections go through the proxy."""
    async with Relay(proxy.url, settings=SETTINGS) as relay:
        yield relay


@pytest.fixture
def writer(relay: Relay) -> FrameWriter:
    return FrameWriter(relay.scripts, KEYS)


async def read(subscription: Subscription, given: list[bytes] | None = None) -> list[bytes]:
    """Read to the end; there must be no notice."""
    given = [] if given is None else given
    async for delivery in subscription:
        assert isinstance(delivery, Delivery), delivery
        given.append(delivery.data)
    return given


@pytest.mark.timeout(int(os.environ.get("AGUI_RELAY_TEST_TIMEOUT", "180")))
async def test_readers_that_are_cut_again_and_again_end_equal(redis_url: str, relay: Relay) -> None:
    """Each reader has a proxy and connections of its own, and is cut at random moments, at least five times."""
    print(f"seed {SEED}: {READERS} readers of {RUNS} runs")
    writers = [await FrameWriter(relay.scripts, RunKeys("agui", f"run-{n}")).open() for n in range(RUNS)]
    # All of them share one event loop: the more there are, the more time each must have.
    pace = 0.005 * READERS
    settings = RelaySettings(subscription_lease=max(0.6, 0.03 * READERS))
    reconnects: list[int] = []
    all_cut = asyncio.Event()

    async def visit(number: int) -> list[bytes]:
        chance = random.Random(f"{SEED} {number}")
        given: list[bytes] = []
        async with (
            Proxy(socket_of(redis_url)) as own,
            Relay(own.url, settings=settings) as mine,
            mine.subscribe(writers[number % RUNS].keys.run_id) as subscription,
        ):
            reading = asyncio.create_task(read(subscription, given))
            while subscription.reconnects < CUTS:
                # A moment like any other: within a read, an event, a handshake, a heartbeat.
                await asyncio.sleep(chance.random() * pace)
                own.cut(*[connection for connection in own.connections if chance.random() < 0.7])
            reconnects.append(subscription.reconnects)
            if len(reconnects) == READERS:
                all_cut.set()
            return await reading

    async def write(writer: FrameWriter, chance: random.Random) -> None:
        number = 0
        while not all_cut.is_set():
            await writer.commit(event(number), *[event(number, 60_000)] * (number % 7 == 0), event(-number))
            number += 1
            await asyncio.sleep(chance.random() * pace / 2)
        await writer.commit(event(number), outcome="finished")

    async with asyncio.TaskGroup() as group:
        visits = [group.create_task(visit(number)) for number in range(READERS)]
        for number, writer in enumerate(writers):
            group.create_task(write(writer, random.Random(f"{SEED} writer {number}")))
    for number, visited in enumerate(visits):
        assert visited.result() == writers[number % RUNS].events
    assert min(reconnects) >= CUTS


@pytest.mark.parametrize("position", [0, 1, 2, 3])
async def test_a_second_reconnect_is_like_the_first(
    proxy: Proxy, shaky: Relay, writer: FrameWriter, position: int
) -> None:
    await writer.open()
    async with shaky.subscribe("run-1") as subscription:
        for number in range(4):
            await writer.commit(event(number))
            if number >= position:
                before = subscription.reconnects
                proxy.cut(*proxy.listening)
                await eventually(lambda: _holds(subscription.reconnects > before))  # noqa: B023
        await writer.commit(event(4), outcome="finished")
        assert await read(subscription) == writer.events
        assert subscription.reconnects == 4 - position


async def test_a_connection_that_goes_dumb_is_noticed_and_replaced(
    proxy: Proxy, shaky: Relay, writer: FrameWriter
) -> None:
    await writer.open()
    async with shaky.subscribe("run-1") as subscription:
        proxy.stall(*proxy.listening)
        await writer.commit(event(1), event(2, 100_000))
        async with asyncio.timeout(15):
            assert [await _data(subscription) for _ in range(2)] == writer.events
        assert subscription.reconnects == 1
        await writer.commit(event(3), outcome="finished")
        assert await read(subscription) == [event(3)]


async def test_a_dumb_connection_that_nobody_listens_on_is_replaced_for_the_next(
    proxy: Proxy, writer: FrameWriter
) -> None:
    await writer.open()
    async with Redis.from_url(proxy.url) as client, Hub(client, answer_within=0.2) as hub:
        listener = Silent()
        await hub.subscribe("one", listener)
        proxy.stall(*proxy.listening)
        hub.leave("one", listener)
        async with asyncio.timeout(15):
            await hub.subscribe("two", listener)
        assert len(proxy.listening) == 1


class Silent:
    """One who listens and does nothing."""

    def message(self, data: bytes) -> None: ...

    def lost(self) -> None: ...

    def back(self) -> None: ...


async def test_a_connection_whose_other_side_has_finished_is_replaced(
    proxy: Proxy, shaky: Relay, writer: FrameWriter
) -> None:
    await writer.open()
    async with shaky.subscribe("run-1") as subscription:
        proxy.half_close(*proxy.listening)
        await writer.commit(event(1), outcome="finished")
        assert await read(subscription) == writer.events


async def test_a_server_that_drops_slow_listeners_costs_nothing(relay: Relay, writer: FrameWriter) -> None:
    await writer.open()
    async with relay.subscribe("run-1") as subscription:
        for number in range(5):
            # What `client-output-buffer-limit pubsub` does to a reader that does not keep up.
            await relay.client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            await writer.commit(event(number, 100_000))
        await writer.commit(outcome="finished")
        assert await read(subscription) == writer.events


async def test_a_server_that_cuts_who_is_slow_costs_nothing() -> None:
    async with EmbeddedRedis() as server, Proxy(socket_of(server.url)) as proxy:
        async with Relay(server.url) as relay, Relay(proxy.url, settings=SETTINGS) as shaky:
            await relay.client.config_set("client-output-buffer-limit", "pubsub 32kb 32kb 1")
            writer = await FrameWriter(relay.scripts, KEYS).open()
            async with shaky.subscribe("run-1") as subscription:

                async def is_cut() -> bool:
                    # A reader that finds its channel silent takes another connection.
                    proxy.stall(*proxy.listening)
                    # Each fits into an announcement; nobody takes them out of the server's buffers.
                    for _ in range(20):
                        await writer.commit(event(writer.position, 40_000))
                    stats = await relay.client.info("stats")
                    return bool(stats["client_output_buffer_limit_disconnections"])

                await eventually(is_cut)
                proxy.flow()
                await writer.commit(event(-1), outcome="finished")
                assert await read(subscription) == writer.events
                assert subscription.reconnects >= 1


async def test_a_server_out_of_reach_is_waited_for(proxy: Proxy, shaky: Relay, writer: FrameWriter) -> None:
    await writer.open()
    async with shaky.subscribe("run-1") as subscription:
        await writer.commit(event(0))
        assert await _data(subscription) == event(0)
        proxy.refuse()
        proxy.cut()
        for number in range(1, 5):
            await writer.commit(event(number, 60_000))
        attempts = proxy.accepted
        await eventually(lambda: _holds(proxy.accepted >= attempts + 5))
        proxy.accept()
        await writer.commit(outcome="finished")
        # The first heartbeat that gets through may tell all that is left before the channel is back.
        assert await read(subscription) == writer.events[1:]
        assert subscription.reconnects <= 1


async def test_a_replay_is_cut_and_goes_on(proxy: Proxy, shaky: Relay, writer: FrameWriter) -> None:
    await writer.open()
    for start in range(0, 5000, 500):
        await writer.commit(*(event(number, 200) for number in range(start, start + 500)))
    await writer.commit(event(1, 1_000_000), outcome="finished")
    async with shaky.subscribe("run-1") as subscription:
        given = []
        async for delivery in subscription:
            assert isinstance(delivery, Delivery)
            given.append(delivery.data)
            if len(given) % 700 == 0:
                proxy.cut()
        assert given == writer.events


async def test_one_reader_that_is_cancelled_costs_the_others_nothing(
    proxy: Proxy, shaky: Relay, writer: FrameWriter
) -> None:
    await writer.open()

    async def visit() -> None:
        async with shaky.subscribe("run-1") as subscription:
            await read(subscription)

    async with shaky.subscribe("run-1") as steady:
        connections = proxy.listening
        for steps in range(60):
            visitor = asyncio.create_task(visit())
            for _ in range(steps):
                await asyncio.sleep(0)
            visitor.cancel()
            await asyncio.gather(visitor, return_exceptions=True)
        await writer.commit(event(1), outcome="finished")
        assert await read(steady) == writer.events
        assert (steady.reconnects, steady.repaired) == (0, 0)
        assert proxy.listening == connections


async def test_a_command_cancelled_in_flight_leaves_its_reply_to_nobody(proxy: Proxy, writer: FrameWriter) -> None:
    """redis-py must give up a connection whose reply was not read; its next user would get that reply."""
    await writer.open()
    async with Redis.from_url(proxy.url, max_connections=1) as client:
        scripts = Scripts(client)
        for number in range(10):
            await client.echo("warm")
            proxy.stall()
            joining = asyncio.create_task(
                scripts.join(KEYS, view="full", subscription_id="x", lease_ms=1000, kept_ms=60_000, nonce=f"n{number}")
            )
            passed = proxy.received
            await eventually(lambda: _holds(proxy.received > passed))  # noqa: B023
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)
            proxy.flow()
            assert await client.echo(f"mine {number}") == f"mine {number}".encode()


async def test_leaving_does_not_wait_for_a_server_that_says_nothing(
    proxy: Proxy, shaky: Relay, writer: FrameWriter
) -> None:
    await writer.open()
    async with asyncio.timeout(5):
        async with shaky.subscribe("run-1"):
            proxy.stall()
        proxy.cut()


async def test_a_server_that_is_killed_and_comes_back_with_its_data(tmp_path: Path) -> None:
    async with EmbeddedRedis("--appendonly", "yes", "--appendfsync", "always", port=0, directory=tmp_path) as server:
        async with Relay(server.url, settings=SETTINGS) as relay:
            writer = await FrameWriter(relay.scripts, KEYS).open()
            async with relay.subscribe("run-1") as subscription:
                await writer.commit(event(1), event(2, 100_000))
                assert [await _data(subscription) for _ in range(2)] == writer.events
                await server.kill()
                await server.start()
                await _again(writer, event(3))
                assert await _data(subscription) == event(3)
                await writer.commit(outcome="finished")
                assert await read(subscription) == []
                assert subscription.reconnects == 1


async def test_a_server_that_comes_back_empty_has_lost_the_run() -> None:
    async with EmbeddedRedis(port=0) as server, Relay(server.url, settings=SETTINGS) as relay:
        writer = await FrameWriter(relay.scripts, KEYS).open()
        async with relay.subscribe("run-1") as subscription:
            await writer.commit(event(1))
            assert await _data(subscription) == event(1)
            await server.kill()
            await server.start()
            async with asyncio.timeout(5):
                assert await read(subscription) == []
        assert subscription.outcome == "lost"


async def test_a_server_that_comes_back_with_less_starts_over(tmp_path: Path) -> None:
    async with EmbeddedRedis("--save", "", port=0, directory=tmp_path) as server:
        async with Relay(server.url, settings=SETTINGS) as relay:
            writer = await FrameWriter(relay.scripts, KEYS).open()
            await writer.commit(event(1), event(2))
            async with relay.subscribe("run-1") as subscription:
                await relay.client.save()
                await writer.commit(event(3))
                assert [await _data(subscription) for _ in range(3)] == writer.events
                await server.kill()
                await server.start()
                notice = await anext(subscription)
                assert notice == GapNotice(3, 3, restarts=True, cursor=f"{writer.epoch}:0")
                assert [await _data(subscription) for _ in range(2)] == writer.events[:2]


async def _holds(condition: bool) -> bool:
    return condition


async def _data(subscription: Subscription) -> bytes:
    delivery = await anext(subscription)
    assert isinstance(delivery, Delivery), delivery
    return delivery.data


async def _again(writer: FrameWriter, *events: bytes) -> None:
    """Commit as soon as the server answers again."""
    async with asyncio.timeout(10):
        while True:
            try:
                await writer.commit(*events)
                return
            except (RedisError, OSError):
                await asyncio.sleep(0.01)
