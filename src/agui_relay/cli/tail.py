"""`agui-relay tail`: a subscription in the terminal."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agui_relay.cli.connection import relay_at
from agui_relay.cli.options import AsJson, RedisUrl, RunId, a_number
from agui_relay.cli.summary import item_summary, summary

if TYPE_CHECKING:
    from agui_relay import DisplayCheckpoint, GapNotice

_GONE = "can no longer be shown"


def _cursor(text: str | None) -> str | None:
    from agui_relay import CursorError
    from agui_relay.broker.announcement import Cursor

    try:
        if text is not None:
            Cursor.parse(text)
    except CursorError as error:
        raise typer.BadParameter(str(error)) from error
    return text


def tail(
    run_id: RunId,
    redis: RedisUrl,
    after: Annotated[
        str | None,
        typer.Option(metavar="CURSOR", callback=_cursor, help="Go on behind this cursor (epoch:position)."),
    ] = None,
    start: Annotated[
        Literal["log", "display"],
        typer.Option(help="Without a cursor, begin with the first event, or with what the run has come to."),
    ] = "log",
    view: Annotated[
        Literal["full", "chat"],
        typer.Option(help="Everything, or the conversation only: what end users are shown."),
    ] = "full",
    as_json: AsJson = False,
    wait: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.0, callback=a_number, help="Wait so long for the run to begin."),
    ] = 30.0,
) -> None:
    """Follow a run to its end.

    As text each line is the event's cursor and what happened; with --json each line is the event, as it is. A display,
    in the place of events that are left out or no longer kept, is a line for each of its items; with --json its
    snapshot in one line, an object with `items` and without `type`. Notices and the outcome go to standard error. The
    status is 1 when the run was lost.
    """
    outcome = asyncio.run(_tail(redis, run_id, after, start, view, as_json, wait))
    if outcome == "lost":
        raise typer.Exit(1)


def restart(notice: GapNotice, before: str | None, *, shown: bool, start: str) -> str:
    """Return why the run starts over; `before` is the last cursor, which may be what --after gave."""
    again = "showing what the run has come to" if start == "display" else "showing it from the start"
    is_same_life = before is not None and before.partition(":")[0] == notice.cursor.partition(":")[0]
    if not shown and not is_same_life:
        return f"the cursor is of another life of this run; {again}"
    if not shown:
        return f"the cursor is ahead of all that this run has; {again}"
    if not is_same_life:
        return f"the run was deleted and has begun again; what was shown is void, {again}"
    return f"the server has lost {_frames(notice)}; what was shown is void, {again}"


def _frames(notice: GapNotice) -> str:
    if notice.first == notice.last:
        return f"frame {notice.first}"
    return f"frames {notice.first} to {notice.last}"


def _display(checkpoint: DisplayCheckpoint) -> str:
    if not checkpoint.position:
        return f"{checkpoint.cursor}  DISPLAY empty, none is stored yet: all events follow\n"
    items = checkpoint.snapshot.items
    head = f"{checkpoint.cursor}  DISPLAY {len(items):,} items, of frames 1 to {checkpoint.position}"
    return "".join(f"{line}\n" for line in (head, *(f"  {item_summary(item)}" for item in items)))


async def _tail(
    redis: str, run_id: str, after: str | None, start: str, view: str, as_json: bool, wait: float
) -> str | None:
    from agui_relay import DisplayCheckpoint, GapNotice

    write = sys.stdout.buffer.write
    cursor = after
    shown = False
    # Frames that will not come; whether a display covers them shows in what follows.
    gap: GapNotice | None = None

    def tell_gap(what: str) -> None:
        nonlocal gap
        if gap is not None:
            sys.stderr.write(f"{_frames(gap)} {what}\n")
            gap = None

    async with (
        relay_at(redis) as relay,
        relay.subscribe(run_id, after=after, view=view, start=start, wait_for_run=wait) as subscription,
    ):
        async for delivery in subscription:
            before, cursor = cursor, delivery.cursor
            covered = isinstance(delivery, DisplayCheckpoint)
            tell_gap("can be seen only as part of the display that follows" if covered else _GONE)
            if isinstance(delivery, GapNotice):
                if delivery.restarts:
                    sys.stderr.write(f"{restart(delivery, before, shown=shown, start=start)}\n")
                else:
                    gap = delivery
                continue
            shown = True
            if as_json:
                write(delivery.data + b"\n")
            elif isinstance(delivery, DisplayCheckpoint):
                write(_display(delivery).encode())
            else:
                write(f"{cursor}  {summary(delivery.data)}\n".encode())
            sys.stdout.buffer.flush()
    tell_gap(_GONE)
    sys.stderr.write(f"{subscription.outcome}{'' if cursor is None else f', at {cursor}'}\n")
    return subscription.outcome
