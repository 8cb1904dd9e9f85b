"""Workers as processes of their own, to be killed, stopped and counted."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager


async def start_worker(
    url: str, *options: str, consumer: str | None = None, environment: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    """Start `agui-relay worker` on a server."""
    named = () if consumer is None else ("--consumer", consumer)
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "agui_relay.cli",
        "worker",
        "--redis",
        url,
        *named,
        *options,
        # Plugins of pydantic that are there for other packages' sake more than double the time of a start.
        env={**os.environ, "PYDANTIC_DISABLE_PLUGINS": "__all__", **(environment or {})},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )


@asynccontextmanager
async def workers(
    url: str, count: int, *, environment: Mapping[str, str] | None = None
) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """Run some workers for the length of the block; whatever is left of them is killed."""
    running = [await start_worker(url, environment=environment) for _ in range(count)]
    try:
        yield running
    finally:
        for process in running:
            if process.returncode is None:
                process.kill()
        for process in running:
            await process.communicate()
