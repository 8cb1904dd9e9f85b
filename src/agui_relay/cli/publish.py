"""`agui-relay publish`: a run from JSON Lines, as they come."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from agui_relay.cli.connection import relay_at
from agui_relay.cli.options import RedisUrl, RunId

if TYPE_CHECKING:
    from agui_relay import HarnessItem

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
    outcome: str | None = None
    async with relay_at(redis) as relay:
        items = _items(stream, name)
        first = await anext(items, None)
        # Before the run is opened: what is meant for another run shall not use up this one's id.
        if first is None:
            raise ValueError(f"{name} has no item; nothing was published")
        number, item = first
        if item.run_id != run_id:
            raise ValueError(
                f"{name}, line {number}: the first item is of run {item.run_id!r}, not of {run_id!r};"
                " nothing was published"
            )
        following: tuple[int, HarnessItem] | None = first
        async with relay.publisher(run_id, thread_id=thread) as publisher:
            try:
                while following is not None:
                    number, item = following
                    try:
                        await publisher.publish(item)
                    except ItemTooLarge as error:
                        raise ItemTooLarge(f"{name}, line {number}: {error}") from error
                    count += 1
                    if item.run_id == run_id and item.terminal is not None:
                        outcome = item.terminal
                    following = await anext(items, None)
            except (ItemError, ItemTooLarge) as error:
                if outcome is None:
                    raise type(error)(f"{error}; {_abandoned(run_id)}") from error
                raise
    counted = f"{count:,} items read, {publisher.stored:,} stored"
    if outcome is None:
        raise ValueError(f"{name} ended without the run's terminal item; {counted}; {_abandoned(run_id)}")
    sys.stdout.write(f"{counted}; run {run_id!r} is complete: {outcome}\n")


def _abandoned(run_id: str) -> str:
    return f"run {run_id!r} is abandoned, and its id free after `agui-relay delete`"


async def _items(stream: BinaryIO, name: str) -> AsyncIterator[tuple[int, HarnessItem]]:
    """Yield the items with the numbers of their lines; ItemError names the line."""
    from agui_relay.source import ItemError, canonical_item

    number = 0
    async for line in _lines(stream):
        number += 1
        if line.strip():
            try:
                item, _ = canonical_item(line)
            except ItemError as error:
                raise ItemError(f"{name}, line {number}: {error}") from error
            yield number, item


async def _lines(stream: BinaryIO) -> AsyncIterator[bytes]:
    """Yield lines as they arrive: a run may still be going on at the other end of a pipe."""
    if not _may_keep_us_waiting(stream):
        while line := stream.readline(_LONGEST_LINE + 1):
            if len(line) > _LONGEST_LINE:
                raise ValueError(f"a line has more than {_LONGEST_LINE:,} bytes")
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
