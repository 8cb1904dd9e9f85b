"""Options that several commands share, and how a command is told where Redis is."""

from collections.abc import Callable
from math import isnan
from typing import Annotated

import typer
from redis.asyncio import BlockingConnectionPool

from agui_relay.broker.keys import check_id

SCHEMES = ("redis://", "rediss://", "unix://")


def _redis_url(url: str) -> str:
    if not url.startswith(SCHEMES):
        raise typer.BadParameter(f"expected {', '.join(SCHEMES[:-1])} or {SCHEMES[-1]}, got {url!r}")
    try:
        # Connects to nothing, but takes port and options.
        BlockingConnectionPool.from_url(url).make_connection()  # type: ignore[no-untyped-call]
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error)) from error
    return url


def checked_id(what: str) -> Callable[[str | None], str | None]:
    """Return the callback of an option that names a run or a thread."""

    def check(value: str | None) -> str | None:
        try:
            if value is not None:
                check_id(what, value)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
        return value

    return check


def a_number(value: float) -> float:
    """Return the value of an option with bounds, which let through what is no number."""
    if isnan(value):
        raise typer.BadParameter("expected a number, got nan")
    return value


RedisUrl = Annotated[
    str,
    typer.Option(
        "--redis",
        metavar="URL",
        envvar="AGUI_RELAY_REDIS_URL",
        callback=_redis_url,
        help="Where Redis is: redis://, rediss:// or unix://.",
        show_default=False,
    ),
]
RunId = Annotated[
    str, typer.Argument(metavar="RUN_ID", callback=checked_id("run id"), help="The run.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON Lines instead of text.")]
