"""What a relay promises, on every kind of server: the packaged one, a container, a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

from agui_relay import Delivery, ItemError, Relay, RelayError, RelaySettings, RunEnded, create_worker
from agui_relay.broker.keys import GROUP, PartitionKeys, RunKeys
from agui_relay.broker.scripts import AppendItem
from agui_relay.source import encode_item
from integration_tests import items
from integration_tests.backends import NAMES, Backend, backend
from integration_tests.frames import FrameWriter, event
from integration_tests.processes import Fleet, wait_until_ready
from integration_tests.proxy import Proxy
from integration_tests.test_worker import projection, publish, read_all, running
from integration_tests.waiting import eventually
from tests.case_files import Case, load_cases

CASES = [
    "plain-text",
    "reasoning-and-tools",
    "inline-child",
    "large-custom-events",
    "refused-items",
    "terminal-item-twice",
]
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module", params=NAMES)
def started(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Start each backend once."""
    with backend(request.param) as started:
        yield started


@pytest.fixture
def server(started: Backend) -> Iterator[Backend]:
    """Give an empty backend; afterwards every key of a run must have an expiry, or be gone."""
    yield from _emptied(started)


def _emptied(started: Backend) -> Iterator[Backend]:
    started.on_each("FLUSHALL")
    yield started
    leaked = started.leaked_keys()
    started.on_each("FLUSHALL")
    assert not leaked, "keys of a run left without an expiry"


@pytest.fixture
async def relay(server: Backend) -> AsyncIterator[Relay]:
    """Give a relay with quick leases."""
    settings = server.settings(publisher_lease=1.0, subscription_lease=1.0, claim_idle=0.5)
    async with Relay(server.url, settings=settings) as relay:
        yield relay


@pytest.fixture
async def worker(relay: Relay) -> AsyncIterator[None]:
    """Run a worker in this process."""
    async with running(create_worker(relay)):
        yield


def keys_of(relay: Relay, run_id: str = "run-1") -> RunKeys:
    return RunKeys(relay.settings.namespace, run_id, relay.settings.partitions)


async def nothing_is_ready(relay: Relay) -> bool:
    """Whether no ready stream holds an entry, pending or not."""
    for number in range(relay.settings.partitions):
        ready = PartitionKeys(relay.settings.namespace, number).ready
        if await relay.client.xlen(ready) or (await relay.client.xpending(ready, GROUP))["pending"]:
            return False
    return True


@pytest.mark.usefixtures("worker")
async def test_cases_give_the_same_events_as_the_library(relay: Relay) -> None:
    async def carried(case: Case) -> list[Any]:
        reader = asyncio.create_task(read_all(relay, case.run_id))
        try:
            async with relay.publisher(case.run_id, thread_id=case.thread_id) as publisher:
                for place, item in enumerate(case.encoded()):
                    try:
                        await publisher.publish(item)
                    except ItemError:
                        assert place in case.refused
        except RunEnded:
            assert case.delivered != case.events
        events, _ = await reader
        return events

    cases = {case.name: case for case in load_cases()}
    for name in CASES:
        # One by one: the cases share their run ids.
        case = cases[name]
        assert await carried(case) == case.delivered, name
        assert await relay.delete(case.run_id)
    await eventually(partial(nothing_is_ready, relay))


@pytest.mark.usefixtures("worker")
async def test_many_runs_at_once_are_seen_read_and_deleted(relay: Relay) -> None:
    names = [f"run {number}/%{{*}}\u00fc" for number in range(24)]
    runs = {name: list(items.text_run(number * 5, run_id=name)) for number, name in enumerate(names)}
    readers = [asyncio.create_task(read_all(relay, name)) for name in names]
    await asyncio.gather(*(publish(relay, run, name) for name, run in runs.items()))
    for name, reader in zip(names, readers, strict=True):
        assert await reader == (projection(runs[name]), "finished")
    infos = {info.run_id: info async for info in relay.runs()}
    assert set(infos) == set(names)
    for name, run in runs.items():
        info = infos[name]
        assert (info.status, info.items, info.lag, info.rejected) == ("finished", len(run), 0, 0)
        assert info.memory > 0
    await eventually(partial(nothing_is_ready, relay))
    assert all(await asyncio.gather(*map(relay.delete, names)))
    assert [info async for info in relay.runs()] == []


@pytest.mark.usefixtures("worker")
async def test_what_is_published_again_is_stored_once(relay: Relay) -> None:
    run = list(items.text_run(30))
    async with relay.publisher("run-1", thread_id="thread-1") as first:
        for item in run[:20]:
            await first.publish(item)
        await first.flush()
        # Another process that does not know how far this one came.
        async with relay.publisher("run-1", token=first.token) as second:
            for item in run:
                await second.publish(item)
                await second.publish(encode_item(item))
    assert await read_all(relay) == (projection(run), "finished")
    info = await relay.run("run-1")
    assert info is not None
    assert info.items == len(run)


