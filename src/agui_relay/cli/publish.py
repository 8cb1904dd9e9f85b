"""`agui-relay publish`: a run from JSON Lines, as they come."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from agui_relay.cli.connection import relay_at
from agui_relay.cli.options import RedisUrl, RunId, checked_id

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
        str | None,
        typer.Option(
            metavar="THREAD_ID", callback=checked_id("thread id"), help="The run's thread; else its first item tells."
        ),
    ] = None,
) -> None:
    """Publish a run from JSON Lines, the first of which must be an item of the run.

    The status is 1 when the input ends, or has a bad line, before the run's terminal item: the run is then over,
    abandoned, and its id free again after `agui-relay delete`.
    """
    if file is None or str(file) == "-":
        if sys.stdin is None:
            raise ValueError("standard input is closed")
        asyncio.run(_publish(redis, run_id, thread, sys.stdin.buffer, "standard input"))
    else:
        with file.open("rb") as stream:
            asyncio.run(_publish(redis, run_id, thread, stream, str(file)))


async def _publish(redis: str, run_id: str, thread: str | None, stream: BinaryIO, name: str) -> None:
    from agui_relay import ItemTooLarge
    from agui_relay.source import ItemError

    count = 0
    async with relay_at(redis) as relay:
        lines = _numbered(stream, name)
        following = await anext(lines, None)
        # Before the run is opened: what is meant for another run shall not use up this one's id.
        if following is None:
            raise ValueError(f"{name} has no item; nothing was published")
        _check_first(*following, run_id, name)
        async with relay.publisher(run_id, thread_id=thread) as publisher:
            try:
                while following is not None:
                    number, line = following
                    try:
                        await publisher.publish(line)
                    except (ItemError, ItemTooLarge) as error:
                        raise type(error)(f"{name}, line {number}: {error}") from error
                    count += 1
                    following = await anext(lines, None)
            except (ItemError, ItemTooLarge) as error:
                if publisher.outcome is None:
                    raise type(error)(f"{error}; {_abandoned(run_id)}") from error
                raise
    counted = f"{count:,} items read, {publisher.stored:,} stored"
    if publisher.outcome is None:
        raise ValueError(f"{name} ended without the run's terminal item; {counted}; {_abandoned(run_id)}")
    sys.stdout.write(f"{counted}; run {run_id!r} is complete: {publisher.outcome}\n")


def _check_first(number: int, line: bytes, run_id: str, name: str) -> None:
    from agui_relay.source import ItemError, canonical_item

    try:
        item, _ = canonical_item(line)
    except ItemError as error:
        raise ItemError(f"{name}, line {number}: {error}; nothing was published") from error
    if item.run_id != run_id:
        raise ValueError(
            f"{name}, line {number}: the first item is of run {item.run_id!r}, not of {run_id!r}; nothing was published"
        )


def _abandoned(run_id: str) -> str:
    return f"run {run_id!r} is abandoned, and its id free after `agui-relay delete`"


async def _numbered(stream: BinaryIO, name: str) -> AsyncIterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers; ItemTooLarge names a line that is too long."""
    from agui_relay import ItemTooLarge

    number = 0
    try:
        async for line in _lines(stream):
            number += 1
            if line := line.strip():
                yield number, line
    except ValueError as error:
        raise ItemTooLarge(f"{name}, line {number + 1}: more than {_LONGEST_LINE:,} bytes") from error


async def _lines(stream: BinaryIO) -> AsyncIterator[bytes]:
    """Yield lines as they arrive, as a run may still be going on at the other end of a pipe; ValueError: a long one."""
    if not _may_keep_us_waiting(stream):
        while line := stream.readline(_LONGEST_LINE + 1):
            if len(line) > _LONGEST_LINE:
                raise ValueError
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


def _may_keep_us_waiting(stream: BinaryIO) -> bool:
    """Whether the event loop can, and has to, wait for input: files and devices such as /dev/null it refuses."""
    mode = os.fstat(stream.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stream.isatty()
