"""Each sequence of events that was once thought dangerous, with its right outcome, on real servers."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from agui_relay.broker.errors import RunEnded, RunLost
from agui_relay.broker.hub import Hub
from agui_relay.broker.keys import GROUP, RunKeys
from agui_relay.broker.rounds import Rounds
from agui_relay.broker.scripts import AppendItem, Scripts, ensure_group
from agui_relay.broker.settings import RelaySettings
from agui_relay.broker.subscription import Delivery, DisplayCheckpoint, GapNotice
from agui_relay.broker.worker import create_worker
from agui_relay.embedded import EmbeddedRedis
from agui_relay.relay import Relay
from agui_relay.source import HarnessItem, decode_item, encode_item
from integration_tests import items
from integration_tests.frames import FrameWriter, event
from integration_tests.processes import Fleet
from integration_tests.processors import MARK, WORD
from integration_tests.proxy import Proxy
from integration_tests.test_subscription_faults import socket_of
from integration_tests.test_worker import nothing_pending, projection, publish, read_all, running
from integration_tests.waiting import eventually

KEYS = RunKeys("agui", "run-1")


@pytest.fixture
async def relay(redis_url: str) -> AsyncIterator[Relay]:
    async with Relay(redis_url) as relay:
        await ensure_group(relay.client, KEYS)
        yield relay


async def take(relay: Relay, consumer: str) -> dict[bytes, RunKeys]:
    """Read the ready entries that are there, as a worker with this name."""
    rows = await relay.client.xreadgroup(GROUP, consumer, {KEYS.ready: ">"})
    return {entry: RunKeys("agui", fields[b"__data__"].decode()) for _, found in rows for entry, fields in found}


async def claim(relay: Relay, consumer: str) -> dict[bytes, RunKeys]:
    """Claim what others have, however short the time."""
    _, found, _ = await relay.client.xautoclaim(KEYS.ready, GROUP, consumer, 0)
    return {entry: RunKeys("agui", fields[b"__data__"].decode()) for entry, fields in found}


class Interrupted(Scripts):
    """Scripts with an event between a worker's fetch and its commit."""

    def __init__(self, client: Any, between: Any) -> None:
        super().__init__(client)
        self._between = between

    async def commit_many(self, *args: Any, **options: Any) -> Any:
        between, self._between = self._between, None
        if between is not None:
            await between()
        return await super().commit_many(*args, **options)


async def frames(relay: Relay, keys: RunKeys = KEYS) -> list[bytes]:
    return [row[b"frame"] for _, row in await relay.client.xrange(keys.frames)]


# -- ready entries ----------------------------------------------------------------------------------------------------


async def test_a_commit_with_an_entry_that_was_claimed_and_queued_again(relay: Relay) -> None:
    """The first worker is slow; a second one claims, has its turn and queues the run again; then the first commits."""
    run = list(items.text_run(60))
    settings = RelaySettings(batch_items=8, worker_turns=1)
    await publish(relay, run)
    mine = await take(relay, "slow")
    assert len(mine) == 1

    async def others_go_on() -> None:
        theirs = await claim(relay, "quick")
        assert theirs.keys() == mine.keys()
        await Rounds(relay.scripts, settings).drain(theirs)
        assert await relay.client.xlen(KEYS.ready) == 1

    slow = Rounds(Interrupted(relay.client, others_go_on), settings)
    await slow.drain(mine)
    assert slow.stale == 1
    assert (await relay.client.xpending(KEYS.ready, GROUP))["pending"] == 0
    assert await relay.client.xlen(KEYS.ready) == 1
    async with running(create_worker(relay)):
        assert await read_all(relay) == (projection(run), "finished")
        await eventually(partial(nothing_pending, relay))


