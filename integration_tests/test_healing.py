"""Workers on a server that forgets, refuses or goes away: they say so once, wait, make anew what is missing, go on."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis import Redis as BlockingRedis
from redis.exceptions import RedisError

import agui_relay.relay
from agui_relay.broker.errors import RunLost, RunNotFound
from agui_relay.broker.keys import GROUP, RunKeys
from agui_relay.broker.scripts import ensure_group
from agui_relay.broker.settings import RelaySettings
from agui_relay.broker.worker import Worker
from agui_relay.embedded import EmbeddedRedis
from agui_relay.relay import Relay
from agui_relay.source import HarnessItem
from integration_tests import items
from integration_tests.processes import Fleet, wait_until_ready
from integration_tests.processors import MARK, WORD
from integration_tests.proxy import Proxy
from integration_tests.test_worker import nothing_pending, projection, publish, read_all
from integration_tests.waiting import eventually

KEYS = RunKeys("agui", "run-1")
QUICK = RelaySettings(subscription_lease=1.0, claim_idle=0.5, settle_timeout=20)
CONNECTIONS = 4
"""Most that a worker and a publisher beside it have open: two readers, commands, channels."""
PROCESSORS = "integration_tests.processors"
NOT_QUICK = {"AGUI_RELAY_CLAIM_IDLE": "60"}


@asynccontextmanager
async def at_work(relay: Relay, processor: Any = None) -> AsyncIterator[Worker]:
    """Give a worker in this process; it must not have ended by itself."""
    worker = Worker(relay, processor)
    app = worker.application()
    task = asyncio.create_task(app.run(sleep_time=0.01))
    try:
        await eventually(partial(_is, worker, True))
        yield worker
        assert not task.done()
    finally:
        app.exit()
        await task


async def _is(worker: Worker, ready: bool) -> bool:
    return worker.ready is ready


def contacts(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the worker has logged about its contact with the server, one word a line."""
    lines = [record.getMessage() for record in caplog.records if record.name == "agui_relay.worker"]
    return [line.split()[0] for line in lines if "contact with Redis" in line]


async def calls(client: Any) -> int:
    """All scripts and reads that the server was given, those it refused included."""
    stats = await client.info("commandstats")
    rows = [stats.get(f"cmdstat_{name}", {}) for name in ("evalsha", "xreadgroup", "xautoclaim", "zadd")]
    return sum(int(row.get("calls", 0)) + int(row.get("rejected_calls", 0)) for row in rows)


async def or_lost(reading: Awaitable[tuple[list[Any], str | None]]) -> tuple[list[Any], str | None]:
    """What a reader was given; one who came when the run was lost already has never seen it."""
    try:
        return await reading
    except RunNotFound:
        return [], "lost"


async def whole(relay: Relay, run_id: str, deltas: int = 50) -> None:
    """Publish a run and read it."""
    run = list(items.text_run(deltas, run_id=run_id))
    reading = asyncio.create_task(read_all(relay, run_id))
    await publish(relay, run, run_id)
    assert await reading == (projection(run), "finished")


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedRedis]:
    """Give a server that the test may break."""
    async with EmbeddedRedis(port=0) as server:
        yield server


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


# -- it is not there yet ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def started_too_early(server: EmbeddedRedis, told: Path) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Stop the server and give a worker's process that waits for it; what it logs goes to `told`."""
    await server.stop()
    with Fleet(server.url, 1, log=told) as fleet:
        [process] = fleet.processes
        await eventually(partial(_has_told, told, "Redis does not serve, waiting"), within=30)
        yield process


async def test_a_worker_waits_for_the_server_it_was_started_before(server: EmbeddedRedis, tmp_path: Path) -> None:
    told = tmp_path / "told"
    async with started_too_early(server, told) as process:
        await asyncio.sleep(1)  # a while to tell more in
        assert process.poll() is None
        await server.start()
        await asyncio.to_thread(wait_until_ready, process)
        async with Relay(server.url) as relay:
            await whole(relay, "run-1")
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 20) == 0
    assert told.read_text().count("Redis") == len(["Redis does not serve, waiting", "in contact with Redis"])


