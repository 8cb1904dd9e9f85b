"""How a worker's FastStream subscribers meet failures of Redis: they wait and go on, they never stop or spin."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from faststream.redis import RedisBroker
from faststream.redis.configs.state import RedisConnectionState
from redis.asyncio import ConnectionPool, Redis
from redis.exceptions import RedisError, ResponseError

from agui_relay.broker.faults import backoff, is_transient

_log = logging.getLogger("agui_relay.worker")


class Contact:
    """Whether the worker is in contact with the server, since when, and who waits for it to come back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None
        self._delays = backoff()

    @property
    def up(self) -> bool:
        """Whether the last call was answered."""
        return self._since is not None

    @property
    def unbroken(self) -> float:
        """Seconds of contact without a failure, 0 while there is none."""
        return 0.0 if self._since is None else self._clock() - self._since

    def answered(self) -> None:
        """Note that a call was answered."""
        if self._since is None:
            self._since = self._clock()
            self._delays = backoff()
            _log.info("in contact with Redis")

    async def failed(self, error: BaseException) -> None:
        """Note that a call failed, and wait before the next one. Logs once, however long it lasts."""
        if self._since is not None:
            _log.warning("lost contact with Redis, waiting: %s: %s", type(error).__name__, error)
        self._since = None
        await asyncio.sleep(next(self._delays))


class ReadyStreamReader(Redis):
    """The client through which FastStream reads a ready stream.

    FastStream stops a subscriber for good when its consumer group is gone, repeats a refused read without a pause, and
    logs every failed one. Here a read that fails makes the group anew when that is what is missing, waits, and
    gives FastStream an empty answer.
    """

    def __init__(self, pool: ConnectionPool, contact: Contact, ensure_groups: Callable[[], Awaitable[None]]) -> None:
        super().__init__(connection_pool=pool)
        # As with `Redis.from_pool`: closing the client closes the pool.
        self.auto_close_connection_pool = True
        self._contact = contact
        self._ensure_groups = ensure_groups

    async def xreadgroup(self, *args: Any, **options: Any) -> Any:
        """Read new entries; nothing while the server cannot be read."""
        return await self._healing(super().xreadgroup, args, options, [])

    async def xautoclaim(self, *args: Any, **options: Any) -> Any:
        """Claim idle entries; none while the server cannot be read."""
        return await self._healing(super().xautoclaim, args, options, [b"0-0", [], []])

    async def _healing(
        self, call: Callable[..., Awaitable[Any]], args: tuple[Any, ...], options: dict[str, Any], nothing: Any
    ) -> Any:
        try:
            answer = await call(*args, **options)
        except (RedisError, OSError) as error:
            try:
                if isinstance(error, ResponseError) and "NOGROUP" in str(error):
                    await self._ensure_groups()
                    return nothing
            except (RedisError, OSError) as again:
                error = again
            if not is_transient(error):
                _log.error("reading the ready stream: %s: %s", type(error).__name__, error)
            await self._contact.failed(error)
            return nothing
        self._contact.answered()
        return answer


class _ConnectionState(RedisConnectionState):
    """Gives FastStream's subscribers the reader as their client."""

    def __init__(self, make: Callable[[], ReadyStreamReader]) -> None:
        super().__init__()
        self._make = make

    async def connect(self) -> Any:
        self._client = self._make()
        self._connected = True
        return self._client


class ReadyStreamBroker(RedisBroker):
    """A FastStream broker whose subscribers read through `ReadyStreamReader`."""

    def __init__(self, url: str, make: Callable[[], ReadyStreamReader], **options: Any) -> None:
        self._make = make
        super().__init__(url, **options)

    def _make_connection_state(self, connection_options: dict[str, Any], kwargs: dict[str, Any]) -> Any:
        return _ConnectionState(self._make)