class Slow(Scripts):
    """Scripts whose answers come late, by chance, so that whoever else runs goes on meanwhile."""

    def __init__(self, client: Any, chance: random.Random) -> None:
        super().__init__(client)
        self._chance = chance

    async def _pass(self) -> None:
        for _ in range(self._chance.choice((0, 0, 1, 5, 20))):
            await self._client.execute_command("PING")

    async def fetch_many(self, *args: Any, **options: Any) -> Any:
        replies = await super().fetch_many(*args, **options)
        await self._pass()
        return replies

    async def commit_many(self, *args: Any, **options: Any) -> Any:
        await self._pass()
        replies = await super().commit_many(*args, **options)
        await self._pass()
        return replies


@pytest.mark.parametrize("seed", range(8))
async def test_a_worker_claims_runs_from_itself(relay: Relay, seed: int) -> None:
    """Stopped for longer than the claim time, it may be at work on a run twice, with one memory of projectors."""
    chance = random.Random(seed)
    runs = {f"run-{number}": list(messages(f"run-{number}")) for number in range(5)}
    for run_id, run in runs.items():
        await publish(relay, run, run_id)
    entries = await take(relay, "one")
    assert len(entries) == len(runs)
    worker = Rounds(Slow(relay.client, chance), RelaySettings(batch_items=2, worker_turns=1000))

    async def drain(times: int) -> None:
        for _ in range(times):
            await worker.drain(dict(chance.sample(list(entries.items()), chance.randint(1, len(entries)))))

    await asyncio.gather(worker.drain(entries), *(drain(10) for _ in range(3)))
    async with running(create_worker(relay)):
        for run_id, run in runs.items():
            assert await read_all(relay, run_id) == (projection(run), "finished")
            assert [row async for row in relay.rejected(run_id)] == []


def messages(run_id: str) -> Iterator[HarnessItem]:
    """Make a run of short messages."""
    yield items.started(1, run_id=run_id)
    for number in range(2, 122, 6):
        yield items.text_start(number, run_id=run_id)
        for more in range(1, 5):
            yield items.text_delta(number + more, "some ", run_id=run_id)
        yield items.text_end(number + 5, "some " * 4, run_id=run_id)
    yield items.result(200, run_id=run_id)


async def test_a_commit_of_a_run_that_another_has_ended_meanwhile(relay: Relay) -> None:
    run = list(items.text_run(60))
    await publish(relay, run)
    mine = await take(relay, "slow")

    async def others_end_it() -> None:
        await Rounds(relay.scripts, relay.settings).drain(await claim(relay, "quick"))

    await Rounds(Interrupted(relay.client, others_end_it), relay.settings).drain(mine)
    assert await read_all(relay) == (projection(run), "finished")
    assert await nothing_pending(relay)


@pytest.mark.parametrize("key", [KEYS.ready, "group"])
async def test_the_queue_is_lost_between_fetch_and_commit(relay: Relay, key: str) -> None:
    run, waiting = list(items.text_run(60)), list(items.text_run(3, run_id="run-2"))
    await publish(relay, run)
    mine = await take(relay, "slow")
    await publish(relay, waiting, "run-2")

    async def lose() -> None:
        if key == "group":
            await relay.client.xgroup_destroy(KEYS.ready, GROUP)
        else:
            await relay.client.delete(key)

    await Rounds(Interrupted(relay.client, lose), relay.settings).drain(mine)
    async with running(create_worker(relay)):
        assert await read_all(relay) == (projection(run), "finished")
        assert await read_all(relay, "run-2") == (projection(waiting), "finished")
        await eventually(partial(nothing_pending, relay))


