"""The hub: many channels and listeners on one connection, none at the expense of another."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError

from agui_relay.broker.hub import Hub
from agui_relay.embedded import EmbeddedRedis
from integration_tests.proxy import Proxy
from integration_tests.waiting import eventually


class Notes:
    """One who listens and writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[bytes | str] = []

    def message(self, data: bytes) -> None:
        self.told.append(data)

    def lost(self) -> None:
        self.told.append("lost")

    def back(self) -> None:
        self.told.append("back")

    async def hears(self, *told: bytes | str) -> None:
        async def heard() -> bool:
            return self.told == list(told)

        await eventually(heard)


class Broken(Notes):
    """One who fails on everything."""

    def message(self, data: bytes) -> None:
        raise RuntimeError("broken")

    lost = back = lambda self: self.message(b"")


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
async def hub(client: Redis) -> AsyncIterator[Hub]:
    async with Hub(client) as hub:
        yield hub


async def command(client: Any, *words: str | int) -> Any:
    """Send what redis-py has no typed method for."""
    return await client.execute_command(*words)


async def kill(client: Redis) -> None:
    """Cut the hub's connection as the server would."""
    await command(client, "CLIENT", "KILL", "TYPE", "pubsub")


async def test_each_channel_has_its_own_listeners(client: Redis, hub: Hub) -> None:
    one, two, both = Notes(), Notes(), Notes()
    await asyncio.gather(
        hub.subscribe("a", one), hub.subscribe("b", two), hub.subscribe("a", both), hub.subscribe("b", both)
    )
    assert await client.publish("a", "1") == 1
    assert await client.publish("b", "2\r\n\x00") == 1
    await one.hears(b"1")
    await two.hears(b"2\r\n\x00")
    await both.hears(b"1", b"2\r\n\x00")


async def test_a_channel_is_left_with_its_last_listener(client: Redis, hub: Hub) -> None:
    one, two = Notes(), Notes()
    await hub.subscribe("a", one)
    await hub.subscribe("a", two)
    assert hub.leave("a", one) is None
    assert await client.publish("a", "1") == 1
    await two.hears(b"1")
    left = hub.leave("a", two)
    assert left is not None
    await left
    assert await client.publish("a", "2") == 0
    assert hub.leave("a", two) is None
    await hub.subscribe("a", two)
    await client.publish("a", "3")
    await two.hears(b"1", b"3")
    assert one.told == []


async def test_every_listener_is_told_of_a_loss_and_of_the_return(client: Redis, hub: Hub) -> None:
    listeners = [Notes() for _ in range(1200)]
    await asyncio.gather(*(hub.subscribe(f"c{n}", listener) for n, listener in enumerate(listeners)))
    for _ in range(2):
        await kill(client)
        for listener in listeners:
            await listener.hears("lost", "back")
            listener.told.clear()
    await client.publish("c7", "x")
    await listeners[7].hears(b"x")


