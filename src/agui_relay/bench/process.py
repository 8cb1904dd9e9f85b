"""A worker in a process of its own that tells what it takes: `python -m agui_relay.bench.process URL`.

It answers each line of its standard input with one of JSON, and ends with its input: also when the bench is killed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

_START = b"start"
_USAGE = b"usage"


class Usage(msgspec.Struct, frozen=True):
    """What a process has taken so far, and holds."""

    cpu: float
    """Seconds of CPU time, the server's or the worker's, user and system."""
    memory: int
    """Resident bytes; the largest ever where the system does not tell the present."""


class WorkerProcess:
    """The bench's end of a worker's process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def start(self) -> None:
        """Let it work; returns when it does."""
        await self._ask(_START)

    async def usage(self) -> Usage:
        """Ask what it has taken."""
        return await self._ask(_USAGE)

    async def _ask(self, word: bytes) -> Usage:
        reading, writing = self._process.stdout, self._process.stdin
        assert reading is not None
        assert writing is not None
        writing.write(word + b"\n")
        await writing.drain()
        return await self._answer()

    async def _answer(self) -> Usage:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the worker's process has ended")
        return msgspec.json.decode(line, type=Usage)

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[WorkerProcess]:
        """Have a process that is ready to work as long as the block lasts."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "agui_relay.bench.process", url),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # Plugins that are there for other packages' sake more than double the time of a start.
            env={**os.environ, "PYDANTIC_DISABLE_PLUGINS": "__all__"},
        )
        worker = cls(process)
        try:
            await worker._answer()
            yield worker
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def server_cpu(client: Any) -> float:
    """Return the seconds of CPU time that a server has taken."""
    info = await client.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def usage() -> Usage:
    """Return what this process has taken."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        memory = pages * resource.getpagesize()
    except OSError:
        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        memory = largest if sys.platform == "darwin" else largest * 1024
    return Usage(time.process_time(), memory)


async def _work(url: str) -> None:
    from agui_relay import Relay, create_worker

    logging.getLogger("agui_relay").setLevel(logging.ERROR)
    app = create_worker(Relay(url))
    started = asyncio.Event()

    @app.after_startup
    async def note() -> None:
        started.set()

    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    _say()
    running = None
    while line := (await lines.readline()).strip():
        if line == _START:
            running = asyncio.create_task(app.run(sleep_time=0.02))
            await started.wait()
        _say()
    if running is not None:
        app.exit()
        await running


def _say() -> None:
    sys.stdout.buffer.write(msgspec.json.encode(usage()) + b"\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1]))
