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
from pydantic import ValidationError
from redis import Redis

import agui_relay
from agui_relay import GapNotice, Relay, RelaySettings
from agui_relay.broker.keys import GROUP, RunKeys
from agui_relay.cli import main
from agui_relay.cli.summary import one_line, summary
from agui_relay.cli.tail import restart
from agui_relay.demo.recording import Recording, load_recording

COMMAND = (sys.executable, "-m", "agui_relay.cli")
INTERRUPTED = """
import signal, sys
from agui_relay.cli import main

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder())
sys.exit(main(["demo"]))
"""
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
        (["worker", "--redis", "redis://localhost", "--processor", ".relative:f"], "cannot load '.relative:f'"),
        (["worker", "--redis", "redis://localhost", "--log-level", "loud"], "loud"),
        (["publish", "run-1", "/no/such/file", "--redis", "redis://localhost"], "/no/such/file"),
        (["demo", "--speed", "0"], "--speed"),
        (["tail", "run-1", "--after", "12", "--redis", "redis://localhost"], "--after"),
        (["runs", "--redis", "redis://localhost:port"], "port"),
        (["runs", "--redis", "redis://localhost?no_option=1"], "no_option"),
        (["runs", " ", "--redis", "redis://localhost"], "run id is blank"),
        (["tail", "run\n1", "--redis", "redis://localhost"], "run id has control characters"),
        (["tail", "run-1", "--wait", "nan", "--redis", "redis://localhost"], "--wait"),
        (["tail", "run-1", "--view", "all", "--redis", "redis://localhost"], "--view"),
        (["publish", "run-1", "--thread", "", "--redis", "redis://localhost"], "thread id is blank"),
        (["demo", "--speed", "nan"], "--speed"),
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
    [["tail", "run-1"], ["publish", "run-1", os.devnull], ["runs"], ["rejected", "run-1"], ["delete", "r"]],
)
def test_no_redis_is_one_line_and_status_1(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([*arguments, "--redis", f"unix://me:secret@{tmp_path}/no.sock"]) == 1
    told = says(capsys.readouterr().err)
    assert f"cannot reach Redis at unix://{tmp_path}/no.sock: " in told
    assert "secret" not in told


@pytest.mark.parametrize("command", [["runs", "--redis", "redis://localhost"], ["demo"]])
@pytest.mark.parametrize(("name", "value"), [("CLAIM_IDLE", "soon"), ("WORKER_ENTRIES", "0"), ("NAMESPACE", "a b")])
def test_a_bad_setting_in_the_environment_is_named(
    name: str, value: str, command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"AGUI_RELAY_{name}", value)
    assert main(command) == 2
    told = says(capsys.readouterr().err)
    assert f"AGUI_RELAY_{name}: got {value!r}, " in told
    assert "should" in told


def test_a_variable_that_is_no_setting_is_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("UNREAD_BYTE", "no_such_thing", "REDIS", "REDIS_URL", "TEST_SEED", "BATCH_ITEMS", "batch_bytes"):
        monkeypatch.setenv(f"AGUI_RELAY_{name}", "5")
    for _ in range(2):
        settings = RelaySettings(namespace="other")
        assert (settings.batch_items, settings.batch_bytes, settings.namespace) == (5, 5, "other")
    assert [(record.name, record.levelname, record.getMessage()) for record in caplog.records] == [
        ("agui_relay.settings", "WARNING", f"the environment variable AGUI_RELAY_{told}")
        for told in (
            "UNREAD_BYTE is no setting and has no effect; AGUI_RELAY_UNREAD_BYTES is one",
            "no_such_thing is no setting and has no effect",
            "REDIS is no setting and has no effect; AGUI_RELAY_REDIS_URL is one",
        )
    ]


def test_an_argument_that_is_no_setting_is_an_error() -> None:
    with pytest.raises(ValidationError, match="batch_item\n"):
        RelaySettings(batch_item=5)  # type: ignore[call-arg]


@pytest.mark.parametrize("command", ["runs", "demo"])
async def test_a_misspelt_setting_is_told_by_the_command(
    redis_url: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGUI_RELAY_REDIS_URL", redis_url)
    monkeypatch.setenv("AGUI_RELAY_BATCH_ITEM", "5")
    async with process(command, *(("--speed", "100") if command == "demo" else ())) as started:
        _, errors = await started.communicate()
    told = "AGUI_RELAY_BATCH_ITEM is no setting and has no effect; AGUI_RELAY_BATCH_ITEMS is one"
    assert (started.returncode, errors.decode()) == (0, f"the environment variable {told}\n")


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"agui-relay {agui_relay.__version__}\n"


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
        count = len(recording.items)
        assert (
            output.decode() == f"{count} items read, {count} stored; run {recording.run_id!r} is complete: finished\n"
        )
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
        _, chat, _ = await run("tail", recording.run_id, "--view", "chat", "--json")
        assert {kind_of(event) for event in recording.events} - {kind_of(event) for event in chat.splitlines()} >= {
            "TOOL_CALL_ARGS",
            "a13n.pydantic_ai.part_start",
        }
        assert {kind_of(event) for event in chat.splitlines()} >= {"TEXT_MESSAGE_CONTENT", "harbour.chart"}

        status, table, _ = await run("runs")
        assert status == 0
        head, row = table.decode().splitlines()
        assert head.split()[:5] == ["run", "id", "status", "items", "lag"]
        assert row.split()[:4] == [recording.run_id, "finished", str(len(recording.items)), "0"]
        _, one, _ = await run("runs", recording.run_id)
        assert f"thread_id     {recording.thread_id}" in one.decode()
        _, line, _ = await run("runs", recording.run_id, "--json")
        assert json.loads(line)["status"] == "finished"
        assert await run("rejected", recording.run_id) == (0, b"", "no rejected items\n")

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


async def test_a_bad_line_is_named(recording: Recording, items_file: Path, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b"\n".join([*recording.items[:2], b"", b'{"v": 1, "source": "nobody"}', *recording.items[2:]]))
    status, output, errors = await run("publish", recording.run_id, path)
    assert (status, output) == (1, b"")
    assert f"{path}, line 4: " in says(errors)
    assert "is abandoned" in says(errors)

    # What was stored before it is a run that is over; its id is free after it is deleted.
    assert "is over (" in says((await run("publish", recording.run_id, items_file))[2])
    assert await run("delete", recording.run_id) == (0, f"run {recording.run_id!r} is deleted\n".encode(), "")
    assert (await run("publish", recording.run_id, items_file))[0] == 0
    assert (await run("delete", recording.run_id))[0] == 0
    status, output, errors = await run("delete", recording.run_id)
    assert (status, output) == (1, b"")
    assert recording.run_id in says(errors)


@pytest.mark.parametrize("count", [0, 1])
async def test_input_that_ends_too_early_is_status_1(
    recording: Recording, tmp_path: Path, run: Run, redis_url: str, count: int
) -> None:
    path = tmp_path / "short.jsonl"
    path.write_bytes(b"".join(item + b"\n" for item in recording.items[:count]))
    status, output, errors = await run("publish", recording.run_id, path)
    assert (status, output) == (1, b"")
    told = "ended without the run's terminal item; 1 items read, 1 stored" if count else "has no item"
    assert f"{path} {told}" in says(errors)
    assert status_of(redis_url, recording.run_id) == ("closing" if count else None)


async def test_a_run_is_not_begun_with_items_of_another(
    items_file: Path, recording: Recording, run: Run, redis_url: str
) -> None:
    status, output, errors = await run("publish", "another", items_file)
    assert (status, output) == (1, b"")
    assert f"line 1: the first item is of run {recording.run_id!r}, not of 'another'" in says(errors)
    assert status_of(redis_url, "another") is None


async def test_a_first_line_that_is_bad_begins_no_run(tmp_path: Path, run: Run, redis_url: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b"\n{}\n")
    told = says((await run("publish", "run-1", path))[2])
    assert f"{path}, line 2: " in told
    assert told.endswith("; nothing was published")
    assert status_of(redis_url, "run-1") is None


@pytest.mark.parametrize("source", ["long.jsonl", "- < <(cat long.jsonl)"])
async def test_a_line_that_is_too_long_is_named(
    redis_url: str, recording: Recording, tmp_path: Path, source: str
) -> None:
    with (tmp_path / "long.jsonl").open("wb") as file:
        file.write(recording.items[0] + b"\n\n")
        file.truncate(65 * 1024 * 1024)
    shell = await asyncio.create_subprocess_exec(
        *("bash", "-c", f"exec '{sys.executable}' -m agui_relay.cli publish {recording.run_id} {source}"),
        env={**os.environ, "AGUI_RELAY_REDIS_URL": redis_url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    output, errors = await shell.communicate()
    assert (shell.returncode, output) == (1, b"")
    name = source if source == "long.jsonl" else "standard input"
    told = says(errors.decode())
    assert told.startswith(
        f"agui-relay: {name}, line 3: more than 67,108,864 bytes; run {recording.run_id!r} is abandoned"
    )


async def test_what_is_read_and_what_is_stored_are_counted(
    recording: Recording, tmp_path: Path, run: Run, redis_url: str
) -> None:
    path = tmp_path / "twice.jsonl"
    path.write_bytes(b"\n".join([*recording.items[:3], *recording.items]))
    status, output, _ = await run("publish", recording.run_id, path)
    count = len(recording.items)
    assert status == 0
    assert output.startswith(f"{count + 3} items read, {count} stored; ".encode())


@pytest.mark.parametrize(("redirection", "status"), [(">&-", 0), ("--no-option 2>&-", 2), ("no-such-run >&- 2>&-", 1)])
async def test_outputs_may_be_closed(redis_url: str, redirection: str, status: int) -> None:
    shell = await asyncio.create_subprocess_shell(
        f"exec '{sys.executable}' -m agui_relay.cli runs --redis '{redis_url}' {redirection}",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert await shell.communicate() == (b"", b"")
    assert shell.returncode == status


@pytest.mark.parametrize(
    ("redirection", "words"),
    [("</dev/null", "standard input has no item"), ("<&-", "standard input is closed"), ("<items.jsonl", "")],
)
async def test_standard_input_need_be_no_pipe(
    redis_url: str, recording: Recording, items_file: Path, redirection: str, words: str
) -> None:
    shell = await asyncio.create_subprocess_shell(
        f"exec '{sys.executable}' -m agui_relay.cli publish {recording.run_id} --redis '{redis_url}' {redirection}",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=items_file.parent,
    )
    output, errors = await asyncio.wait_for(shell.communicate(), 30)
    if words:
        assert (shell.returncode, output) == (1, b"")
        assert words in says(errors.decode())
    else:
        assert (shell.returncode, errors) == (0, b"")


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
        output, told = await first.communicate()
    # The run is abandoned, as it had no terminal item.
    assert (first.returncode, output) == (1, b"")
    assert "is abandoned" in says(told.decode())


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
        assert error == "processor: ValueError: not today\n"
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


@pytest.mark.parametrize("module", ["typer", "agui_relay.demo.stage"])
def test_ctrl_c_ends_without_noise_what_has_hardly_begun(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, module], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


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


async def test_tail_says_what_a_cursor_that_does_not_fit_means(
    redis_url: str, recording: Recording, items_file: Path, run: Run
) -> None:
    async with worker(redis_url):
        await run("publish", recording.run_id, items_file)
        _, events, outcome = await run("tail", recording.run_id, "--json")
        cursor = outcome.split()[-1]
        epoch, _, last = cursor.partition(":")

        for wrong, words in (
            ("another:7", "the cursor is of another life of this run; showing it from the start"),
            (f"{epoch}:{int(last) + 5}", "the cursor is ahead of all that this run has; showing it from the start"),
        ):
            assert await run("tail", recording.run_id, "--after", wrong, "--json") == (0, events, f"{words}\n{outcome}")


@pytest.mark.parametrize(
    ("before", "shown", "words"),
    [
        ("a:7", True, "the run was deleted and has begun again; what was shown is void, showing it from the start"),
        ("b:7", True, "the server has lost frames 4 to 7; what was shown is void, showing it from the start"),
        ("a:7", False, "the cursor is of another life of this run; showing it from the start"),
        ("b:7", False, "the cursor is ahead of all that this run has; showing it from the start"),
    ],
)
def test_each_new_beginning_has_its_reason(before: str, shown: bool, words: str) -> None:
    notice = GapNotice(4, 7, restarts=True, cursor="b:0")
    assert restart(notice, before, shown=shown, start="log") == words
    assert restart(notice, before, shown=shown, start="display").endswith("showing what the run has come to")


async def test_tail_says_what_is_in_the_display_only(
    redis_url: str, recording: Recording, items_file: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGUI_RELAY_DISPLAY_TAIL_BYTES", "5000")
    monkeypatch.setenv("AGUI_RELAY_FRAME_LOG_BYTES", "20000")
    async with worker(redis_url):
        await run("publish", recording.run_id, items_file)
        # Its first frames go once the display covers them.
        keys = RunKeys("agui", recording.run_id)
        with Redis.from_url(redis_url) as client:
            await wait_for(lambda: client.exists(keys.frames) and not client.xrange(keys.frames, "1", "1"))
        await wait_for(lambda: status_of(redis_url, recording.run_id) == "finished")
        status, text, notes = await run("tail", recording.run_id)
    assert status == 0
    head, *lines = text.decode().splitlines()
    position = int(head.split()[0].partition(":")[2])
    assert f"DISPLAY {sum(line.startswith('  ') for line in lines):,} items, of frames 1 to {position}" in head
    told, outcome = notes.splitlines()
    assert told == f"frames 1 to {position} can be seen only as part of the display that follows"
    assert outcome.startswith("finished, at ")
    # No line without what the item is about.
    assert not [line for line in lines if line.startswith("  observation") and len(line.split()) < 3]
    assert [line for line in lines if line.startswith("  observation completed ")]


async def test_tail_says_that_no_display_is_stored(
    redis_url: str, recording: Recording, items_file: Path, run: Run
) -> None:
    async with worker(redis_url):
        await run("publish", recording.run_id, items_file)
        _, text, _ = await run("tail", recording.run_id, "--start", "display")
    first, second, *_ = text.decode().splitlines()
    assert first.split(maxsplit=1)[1] == "DISPLAY empty, none is stored yet: all events follow"
    assert second.split()[1] == "RUN_STARTED"


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


def kind_of(event: bytes) -> str:
    fields = json.loads(event)
    return str(fields.get("name", fields["type"]))


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