async def test_a_broken_listener_costs_the_others_nothing(
    client: Redis, hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    good = Notes()
    await hub.subscribe("a", Broken())
    await hub.subscribe("a", good)
    await client.publish("a", "1")
    await good.hears(b"1")
    await kill(client)
    await good.hears(b"1", "lost", "back")
    assert "a listener has failed" in caplog.text


async def test_one_who_waits_for_a_channel_while_the_connection_is_cut_gets_it(client: Redis, hub: Hub) -> None:
    first = Notes()
    await hub.subscribe("a", first)
    for number in range(20):
        late = Notes()
        subscribing = asyncio.create_task(hub.subscribe(f"b{number}", late))
        await kill(client)
        async with asyncio.timeout(5):
            await subscribing
        # Confirmed just before the cut or after it: in the end it is subscribed.
        await eventually(lambda: client.publish(f"b{number}", "x"))  # noqa: B023
        await eventually(lambda: _has(late, b"x"))  # noqa: B023
    assert first.told == ["lost", "back"] * 20


async def _has(notes: Notes, told: bytes) -> bool:
    return told in notes.told


async def test_a_suspected_channel_on_a_living_connection_is_subscribed_again_alone(client: Redis, hub: Hub) -> None:
    one, two = Notes(), Notes()
    await hub.subscribe("a", one)
    await hub.subscribe("b", two)
    since = asyncio.get_running_loop().time()
    await client.publish("b", "alive")
    await two.hears(b"alive")
    hub.suspect("a", since)
    await one.hears("back")
    assert two.told == [b"alive"]
    # Nothing was heard after this: the connection itself is in doubt, and all are told.
    hub.suspect("a", asyncio.get_running_loop().time())
    await one.hears("back", "lost", "back")
    await two.hears(b"alive", "lost", "back")


async def test_a_hub_that_never_was_connected_says_so_and_tries_anew() -> None:
    async with EmbeddedRedis(port=0) as server:
        url = server.url
        await server.stop()
        async with Redis.from_url(url) as client, Hub(client) as hub:
            with pytest.raises(RedisConnectionError):
                await hub.subscribe("a", Notes())
            await server.start()
            listener = Notes()
            await hub.subscribe("a", listener)
            await client.publish("a", "x")
            await listener.hears(b"x")


@pytest.mark.parametrize(
    "reply",
    [b":1\r\n", b"$-1\r\n", b"*0\r\n", b"*1\r\n*0\r\n", b"*2\r\n$7\r\nmessage\r\n$1\r\na\r\n", b"\x00"],
    ids=["number", "null", "empty", "nested", "message without data", "noise"],
)
async def test_a_reply_that_no_server_gives_costs_a_connection_and_no_more(reply: bytes) -> None:
    async with EmbeddedRedis(port=0) as server, Redis.from_url(server.url) as client:
        assert server.port is not None
        async with (
            Proxy(("127.0.0.1", server.port)) as proxy,
            Redis.from_url(proxy.url) as through,
            Hub(through) as hub,
        ):
            notes = Notes()
            await hub.subscribe("a", notes)
            proxy.say(reply)
            await notes.hears("lost", "back")
            assert await client.publish("a", "1") == 1
            await notes.hears("lost", "back", b"1")


async def test_who_may_not_listen_is_told(redis_url: str, client: Redis) -> None:
    await command(client, "ACL", "SETUSER", "deaf", "on", "nopass", "~*", "+@all", "resetchannels", "&open:*")
    try:
        async with Redis.from_url(redis_url, username="deaf", password="") as deaf, Hub(deaf) as hub:
            notes = Notes()
            for _ in range(2):
                async with asyncio.timeout(10):
                    with pytest.raises(NoPermissionError):
                        await hub.subscribe("closed", notes)
            await hub.subscribe("open:a", notes)
            await client.publish("open:a", "1")
            await notes.hears(b"1")
    finally:
        await command(client, "ACL", "DELUSER", "deaf")


async def test_those_who_wait_for_a_closed_hub_are_told(client: Redis) -> None:
    hub = Hub(client)
    await hub.subscribe("a", Notes())
    await command(client, "CLIENT", "PAUSE", "200", "ALL")
    waiting = asyncio.create_task(hub.subscribe("b", Notes()))
    await asyncio.sleep(0)
    await hub.close()
    with pytest.raises(RuntimeError, match="closed"):
        await waiting
    with pytest.raises(RuntimeError, match="closed"):
        await hub.subscribe("c", Notes())


async def test_sharded_channels_are_heard_too() -> None:
    # The port of the cluster's bus would be 10,000 above the server's, which need not exist.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        bus = str(probe.getsockname()[1])
    async with (
        EmbeddedRedis("--cluster-enabled", "yes", "--cluster-port", bus, port=0) as server,
        Redis.from_url(server.url) as client,
        Hub(client, sharded=True) as hub,
    ):
        await command(client, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        await eventually(lambda: _ok(client))
        listener = Notes()
        await hub.subscribe("{x}a", listener)
        assert await command(client, "SPUBLISH", "{x}a", "1") == 1
        await listener.hears(b"1")
        left = hub.leave("{x}a", listener)
        assert left is not None
        await left


async def _ok(client: Redis) -> bool:
    return b"cluster_state:ok" in await command(client, "CLUSTER", "INFO")