async def _has_told(log: Path, words: str) -> bool:
    return words in await asyncio.to_thread(log.read_text)


async def test_sigterm_before_the_server_is_there(server: EmbeddedRedis, tmp_path: Path) -> None:
    async with started_too_early(server, tmp_path / "told") as process:
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 20) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b""


async def test_a_worker_is_not_ready_before_the_server_is(server: EmbeddedRedis, log: pytest.LogCaptureFixture) -> None:
    assert server.port is not None
    async with Proxy(("127.0.0.1", server.port)) as proxy:
        proxy.refuse()
        worker = Worker(Relay(proxy.url, settings=QUICK))
        app = worker.application()
        task = asyncio.create_task(app.run(sleep_time=0.01))

        async def tried() -> bool:
            return proxy.accepted > 5

        await eventually(tried)
        assert not worker.ready
        proxy.accept()
        await eventually(partial(_is, worker, True))
        async with Relay(server.url) as relay:
            await whole(relay, "run-1")
        app.exit()
        await task
    assert contacts(log) == ["in"]
    assert [record.levelname for record in log.records if "does not serve" in record.getMessage()] == ["WARNING"]


# -- it forgets -------------------------------------------------------------------------------------------------------


async def test_scripts_that_are_forgotten_again_and_again(redis_url: str) -> None:
    async with Relay(redis_url, settings=QUICK) as relay, relay.make_client() as other, at_work(relay):

        async def forget() -> None:
            while True:
                await other.execute_command("SCRIPT", "FLUSH", "SYNC")

        forgetting = asyncio.create_task(forget())
        for number in range(3):
            await whole(relay, f"run-{number}", deltas=200)
        forgetting.cancel()
        await asyncio.gather(forgetting, return_exceptions=True)


@pytest.mark.parametrize(
    "loss",
    [("FLUSHALL",), ("XGROUP", "DESTROY", KEYS.ready, GROUP), ("DEL", KEYS.ready)],
    ids=["flushall", "group destroyed", "ready stream deleted"],
)
async def test_a_loss_while_idle(redis_url: str, log: pytest.LogCaptureFixture, loss: Sequence[str]) -> None:
    async with Relay(redis_url, settings=QUICK) as relay, at_work(relay) as worker:
        await whole(relay, "before")
        for number in range(3):
            await relay.client.execute_command(*loss)
            await whole(relay, f"after {number}")
            assert worker.ready
        await eventually(partial(nothing_pending, relay))
    assert contacts(log) == ["in"]
    made = [record for record in log.records if "made the consumer group" in record.getMessage()]
    assert 3 <= len(made) <= 4
    assert not [record for record in log.records if record.levelno >= logging.ERROR]


@pytest.mark.timeout(120)
async def test_everything_is_forgotten_under_load(redis_url: str, tmp_path: Path) -> None:
    """Runs are lost, and everybody is told; the same workers carry the next ones."""
    path = tmp_path / "log"
    async with Relay(redis_url, settings=QUICK) as relay:
        with Fleet(redis_url, 2, log=path) as fleet:
            for process in fleet.processes:
                await asyncio.to_thread(wait_until_ready, process)
            lost = 0
            for turn in range(3):
                names = [f"run {turn}.{number}" for number in range(6)]
                readers = [asyncio.create_task(read_all(relay, name, wait_for_run=10)) for name in names]
                halfway = asyncio.Event()

                async def live(name: str, halfway: asyncio.Event = halfway) -> None:
                    run = list(items.text_run(300, run_id=name))
                    with suppress(RunLost):
                        async with relay.publisher(name, thread_id="thread-1") as publisher:
                            for number, item in enumerate(run):
                                await publisher.publish(item)
                                if number == 150:
                                    halfway.set()
                                await asyncio.sleep(0)

                async with asyncio.TaskGroup() as group:
                    for name in names:
                        group.create_task(live(name))
                    await halfway.wait()
                    await relay.client.flushall()
                for name, reader in zip(names, readers, strict=True):
                    events, outcome = await or_lost(reader)
                    wanted = projection(list(items.text_run(300, run_id=name)))
                    assert (events, outcome) == (wanted, "finished") or (
                        outcome == "lost" and events == wanted[: len(events)]
                    )
                    lost += outcome == "lost"
                await whole(relay, f"after {turn}")
            assert lost
            assert [process.poll() for process in fleet.processes] == [None, None]
            await eventually(partial(nothing_pending, relay))
    lines = path.read_text().splitlines()
    assert len(lines) < 100, lines[:100]
    assert not [line for line in lines if "Traceback" in line]