@pytest.mark.parametrize("cursor", [0, 8], ids=["at cursor 0", "later"])
async def test_everything_is_forgotten_between_fetch_and_commit(relay: Relay, cursor: int) -> None:
    """And the run id is used again at once: nothing of the old life gets into the new one."""
    settings = RelaySettings(batch_items=8, worker_turns=1)
    old = [items.started(1), items.text_start(2), *(items.text_delta(3 + n, "old") for n in range(30))]
    new = list(items.text_run(20))
    async with relay.publisher("run-1", thread_id="thread-1") as publisher:
        for item in old:
            await publisher.publish(item)
        await publisher.flush()
        worker = Rounds(relay.scripts, settings)
        if cursor:
            await worker.drain(await take(relay, "one"))
        mine = await take(relay, "one")
        assert mine

        async def forget() -> None:
            await relay.client.flushall()
            await ensure_group(relay.client, KEYS)
            # As many items, so that nothing but the epoch tells the lives apart.
            async with relay.publisher("run-1", thread_id="thread-1", token="next") as again:
                for item in new[: cursor or 8]:
                    await again.publish(item)
                await again.flush()
                if cursor:
                    await Rounds(relay.scripts, settings).drain(await take(relay, "other"))
                for item in new[cursor or 8 :]:
                    await again.publish(item)

        worker._scripts = Interrupted(relay.client, forget)
        await worker.drain(mine)
        assert worker.stale == 1
        with pytest.raises(RunLost):
            await publisher.publish(items.result(99))
            await publisher.flush()
    # The same worker, with what it knows of the old life, goes on.
    worker._scripts = relay.scripts
    while entries := await take(relay, "one"):
        await worker.drain(entries)
    assert await read_all(relay) == (projection(new), "finished")
    assert b"old" not in b"".join(await frames(relay))
    assert await nothing_pending(relay)


# -- lives ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("same_token", [False, True])
async def test_a_delayed_append_reaches_the_next_life(relay: Relay, same_token: bool) -> None:
    """It was on its way when the keys went; the id is used again, perhaps by the same publisher's next process."""
    async with relay.publisher("run-1", thread_id="thread-1", token="one") as publisher:
        await publisher.publish(items.started(1))
        await publisher.flush()
        await relay.client.flushall()
        async with relay.publisher("run-1", thread_id="thread-1", token="one" if same_token else "two") as again:
            await again.publish(items.started(1))
            await again.flush()
            await publisher.publish(items.text_delta(7, "late"))
            with pytest.raises(RunLost):
                await publisher.flush()
            # Nor does what the old one says when it leaves.
            await publisher._stop()
            info = await relay.run("run-1")
            assert info is not None
            assert (info.status, info.items) == ("live", 1)
            await again.publish(items.result(2))
    async with running(create_worker(relay)):
        assert await read_all(relay) == (projection([items.started(1), items.result(2)]), "finished")


@pytest.mark.parametrize("key", ["state", "items", "frames", "subs", "rejected", "display", "ready", "leases", "runs"])
@pytest.mark.parametrize("unread", [False, True], ids=["all is read", "items wait"])
async def test_a_key_is_removed_by_hand(redis_url: str, key: str, unread: bool) -> None:
    """What can be known is told: the run goes on, or it is lost; nobody hangs, and other runs are not touched."""
    settings = RelaySettings(subscription_lease=0.6, claim_idle=0.3, publisher_lease=1.0)
    run = list(items.text_run(40))
    async with Relay(redis_url, settings=settings) as relay:
        given: list[Any] = []

        async def read() -> str | None:
            async with relay.subscribe("run-1") as subscription:
                async for delivery in subscription:
                    given.append(delivery)  # noqa: PERF401 - others look at it meanwhile
                return subscription.outcome

        reading = asyncio.create_task(read())
        ended: Exception | None = None
        async with running(create_worker(relay)):
            publisher = relay.publisher("run-1", thread_id="thread-1")
            await publisher.__aenter__()
            for item in run[:20]:
                await publisher.publish(item)
            await publisher.flush()
            await eventually(partial(_at_least, given, 20))
        if unread:
            for item in run[20:30]:
                await publisher.publish(item)
            await publisher.flush()
        await relay.client.delete(getattr(KEYS, key))
        async with running(create_worker(relay)):
            try:
                for item in run[20:]:
                    await publisher.publish(item)
                await publisher.flush()
            except RunLost as error:
                ended = error
            async with asyncio.timeout(15):
                outcome = await reading
            events = [delivery.event for delivery in given if isinstance(delivery, Delivery)]
            wanted = projection(run)
            if key == "state" or (key == "items" and unread):
                # Whether the publisher hears of it depends on who comes first.
                assert outcome == "lost"
                assert ended is not None or key == "items"
                assert events == wanted[: len(events)]
            else:
                assert (outcome, ended) == ("finished", None)
                assert events == wanted
                assert len(events) == len(given)
            await publisher._stop()
            other = list(items.text_run(3, run_id="run-2"))
            await publish(relay, other, "run-2")
            assert await read_all(relay, "run-2") == (projection(other), "finished")
            await eventually(partial(nothing_pending, relay))
        late = RunKeys("agui", "run-1")
        if key == "frames":
            # One who comes late is told what the log does not hold any more.
            async with relay.subscribe("run-1") as subscription:
                first = await anext(subscription)
                assert isinstance(first, GapNotice)
                assert (first.first, first.last) == (1, 20)
        for name in late.all[:6]:
            assert await relay.client.pttl(name) != -1, name


