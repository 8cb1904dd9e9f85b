"""What only a Redis Cluster does: spread the runs over its nodes, lose one of them, move a slot to another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
from redis.asyncio import Redis, RedisCluster
from redis.crc import key_slot

from agui_relay import Delivery, Relay, RelayError, RelaySettings
from agui_relay.broker.keys import PartitionKeys, RunKeys
from agui_relay.broker.worker import Worker
from integration_tests import items
from integration_tests.cluster import Cluster, command
from integration_tests.frames import FrameWriter, event
from integration_tests.test_backends import nothing_is_ready
from integration_tests.test_worker import projection, publish, read_all, running
from integration_tests.waiting import eventually

SETTINGS = RelaySettings(partitions=6, publisher_lease=3.0, subscription_lease=1.0, claim_idle=0.5)
pytestmark = pytest.mark.timeout(120)


def make() -> Cluster:
    """Make a cluster that keeps what it acknowledged, and goes on with what it has left."""
    return Cluster("--appendonly", "yes", "--appendfsync", "always", "--cluster-require-full-coverage", "no")


@pytest.fixture
async def fragile() -> AsyncIterator[Cluster]:
    """Give a cluster that the test may break."""
    async with make() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    """Start the cluster of the tests that leave it whole."""
    cluster = make()
    asyncio.run(cluster.start())
    try:
        yield cluster
    finally:
        asyncio.run(cluster.close())


@pytest.fixture
async def cluster(shared: Cluster) -> Cluster:
    """Give an empty cluster."""
    for node in shared.nodes:
        async with Redis.from_url(node.url) as client:
            await client.flushall()
    return shared


def node_of(cluster: Cluster, keys: PartitionKeys) -> int:
    """Return the number of the node that holds a partition at first."""
    return cluster.owner(key_slot(keys.ready.encode()))


async def follow(subscription: Any) -> list[Any]:
    events = []
    async for delivery in subscription:
        assert isinstance(delivery, Delivery), delivery
        events.append(delivery.event)
    return events


async def test_runs_are_spread_over_the_nodes(cluster: Cluster) -> None:
    names = [f"run-{number}" for number in range(30)]
    runs = {name: list(items.text_run(5, run_id=name)) for name in names}
    async with Relay(cluster.url, settings=SETTINGS) as relay, running(Worker(relay).application()):
        await asyncio.gather(*(publish(relay, run, name) for name, run in runs.items()))
        for name, run in runs.items():
            assert await read_all(relay, name) == (projection(run), "finished")
    for node in cluster.nodes:
        async with Redis.from_url(node.url) as client:
            assert [key async for key in client.scan_iter(match="*:state")]


async def test_one_partition_is_enough(cluster: Cluster) -> None:
    run = list(items.text_run(20))
    async with Relay(cluster.url) as relay, running(Worker(relay).application()):
        assert relay.is_cluster
        await publish(relay, run)
        assert await read_all(relay) == (projection(run), "finished")


async def test_a_cluster_client_lends_its_settings(cluster: Cluster) -> None:
    run = list(items.text_run(20))
    async with RedisCluster.from_url(cluster.url, socket_connect_timeout=3.0) as client:
        async with Relay(client=client, settings=SETTINGS) as relay, running(Worker(relay).application()):
            assert relay.is_cluster
            assert relay.client.connection_kwargs["socket_connect_timeout"] == 3.0
            await publish(relay, run)
            assert await read_all(relay) == (projection(run), "finished")
        # The relay's end is not the client's.
        assert await client.ping()


async def test_what_cannot_reach_a_cluster_is_refused(cluster: Cluster) -> None:
    with pytest.raises(RelayError, match="no unix sockets"):
        async with Relay(f"unix://{cluster.nodes[0].directory.parent / 'redis.sock'}"):
            pass
    async with Redis.from_url(cluster.url) as client:
        with pytest.raises(RelayError, match="give a RedisCluster as client"):
            async with Relay(client=client):
                pass
        assert await client.ping()
    with pytest.raises(ValueError, match="decode_responses"):
        Relay(client=RedisCluster.from_url(cluster.url, decode_responses=True))


async def test_many_calls_at_once_wait_for_their_turn(cluster: Cluster) -> None:
    """redis-py's own client raises when it has no connection left."""
    async with Relay(cluster.url, settings=SETTINGS) as relay:
        assert await asyncio.gather(*(relay.run(f"run-{number}") for number in range(200))) == [None] * 200


async def test_a_node_that_dies_and_comes_back_keeps_its_runs(fragile: Cluster) -> None:
    """Runs on the other nodes go on meanwhile; those of the dead one wait, and go on then."""
    names = [f"run-{number}" for number in range(18)]
    runs = {name: list(items.text_run(40, run_id=name)) for name in names}
    down = 1
    off = {name for name in names if node_of(fragile, RunKeys("agui", name, SETTINGS.partitions)) == down}
    assert off
    assert off != set(names)
    async with Relay(fragile.url, settings=SETTINGS) as relay, AsyncExitStack() as stack:
        worker = Worker(relay)
        await stack.enter_async_context(running(worker.application()))
        subscriptions = {name: await stack.enter_async_context(relay.subscribe(name)) for name in names}
        readers = {name: asyncio.create_task(follow(subscription)) for name, subscription in subscriptions.items()}
        publishers = {name: await stack.enter_async_context(relay.publisher(name)) for name in names}
        for name, run in runs.items():
            for item in run[:20]:
                await publishers[name].publish(item)
            await publishers[name].flush()
        await fragile.nodes[down].kill()
        for name, run in runs.items():
            for item in run[20:]:
                await publishers[name].publish(item)
        async with asyncio.timeout(30):
            for name in names:
                if name not in off:
                    assert await readers[name] == projection(runs[name])
        await eventually(partial(_is_ready, worker, False))
        assert not any(readers[name].done() for name in off)
        await fragile.nodes[down].start()
        async with asyncio.timeout(30):
            for name in off:
                assert await readers[name] == projection(runs[name])
        await eventually(partial(_is_ready, worker, True))
        await eventually(partial(nothing_is_ready, relay))
        assert {subscription.outcome for subscription in subscriptions.values()} == {"finished"}