@pytest.mark.usefixtures("worker")
async def test_a_rejected_item_is_set_aside(relay: Relay) -> None:
    run = list(items.text_run(5))
    async with relay.publisher("run-1", thread_id="thread-1") as publisher:
        for item in run[:4]:
            await publisher.publish(item)
        await publisher.flush()
        # Not through the publisher, which would refuse it.
        reply = await relay.scripts.append(
            keys_of(relay),
            token=publisher.token,
            known=4,
            lease_ms=30_000,
            kept_ms=1000_000,
            unread_bytes=1 << 20,
            thread_id="thread-1",
            items=[AppendItem("elsewhere", 1, "", b'{"v":1,"source":"nobody"}')],
        )
        assert reply.word == "ok"
        for item in run[4:]:
            await publisher.publish(item)
    assert await read_all(relay) == (projection(run), "finished")
    [row] = [row async for row in relay.rejected("run-1")]
    assert (row.ordinal, row.item) == (5, b'{"v":1,"source":"nobody"}')


async def test_a_killed_worker_is_only_a_pause(server: Backend, relay: Relay) -> None:
    environment = {
        "AGUI_RELAY_PARTITIONS": str(server.partitions),
        "AGUI_RELAY_CLAIM_IDLE": "0.5",
        "AGUI_RELAY_BATCH_ITEMS": "4",
    }
    names = [f"run-{number}" for number in range(6)]
    runs = {name: list(items.text_run(300, run_id=name)) for name in names}
    with Fleet(server.url, 2, environment=environment) as fleet:
        await asyncio.gather(*(asyncio.to_thread(wait_until_ready, process) for process in fleet.processes))
        readers = [asyncio.create_task(read_all(relay, name)) for name in names]
        publishing = asyncio.gather(*(publish(relay, run, name) for name, run in runs.items()))

        async def in_the_middle() -> bool:
            return any([info.frames > 10 and info.lag > 10 async for info in relay.runs()])

        await eventually(in_the_middle)
        fleet.processes[0].kill()
        await publishing
        for name, reader in zip(names, readers, strict=True):
            assert await reader == (projection(runs[name]), "finished")
    await eventually(partial(nothing_is_ready, relay))


