"""The pipe: many callers on one connection, each with its own answer or a clear failure."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, ReadOnlyError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

import agui_relay.relay
from agui_relay.broker.keys import RunKeys
from agui_relay.broker.pipe import Pipe
from agui_relay.broker.settings import RelaySettings
from agui_relay.broker.worker import create_worker
from agui_relay.embedded import EmbeddedRedis
from agui_relay.relay import Relay
from integration_tests import items
from integration_tests.displays import Screen
from integration_tests.proxy import Proxy, certified
from integration_tests.test_worker import projection, publish, read_all, running
from integration_tests.waiting import eventually

WITHIN = 0.5


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with EmbeddedRedis(port=0) as server:
        assert server.port is not None
        async with Proxy(("127.0.0.1", server.port)) as proxy:
            yield proxy


@pytest.fixture
async def client(proxy: Proxy) -> AsyncIterator[Redis]:
    async with Redis.from_url(proxy.url) as client:
        yield client


@pytest.fixture
async def pipe(client: Redis) -> AsyncIterator[Pipe]:
    pipe = Pipe(client, answer_within=WITHIN)
    yield pipe
    pipe.drop()


async def asked(pipe: Pipe, command: str, *more: str | bytes) -> asyncio.Task[Any]:
    """Return a call whose command is written."""
    task = asyncio.create_task(pipe.call(command, *more))
    await asyncio.sleep(0)
    return task


async def test_callers_share_a_connection_and_each_has_its_answer(proxy: Proxy, pipe: Pipe) -> None:
    words = [str(number) * 1000 for number in range(200)]
    assert await asyncio.gather(*(pipe.call("ECHO", word) for word in words)) == [word.encode() for word in words]
    assert await pipe.call_many([("SET", "n", 7), ("GET", b"n"), ("GET", "nothing")]) == [b"OK", b"7", None]
    large = b"\r\n\x00" * 4_000_000
    assert await pipe.call("ECHO", large) == large
    assert proxy.accepted == 1


async def test_an_error_is_its_callers_own(pipe: Pipe) -> None:
    calls = [("ECHO", "a"), ("EVALSHA", "0" * 40, 0), ("NONSENSE",), ("ECHO", "b")]
    one, unknown, nonsense, two = await pipe.call_many(calls)
    assert (one, two) == (b"a", b"b")
    assert isinstance(unknown, NoScriptError)
    assert isinstance(nonsense, ResponseError)
    with pytest.raises(NoScriptError):
        await pipe.call("EVALSHA", "0" * 40, 0)


async def test_who_is_cancelled_leaves_no_answer_to_the_next(proxy: Proxy, pipe: Pipe) -> None:
    assert await pipe.call("PING") == b"PONG"
    given_up = await asked(pipe, "ECHO", "given up")
    other = await asked(pipe, "ECHO", "other")
    given_up.cancel()
    assert await other == b"other"
    assert await pipe.call("ECHO", "next") == b"next"
    assert proxy.accepted == 1


async def test_a_connection_that_is_cut_fails_those_who_wait_and_no_later_call(proxy: Proxy, pipe: Pipe) -> None:
    await pipe.call("PING")
    waiting = [await asked(pipe, "BLPOP", "nothing", "0"), await asked(pipe, "ECHO", "behind it")]
    proxy.cut()
    for result in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(result, RedisConnectionError)
    assert await pipe.call("ECHO", "again") == b"again"
    assert proxy.accepted == 2


async def test_a_pipe_that_is_dropped_while_it_connects_has_no_connection(proxy: Proxy, pipe: Pipe) -> None:
    calls = [await asked(pipe, "PING"), await asked(pipe, "PING")]
    pipe.drop()
    for result in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(result, RedisConnectionError)

    async def gone() -> bool:
        return not proxy.connections

    await eventually(gone)
    assert await pipe.call("ECHO", "again") == b"again"


async def test_a_connection_that_the_server_closed_while_idle_is_not_used(
    proxy: Proxy, client: Redis, pipe: Pipe
) -> None:
    mine = await pipe.call("CLIENT", "ID")
    assert await client.client_kill_filter(_id=mine) == 1

    async def gone() -> bool:
        # The proxy knows of it before the pipe is told.
        return len(proxy.connections) == 1 and pipe._wire is None

    await eventually(gone)
    assert await pipe.call("CLIENT", "ID") != mine


async def test_a_connection_that_is_dumb_is_given_up(proxy: Proxy, pipe: Pipe) -> None:
    await pipe.call("PING")
    proxy.stall()
    calls: list[Awaitable[Any]] = [pipe.call("PING"), pipe.call("PING")]
    async with asyncio.timeout(10 * WITHIN):
        for result in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(result, RedisTimeoutError)
    assert await pipe.call("ECHO", "anew") == b"anew"


@pytest.fixture(params=["tcp", "tls", "unix"])
async def line(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Proxy]:
    """Give a narrow line to a server, of each kind that there is."""
    options: dict[str, Any] = {}
    if request.param == "tls":
        options = {"tls": certified(tmp_path)}
    if request.param == "unix":
        options = {"at": tmp_path / "line"}
    async with EmbeddedRedis(port=0) as server:
        assert server.port is not None
        async with Proxy(("127.0.0.1", server.port), narrow=True, **options) as line:
            yield line


async def test_a_line_may_be_slow_in_taking_a_command_but_not_stand_still(line: Proxy) -> None:
    large = b"x" * 8_000_000
    async with Redis.from_url(line.url) as client:
        pipe = Pipe(client, answer_within=WITHIN)
        assert await pipe.call("PING") == b"PONG"
        line.bytes_a_second = len(large) / (4 * WITHIN)
        assert await pipe.call("SET", "large", large) == b"OK"
        assert line.accepted == 1

        before = line.taken
        call = await asked(pipe, "SET", "large", large)

        async def half() -> bool:
            return line.taken > before + len(large) // 2

        await eventually(half)
        line.clog()
        # Whoever asks meanwhile makes it no longer.
        meanwhile = []
        async with asyncio.timeout(10 * WITHIN):
            while not call.done():
                meanwhile.append(await asked(pipe, "PING"))
                await asyncio.wait([call], timeout=WITHIN / 10)
            with pytest.raises(RedisTimeoutError):
                await call
        first, *_ = await asyncio.gather(*meanwhile, return_exceptions=True)
        assert isinstance(first, RedisTimeoutError)
        line.bytes_a_second = None
        assert await pipe.call("STRLEN", "large") == len(large)
        pipe.drop()


async def test_what_a_stopped_server_s_system_takes_is_no_answer() -> None:
    async with EmbeddedRedis(port=0) as server, Redis.from_url(server.url) as client:
        pipe = Pipe(client, answer_within=WITHIN)
        assert await pipe.call("PING") == b"PONG"
        assert server.process_id is not None
        os.kill(server.process_id, signal.SIGSTOP)
        try:
            first = await asked(pipe, "PING")
            others = []
            async with asyncio.timeout(10 * WITHIN):
                while not first.done():
                    others.append(await asked(pipe, "SET", "a", "x" * 100))
                    await asyncio.wait([first], timeout=WITHIN / 4)
            with pytest.raises(RedisTimeoutError):
                await first
        finally:
            os.kill(server.process_id, signal.SIGCONT)
            pipe.drop()
            await asyncio.gather(*others, return_exceptions=True)


async def test_a_slow_line_is_not_a_dumb_one(proxy: Proxy, pipe: Pipe) -> None:
    large = b"x" * 2_000_000
    assert await pipe.call("SET", "large", large) == b"OK"
    proxy.bytes_a_second = len(large) / (4 * WITHIN)
    assert await pipe.call("GET", "large") == large
    assert proxy.accepted == 1
    proxy.stall()
    async with asyncio.timeout(10 * WITHIN):
        with pytest.raises(RedisTimeoutError):
            await pipe.call("GET", "large")


async def test_a_connection_to_what_is_a_replica_now_is_given_up(proxy: Proxy, client: Any, pipe: Pipe) -> None:
    await pipe.call("SET", "a", "1")
    await client.execute_command("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(ReadOnlyError):
        await pipe.call("SET", "a", "2")
    await client.execute_command("REPLICAOF", "NO", "ONE")
    before = proxy.accepted
    await eventually(partial(_set, pipe))
    assert proxy.accepted == before + 1


async def _set(pipe: Pipe) -> bool:
    return bool(await pipe.call("SET", "a", "3") == b"OK")


async def test_a_server_that_cannot_be_reached_is_tried_anew_by_the_next_call() -> None:
    async with EmbeddedRedis() as server:
        url = server.url
        client = Redis.from_url(url)
        pipe = Pipe(client, answer_within=WITHIN)
        assert await pipe.call("PING") == b"PONG"
    for result in await asyncio.gather(pipe.call("PING"), pipe.call("PING"), return_exceptions=True):
        assert isinstance(result, RedisConnectionError)
    await client.aclose()


@asynccontextmanager
async def near_and_far(settings: RelaySettings) -> AsyncIterator[tuple[Proxy, Relay, Relay]]:
    """Give a relay beside a server with a worker, and one at the other end of a line, which may be made slow."""
    async with EmbeddedRedis(port=0) as server:
        assert server.port is not None
        async with (
            Proxy(("127.0.0.1", server.port), narrow=True) as line,
            Relay(server.url, settings=settings) as near,
            Relay(line.url, settings=settings) as far,
            running(create_worker(near)),
        ):
            yield line, near, far


async def test_a_run_is_published_and_read_over_a_slow_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each item, page of the log and display takes longer than a connection may stand still."""
    monkeypatch.setattr(agui_relay.relay, "_ANSWER_WITHIN", WITHIN)
    settings = RelaySettings(display_tail_bytes=1_000_000)
    documents = [items.custom(2 + number, "demo.document", "x" * 3_000_000) for number in range(2)]
    run = [items.started(1), *documents, items.result(4)]
    async with near_and_far(settings) as (line, near, far):
        line.bytes_a_second = 3_000_000 / (3 * WITHIN)
        await publish(far, run)
        assert await read_all(near) == (projection(run), "finished")
        await eventually(lambda: near.client.hexists(RunKeys("agui", "run-1").state, "covered"))
        assert await read_all(far) == (projection(run), "finished")
        assert (await displayed(far)).items == (await displayed(near)).items
    # Nothing was given up and sent again, not even what no server had the script for.
    assert not [record for record in caplog.records if record.name == "agui_relay.publisher"]


async def test_an_append_that_takes_longer_than_the_lease_keeps_it(caplog: pytest.LogCaptureFixture) -> None:
    """So does each publisher whose calls come behind it on the same connection."""
    settings = RelaySettings(publisher_lease=1.5)
    large = items.custom(2, "demo.document", "x" * 4_000_000)
    async with (
        near_and_far(settings) as (line, near, far),
        far.publisher("run-1", thread_id="thread-1") as publisher,
        far.publisher("run-2", thread_id="thread-1") as other,
    ):
        await publisher.publish(items.started(1))
        await other.publish(items.started(1, run_id="run-2"))
        await asyncio.gather(publisher.flush(), other.flush())
        line.bytes_a_second = 4_000_000 / (4 * settings.publisher_lease)
        await publisher.publish(large)
        await publisher.publish(items.result(3))
        await publisher.flush()
        line.bytes_a_second = None
        await other.publish(items.result(2, run_id="run-2"))
        await other.flush()
        assert (await read_all(near))[1] == (await read_all(near, "run-2"))[1] == "finished"
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


async def displayed(relay: Relay) -> Screen:
    async with relay.subscribe("run-1", start="display") as subscription:
        screen = await Screen().follow(subscription)
    assert screen.checkpoints
    return screen
