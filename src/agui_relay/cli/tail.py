"""`agui-relay tail`: a subscription in the terminal."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from agui_relay.cli.options import AsJson, RedisUrl, RunId
from agui_relay.cli.summary import summary

if TYPE_CHECKING:
    from agui_relay import GapNotice


def tail(
    run_id: RunId,
    redis: RedisUrl,
    after: Annotated[
        str | None,
        typer.Option(metavar="CURSOR", help="Go on behind this cursor (epoch:position); else from the start."),
    ] = None,
    as_json: AsJson = False,
    wait: Annotated[float, typer.Option(metavar="SECONDS", min=0.0, help="Wait so long for the run to begin.")] = 30.0,
) -> None:
    """Follow a run to its end.

    As text each line is the event's cursor and what happened; with --json each line is the event, as it is. Notices and
    the outcome go to standard error. The status is 1 when the run was lost.
    """
    outcome = asyncio.run(_tail(redis, run_id, after, as_json, wait))
    if outcome == "lost":
        raise typer.Exit(1)


def _notice(notice: GapNotice) -> str:
    frames = f"frames {notice.first} to {notice.last}" if notice.first <= notice.last else "nothing"
    if notice.restarts:
        return f"the run starts over; {frames} of what was shown, or due, is void"
    return f"{frames} can no longer be shown"


async def _tail(redis: str, run_id: str, after: str | None, as_json: bool, wait: float) -> str | None:
    from agui_relay import Delivery, Relay

    write = sys.stdout.buffer.write
    cursor = after
    async with (
        Relay(redis) as relay,
        relay.subscribe(run_id, after=after, wait_for_run=wait) as subscription,
    ):
        async for delivery in subscription:
            cursor = delivery.cursor
            if not isinstance(delivery, Delivery):
                sys.stderr.write(f"{_notice(delivery)}\n")
            elif as_json:
                write(delivery.data + b"\n")
            else:
                write(f"{cursor}  {summary(delivery.data)}\n".encode())
            sys.stdout.buffer.flush()
    sys.stderr.write(f"{subscription.outcome}{'' if cursor is None else f', at {cursor}'}\n")
    return subscription.outcome
