"""Workers: what subscribers get is what the library gives for the items, whoever dies meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from faststream import FastStream
from faststream.redis import RedisBroker

from agui_relay.broker.keys import GROUP, RunKeys
from agui_relay.broker.scripts import AppendItem
from agui_relay.broker.settings import RelaySettings
from agui_relay.broker.subscription import Delivery
from agui_relay.broker.worker import create_worker
from agui_relay.embedded import EmbeddedRedis
from agui_relay.framing.fragments import CustomEventAssembler
from agui_relay.projection.observer import HarnessAguiStreamObserver
from agui_relay.relay import Relay
from agui_relay.source import HarnessItem, encode_item
from integration_tests import items
from integration_tests.processes import Fleet
from integration_tests.proxy import Proxy, certified
from integration_tests.waiting import eventually

KEYS = RunKeys("agui", "run-1")


def projection(run: Sequence[Any]) -> list[Any]:
    """Whole events, as JSON, that the library gives for the items."""
    observer, assembler = HarnessAguiStreamObserver(retain_events=False), CustomEventAssembler()
    events = []
    for item in run:
        for event in observer.observe(item):
            whole = assembler.accept(event.model_dump(mode="json", by_alias=True))
            if whole is not None:
                events.append(whole)
    assert not assembler.gap
    return events


@asynccontextmanager
async def running(app: FastStream) -> AsyncIterator[None]:
    """Run a worker in this process."""
    task = asyncio.create_task(app.run(sleep_time=0.01))
    try:
        yield
    finally:
        app.exit()
        await task


async def read_all(
    relay: Relay, run_id: str = "run-1", *, within: float = 40, **options: Any
) -> tuple[list[Any], str | None]:
    async with asyncio.timeout(within), relay.subscribe(run_id, **options) as subscription:
        events = []
        async for delivery in subscription:
            assert isinstance(delivery, Delivery), delivery
            events.append(delivery.event)
        return events, subscription.outcome


async def publish(relay: Relay, run: Sequence[HarnessItem], run_id: str = "run-1") -> None:
    async with relay.publisher(run_id, thread_id="thread-1") as publisher:
        for item in run:
            await publisher.publish(item)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [("completed", "finished"), ("failed", "failed"), ("cancelled", "cancelled")],
)
async def test_a_run_reaches_a_subscriber_whole(redis_url: str, status: str, outcome: str) -> None:
    *run, end = items.text_run(700, status=status)
    run += [items.custom(end.sequence, "demo.document", "\u00fc" * 200_000), items.result(end.sequence + 1, status)]
    async with Relay(redis_url) as relay, running(create_worker(relay)):
        early = asyncio.create_task(read_all(relay))
        await publish(relay, run)
        assert await early == (projection(run), outcome)
        assert await read_all(relay) == (projection(run), outcome)


async def test_children_are_projected_beside_the_root(redis_url: str) -> None:
    child = list(items.text_run(20, run_id="child", thread_id="thread-2"))
    root = list(items.text_run(20))
    run = [root[0], child[0]]
    for mine, theirs in zip(root[1:-1], child[1:-1], strict=True):
        run += [theirs, mine]
    run += [child[-1], root[-1]]
    async with Relay(redis_url) as relay, running(create_worker(relay)):
        await publish(relay, run)
        events, outcome = await read_all(relay)
    assert events == projection(run)
    assert outcome == "finished"
    assert [event["type"] for event in events if event["type"].startswith("RUN_")] == ["RUN_STARTED", "RUN_FINISHED"]


async def test_a_bad_item_is_set_aside_and_the_run_goes_on(redis_url: str) -> None:
    run = list(items.text_run(5))
    wrong_thread = items.text_delta(6, "x", thread_id="another")
    async with Relay(redis_url) as relay:
        async with relay.publisher("run-1", thread_id="thread-1") as publisher:
            for item in run[:5]:
                await publisher.publish(item)
            await publisher.flush()
            # Not through the publisher, which would refuse it.
            reply = await relay.scripts.append(
                KEYS,
                token=publisher.token,
                known=5,
                lease_ms=30_000,
                kept_ms=1000_000,
                unread_bytes=1 << 20,
                thread_id="thread-1",
                items=[AppendItem("elsewhere", 1, "", b'{"v":1,"source":"nobody"}')],
            )
            assert reply.word == "ok"
            await publisher.publish(wrong_thread)
            for item in run[6:]:
                await publisher.publish(item)
        async with running(create_worker(relay)):
            events, outcome = await read_all(relay)
        rejected = [row async for row in relay.rejected("run-1")]
        info = await relay.run("run-1")
    assert outcome == "finished"
    assert events == projection(run[:5] + run[6:])
    assert [row.ordinal for row in rejected] == [6, 7]
    assert "source" in rejected[0].error
    assert "hread" in rejected[1].error
    assert rejected[1].item == encode_item(wrong_thread)
    assert info is not None
    assert (info.rejected, info.lag) == (2, 0)


async def test_a_rejected_terminal_item_ends_the_run_as_failed(redis_url: str) -> None:
    async with Relay(redis_url) as relay:
        async with relay.publisher("run-1", thread_id="thread-1") as publisher:
            await publisher.publish(items.started(1))
            await publisher.publish(items.result(2, thread_id="another"))
        async with running(create_worker(relay)):
            events, outcome = await read_all(relay)
    assert ([event["type"] for event in events], outcome) == (["RUN_STARTED"], "failed")


async def test_a_processor_sees_items_and_events_and_one_that_raises_costs_its_item(redis_url: str) -> None:
    def process(item: HarnessItem, event: Any) -> Any:
        assert isinstance(item, HarnessItem)
        if event.type == "TEXT_MESSAGE_CONTENT":
            if event.delta == "w3 ":
                raise ZeroDivisionError("no threes")
            return None if event.delta == "w1 " else event.model_copy(update={"delta": event.delta.upper()})
        return event

    async with Relay(redis_url) as relay:
        await publish(relay, list(items.text_run(5)))
        async with running(create_worker(relay, process)):
            events, outcome = await read_all(relay)
        rejected = [row async for row in relay.rejected("run-1")]
    assert outcome == "finished"
    assert [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"] == ["W0 ", "W2 ", "W4 "]
    [row] = rejected
    assert "no threes" in row.error


async def test_a_workers_broker_belongs_to_its_application(redis_url: str) -> None:
    worker = create_worker(Relay(redis_url))
    assert isinstance(worker.broker, RedisBroker)
    other = RedisBroker(redis_url)
    with pytest.raises(RuntimeError, match="nor inside of another broker"):
        other.include_router(worker.broker)
    with pytest.raises(RuntimeError, match="without the worker's application"):
        await worker.broker.start()
    with pytest.raises(RuntimeError, match="without the worker's application"):
        await FastStream(other, worker.broker, logger=None).run()
    async with running(worker), Relay(redis_url) as relay:
        await publish(relay, list(items.text_run(1)))
        assert (await read_all(relay))[1] == "finished"


async def test_a_dead_publisher_leaves_an_abandoned_run(redis_url: str) -> None:
    settings = RelaySettings(publisher_lease=0.6, subscription_lease=1.0, claim_idle=0.5)
    async with Relay(redis_url, settings=settings) as relay, running(create_worker(relay)):
        publisher = relay.publisher("run-1", thread_id="thread-1")
        await publisher.__aenter__()
        for item in list(items.text_run(5))[:5]:
            await publisher.publish(item)
        await publisher.flush()
        assert publisher._sender is not None
        publisher._sender.cancel()  # It dies here: no heartbeat, no farewell.
        events, outcome = await read_all(relay)
    assert outcome == "abandoned"
    assert [event["type"] for event in events] == ["RUN_STARTED", "TEXT_MESSAGE_START"] + 3 * ["TEXT_MESSAGE_CONTENT"]


async def test_a_long_run_does_not_starve_others(redis_url: str) -> None:
    """The long run goes to the end of the queue after its turn; a short one is done long before it ends."""
    settings = RelaySettings(batch_items=16, worker_turns=1, worker_entries=1)
    async with Relay(redis_url, settings=settings) as relay:
        await publish(relay, list(items.text_run(4000)))
        await publish(relay, list(items.text_run(10, run_id="short")), "short")
        async with running(create_worker(relay)):
            _, outcome = await read_all(relay, "short")
            info = await relay.run("run-1")
            assert outcome == "finished"
            assert info is not None
            assert info.lag > 0
            assert (await read_all(relay))[1] == "finished"


async def test_many_runs_through_two_workers(redis_url: str) -> None:
    async with Relay(redis_url) as relay:
        with Fleet(redis_url, 2):
            names = [f"run {number}/%{{*}}\u00fc" for number in range(100)]
            runs = {name: list(items.text_run(number % 7 * 10, run_id=name)) for number, name in enumerate(names)}
            readers = [asyncio.create_task(read_all(relay, name)) for name in names]
            await asyncio.gather(*(publish(relay, run, name) for name, run in runs.items()))
            for name, reader in zip(names, readers, strict=True):
                assert await reader == (projection(runs[name]), "finished")
            await eventually(partial(nothing_pending, relay))


async def nothing_pending(relay: Relay) -> bool:
    pending = (await relay.client.xpending(KEYS.ready, GROUP))["pending"]
    return bool(pending == 0 and await relay.client.xlen(KEYS.ready) == 0)


async def test_a_worker_stops_on_sigterm_and_leaves_nothing_behind(redis_url: str) -> None:
    async with Relay(redis_url) as relay:
        with Fleet(redis_url, 0) as fleet:
            process = fleet.start("--consumer", "alone")
            await publish(relay, list(items.text_run(50)))
            assert (await read_all(relay))[1] == "finished"
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 20) == 0
        assert await relay.client.xinfo_consumers(KEYS.ready, GROUP) == []


@pytest.mark.parametrize(
    ("path", "environment", "told"),
    [
        ("//nobody:wrong@{host}/0", {}, "cannot reach Redis at redis://{host}/0: invalid username-password"),
        ("//{host}/99", {}, "DB index"),
        ("//{host}/0", {"AGUI_RELAY_PARTITIONS": "2"}, "has 1 partitions, this process is set to 2"),
    ],
    ids=["password", "database", "partitions"],
)
async def test_what_does_not_pass_by_waiting_ends_a_worker_at_once(
    path: str, environment: dict[str, str], told: str, tmp_path: Path
) -> None:
    async with EmbeddedRedis(port=0) as server:
        async with Relay(server.url):
            pass
        host = f"127.0.0.1:{server.port}"
        with Fleet(f"redis:{path.format(host=host)}", 1, environment=environment, log=tmp_path / "log") as fleet:
            assert await asyncio.to_thread(fleet.processes[0].wait, 30) == 1
    [line] = (tmp_path / "log").read_text().splitlines()
    assert line.startswith("agui-relay: ")
    assert told.format(host=host) in line


async def test_a_certificate_that_nobody_vouches_for_ends_a_worker_at_once(tmp_path: Path) -> None:
    async with EmbeddedRedis(port=0) as server:
        assert server.port is not None
        async with Proxy(("127.0.0.1", server.port), tls=certified(tmp_path)) as proxy:
            with Fleet(proxy.url.partition("?")[0], 1, log=tmp_path / "log") as fleet:
                assert await asyncio.to_thread(fleet.processes[0].wait, 30) == 1
    [line] = (tmp_path / "log").read_text().splitlines()
    assert line.startswith("agui-relay: cannot reach Redis at rediss://")
    assert "certificate" in line


@pytest.fixture(scope="module")
def fleet(shared_redis: EmbeddedRedis) -> Iterator[Fleet]:
    """Keep two workers from test to test; they outlive that the server is emptied in between."""
    with Fleet(
        shared_redis.url, 2, environment={"AGUI_RELAY_CLAIM_IDLE": "0.3", "AGUI_RELAY_BATCH_ITEMS": "8"}
    ) as fleet:
        yield fleet


@pytest.mark.parametrize("repetition", range(20))
async def test_a_worker_killed_in_mid_part_is_only_a_pause(redis_url: str, fleet: Fleet, repetition: int) -> None:
    seed = int(os.environ.get("AGUI_RELAY_TEST_SEED", "0")) + repetition
    print(f"seed {seed}")
    chance = random.Random(seed)
    run = list(items.text_run(400))
    fleet.fill()
    async with Relay(redis_url) as relay:
        reader = asyncio.create_task(read_all(relay))
        kill_at = chance.randrange(10, len(run) - 10)
        async with relay.publisher("run-1", thread_id="thread-1") as publisher:
            for number, item in enumerate(run):
                await publisher.publish(item)
                if number == kill_at:
                    if chance.random() < 0.5:
                        await publisher.flush()
                        # While it has the entry in hand, or just before, or just after.
                        await asyncio.sleep(chance.random() * 0.01)
                    fleet.kill_one(chance)
                if number % 16 == 0:
                    # The agent's own pace.
                    await asyncio.sleep(0.001)
        assert await reader == (projection(run), "finished")
        await eventually(partial(nothing_pending, relay))