@pytest.mark.parametrize("loss", [("XGROUP", "DESTROY", KEYS.ready, GROUP), ("DEL", KEYS.ready)], ids=["group", "DEL"])
@pytest.mark.parametrize("alive", [True, False], ids=["a worker is there", "no worker is there"])
async def test_the_queue_is_lost_while_ended_runs_wait(redis_url: str, loss: Sequence[str], alive: bool) -> None:
    """Nobody publishes any more and nobody reads: only a worker can find these runs."""
    runs = {name: list(items.text_run(5, run_id=name)) for name in (f"run {number}" for number in range(100))}
    lost = 0

    def process(item: HarnessItem, event: Any) -> Any:
        nonlocal lost
        if lost < 2:
            # Between the fetch and the commit of other runs.
            with BlockingRedis.from_url(redis_url) as client:
                lost += bool(client.execute_command(*loss))
        return event

    async with Relay(redis_url, settings=QUICK) as relay:
        await ensure_group(relay.client, KEYS)
        for name, run in runs.items():
            await publish(relay, run, name)
        if not alive:
            assert await relay.client.execute_command(*loss)
        async with at_work(relay, process if alive else None):
            await _all_finished(relay, list(runs))
            assert lost == (2 if alive else 0)
            for name, run in runs.items():
                assert await read_all(relay, name) == (projection(run), "finished")
            await eventually(partial(nothing_pending, relay))


async def _all_finished(relay: Relay, names: Sequence[str]) -> None:
    async def finished() -> bool:
        infos = [await relay.run(name) for name in names]
        return all(info is not None and info.status == "finished" for info in infos)

    await eventually(finished, within=20)


# -- it goes away -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("persistent", [True, False], ids=["with persistence", "without"])
@pytest.mark.timeout(120)
async def test_the_server_restarts_under_load(tmp_path: Path, persistent: bool) -> None:
    arguments = ("--appendonly", "yes", "--appendfsync", "always") if persistent else ()
    path = tmp_path / "log"
    names = [f"run {number}" for number in range(5)]
    async with EmbeddedRedis(*arguments, port=0, directory=tmp_path / "data") as server:
        async with Relay(server.url, settings=QUICK) as relay:
            with Fleet(server.url, 2, environment={"AGUI_RELAY_CLAIM_IDLE": "0.5"}, log=path) as fleet:
                for process in fleet.processes:
                    await asyncio.to_thread(wait_until_ready, process)
                for turn in range(3):
                    last = asyncio.Event()

                    async def live(name: str, last: asyncio.Event = last) -> str:
                        try:
                            async with relay.publisher(name, thread_id="thread-1") as publisher:
                                for item in items.text_run(300, run_id=name):
                                    await publisher.publish(item)
                                    if item.sequence == 150:
                                        last.set()
                                    await asyncio.sleep(0)
                        except RunLost:
                            return "lost"
                        return "finished"

                    readers = {
                        name: asyncio.create_task(read_all(relay, f"{name}/{turn}", wait_for_run=10)) for name in names
                    }
                    writers = {name: asyncio.create_task(live(f"{name}/{turn}")) for name in names}
                    await last.wait()
                    await server.kill()
                    await server.start()
                    for name in names:
                        wanted = projection(list(items.text_run(300, run_id=f"{name}/{turn}")))
                        events, outcome = await or_lost(readers[name])
                        assert await writers[name] in ((outcome,) if persistent else (outcome, "finished"))
                        assert (events, outcome) == (wanted, "finished") or (
                            not persistent and outcome == "lost" and events == wanted[: len(events)]
                        )
                    await whole(relay, f"after {turn}")
                assert [process.poll() for process in fleet.processes] == [None, None]
                await eventually(partial(nothing_pending, relay))
    lines = path.read_text().splitlines()
    assert sum("lost contact" in line for line in lines) <= 6
    assert len(lines) < 100, lines[:100]