async def _at_least(given: Sequence[Any], count: int) -> bool:
    return len(given) >= count


async def test_a_run_whose_lease_was_removed_still_ends(redis_url: str) -> None:
    """The lease is gone, and so is the publisher: a worker finds the run all the same."""
    settings = RelaySettings(subscription_lease=0.6, claim_idle=0.3, publisher_lease=0.6)
    async with Relay(redis_url, settings=settings) as relay, running(create_worker(relay)):
        publisher = relay.publisher("run-1", thread_id="thread-1")
        await publisher.__aenter__()
        await publisher.publish(items.started(1))
        await publisher.flush()
        assert publisher._sender is not None
        publisher._sender.cancel()
        await relay.client.delete(KEYS.leases)
        events, outcome = await read_all(relay)
    assert (len(events), outcome) == (1, "abandoned")


# -- publishers -------------------------------------------------------------------------------------------------------


async def test_the_publisher_dies_behind_its_terminal_item_and_no_worker_is_alive(redis_url: str) -> None:
    """For longer than its lease: the run has ended all the same, and is never abandoned."""
    settings = RelaySettings(publisher_lease=0.3)
    run = list(items.text_run(10))
    async with Relay(redis_url, settings=settings) as relay:
        publisher = relay.publisher("run-1", thread_id="thread-1")
        await publisher.__aenter__()
        for item in run:
            await publisher.publish(item)
        await publisher.flush()
        assert publisher._sender is not None
        publisher._sender.cancel()
        since = time.monotonic()

        async def lease_is_over() -> bool:
            return time.monotonic() - since > 2 * settings.publisher_lease

        await eventually(lease_is_over)
        async with running(create_worker(relay)):
            assert await read_all(relay) == (projection(run), "finished")

            async def swept() -> bool:
                return time.monotonic() - since > 6 * settings.publisher_lease

            await eventually(swept)
            assert await read_all(relay) == (projection(run), "finished")