async def _is_ready(worker: Worker, ready: bool) -> bool:
    return worker.ready is ready


async def test_a_replica_takes_over(fragile: Cluster) -> None:
    names = [f"run-{number}" for number in range(18)]
    runs = {name: list(items.text_run(40, run_id=name)) for name in names}
    down = 1
    assert any(node_of(fragile, RunKeys("agui", name, SETTINGS.partitions)) == down for name in names)
    replica = await fragile.add_replica(down)
    settings = SETTINGS.model_copy(update={"publisher_lease": 15.0})
    async with Relay(fragile.url, settings=settings) as relay, AsyncExitStack() as stack:
        await stack.enter_async_context(running(Worker(relay).application()))
        readers = [
            asyncio.create_task(follow(await stack.enter_async_context(relay.subscribe(name)))) for name in names
        ]
        publishers = [await stack.enter_async_context(relay.publisher(name)) for name in names]
        for name, publisher in zip(names, publishers, strict=True):
            for item in runs[name][:20]:
                await publisher.publish(item)
            await publisher.flush()
        async with Redis.from_url(fragile.nodes[down].url) as client:
            # What the replica does not have may be lost; that is another test's.
            assert await client.wait(1, 5000) == 1
        await fragile.nodes[down].kill()
        for name, publisher in zip(names, publishers, strict=True):
            for item in runs[name][20:]:
                await publisher.publish(item)
        async with asyncio.timeout(40):
            for name, reader in zip(names, readers, strict=True):
                assert await reader == projection(runs[name])
        async with Redis.from_url(replica.url) as client:
            assert (await client.info("replication"))["role"] == "master"


async def test_a_slot_that_moves_takes_its_runs_along(fragile: Cluster) -> None:
    run = list(items.text_run(400))
    keys = RunKeys("agui", "run-1", SETTINGS.partitions)
    slot = key_slot(keys.ready.encode())
    source = fragile.owner(slot)
    target = (source + 1) % len(fragile.nodes)
    async with Relay(fragile.url, settings=SETTINGS) as relay, running(Worker(relay).application()):
        async with relay.subscribe("run-1") as subscription, relay.publisher("run-1") as publisher:
            reader = asyncio.create_task(follow(subscription))
            moved = asyncio.Event()

            async def publish_slowly() -> None:
                for number, item in enumerate(run[:-1]):
                    await publisher.publish(item)
                    if number % 8 == 0:
                        await publisher.flush()
                await moved.wait()
                await publisher.publish(run[-1])

            publishing = asyncio.create_task(publish_slowly())
            await fragile.move(slot, source, target)
            moved.set()
            await publishing
            async with asyncio.timeout(30):
                assert await reader == projection(run)
            assert subscription.reconnects >= 1
        async with Redis.from_url(fragile.nodes[target].url) as client:
            assert await client.exists(keys.state)
        assert await read_all(relay) == (projection(run), "finished")
        await eventually(partial(nothing_is_ready, relay))


async def test_a_channel_is_heard_on_the_node_that_its_slot_has_moved_to(fragile: Cluster) -> None:
    """Nothing but the server tells the reader: its next heartbeat is far away."""
    settings = RelaySettings(partitions=6, subscription_lease=120)
    async with Relay(fragile.url, settings=settings) as relay:
        keys = RunKeys("agui", "run-1", 6)
        slot = key_slot(keys.ready.encode())
        source = fragile.owner(slot)
        writer = await FrameWriter(relay.scripts, keys).open()
        async with relay.subscribe("run-1") as subscription:
            await writer.commit(event(1))
            await anext(subscription)
            await fragile.move(slot, source, (source + 1) % 3)
            await writer.commit(event(2), outcome="finished")
            async with asyncio.timeout(20):
                assert [delivery.data async for delivery in subscription if isinstance(delivery, Delivery)] == [
                    event(2)
                ]


async def test_a_node_that_has_forgotten_the_scripts_is_given_them_again(cluster: Cluster) -> None:
    async with Relay(cluster.url, settings=SETTINGS) as relay, running(Worker(relay).application()):
        for turn in range(3):
            for node in cluster.nodes:
                async with Redis.from_url(node.url) as client:
                    await command(client, "SCRIPT", "FLUSH")
            names = [f"run {turn} {number}" for number in range(12)]
            runs = {name: list(items.text_run(5, run_id=name)) for name in names}
            await asyncio.gather(*(publish(relay, run, name) for name, run in runs.items()))
            for name, run in runs.items():
                assert await read_all(relay, name) == (projection(run), "finished")