async def test_pooled_connections_that_the_server_has_closed_are_not_used(server: EmbeddedRedis) -> None:
    """Else each costs whoever meets it an error and a wait: a pool holds up to 64."""
    async with Relay(server.url) as relay:
        await asyncio.gather(*(relay.client.ping() for _ in range(20)))
        await server.restart()

        async def answers() -> bool:
            with suppress(ConnectionError, RedisError):
                return bool(await relay.client.ping())
            return False

        # The loop must have seen the ends.
        await eventually(answers)
        assert all([await answers() for _ in range(20)])


async def test_a_server_out_of_reach(server: EmbeddedRedis, log: pytest.LogCaptureFixture) -> None:
    """The publisher waits, the worker waits and tries once in a while, and readiness tells the truth."""
    assert server.port is not None
    run = list(items.text_run(200))
    async with Proxy(("127.0.0.1", server.port)) as proxy, Relay(proxy.url, settings=QUICK) as relay:
        async with at_work(relay) as worker, Relay(server.url) as near:
            reading = asyncio.create_task(read_all(near))
            async with relay.publisher("run-1", thread_id="thread-1") as publisher:
                for item in run[:100]:
                    await publisher.publish(item)
                proxy.refuse()
                proxy.cut()
                for item in run[100:]:
                    await publisher.publish(item)
                await eventually(partial(_is, worker, False))
                tried, since = proxy.accepted, time.monotonic()
                await asyncio.sleep(3)  # a while to count in
                assert worker.contact.unbroken == 0
                rate = (proxy.accepted - tried) / (time.monotonic() - since)
                # The worker's two readers, its housekeeping, and the publisher, each at most every half second.
                assert 0 < rate < 15
                assert contacts(log) == ["in", "lost"]
                proxy.accept()
                await eventually(partial(_is, worker, True))
            assert await reading == (projection(run), "finished")
            assert contacts(log) == ["in", "lost", "in"]
            await eventually(partial(nothing_pending, near))
    waits = [record for record in log.records if "publishing waits" in record.getMessage()]
    assert len(waits) == 1


async def test_a_connection_that_goes_dumb(
    server: EmbeddedRedis, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agui_relay.relay, "_ANSWER_WITHIN", 0.5)
    assert server.port is not None
    async with Proxy(("127.0.0.1", server.port)) as proxy, Relay(proxy.url, settings=QUICK) as relay:
        async with at_work(relay) as worker:
            await whole(relay, "run-1")
            for number in range(2):
                proxy.stall()
                await eventually(partial(_is, worker, False))
                await eventually(partial(_is, worker, True))
                await whole(relay, f"run-{number + 2}")
    # On a slow machine it is back before the last of its connections is found to be dumb, and loses contact once more.
    told = contacts(log)
    assert told == ["in"] + len(told) // 2 * ["lost", "in"]
    assert 2 <= told.count("lost") <= 2 * CONNECTIONS


