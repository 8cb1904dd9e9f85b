"""Options that several commands share, and how a command is told where Redis is."""

from typing import Annotated
from urllib.parse import urlsplit

import typer

SCHEMES = ("redis://", "rediss://", "unix://")


def _redis_url(url: str) -> str:
    if not url.startswith(SCHEMES):
        raise typer.BadParameter(f"expected {', '.join(SCHEMES[:-1])} or {SCHEMES[-1]}, got {url!r}")
    try:
        urlsplit(url).port  # noqa: B018 - raises
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return url


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
RunId = Annotated[str, typer.Argument(metavar="RUN_ID", help="The run.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="JSON Lines instead of text.")]
