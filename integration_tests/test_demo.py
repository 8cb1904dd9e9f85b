"""The demo: its recording is what the Harness and the reference gave, and playing it is a test that can fail."""

import asyncio
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from rich.console import Console

from agui_relay.cli.drawing import draw, result_table
from agui_relay.demo.line import Line
from agui_relay.demo.record import record
from agui_relay.demo.recording import Recording, load_recording
from agui_relay.demo.stage import Stage
from agui_relay.embedded import EmbeddedRedis
from agui_relay.events import encode_event
from agui_relay.projection.projector import Projector
from agui_relay.source import decode_item

COMMAND = (sys.executable, "-m", "agui_relay.cli", "demo")
WITHOUT_HARNESS = """
import sys
for name in ("a13n_harness", "a13n_stream_protocol", "pydantic_ai"):
    sys.modules[name] = None
"""


@pytest.fixture(scope="module")
def recording() -> Recording:
    return load_recording()


def shape(lines: list[bytes]) -> list[str]:
    """Keep what does not change from run to run: everything but ids that are drawn, moments and measures of them."""
    text = b"\n".join(lines).decode()
    known: dict[str, str] = {}

    def rename(match: re.Match[str]) -> str:
        return known.setdefault(match[0], f"<{len(known)}>")

    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)", "<moment>", text)
    text = re.sub(r'"timestamp":\d+', '"timestamp":0', text)
    text = re.sub(r"[0-9a-f]{32}|[0-9a-f]{24}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", rename, text)
    text = re.sub(r"(?<=pilot-)[0-9a-f]{4}|(?<=delegation-)[\w-]{12}|(?<=agent-)[\w-]{16}", rename, text)
    return text.split("\n")


def test_the_recording_shows_what_it_shall(recording: Recording) -> None:
    events = [json.loads(event) for event in recording.events]
    kinds = Counter(event["type"] for event in events)
    assert kinds["TEXT_MESSAGE_CONTENT"] > 50
    assert kinds["REASONING_MESSAGE_CONTENT"] > 20
    assert kinds["TOOL_CALL_RESULT"] >= 2
    assert kinds["SUBAGENT_STARTED"] == kinds["SUBAGENT_FINISHED"] == 1
    large = [event for event, data in zip(events, recording.events, strict=True) if len(data) >= 200_000]
    assert [event["name"] for event in large] == ["harbour.chart"]
    assert events[0]["type"] == "RUN_STARTED"
    assert events[-1]["type"] == "RUN_FINISHED"
    assert 3 < sum(recording.pauses) < 15


@pytest.mark.parametrize("restored", [False, True], ids=["at once", "restored before each item"])
def test_the_projection_of_the_recorded_items_is_the_recorded_one(recording: Recording, restored: bool) -> None:
    projector = Projector(run_id=recording.run_id, thread_id=recording.thread_id)
    events: list[bytes] = []
    for item in recording.items:
        if restored:
            projector = Projector.restore(projector.export())
        events += map(encode_event, projector.project(decode_item(item)))
    assert events == list(recording.events)


async def test_recording_anew_gives_the_same_run(recording: Recording) -> None:
    """When the Harness changes what it yields, the recording is to be made anew."""
    items, events = await record(pace=0.0)
    assert shape(items) == shape(list(recording.items))
    assert shape(events) == shape(list(recording.events))


async def test_three_watchers_end_equal(recording: Recording) -> None:
    notes: list[str] = []
    stage = Stage(recording, speed=4.0, tell=notes.append)
    await stage.play()
    for watcher in stage.watchers:
        assert watcher.outcome == "finished"
        assert tuple(watcher.events) == recording.events, watcher.name
    assert stage.succeeded
    assert stage.steady.repaired == stage.steady.reconnects == 0
    assert stage.cut.repaired > 0
    assert stage.cut.reconnects > 0
    assert stage.frames > len(recording.events)
    assert any("cut" in note for note in notes)


async def test_a_difference_is_found(recording: Recording) -> None:
    events = list(recording.events)
    events[40] += b" "
    stage = Stage(msgspec.structs.replace(recording, events=tuple(events)), speed=100.0)
    await stage.play()
    assert not stage.succeeded


async def test_it_draws_itself_in_a_terminal(recording: Recording) -> None:
    file = io.StringIO()
    console = Console(force_terminal=True, width=120, height=40, file=file)
    stage = Stage(recording, speed=20.0)
    await draw(stage, console)
    console.print(result_table(stage))
    text = file.getvalue()
    assert "harbour.chart" in text
    assert stage.succeeded


@pytest.fixture
def bare_environment(tmp_path: Path) -> dict[str, str]:
    """Make an environment in which the `harness` extra is not installed, for child processes as well."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_HARNESS)
    search_path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": search_path, "COLUMNS": "120"}


async def test_the_command_needs_no_harness_and_ends_with_a_table(bare_environment: dict[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--speed", "10", stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=bare_environment
    )
    output, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")
    text = output.decode()
    assert text.count(" equal ") == 3, text
    assert "\x1b" not in text


async def test_ctrl_c_leaves_nothing_behind() -> None:
    await end_in_the_middle(signal.SIGINT, expected=130)


async def test_killed_it_leaves_no_process_behind() -> None:
    await end_in_the_middle(signal.SIGKILL, expected=-signal.SIGKILL)


async def end_in_the_middle(number: signal.Signals, *, expected: int) -> None:
    process = await asyncio.create_subprocess_exec(*COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    while b"the agent starts" not in await process.stdout.readline():
        pass
    children = children_of(process.pid)
    assert len(children) == 3, "a server and two workers"
    process.send_signal(number)
    _, errors = await process.communicate()
    assert (process.returncode, errors) == (expected, b"")
    async with asyncio.timeout(45):
        while any(map(is_alive, children)):  # noqa: ASYNC110 - not our children; nothing tells us
            await asyncio.sleep(0.02)


def children_of(process_id: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()]


def is_alive(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_line_carries_until_it_is_cut_and_again_when_mended(tmp_path: Path) -> None:
    async with (
        EmbeddedRedis() as server,
        Line(server.url, tmp_path / "line.sock") as line,
        Redis.from_url(line.url, single_connection_client=True) as client,
    ):
        assert await client.set("key", b"x" * 1_000_000)
        await line.cut()
        with pytest.raises(RedisConnectionError):
            await client.get("key")
        await line.mend()
        assert await client.strlen("key") == 1_000_000
