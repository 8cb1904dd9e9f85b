"""The relay a command works on, and what is said when there is no Redis for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

if TYPE_CHECKING:
    from agui_relay import Relay


class UnreachableError(RuntimeError):
    """There is no Redis where the command was told to look, or it is gone and the command does not wait for it."""


@asynccontextmanager
async def relay_at(url: str) -> AsyncIterator[Relay]:
    """Open the relay at an address; a server that cannot be reached is an UnreachableError that names it."""
    from agui_relay import Relay

    relay = Relay(url)
    try:
        await relay.__aenter__()
    except (RedisConnectionError, RedisTimeoutError, OSError) as error:
        raise unreachable(url, error) from error
    try:
        yield relay
    except (RedisConnectionError, RedisTimeoutError) as error:
        raise unreachable(url, error) from error
    finally:
        await relay.__aexit__(None, None, None)


def redis_without_password(url: str) -> str:
    """Return the address without what follows it and without the credentials before it."""
    scheme, _, rest = url.partition("?")[0].partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def unreachable(url: str, error: Exception) -> UnreachableError:
    """Return what tells of an error of the connection to an address."""
    return UnreachableError(f"cannot reach Redis at {redis_without_password(url)}: {error or type(error).__name__}")
