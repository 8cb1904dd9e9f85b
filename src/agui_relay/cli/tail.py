"""`agui-relay tail`: a subscription in the terminal."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agui_relay.cli.options import AsJson, RedisUrl, RunId
from agui_relay.cli.summary import item_summary, summary

if TYPE_CHECKING:
    from agui_relay import DisplayCheckpoint, GapNotice


def tail(
    run_id: RunId,
    redis: RedisUrl,
    after: Annotated[
        str | None,
        typer.Option(metavar="CURSOR", help="Go on behind this cursor (epoch:position)."),
    ] = None,
    start: Annotated[
        Literal["log", "display"],
        typer.Option(help="Without a cursor, begin with the first event, or with what the run has come to."),
    ] = "log",
    as_json: AsJson = False,
    wait: Annotated[float, typer.Option(metavar="SECONDS", min=0.0, help="Wait so long for the run to begin.")] = 30.0,
) -> None:
    """Follow a run to its end.

    As text each line is the event's cursor and what happened; with --json each line is the event, as it is. A display,
    in the place of events that are left out or no longer kept, is a line for each of its items; with --json its
    snapshot in one line, an object with `items` and without `type`. Notices and the outcome go to standard error. The
    status is 1 when the run was lost.
    """
    outcome = asyncio.run(_tail(redis, run_id, after, start, as_json, wait))
    if outcome == "lost":
        raise typer.Exit(1)


def _notice(notice: GapNotice) -> str:
    frames = f"frames {notice.first} to {notice.last}" if notice.first <= notice.last else "nothing"
    if notice.restarts:
        return f"the run starts over; {frames} of what was shown, or due, is void"
    return f"{frames} can no longer be shown"


def _display(checkpoint: DisplayCheckpoint) -> str:
    items = checkpoint.snapshot.items
    head = f"{checkpoint.cursor}  DISPLAY {len(items):,} items, of frames 1 to {checkpoint.position}"
    return "".join(f"{line}\n" for line in (head, *(f"  {item_summary(item)}" for item in items)))


async def _tail(redis: str, run_id: str, after: str | None, start: str, as_json: bool, wait: float) -> str | None:
    from agui_relay import DisplayCheckpoint, GapNotice, Relay

    write = sys.stdout.buffer.write
    cursor = after
    async with (
        Relay(redis) as relay,
        relay.subscribe(run_id, after=after, start=start, wait_for_run=wait) as subscription,
    ):
        async for delivery in subscription:
            cursor = delivery.cursor
            if isinstance(delivery, GapNotice):
                sys.stderr.write(f"{_notice(delivery)}\n")
            elif as_json:
                write(delivery.data + b"\n")
            elif isinstance(delivery, DisplayCheckpoint):
                write(_display(delivery).encode())
            else:
                write(f"{cursor}  {summary(delivery.data)}\n".encode())
            sys.stdout.buffer.flush()
    sys.stderr.write(f"{subscription.outcome}{'' if cursor is None else f', at {cursor}'}\n")
    return subscription.outcome