# -- it refuses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refuse", "accept"),
    [
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
        (("CONFIG", "SET", "min-replicas-to-write", "1"), ("CONFIG", "SET", "min-replicas-to-write", "0")),
    ],
    ids=["READONLY", "OOM", "NOREPLICAS"],
)
async def test_a_server_that_refuses_writes(
    server: EmbeddedRedis, log: pytest.LogCaptureFixture, refuse: Sequence[str], accept: Sequence[str]
) -> None:
    run = list(items.text_run(200))
    run[100] = items.text_delta(101, WORD)
    told: list[HarnessItem] = []

    def process(item: HarnessItem, event: Any) -> Any:
        if item.sequence == 101 and not told:
            told.append(item)
            # Between the fetch and the commit.
            with BlockingRedis.from_url(server.url) as client:
                client.execute_command(*refuse)
        return event

    async with Relay(server.url, settings=QUICK) as relay, at_work(relay, process) as worker:
        reading = asyncio.create_task(read_all(relay))
        async with relay.publisher("run-1", thread_id="thread-1") as publisher:
            for item in run:
                await publisher.publish(item)
                await asyncio.sleep(0.001)  # the agent's own pace
            await eventually(partial(_is, worker, False))
            before, since = await calls(relay.client), time.monotonic()
            await asyncio.sleep(3)  # a while to count in
            rate = (await calls(relay.client) - before) / (time.monotonic() - since)
            # One publisher, one reader, a worker's two reads, its drain and its housekeeping.
            assert rate < 40
            assert not worker.ready
            assert contacts(log) == ["in", "lost"]
            await relay.client.execute_command(*accept)
            await eventually(partial(_is, worker, True))
        assert await reading == (projection(run), "finished")
        await eventually(partial(nothing_pending, relay))
    assert contacts(log) == ["in", "lost", "in"]
    assert len(log.records) < 30, [record.getMessage() for record in log.records]


# -- the worker itself ------------------------------------------------------------------------------------------------


@pytest.mark.timeout(120)
async def test_sigterm_hands_everything_on_at_once(redis_url: str) -> None:
    """Without any claim: nothing of what a worker had, had begun or was about to get is left with it."""
    stop = asyncio.Event()
    runs: dict[str, list[HarnessItem]] = {}
    readers: dict[str, asyncio.Task[Any]] = {}
    async with Relay(redis_url) as relay:

        async def keep_publishing(lane: int) -> None:
            number = 0
            while not stop.is_set():
                name = f"run {lane}.{number}"
                number += 1
                runs[name] = list(items.text_run(40, run_id=name))
                readers[name] = asyncio.create_task(read_all(relay, name))
                await publish(relay, runs[name], name)
                # Not more than is read.
                await readers[name]

        with Fleet(redis_url, 3, environment=NOT_QUICK) as fleet:
            for process in fleet.processes:
                await asyncio.to_thread(wait_until_ready, process)
            async with asyncio.TaskGroup() as group:
                for lane in range(8):
                    group.create_task(keep_publishing(lane))
                for process in fleet.processes[:2]:
                    count = len(runs)

                    async def went_on(count: int = count) -> bool:
                        return len(runs) > count + 16

                    await eventually(went_on, within=30)
                    process.send_signal(signal.SIGTERM)
                    assert await asyncio.to_thread(process.wait, 20) == 0
                stop.set()
            for name, reader in readers.items():
                assert await reader == (projection(runs[name]), "finished")
            await eventually(partial(nothing_pending, relay))
            assert len(await relay.client.xinfo_consumers(KEYS.ready, GROUP)) == 1


async def test_sigterm_while_the_server_is_away(server: EmbeddedRedis) -> None:
    with Fleet(server.url, 1) as fleet:
        [process] = fleet.processes
        await asyncio.to_thread(wait_until_ready, process)
        await server.stop()
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 20) == 0


async def test_what_was_read_for_a_worker_that_has_stopped_is_handed_on(redis_url: str) -> None:
    """The server gives an entry to a reader that has just decided to stop: nobody works on it."""
    settings = RelaySettings(claim_idle=60)
    async with Relay(redis_url, settings=settings) as relay:
        await publish(relay, run := list(items.text_run(5)))
        worker = Worker(relay)
        async with at_work_of(worker):
            pass
        async with relay.publisher("run-2", thread_id="thread-1") as publisher:
            await publisher.publish(items.started(1, run_id="run-2"))
            await publisher.flush()
            await relay.client.xreadgroup(GROUP, "gone", {KEYS.ready: ">"})
            worker = Worker(relay, consumer="gone")
            async with at_work_of(worker):
                pass
            assert await relay.client.xinfo_consumers(KEYS.ready, GROUP) == []
            async with at_work(relay):
                await publisher.publish(items.result(2, run_id="run-2"))
                assert (await read_all(relay, "run-2"))[1] == "finished"
        assert await read_all(relay) == (projection(run), "finished")