@pytest.mark.usefixtures("worker")
async def test_readers_that_are_cut_miss_nothing(server: Backend, relay: Relay) -> None:
    names = [f"run-{number}" for number in range(6)]
    runs = {name: list(items.text_run(60, run_id=name)) for name in names}
    subscriptions = [relay.subscribe(name) for name in names for _ in range(3)]

    async def follow(subscription: Any) -> list[Any]:
        return [delivery.event async for delivery in subscription]

    async def go_on(name: str, run: list[Any]) -> None:
        async with relay.publisher(name, thread_id="thread-1") as publisher:
            for number, item in enumerate(run):
                await publisher.publish(item)
                if number % 20 == 10:
                    await publisher.flush()
                    await asyncio.to_thread(server.on_each, "CLIENT", "KILL", "TYPE", "pubsub")

    async with AsyncExitStack() as stack:
        for subscription in subscriptions:
            await stack.enter_async_context(subscription)
        readers = [asyncio.create_task(follow(subscription)) for subscription in subscriptions]
        await asyncio.gather(*(go_on(name, run) for name, run in runs.items()))
        async with asyncio.timeout(30):
            for number, reader in enumerate(readers):
                assert await reader == projection(runs[names[number // 3]])
        assert {subscription.outcome for subscription in subscriptions} == {"finished"}
        assert any(subscription.reconnects for subscription in subscriptions)


@pytest.mark.usefixtures("worker")
async def test_a_dead_publisher_leaves_an_abandoned_run(relay: Relay) -> None:
    names = [f"run-{number}" for number in range(4)]
    for name in names:
        publisher = relay.publisher(name, thread_id="thread-1")
        await publisher.__aenter__()
        await publisher.publish(items.started(1, run_id=name))
        await publisher.flush()
        assert publisher._sender is not None
        publisher._sender.cancel()  # It dies here: no heartbeat, no farewell.
    for name in names:
        events, outcome = await read_all(relay, name)
        assert ([event["type"] for event in events], outcome) == (["RUN_STARTED"], "abandoned")


@pytest.mark.usefixtures("worker")
async def test_a_deleted_run_is_lost_to_its_readers(relay: Relay) -> None:
    async with relay.publisher("run-1", thread_id="thread-1") as publisher:
        await publisher.publish(items.started(1))
        async with relay.subscribe("run-1") as subscription:
            delivery = await anext(subscription)
            assert isinstance(delivery, Delivery)
            assert delivery.event["type"] == "RUN_STARTED"
            assert await relay.delete("run-1")
            async with asyncio.timeout(10):
                assert [item async for item in subscription] == []
            assert subscription.outcome == "lost"
    assert await relay.run("run-1") is None
    assert not await relay.delete("run-1")


@pytest.mark.usefixtures("worker")
async def test_a_server_that_was_emptied_serves_the_next_runs(server: Backend, relay: Relay) -> None:
    for turn in range(3):
        names = [f"run {turn} {number}" for number in range(8)]
        runs = {name: list(items.text_run(5, run_id=name)) for name in names}
        readers = [asyncio.create_task(read_all(relay, name)) for name in names]
        await asyncio.gather(*(publish(relay, run, name) for name, run in runs.items()))
        for name, reader in zip(names, readers, strict=True):
            assert await reader == (projection(runs[name]), "finished")
        # Runs, ready streams and their groups, and on the way the scripts.
        await asyncio.to_thread(server.on_each, "FLUSHALL")
        await asyncio.to_thread(server.on_each, "SCRIPT", "FLUSH")


async def test_another_number_of_partitions_is_refused(server: Backend, relay: Relay) -> None:
    settings = RelaySettings(partitions=server.partitions + 1)
    with pytest.raises(RelayError, match=f"has {server.partitions} partitions, this process is set to"):
        async with Relay(server.url, settings=settings):
            pass
    async with Relay(server.url, settings=RelaySettings(partitions=2, namespace="another")):
        pass


# -- the fan-out, also where a server cuts those who are slow ---------------------------------------------------------


@pytest.fixture(scope="module")
def started_to_announce(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Start each backend that announces in its own way."""
    with backend(request.param) as started:
        yield started


@pytest.fixture
def announcing(started_to_announce: Backend) -> Iterator[Backend]:
    yield from _emptied(started_to_announce)


@pytest.mark.parametrize("started_to_announce", ["embedded", "redis-8.2", "cluster"], indirect=True)
async def test_a_crowd_is_told_all_of_large_frames(announcing: Backend) -> None:
    """Ten processes, as far as the server can tell, of six readers each."""
    settings = announcing.settings(subscription_lease=2.0)
    async with AsyncExitStack() as stack:
        writing, *relays = [
            await stack.enter_async_context(Relay(announcing.url, settings=settings)) for _ in range(11)
        ]
        writer = await FrameWriter(writing.scripts, keys_of(writing)).open()
        subscriptions = [relay.subscribe("run-1") for relay in relays for _ in range(6)]
        await asyncio.gather(*map(stack.enter_async_context, subscriptions))
        readers = [asyncio.create_task(_data(subscription)) for subscription in subscriptions]
        for number in range(30):
            await writer.commit(event(number, 45_000))
        await writer.commit(outcome="finished")
        async with asyncio.timeout(60):
            for reader in readers:
                assert await reader == writer.events


@pytest.mark.parametrize("started_to_announce", ["embedded", "redis-8.2"], indirect=True)
async def test_a_reader_that_the_server_finds_too_slow_misses_nothing(announcing: Backend) -> None:
    # What the default allows is more than a test should need.
    announcing.on_each("CONFIG", "SET", "client-output-buffer-limit", "pubsub 1mb 0 0")
    settings = announcing.settings(subscription_lease=60.0)
    host, _, port = announcing.url.removeprefix("redis://").removesuffix("/0").partition(":")
    async with (
        Proxy((host, int(port))) as proxy,
        Relay(announcing.url, settings=settings) as relay,
        Relay(proxy.url, settings=settings) as slow,
        slow.subscribe("run-1") as subscription,
    ):
        writer = await FrameWriter(relay.scripts, keys_of(relay)).open()
        reader = asyncio.create_task(_data(subscription))
        proxy.stall(*proxy.listening)
        # The kernel's buffers are filled first.
        cut = False
        for number in range(600):
            await writer.commit(event(number, 45_000))
            stats = await relay.client.info("stats")
            cut = stats["client_output_buffer_limit_disconnections"] > 0
            if cut:
                break
        assert cut or announcing.name != "redis-8.2", "this server should have cut the connection"
        proxy.flow()

        async def is_back() -> bool:
            return subscription.reconnects >= cut

        await eventually(is_back)
        await writer.commit(outcome="finished")
        async with asyncio.timeout(60):
            assert await reader == writer.events


async def _data(subscription: Any) -> list[bytes]:
    return [delivery.data async for delivery in subscription]
