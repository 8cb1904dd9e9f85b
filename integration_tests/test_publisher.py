"""What a publisher stores, what it refuses, and what it does when the server does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from redis.asyncio import Redis

from agui_relay.broker.errors import ItemTooLarge, RelayError, RunBusy, RunEnded, RunLost
from agui_relay.broker.keys import RunKeys
from agui_relay.broker.settings import RelaySettings
from agui_relay.relay import Relay
from agui_relay.source import ItemError, decode_item, encode_item
from integration_tests import items
from integration_tests.proxy import Proxy
from integration_tests.waiting import eventually

KEYS = RunKeys("agui", "run-1")


@pytest.fixture
async def relay(redis_url: str) -> AsyncIterator[Relay]:
    async with Relay(redis_url) as relay:
        yield relay


async def stored(client: Any) -> list[bytes]:
    return [row[b"item"] for _, row in await client.xrange(KEYS.items)]


async def test_items_are_stored_in_order_under_dense_ordinals(relay: Relay) -> None:
    run = list(items.text_run(1000))
    async with relay.publisher("run-1", thread_id="thread-1") as publisher:
        for item in run:
            await publisher.publish(item)
        await publisher.flush()
        assert publisher.stored == len(run)
    rows = await relay.client.xrange(KEYS.items)
    assert [row_id for row_id, _ in rows] == [b"%d-0" % number for number in range(1, len(run) + 1)]
    assert [row[b"item"] for _, row in rows] == [encode_item(item) for item in run]


async def test_an_item_published_twice_is_stored_once(relay: Relay) -> None:
    run = list(items.text_run(5))
    async with relay.publisher("run-1", thread_id="thread-1") as publisher:
        for item in run[:4]:
            await publisher.publish(item)
            await publisher.publish(encode_item(item))
        token = publisher.token
        await publisher.flush()
        # Another process, which is not sure what the first one stored, takes the run up again and repeats everything.
        async with relay.publisher("run-1", token=token) as again:
            assert again.stored == 4
            for item in run:
                await again.publish(item)
    assert await stored(relay.client) == [encode_item(item) for item in run]


async def test_a_batch_whose_reply_is_lost_is_stored_once(relay: Relay) -> None:
    """The items arrive, the answer does not: the call is repeated, and the server knows the items already."""
    run = list(items.text_run(100))
    async with Proxy(Path(unquote(urlsplit(relay.url).path))) as proxy, Relay(proxy.url) as behind:
        async with behind.publisher("run-1", thread_id="thread-1") as publisher:
            await publisher.publish(run[0])
            await publisher.flush()
            proxy.stall()
            for item in run[1:50]:
                await publisher.publish(item)

            async def arrived() -> bool:
                return bool(await relay.client.xlen(KEYS.items) > 1)

            await eventually(arrived)
            assert publisher.stored == 1
            proxy.cut()
            for item in run[50:]:
                await publisher.publish(item)
            await publisher.flush()
            assert publisher.stored == len(run)
    assert await stored(relay.client) == [encode_item(item) for item in run]


async def test_a_live_run_belongs_to_one_publisher(relay: Relay) -> None:
    async with relay.publisher("run-1", thread_id="thread-1") as publisher:
        with pytest.raises(RunBusy, match="'run-1' is live and held by another publisher"):
            async with relay.publisher("run-1", thread_id="thread-1"):
                pass
        with pytest.raises(RunBusy, match="belongs to thread 'thread-1', not to 'other'"):
            async with relay.publisher("run-1", thread_id="other", token=publisher.token):
                pass


async def test_an_ended_run_takes_repeats_and_nothing_new(relay: Relay) -> None:
    run = list(items.text_run(1))
    async with relay.publisher("run-1", thread_id="thread-1") as publisher:
        for item in run:
            await publisher.publish(item)
        await publisher.publish(run[-1])
        await publisher.flush()
        await publisher.publish(items.text_delta(99, "late"))
        with pytest.raises(RunEnded, match=r"'run-1' is over"):
            await publisher.flush()
        with pytest.raises(RunEnded):
            await publisher.publish(items.text_delta(100, "later"))
    assert len(await stored(relay.client)) == len(run)
    with pytest.raises(RunEnded, match="delete it to use its id again"):
        async with relay.publisher("run-1", thread_id="thread-1"):
            pass


async def test_what_comes_behind_the_terminal_item_does_not_take_it_along(relay: Relay) -> None:
    with pytest.raises(RunEnded):
        async with relay.publisher("run-1", thread_id="thread-1") as publisher:
            for item in [*items.text_run(1), items.text_delta(99, "late")]:
                await publisher.publish(item)
    assert decode_item((await stored(relay.client))[-1]).terminal == "finished"


async def test_a_run_left_without_a_terminal_item_is_abandoned(relay: Relay) -> None:
    async with relay.publisher("run-1", thread_id="thread-1"):
        pass
    info = await relay.run("run-1")
    assert info is not None
    assert info.status == "abandoned"

    with pytest.raises(LookupError, match="agent broke"):
        async with relay.publisher("run-2", thread_id="thread-1") as publisher:
            await publisher.publish(items.started(1, run_id="run-2"))
            raise LookupError("agent broke")
    info = await relay.run("run-2")
    assert info is not None
    assert (info.status, info.items) == ("closing", 1)


async def test_a_deleted_run_is_lost_to_its_publisher(relay: Relay) -> None:
    async with relay.publisher("run-1", thread_id="thread-1") as publisher:
        assert await relay.delete("run-1")
        await publisher.publish(items.started(1))
        with pytest.raises(RunLost, match="keys of run 'run-1' are gone"):
            await publisher.flush()
    assert not await relay.delete("run-1")


async def test_a_delayed_publisher_does_not_reach_the_next_life(relay: Relay) -> None:
    async with relay.publisher("run-1", thread_id="thread-1") as old:
        await relay.delete("run-1")
        async with relay.publisher("run-1", thread_id="thread-1") as new:
            await old.publish(items.started(1))
            with pytest.raises(RunLost, match="another publisher's"):
                await old.flush()
            assert new.epoch != old.epoch
    assert await stored(relay.client) == []


async def test_a_publisher_declared_dead_is_told(redis_url: str) -> None:
    async with Relay(redis_url, settings=RelaySettings(publisher_lease=0.2)) as relay:
        async with relay.publisher("run-1", thread_id="thread-1") as publisher:
            await publisher.publish(items.started(1))
            await publisher.flush()
            await relay.client.zadd(KEYS.leases, {"run-1": 1})
            assert await relay.scripts.abandon(KEYS, token="", kept_ms=1000_000) == "abandoned"
            await publisher.publish(items.text_start(2))
            with pytest.raises(RunEnded, match="was declared abandoned"):
                await publisher.flush()


async def test_the_lease_is_renewed_while_nothing_is_published(redis_url: str) -> None:
    async with Relay(redis_url, settings=RelaySettings(publisher_lease=0.3)) as relay:
        async with relay.publisher("run-1", thread_id="thread-1"):
            first = await relay.client.zscore(KEYS.leases, "run-1")

            async def renewed() -> bool:
                return bool(await relay.client.zscore(KEYS.leases, "run-1") != first)

            await eventually(renewed)


async def test_a_publisher_is_used_inside_of_its_block(relay: Relay) -> None:
    publisher = relay.publisher("run-1", thread_id="thread-1")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the publisher is not open"):
            await publisher.publish(items.started(1))
        with pytest.raises(RuntimeError, match="the publisher is not open"):
            await publisher.flush()
        if not publisher.stored:
            async with publisher:
                await publisher.publish(items.started(1))
    assert await relay.client.xlen(RunKeys("agui", "run-1").items) == 1


async def test_a_relay_that_two_enter_at_once_is_open_to_both(redis_url: str) -> None:
    relay = Relay(redis_url)

    async def use(number: int) -> None:
        async with relay, relay.publisher(f"run-{number}", thread_id="thread-1") as publisher:
            await publisher.publish(items.started(1, run_id=f"run-{number}"))

    await asyncio.gather(*map(use, range(5)))
    cancelled = asyncio.create_task(use(5))
    await asyncio.sleep(0)
    others = asyncio.gather(use(6), use(7))
    await asyncio.sleep(0)
    cancelled.cancel()
    await others
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    with pytest.raises(RuntimeError, match="not open"):
        _ = relay.client
    nobody = Relay(redis_url, settings=RelaySettings(partitions=7))
    failures = await asyncio.gather(*(nobody.__aenter__() for _ in range(3)), return_exceptions=True)
    assert [type(failure) for failure in failures] == [RelayError] * 3


async def test_an_address_that_asks_for_text_is_given_bytes(redis_url: str) -> None:
    async with Relay(f"{redis_url}{'&' if '?' in redis_url else '?'}decode_responses=true") as relay:
        async with relay.publisher("run-1", thread_id="thread-1") as publisher:
            await publisher.publish(items.started(1))
        run = await relay.run("run-1")
    assert run is not None
    assert run.thread_id == "thread-1"
    async with Redis.from_url(redis_url, decode_responses=True) as client:
        with pytest.raises(ValueError, match="make it with decode_responses=False"):
            Relay(client=client)


async def test_a_full_server_can_be_looked_at_and_mended(relay: Relay, redis_url: str) -> None:
    async with relay.publisher("run-1", thread_id="thread-1") as publisher:
        await publisher.publish(items.started(1))
    await relay.client.config_set("maxmemory", 1)
    try:
        async with Relay(redis_url) as other:
            assert [run.run_id async for run in other.runs()] == ["run-1"]
            assert await other.delete("run-1")
    finally:
        await relay.client.config_set("maxmemory", 0)


async def test_bad_items_are_refused_and_nothing_else_is_harmed(relay: Relay) -> None:
    async with relay.publisher("run-1", thread_id="thread-1") as publisher:
        await publisher.publish(items.started(1))
        with pytest.raises(ItemError, match="JSON"):
            await publisher.publish(b"{nonsense")
        with pytest.raises(ItemError, match="sequence"):
            await publisher.publish(b'{"v":1,"source":"harness","thread_id":"t","run_id":"r","sequence":-1}')
        with pytest.raises(TypeError):
            await publisher.publish(42)
        await publisher.publish(items.result(2))
    assert len(await stored(relay.client)) == 2


async def test_an_item_above_the_bound_is_refused_with_its_size(relay: Relay) -> None:
    big = items.custom(2, "big", "x" * (9 * 1024 * 1024))
    async with relay.publisher("run-1", thread_id="thread-1") as publisher:
        await publisher.publish(items.started(1))
        with pytest.raises(ItemTooLarge, match=f"has {len(encode_item(big))} bytes, at most 8388608"):
            await publisher.publish(big)
        await publisher.publish(items.result(3, output="y" * (20 * 1024 * 1024)))
    last = decode_item((await stored(relay.client))[-1])
    assert last.terminal == "finished"
    assert b"result_omitted" in bytes(last.result)
    assert len(encode_item(last)) < 1000


async def test_publishing_waits_while_too_much_is_unread(redis_url: str) -> None:
    settings = RelaySettings(unread_bytes=20_000, publisher_buffer_bytes=10_000)
    async with Relay(redis_url, settings=settings) as relay:
        async with relay.publisher("run-1", thread_id="thread-1") as publisher:

            async def publish_all() -> None:
                for item in items.text_run(500):
                    await publisher.publish(item)
                await publisher.flush()

            task = asyncio.create_task(publish_all())

            async def stopped() -> bool:
                return bool(0 < await relay.client.xlen(KEYS.items) == publisher.stored)

            await eventually(stopped)
            assert not task.done()
            unread = int(await relay.client.hget(KEYS.state, "unread"))
            assert unread <= 20_000
            # Somebody reads: room again.

            async def read() -> bool:
                await relay.client.hset(KEYS.state, "unread", 0)
                return task.done()

            await eventually(read, within=30)
            await task
    async with Redis.from_url(redis_url) as client:
        assert len(await stored(client)) == 504


async def test_acknowledged_items_that_a_failover_lost_are_sent_again(relay: Relay) -> None:
    """The replica that takes over has an older state: what it does not know is sent again, from the window."""
    run = list(items.text_run(50))
    async with relay.publisher("run-1", thread_id="thread-1") as publisher:
        for item in run[:10]:
            await publisher.publish(item)
        await publisher.flush()
        older = {key: await relay.client.dump(key) for key in (KEYS.state, KEYS.items)}
        for item in run[10:40]:
            await publisher.publish(item)
            await publisher.flush()
        for key, value in older.items():
            await relay.client.restore(key, 100_000, value, replace=True)
        for item in run[40:]:
            await publisher.publish(item)
    assert await stored(relay.client) == [encode_item(item) for item in run]


async def test_items_that_are_lost_for_good_are_reported(redis_url: str) -> None:
    async with Relay(redis_url, settings=RelaySettings(publisher_window_bytes=1)) as relay:
        run = list(items.text_run(50))
        async with relay.publisher("run-1", thread_id="thread-1") as publisher:
            await publisher.publish(run[0])
            await publisher.flush()
            older = {key: await relay.client.dump(key) for key in (KEYS.state, KEYS.items)}
            for item in run[1:10]:
                await publisher.publish(item)
                await publisher.flush()
            for key, value in older.items():
                await relay.client.restore(key, 100_000, value, replace=True)
            await publisher.publish(run[10])
            with pytest.raises(RunLost, match=r"items 2 to 9 of run 'run-1' were acknowledged and are lost"):
                await publisher.flush()