async def test_the_last_checkpoint_of_a_run_does_not_die_with_the_worker_that_makes_it(redis_url: str) -> None:
    """The run's end is committed, which told of the checkpoint, and nothing more will come that could."""
    environment = {
        "AGUI_RELAY_REDIS_URL": redis_url,
        "AGUI_RELAY_DISPLAY_TAIL_BYTES": "100000",
        "AGUI_RELAY_FRAME_LOG_BYTES": "200000",
        # All in one commit: none before tells of a checkpoint.
        "AGUI_RELAY_BATCH_ITEMS": "4096",
        "AGUI_RELAY_BATCH_BYTES": "100000000",
    }
    documents = [items.custom(2 + number, "demo.document", "x" * 3000) for number in range(4000)]
    async with Relay(redis_url) as relay:
        await publish(relay, [items.started(1), *documents, items.result(4002)])
        with Fleet(
            redis_url, 1, "--processor", f"{PROCESSORS}:die_when_the_run_has_ended", environment=environment
        ) as one:
            assert await asyncio.to_thread(one.processes[0].wait, 30) == 1
        status, covered, log = await relay.client.hmget(KEYS.state, "status", "covered", "log")
        assert (status, covered) == (b"finished", None)
        assert int(log) > 12_000_000
        # As if that were a minute ago: until then the worker that was told may still be at it.
        await relay.client.zincrby(KEYS.runs, -60_000, "run-1")
        with Fleet(redis_url, 1, environment=environment):
            await eventually(lambda: relay.client.hexists(KEYS.state, "covered"), within=30)
        assert int(await relay.client.hget(KEYS.state, "log")) <= 200_000
        assert await nothing_pending(relay)


@asynccontextmanager
async def at_work_of(worker: Worker) -> AsyncIterator[None]:
    app = worker.application()
    task = asyncio.create_task(app.run(sleep_time=0.01))
    try:
        await eventually(partial(_is, worker, True))
        yield
    finally:
        app.exit()
        await task


@pytest.mark.timeout(120)
async def test_a_worker_that_stalls_cannot_write_into_what_another_has_done(redis_url: str, tmp_path: Path) -> None:
    """It is stopped with a batch in hand, others take the run over and end it; then it goes on."""
    mark = tmp_path / "mark"
    run = list(items.text_run(300))
    run[150] = items.text_delta(151, WORD)
    environment = {"AGUI_RELAY_CLAIM_IDLE": "0.5", MARK: str(mark)}
    async with Relay(redis_url, settings=QUICK) as relay:
        with Fleet(redis_url, 2, "--processor", f"{PROCESSORS}:halt", environment=environment) as fleet:
            for process in fleet.processes:
                await asyncio.to_thread(wait_until_ready, process)
            reading = asyncio.create_task(read_all(relay))
            await publish(relay, run)
            assert await reading == (projection(run), "finished")
            log_before = await relay.client.xrange(KEYS.frames)
            halted = int(mark.read_text())
            [process] = [process for process in fleet.processes if process.pid == halted]
            process.send_signal(signal.SIGCONT)
            [other] = [process for process in fleet.processes if process.pid != halted]
            other.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(other.wait, 20) == 0
            # It is a worker like any other now.
            await whole(relay, "run-2")
            assert await relay.client.xrange(KEYS.frames) == log_before
            assert await read_all(relay) == (projection(run), "finished")
            await eventually(partial(nothing_pending, relay))
            assert process.poll() is None
