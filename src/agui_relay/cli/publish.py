"""`agui-relay publish`: a run from JSON Lines, as they come."""

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from agui_relay.cli.options import RedisUrl, RunId

_LONGEST_LINE = 64 * 1024 * 1024  # bytes; an item of 8 MiB may be written with escapes


def publish(
    run_id: RunId,
    redis: RedisUrl,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            exists=True,
            dir_okay=False,
            readable=True,
            allow_dash=True,
            help="Items, one JSON object a line; standard input when left out.",
            show_default=False,
        ),
    ] = None,
    thread: Annotated[
        str | None, typer.Option(metavar="THREAD_ID", help="The run's thread; else its first item tells.")
    ] = None,
) -> None:
    """Publish a run from JSON Lines. Without a terminal item it ends abandoned."""
    if file is None or str(file) == "-":
        asyncio.run(_publish(redis, run_id, thread, sys.stdin.buffer, "standard input"))
    else:
        with file.open("rb") as stream:
            asyncio.run(_publish(redis, run_id, thread, stream, str(file)))


async def _publish(redis: str, run_id: str, thread: str | None, stream: BinaryIO, name: str) -> None:
    from agui_relay import ItemTooLarge, Relay
    from agui_relay.source import ItemError

    count = 0
    async with Relay(redis) as relay:
        async with relay.publisher(run_id, thread_id=thread) as publisher:
            number = 0
            async for line in _lines(stream):
                number += 1
                if not line.strip():
                    continue
                try:
                    await publisher.publish(line)
                except (ItemError, ItemTooLarge) as error:
                    raise type(error)(f"{name}, line {number}: {error}") from error
                count += 1
        info = await relay.run(run_id)
    status = "gone" if info is None else info.status
    sys.stdout.write(f"{count} items published, the run is {status}\n")


async def _lines(stream: BinaryIO) -> AsyncIterator[bytes]:
    """Yield lines as they arrive: a run may still be going on at the other end of a pipe."""
    if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        for line in stream:
            yield line
        return
    # Never a thread: one that waits for input cannot be cancelled, and would hold up Ctrl-C.
    reader = asyncio.StreamReader(limit=_LONGEST_LINE)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), stream
    )
    try:
        while line := await reader.readline():
            yield line
    finally:
        transport.close()
