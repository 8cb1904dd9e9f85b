"""`agui-relay runs`, `rejected` and `delete`: what is in Redis, without taking part in it."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from agui_relay.cli.connection import relay_at
from agui_relay.cli.options import AsJson, RedisUrl, RunId, checked_id
from agui_relay.cli.summary import one_line

if TYPE_CHECKING:
    from agui_relay.broker.inspection import RejectedItem, RunInfo

_COLUMNS = ("run_id", "status", "items", "lag", "pending", "frames", "rejected", "subscriptions", "memory")


def runs(
    redis: RedisUrl,
    run_id: Annotated[
        str | None,
        typer.Argument(metavar="[RUN_ID]", callback=checked_id("run id"), help="Only this run.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the runs that are kept, the last changed first: status, lag, pending entries, subscribers, bytes."""
    asyncio.run(_runs(redis, run_id, as_json))


def rejected(run_id: RunId, redis: RedisUrl, as_json: AsJson = False) -> None:
    """Show the items of a run that could not be projected, with their ordinals and errors."""
    asyncio.run(_rejected(redis, run_id, as_json))


def delete(run_id: RunId, redis: RedisUrl) -> None:
    """Delete a run, live or ended, with all that is kept of it; its id may be used again.

    Whoever follows it is told that it was lost. The status is 1 when there is no such run.
    """
    asyncio.run(_delete(redis, run_id))


async def _runs(redis: str, run_id: str | None, as_json: bool) -> None:
    from agui_relay import RunNotFound

    async with relay_at(redis) as relay:
        if run_id is None:
            found = [info async for info in relay.runs()]
        else:
            info = await relay.run(run_id)
            if info is None:
                raise RunNotFound(f"there is no run {run_id!r}")
            found = [info]
    if as_json:
        for info in found:
            _write(msgspec.json.encode(info._asdict()).decode())
    elif run_id is not None:
        for name, value in found[0]._asdict().items():
            if value is not None:
                _write(f"{name:<14}{one_line(value, 1_000) if isinstance(value, str) else value}")
    else:
        _write_table([_cells(info) for info in found])


async def _rejected(redis: str, run_id: str, as_json: bool) -> None:
    from agui_relay import RunNotFound

    async with relay_at(redis) as relay:
        if await relay.run(run_id) is None:
            raise RunNotFound(f"there is no run {run_id!r}")
        found = False
        async for item in relay.rejected(run_id):
            found = True
            _write(_as_json(item) if as_json else f"{item.ordinal}  {one_line(item.error, 200)}")
    if not found:
        sys.stderr.write("no rejected items\n")


async def _delete(redis: str, run_id: str) -> None:
    from agui_relay import RunNotFound

    async with relay_at(redis) as relay:
        if not await relay.delete(run_id):
            raise RunNotFound(f"there is no run {run_id!r}")
    _write(f"run {run_id!r} is deleted")


def _as_json(item: RejectedItem) -> str:
    # What was rejected need not be UTF-8.
    fields = {"ordinal": item.ordinal, "error": item.error, "item": item.item.decode(errors="replace")}
    return msgspec.json.encode(fields).decode()


def _cells(info: RunInfo) -> list[str]:
    values = (getattr(info, column) for column in _COLUMNS)
    return [f"{value:,}" if isinstance(value, int) else one_line(value) for value in values]


def _write_table(rows: list[list[str]]) -> None:
    rows = [[column.replace("_", " ") for column in _COLUMNS], *rows]
    widths = [max(len(row[index]) for row in rows) for index in range(len(_COLUMNS))]
    for row in rows:
        # Names to the left, numbers to the right.
        cells = [
            cell.ljust(width) if index < 2 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        _write("  ".join(cells).rstrip())


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
