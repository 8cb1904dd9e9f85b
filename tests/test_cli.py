"""The command as a user meets it: what it prints, where, and the status it ends with."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from agui_relay import Relay
from agui_relay.broker.keys import GROUP, RunKeys
from agui_relay.cli import main
from agui_relay.cli.summary import one_line, summary
from agui_relay.demo.recording import Recording, load_recording

COMMAND = (sys.executable, "-m", "agui_relay.cli")
PROCESSOR = """
from ag_ui.core import EventType

def process(item, event):
    if event.type == EventType.RUN_STARTED:
        raise ValueError("not today")
    return None if event.type == EventType.CUSTOM else event
"""


@pytest.fixture(scope="module")
def recording() -> Recording:
    return load_recording()


@pytest.fixture
def items_file(recording: Recording, tmp_path: Path) -> Path:
    path = tmp_path / "items.jsonl"
    path.write_bytes(b"".join(item + b"\n" for item in recording.items))
    return path


@asynccontextmanager
async def process(*arguments: str, cwd: Path | None = None) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the command beside the test; it is gone afterwards."""
    started = await asyncio.create_subprocess_exec(
        *COMMAND, *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.communicate()


@asynccontextmanager
async def worker(url: str, *arguments: str, cwd: Path | None = None) -> AsyncIterator[asyncio.subprocess.Process]:
    async with process("worker", "--redis", url, *arguments, cwd=cwd) as started:
        assert started.stdout is not None
        line = await started.stdout.readline()
        assert line.startswith(b"worker is ready"), await started.communicate()
        yield started


type Run = Callable[..., Awaitable[tuple[int, bytes, str]]]


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes], redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Give a function that runs a command to its end, in this process: status, output, errors."""
    monkeypatch.setenv("AGUI_RELAY_REDIS_URL", redis_url)

    async def run_command(*arguments: str | Path) -> tuple[int, bytes, str]:
        capsysbinary.readouterr()
        status = await asyncio.to_thread(main, [str(argument) for argument in arguments])
        captured = capsysbinary.readouterr()
        return status, captured.out, captured.err.decode()

    return run_command


def says(errors: str) -> str:
    """Return the one line on standard error; anything else would be a traceback or noise."""
    lines = errors.splitlines()
    assert len(lines) == 1, errors
    assert lines[0].startswith("agui-relay: ")
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "nonsense"),
        (["tail"], "RUN_ID"),
        (["tail", "run-1"], "--redis"),
        (["worker", "--redis", "redis://localhost", "--concurrency", "0"], "--concurrency"),
        (["worker", "--redis", "redis://localhost", "--processor", "no_colon"], "module:callable"),
        (["worker", "--redis", "redis://localhost", "--processor", "no.such.module:name"], "no.such.module"),
        (["worker", "--redis", "redis://localhost", "--processor", "json:no_such_name"], "no_such_name"),
        (["worker", "--redis", "redis://localhost", "--processor", "json:__name__"], "not callable"),
        (["worker", "--redis", "redis://localhost", "--log-level", "loud"], "loud"),
        (["publish", "run-1", "/no/such/file", "--redis", "redis://localhost"], "/no/such/file"),
        (["demo", "--speed", "0"], "--speed"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AGUI_RELAY_REDIS_URL", raising=False)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert words in says(captured.err)
    assert captured.out == ""


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"], ["worker", "-h"], []])
def test_help_is_no_failure(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status = main(arguments)
    captured = capsys.readouterr()
    assert status == (0 if arguments else 2)
    assert "Usage" in captured.out + captured.err


@pytest.mark.parametrize(
    "arguments",
    [["tail", "run-1"], ["worker"], ["publish", "run-1", os.devnull], ["runs"], ["rejected", "run-1"]],
)
def test_no_redis_is_one_line_and_status_1(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([*arguments, "--redis", f"unix://{tmp_path}/no.sock"]) == 1
    assert "no.sock" in says(capsys.readouterr().err)


@pytest.mark.parametrize("url", ["http://localhost", "localhost:6379", ""])
def test_an_address_that_is_none_of_redis_says_so(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--redis", url]) == 2
    assert "redis://" in says(capsys.readouterr().err)


async def test_a_run_goes_in_and_comes_out_byte_for_byte(
    redis_url: str, recording: Recording, items_file: Path, run: Run
) -> None:
    async with worker(redis_url), process("tail", recording.run_id, "--redis", redis_url, "--json") as tail:
        status, output, errors = await run("publish", recording.run_id, items_file)
        assert (status, errors) == (0, "")
        assert output.startswith(f"{len(recording.items)} items published".encode())
        events, notes = await tail.communicate()
        assert events.splitlines() == list(recording.events)
        assert notes.decode().startswith("finished, at ")
        assert tail.returncode == 0

        _, text, _ = await run("tail", recording.run_id)
        lines = text.decode().splitlines()
        assert len(lines) == len(recording.events)
        cursor = lines[29].split()[0]
        status, rest, _ = await run("tail", recording.run_id, "--after", cursor, "--json")
        assert status == 0
        assert rest.splitlines() == list(recording.events[30:])

        status, table, _ = await run("runs")
        assert status == 0
        head, row = table.decode().splitlines()
        assert head.split()[:5] == ["run", "id", "status", "items", "lag"]
        assert row.split()[:4] == [recording.run_id, "finished", str(len(recording.items)), "0"]
        _, one, _ = await run("runs", recording.run_id)
        assert f"thread_id     {recording.thread_id}" in one.decode()
        _, line, _ = await run("runs", recording.run_id, "--json")
        assert json.loads(line)["status"] == "finished"
        assert await run("rejected", recording.run_id) == (0, b"", "")

        status, _, errors = await run("publish", recording.run_id, items_file)
        assert status == 1
        assert "finished" in says(errors)


async def test_an_item_is_carried_before_the_input_ends(redis_url: str, recording: Recording) -> None:
    async with (
        worker(redis_url),
        process("tail", recording.run_id, "--redis", redis_url, "--json") as tail,
        process("publish", recording.run_id, "--redis", redis_url) as publish,
    ):
        assert publish.stdin is not None
        assert tail.stdout is not None
        publish.stdin.write(recording.items[0] + b"\n\n")
        assert await tail.stdout.readline() == recording.events[0] + b"\n"
        publish.stdin.write(b"\n".join(recording.items[1:]))  # the last line has no end
        await publish.communicate()
        assert publish.returncode == 0
        events, _ = await tail.communicate()
        assert events.splitlines() == list(recording.events[1:])


async def test_the_items_of_the_documentation_are_a_run(redis_url: str, tmp_path: Path, run: Run) -> None:
    page = Path(__file__).parent.parent / "docs" / "commands.md"
    lines = re.search(r"```json\n(.*?)```", page.read_text(), re.DOTALL)
    assert lines is not None
    (tmp_path / "items.jsonl").write_text(lines[1])
    async with worker(redis_url):
        assert (await run("publish", "r-1", tmp_path / "items.jsonl"))[0] == 0
        status, text, outcome = await run("tail", "r-1")
    assert status == 0
    assert [line.split()[1] for line in text.decode().splitlines()] == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert outcome.startswith("finished, at ")


async def test_a_bad_line_is_named(recording: Recording, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b"\n".join([*recording.items[:2], b"", b'{"v": 1, "source": "nobody"}', *recording.items[2:]]))
    status, output, errors = await run("publish", recording.run_id, path)
    assert (status, output) == (1, b"")
    assert f"{path}, line 4: " in says(errors)


async def test_a_run_is_published_by_one_at_a_time(
    redis_url: str, recording: Recording, items_file: Path, run: Run
) -> None:
    async with process("publish", recording.run_id, "--redis", redis_url) as first:
        assert first.stdin is not None
        first.stdin.write(recording.items[0] + b"\n")
        await wait_for(lambda: status_of(redis_url, recording.run_id) == "live")
        status, _, errors = await run("publish", recording.run_id, items_file)
        assert status == 1
        assert recording.run_id in says(errors)
        output, _ = await first.communicate()
    # Nobody has projected the item yet; then the run is abandoned, as it had no terminal item.
    assert output == b"1 items published, the run is closing\n"


@pytest.mark.parametrize("command", [["runs"], ["rejected"], ["tail", "--wait", "0.05"]])
async def test_a_run_that_does_not_exist_is_status_1(run: Run, command: list[str]) -> None:
    status, output, errors = await run(command[0], "no-such-run", *command[1:])
    assert (status, output) == (1, b"")
    assert "no-such-run" in says(errors)


async def test_a_worker_uses_its_processor_and_ends_with_sigterm(
    redis_url: str, recording: Recording, items_file: Path, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "mine.py").write_text(PROCESSOR)
    options = ("--processor", "mine:process", "--concurrency", "2", "--consumer", "worker-1")
    async with worker(redis_url, *options, cwd=tmp_path) as started:
        await run("publish", recording.run_id, items_file)
        _, events, _ = await run("tail", recording.run_id, "--json")
        kinds = {json.loads(line)["type"] for line in events.splitlines()}
        assert "CUSTOM" not in kinds
        assert "RUN_FINISHED" in kinds

        status, text, _ = await run("rejected", recording.run_id)
        assert status == 0
        ordinal, error = text.decode().split(maxsplit=1)
        assert ordinal == "1"
        assert "not today" in error
        _, line, _ = await run("rejected", recording.run_id, "--json")
        assert json.loads(line)["item"].encode() == recording.items[0]

        started.send_signal(signal.SIGTERM)
        await started.wait()
        assert started.returncode == 0


@pytest.mark.parametrize("arguments", [["tail", "run-1"], ["publish", "run-1"]])
async def test_ctrl_c_ends_without_noise(redis_url: str, arguments: list[str]) -> None:
    async with process(*arguments, "--redis", redis_url) as started:
        with Redis.from_url(redis_url) as client:
            await wait_for(lambda: len(client.client_list()) > 1)
        started.send_signal(signal.SIGINT)
        await started.wait()
        assert started.stderr is not None
        assert (started.returncode, await started.stderr.read()) == (130, b"")


async def test_a_reader_may_leave(redis_url: str, recording: Recording, items_file: Path, run: Run) -> None:
    async with worker(redis_url):
        await run("publish", recording.run_id, items_file)
        head = await asyncio.create_subprocess_shell(
            f"'{sys.executable}' -m agui_relay.cli tail {recording.run_id} --redis '{redis_url}' --json | head -n 1;"
            " echo ${PIPESTATUS[@]}",
            executable="/bin/bash",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        output, errors = await head.communicate()
    assert output.splitlines() == [recording.events[0], b"0 0"]
    assert errors == b""


def test_a_run_id_that_cannot_be_is_told(redis_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tail", "run\n1", "--redis", redis_url]) == 1
    assert "run id" in says(capsys.readouterr().err)


def test_the_address_may_come_from_the_environment(
    redis_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGUI_RELAY_REDIS_URL", redis_url)
    assert main(["runs"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_summary_never_moves_the_cursor() -> None:
    event = json.dumps({"type": "TEXT_MESSAGE_CONTENT", "delta": "a\x1b[2J\r\nb\u202ec"}).encode()
    assert summary(event) == "TEXT_MESSAGE_CONTENT a\\x1b[2J\\r\\nb\\u202ec"
    assert len(one_line("x" * 1_000)) == 100


def status_of(url: str, run_id: str) -> str | None:
    with Redis.from_url(url, decode_responses=True) as client:
        status = client.hget(RunKeys("agui", run_id, 1).state, "status")
        return status if isinstance(status, str) else None


async def wait_for(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(45):
        while not condition():  # noqa: ASYNC110 - other processes; nothing tells us
            await asyncio.sleep(0.02)


async def test_a_run_that_a_worker_holds_is_pending(
    redis_url: str, recording: Recording, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGUI_RELAY_CLAIM_IDLE", "0.5")

    async def pending() -> tuple[dict[str, Any], list[str]]:
        one = json.loads((await run("runs", recording.run_id, "--json"))[1])
        table = (await run("runs"))[1].decode().splitlines()
        heads, row = table[0].replace("run id", "run_id").split(), table[1].split()
        assert row[heads.index("pending")] == str(one["pending"])
        assert row[heads.index("lag")] == str(one["lag"])
        return one, (await run("runs", recording.run_id))[1].decode().splitlines()

    async with Relay(redis_url) as relay, relay.publisher(recording.run_id, thread_id=recording.thread_id) as publisher:
        for item in recording.items[:2]:
            await publisher.publish(item)
        await publisher.flush()
        waiting, lines = await pending()
        assert (waiting["lag"], waiting["pending"], waiting["consumer"], waiting["idle"]) == (2, 0, None, None)
        assert not [line for line in lines if line.startswith(("consumer", "idle"))]

        keys = RunKeys(relay.settings.namespace, recording.run_id)
        await relay.client.xgroup_create(keys.ready, GROUP, id="0", mkstream=True)
        await relay.client.xreadgroup(GROUP, "somebody", {keys.ready: ">"})
        held, lines = await pending()
        assert (held["lag"], held["pending"], held["consumer"]) == (2, 1, "somebody")
        assert 0 <= held["idle"] < 60
        assert "consumer      somebody" in lines

        # Whoever is alive takes it over, and has nothing in hand when all is projected.
        async with worker(redis_url):
            async with asyncio.timeout(45):
                while (await pending())[0]["lag"]:  # noqa: ASYNC110 - another process; nothing tells us
                    await asyncio.sleep(0.02)
        done, _ = await pending()
        assert (done["lag"], done["pending"], done["consumer"]) == (0, 0, None)

        # Without its group nobody holds anything.
        await publisher.publish(recording.items[2])
        await publisher.flush()
        await relay.client.xgroup_destroy(keys.ready, GROUP)
        assert ((await pending())[0]["lag"], (await pending())[0]["pending"]) == (1, 0)
