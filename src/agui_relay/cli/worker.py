"""`agui-relay worker`: one projection worker in this process, until SIGTERM."""

import asyncio
import importlib
import logging
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from redis.exceptions import ConnectionError as RedisConnectionError

from agui_relay.cli.connection import redis_without_password, unreachable
from agui_relay.cli.options import RedisUrl


def worker(
    redis: RedisUrl,
    processor: Annotated[
        str | None,
        typer.Option(metavar="MODULE:CALLABLE", help="Gets each (item, event); may replace or drop the event."),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, metavar="N", help="Batches in work at a time.")] = 1,
    consumer: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name in the consumer group; no two workers may share one.")
    ] = None,
    log_level: Annotated[str, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = "info",
) -> None:
    """Project runs until SIGTERM; what has begun is finished first. Waits for a Redis that cannot be reached."""
    level = logging.getLevelNamesMapping().get(log_level.upper())
    if level is None:
        raise typer.BadParameter(f"{log_level!r} is not a level of logging", param_hint="--log-level")
    logging.basicConfig(stream=sys.stderr, level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(_work(redis, _load(processor), concurrency, consumer))


async def _work(redis: str, processor: Callable[..., Any] | None, concurrency: int, consumer: str | None) -> None:
    from agui_relay import Relay, create_worker

    app = create_worker(Relay(redis), processor, concurrency=concurrency, consumer=consumer)

    @app.after_startup
    async def say() -> None:
        # Whoever started this process may wait for the line.
        sys.stdout.write(f"worker is ready: {redis_without_password(redis)}\n")
        sys.stdout.flush()

    try:
        await app.run()
    except RedisConnectionError as error:
        # One that does not pass, such as a wrong password.
        raise unreachable(redis, error) from error


def _load(name: str | None) -> Callable[..., Any] | None:
    if name is None:
        return None
    module_name, separator, path = name.partition(":")
    if not (module_name and separator and path):
        raise typer.BadParameter(f"expected module:callable, got {name!r}", param_hint="--processor")
    sys.path.insert(0, "")  # as with `python -m`: modules of the current directory
    try:
        found: Any = importlib.import_module(module_name)
        for attribute in path.split("."):
            found = getattr(found, attribute)
    except Exception as error:  # the module may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise typer.BadParameter(f"cannot load {name!r}: {reason}", param_hint="--processor") from error
    if not callable(found):
        raise typer.BadParameter(f"{name!r} is not callable but {type(found).__name__}", param_hint="--processor")
    return found  # type: ignore[no-any-return]