async def test_the_server_is_away_for_longer_than_the_leases_of_live_publishers(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody is declared dead for it, nothing is lost or doubled; what is published meanwhile waits."""
    settings = RelaySettings(publisher_lease=0.6, subscription_lease=0.6, claim_idle=0.3)
    names = [f"run {number}" for number in range(5)]
    async with EmbeddedRedis("--appendonly", "yes", "--appendfsync", "always", port=0) as server:
        async with Relay(server.url, settings=settings) as relay, running(create_worker(relay)):
            readers = [asyncio.create_task(read_all(relay, name)) for name in names]
            away = asyncio.Event()

            async def live(name: str) -> None:
                run = list(items.text_run(60, run_id=name))
                async with relay.publisher(name, thread_id="thread-1") as publisher:
                    for item in run[:30]:
                        await publisher.publish(item)
                    await publisher.flush()
                    await away.wait()
                    for item in run[30:]:
                        await publisher.publish(item)

            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(live(name)) for name in names]

                async def all_stored() -> bool:
                    infos = [await relay.run(name) for name in names]
                    return all(info is not None and info.items == 30 for info in infos)

                await eventually(all_stored)
                await server.kill()
                away.set()
                await asyncio.sleep(5 * settings.publisher_lease)  # how long it is away
                assert not any(task.done() for task in tasks)
                await server.start()
            for name, reader in zip(names, readers, strict=True):
                assert await reader == (projection(list(items.text_run(60, run_id=name))), "finished")
            await eventually(partial(nothing_pending, relay))
    waits = [record.getMessage() for record in caplog.records if "publishing waits" in record.getMessage()]
    assert len(waits) == len(names)


async def test_a_publisher_restarts_and_sends_its_last_ten_items_again(redis_url: str) -> None:
    run = list(items.text_run(100))
    async with Relay(redis_url) as relay, running(create_worker(relay)):
        reading = asyncio.create_task(read_all(relay))
        async with Relay(redis_url) as first_process:
            first = first_process.publisher("run-1", thread_id="thread-1", token="mine")
            await first.__aenter__()
            for item in run[:60]:
                await first.publish(item)
            await first.flush()
            assert first._sender is not None
            first._sender.cancel()  # It dies here.
        async with relay.publisher("run-1", token="mine") as second:
            assert second.stored == 60
            for item in run[50:]:
                await second.publish(item)
        assert await reading == (projection(run), "finished")
        assert [row[b"item"] for _, row in await relay.client.xrange(KEYS.items)] == [encode_item(item) for item in run]
        assert [row async for row in relay.rejected("run-1")] == []


async def test_one_that_was_only_slow_is_told_that_its_run_is_over(redis_url: str) -> None:
    settings = RelaySettings(publisher_lease=0.6, subscription_lease=0.6)
    async with EmbeddedRedis(port=0) as server:
        assert server.port is not None
        async with Proxy(("127.0.0.1", server.port)) as proxy, Relay(server.url, settings=settings) as near:
            async with Relay(proxy.url, settings=settings) as far, running(create_worker(near)):
                reading = asyncio.create_task(read_all(near))
                with pytest.raises(RunEnded, match="abandoned"):
                    async with far.publisher("run-1", thread_id="thread-1") as publisher:
                        await publisher.publish(items.started(1))
                        await publisher.flush()
                        proxy.refuse()
                        proxy.cut()
                        assert await reading == (projection([items.started(1)]), "abandoned")
                        proxy.accept()
                        await publisher.publish(items.text_start(2))
                assert len(await near.client.xrange(KEYS.items)) == 1


def client_of(server: EmbeddedRedis) -> Any:
    return Redis.from_url(server.url)


# -- failover ---------------------------------------------------------------------------------------------------------


async def test_a_continuation_of_the_same_number_but_another_history(relay: Relay) -> None:
    """A failover takes a run back; another worker goes another way to as many continuations. The first notices."""
    run = [items.started(1)]
    for number in range(2, 41, 3):
        run += [
            items.text_start(number),
            items.text_delta(number + 1, f"text {number}"),
            items.text_end(number + 2, f"text {number}"),
        ]
    run.append(items.result(100))
    small, large = RelaySettings(batch_items=1, worker_turns=1), RelaySettings(batch_items=3, worker_turns=1)
    one, two = Rounds(relay.scripts, small), Rounds(relay.scripts, large)
    await publish(relay, run)
    await one.drain(await take(relay, "one"))
    older = {key: await relay.client.dump(key) for key in (KEYS.state, KEYS.frames, KEYS.items)}
    for _ in range(4):
        await one.drain(await take(relay, "one"))
    for key, value in older.items():
        await relay.client.restore(key, 100_000, value, replace=True)
    # The entry that the older state speaks of is gone: any heartbeat queues the run again.
    await relay.scripts.join(KEYS, view="full", subscription_id="any", lease_ms=1000, kept_ms=1000_000, nonce="any")
    for _ in range(4):
        await two.drain(await take(relay, "two"))
    while entries := await take(relay, "one"):
        await one.drain(entries)
    assert await read_all(relay) == (projection(run), "finished")
    assert [row async for row in relay.rejected("run-1")] == []


async def test_a_replica_without_the_last_acknowledged_items_becomes_primary(tmp_path: Path) -> None:
    """Real replication: publisher, worker and reader go over to the replica through a proxy."""
    run = list(items.text_run(300))
    settings = RelaySettings(subscription_lease=0.6, claim_idle=0.3, publisher_lease=2.0)
    async with EmbeddedRedis(port=0) as primary, EmbeddedRedis(port=0) as replica:
        assert primary.port is not None
        assert replica.port is not None
        async with (
            client_of(primary) as primary_client,
            client_of(replica) as replica_client,
            Proxy(("127.0.0.1", primary.port)) as link,
            Proxy(("127.0.0.1", primary.port)) as proxy,
            Relay(proxy.url, settings=settings) as relay,
            running(create_worker(relay)),
        ):
            host, port = link.address
            await replica_client.execute_command("REPLICAOF", host, port)

            async def is_synchronous() -> bool:
                info = await replica_client.info("replication")
                master = await primary_client.info("replication")
                return bool(
                    info["master_link_status"] == "up" and info["slave_repl_offset"] == master["master_repl_offset"]
                )

            given: list[Any] = []

            async def read() -> str | None:
                async with relay.subscribe("run-1") as subscription:
                    async for delivery in subscription:
                        if isinstance(delivery, GapNotice):
                            assert delivery.restarts
                            given.clear()
                        else:
                            assert isinstance(delivery, Delivery)
                            given.append(delivery.event)
                    return subscription.outcome

            reading = asyncio.create_task(read())
            async with relay.publisher("run-1", thread_id="thread-1") as publisher:
                for item in run[:100]:
                    await publisher.publish(item)
                await publisher.flush()
                await eventually(partial(_at_least, given, 100))
                await eventually(is_synchronous)
                # From here on the replica hears nothing, and the primary acknowledges all the same.
                link.refuse()
                link.cut()
                for item in run[100:200]:
                    await publisher.publish(item)
                await publisher.flush()
                assert publisher.stored == 200
                await eventually(partial(_at_least, given, 200))
                await primary.kill()
                await replica_client.execute_command("REPLICAOF", "NO", "ONE")
                proxy.turn_to(("127.0.0.1", replica.port))
                for item in run[200:]:
                    await publisher.publish(item)
            assert await reading == "finished"
            assert given == projection(run)
            kept = [row[b"item"] for _, row in await replica_client.xrange(KEYS.items)]
            assert kept == [encode_item(item) for item in run]
            assert await read_all(relay) == (projection(run), "finished")
            await eventually(partial(nothing_pending, relay))


async def test_the_end_of_a_run_overtakes_the_answer_to_a_reader_who_joins(redis_url: str) -> None:
    """The channel has told all before the connection of the commands gives its answer."""
    async with Proxy(socket_of(redis_url)) as proxy, Relay(redis_url) as near, Relay(proxy.url) as relay:
        ended = await FrameWriter(near.scripts, KEYS).open()
        await ended.commit(event(1), outcome="finished")
        # So that the connection of the channels is there.
        async with relay.subscribe("another run"):
            for number in proxy.connections:
                if number not in proxy.listening:
                    proxy.stall(number)
            async with asyncio.timeout(5), relay.subscribe("run-1") as subscription:
                given = [delivery async for delivery in subscription]
            assert [delivery.data for delivery in given if isinstance(delivery, Delivery)] == ended.events
            proxy.flow()


# -- items ------------------------------------------------------------------------------------------------------------


async def test_the_first_item_of_a_run_is_rejected_and_a_childs_comes_next(relay: Relay) -> None:
    """The run stays the root, and the child its child."""
    child = list(items.text_run(3, run_id="child", thread_id="thread-2"))
    root = list(items.text_run(3))
    run = [items.text_delta(0, "x", thread_id="another"), *child[:2], *root[:3], *child[2:], *root[3:]]
    await publish(relay, run)
    async with running(create_worker(relay)):
        events, outcome = await read_all(relay)
    assert outcome == "finished"
    assert [row.ordinal async for row in relay.rejected("run-1")] == [1]
    assert [event["type"] for event in events if event["type"].startswith("RUN_")] == ["RUN_STARTED", "RUN_FINISHED"]
    texts: dict[str | None, str] = {}
    for told in events:
        if told["type"] == "TEXT_MESSAGE_CONTENT":
            who = told.get("subagentRunId")
            texts[who] = texts.get(who, "") + told["delta"]
    assert texts == {None: "w0 w1 w2 ", "child": "w0 w1 w2 "}


async def test_an_output_of_20_mib(relay: Relay) -> None:
    """It is above what an item may have: the run ends without it, and says so."""
    run = list(items.text_run(3))
    run[-1] = items.result(run[-1].sequence, output="y" * (20 * 1024 * 1024))
    async with running(create_worker(relay)):
        reading = asyncio.create_task(read_all(relay))
        await publish(relay, run)
        events, outcome = await reading
    stored = (await relay.client.xrange(KEYS.items))[-1][1][b"item"]
    assert outcome == "finished"
    assert len(stored) < 1000
    assert events[:-1] == projection(run)[:-1]
    assert events[-1]["type"] == "RUN_FINISHED"
    assert events == projection([*run[:-1], decode_item(stored)])


@pytest.mark.timeout(240)
@pytest.mark.parametrize("place", [0, 40])
async def test_an_item_that_crashes_the_worker_process(redis_url: str, tmp_path: Path, place: int) -> None:
    """It is set aside after five deliveries, wherever it stands; the run goes on, and a run beside it as well."""
    mark = tmp_path / "mark"
    run = list(items.text_run(60))
    run[2 + place] = items.text_delta(3 + place, WORD)
    beside = list(items.text_run(300, run_id="run-2"))
    environment = {"AGUI_RELAY_CLAIM_IDLE": "0.3", MARK: str(mark)}
    async with Relay(redis_url) as relay:
        await publish(relay, run)
        await publish(relay, beside, "run-2")
        with Fleet(redis_url, 2, "--processor", "integration_tests.processors:die", environment=environment) as fleet:
            reading = asyncio.gather(*(read_all(relay, run_id, within=100) for run_id in ("run-1", "run-2")))
            while not reading.done():
                fleet.fill()
                await asyncio.wait([reading], timeout=0.1)
            mine, theirs = await reading
        assert mine == (projection([*run[: 2 + place], *run[3 + place :]]), "finished")
        assert theirs == (projection(beside), "finished")
        [row] = [row async for row in relay.rejected("run-1")]
        assert [row async for row in relay.rejected("run-2")] == []
        assert (row.ordinal, row.item) == (3 + place, encode_item(run[2 + place]))
        assert "delivered 5 times" in row.error
        assert len(mark.read_text()) == 4


@pytest.mark.timeout(240)
async def test_256_items_of_one_mib(redis_url: str) -> None:
    """More than a run's log holds: each event is delivered whole, or its absence is told; memory stays bounded."""
    count, size = 256, 1024 * 1024
    async with Relay(redis_url) as relay, running(create_worker(relay)):
        events: dict[int, int] = {}
        missing: list[tuple[int, int]] = []
        positions: list[int] = []

        async def read() -> str | None:
            async with relay.subscribe("run-1") as subscription:
                async for delivery in subscription:
                    if isinstance(delivery, GapNotice):
                        missing.append((delivery.first, delivery.last))
                        positions.append(delivery.last)
                        continue
                    if isinstance(delivery, DisplayCheckpoint):
                        assert delivery.position == positions[-1]
                        continue
                    positions.append(delivery.position)
                    if delivery.event["type"] == "CUSTOM":
                        value = delivery.event["value"]["event"]["data"]
                        events[value["number"]] = len(value["text"])
                return subscription.outcome

        reading = asyncio.create_task(read())
        async with relay.publisher("run-1", thread_id="thread-1") as publisher:
            await publisher.publish(items.started(1))
            for number in range(count):
                await publisher.publish(items.custom(2 + number, "big", {"number": number, "text": "z" * size}))
                assert publisher._buffered_bytes < 18 * size
            await publisher.publish(items.result(1000))
        assert await reading == "finished"
        assert set(events.values()) == {size}
        assert list(events) == sorted(events)
        assert positions == sorted(set(positions))
        info = await relay.run("run-1")
        assert info is not None
        frames_missing = sum(last - first + 1 for first, last in missing)
        frames_a_event = (info.frames - 2) / count
        assert len(events) + frames_missing / frames_a_event == count
        assert info.memory < 100 * size
        used = (await relay.client.info("memory"))["used_memory"]
        assert used < 150 * size


class Heard:
    """One who listens to a channel and keeps what it hears."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def message(self, data: bytes) -> None:
        self.messages.append(data)

    def lost(self) -> None: ...

    def back(self) -> None: ...


async def test_1000_subscriptions_with_announcements_of_50_kb(redis_url: str) -> None:
    """Frames times subscriptions is above the bound of an announcement: everybody reads them from the log."""
    count = int(os.environ.get("AGUI_RELAY_TEST_SUBSCRIPTIONS", "1000"))
    run = [
        items.started(1),
        *(items.custom(2 + number, "note", {"number": number, "text": "z" * 47_000}) for number in range(3)),
        items.result(9),
    ]
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(Relay(redis_url))
        await stack.enter_async_context(running(create_worker(relay)))
        publisher = await stack.enter_async_context(relay.publisher("run-1", thread_id="thread-1"))
        # Some who read, each in what might be a process of its own; the others only listen.
        relays = [await stack.enter_async_context(Relay(redis_url)) for _ in range(count // 50)]
        subscriptions = [await stack.enter_async_context(one.subscribe("run-1")) for one in relays]
        hub = await stack.enter_async_context(Hub(relay.client))
        listeners = [Heard() for _ in range(count - len(subscriptions))]
        for number, listener in enumerate(listeners):
            name = f"listener{number}"
            await hub.subscribe(KEYS.channel(name), listener)
            await relay.scripts.join(
                KEYS, view="full", subscription_id=name, lease_ms=60_000, kept_ms=1000_000, nonce=name
            )
        info = await relay.run("run-1")
        assert info is not None
        assert info.subscriptions == count
        for item in run:
            await publisher.publish(item)
            await publisher.flush()

        async def all_told() -> bool:
            return all(b'"finished"' in listener.messages[-1] for listener in listeners)

        await eventually(all_told, within=30)
        for listener in listeners:
            # Not one with a large frame in it.
            assert max(map(len, listener.messages)) < 1000
        wanted = [len(json.dumps(event)) for event in projection(run)]
        for subscription in subscriptions:
            async with asyncio.timeout(20):
                given = [delivery async for delivery in subscription]
            assert subscription.outcome == "finished"
            assert [len(json.dumps(told.event)) for told in given if isinstance(told, Delivery)] == wanted


async def test_the_log_of_a_worker_names_a_run_that_was_lost(relay: Relay, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    # More than a ready entry carries along.
    await publish(relay, list(items.text_run(300)))
    async with relay.subscribe("run-1") as subscription:
        await relay.client.delete(KEYS.items)
        async with running(create_worker(relay)):
            assert [delivery async for delivery in subscription] == []
        assert subscription.outcome == "lost"
    assert any("'run-1': unread items are missing" in record.getMessage() for record in caplog.records)


async def test_an_append_that_knows_more_than_the_server(relay: Relay) -> None:
    async with relay.publisher("run-1", thread_id="thread-1") as publisher:
        reply = await relay.scripts.append(
            KEYS,
            token=publisher.token,
            known=7,
            lease_ms=30_000,
            kept_ms=1000_000,
            unread_bytes=1 << 20,
            thread_id="thread-1",
            items=[AppendItem("run-1", 8, "", b"{}")],
        )
        assert (reply.word, reply.last) == ("hole", 0)
