"""How a worker's FastStream subscribers meet failures of Redis: they wait and go on, they never stop or spin."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator
from typing import Any, Final

from faststream.redis import RedisBroker
from faststream.redis.configs.state import RedisConnectionState
from redis.asyncio import Redis, RedisCluster
from redis.exceptions import RedisError, ResponseError

from agui_relay.broker.faults import backoff, is_transient
from agui_relay.broker.pipe import Pipe

_log = logging.getLogger("agui_relay.worker")


class Contact:
    """Whether the worker is in contact with the server, since when, and who waits for it to come back.

    A cluster has parts that fail one by one: each has its own since, but only the first loss and the last return are
    logged. A single server is one part, ''. And a server may answer some calls while it refuses others, as one does
    that is out of memory: `caller` names who calls, and contact is back when everybody who failed was answered.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._broken: dict[tuple[str, Hashable], Iterator[float]] = {}
        self._told = False

    @property
    def up(self) -> bool:
        """Whether the last call of each caller to each part was answered."""
        return bool(self._since) and not self._broken

    @property
    def unbroken(self) -> float:
        """Seconds of contact without a failure of any part, 0 while there is none."""
        return self._clock() - max(self._since.values()) if self.up else 0.0

    def unbroken_with(self, part: str) -> float:
        """Seconds of contact with one part without a failure, 0 while there is none."""
        since = self._since.get(part)
        return 0.0 if since is None else self._clock() - since

    def answered(self, part: str = "", caller: Hashable = "") -> None:
        """Note that a call was answered."""
        if part in self._since:
            return
        self._broken.pop((part, caller), None)
        if all(broken != part for broken, _ in self._broken):
            self._since[part] = self._clock()
        if self.up and not self._told:
            self._told = True
            _log.info("in contact with Redis")

    async def failed(self, error: BaseException, part: str = "", caller: Hashable = "") -> None:
        """Note that a call failed, and wait before the next one. Logs once, however long it lasts."""
        if self._told:
            self._told = False
            level = logging.WARNING if is_transient(error) else logging.ERROR
            _log.log(level, "lost contact with Redis, waiting: %s: %s", type(error).__name__, error)
        self._since.pop(part, None)
        await asyncio.sleep(next(self._broken.setdefault((part, caller), backoff())))


class ReadyStreamReader:
    """The client through which FastStream reads the ready streams: `client`, of a server or of a cluster, made to heal.

    FastStream stops a subscriber for good when its consumer group is gone, repeats a refused read without a pause, and
    logs every failed one. Here a read that fails makes the group anew when that is what is missing, waits, and
    gives FastStream an empty answer.

    `part_of` gives the part of `contact` that a stream belongs to; `ensure_group` makes the group of a stream unless
    it is there. With `make_pipe` new entries are read past redis-py, see `pipe`.
    """

    def __init__(
        self,
        client: Redis | RedisCluster,
        contact: Contact,
        *,
        part_of: Callable[[str], str],
        ensure_group: Callable[[str], Awaitable[object]],
        make_pipe: Callable[[], Pipe] | None = None,
    ) -> None:
        self._client: Any = client
        self._make_pipe = make_pipe
        self._pipes: dict[tuple[str, str], Pipe] = {}
        self._contact = contact
        self._part_of = part_of
        self._ensure_group = ensure_group

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def ping(self) -> bool:
        """Ask nobody: FastStream does so before its first read, which waits for the server; a ping would fail."""
        return True

    async def xgroup_create(self, **options: Any) -> None:
        """Do nothing: the group was made at the stream's beginning, FastStream would make it at the end."""

    async def xreadgroup(
        self, *, streams: dict[str, str], groupname: str, consumername: str, count: int, block: int, noack: bool
    ) -> Any:
        """Read new entries of one stream; nothing while the server cannot be read."""
        [stream] = streams
        if self._make_pipe is None:
            call = self._client.xreadgroup(groupname, consumername, streams, count=count, block=block, noack=noack)
        else:
            call = self._read(stream, consumername, groupname, count, block)
        return await self._heal(stream, call, [])

    async def _read(self, stream: str, consumer: str, group: str, count: int, block: int) -> Any:
        """Read as redis-py does, on the connection of this stream and consumer: a read that waits holds up others."""
        assert self._make_pipe is not None
        pipe = self._pipes.get((stream, consumer))
        if pipe is None:
            pipe = self._pipes[stream, consumer] = self._make_pipe()
        try:
            reply = await pipe.call(
                "XREADGROUP", "GROUP", group, consumer, "COUNT", count, "BLOCK", block, "STREAMS", stream, ">"
            )
        except asyncio.CancelledError:
            # The server must not give entries to a read that nobody waits for.
            pipe.drop()
            raise
        return [
            (name, [(entry, dict(zip(fields[::2], fields[1::2], strict=True))) for entry, fields in entries])
            for name, entries in reply or ()
        ]

    async def aclose(self) -> None:
        """Close all connections."""
        for pipe in self._pipes.values():
            pipe.drop()
        await self._client.aclose()

    async def xautoclaim(self, *, name: str, **options: Any) -> Any:
        """Claim idle entries; none while the server cannot be read."""
        return await self._heal(name, self._client.xautoclaim(name=name, **options), [b"0-0", [], []])

    async def _heal(self, stream: str, call: Awaitable[Any], nothing: Any) -> Any:
        part = self._part_of(stream)
        try:
            answer = await call
        except (RedisError, OSError) as error:
            try:
                # A read that waits when the stream is deleted is told so in one of two ways.
                if isinstance(error, ResponseError) and ("NOGROUP" in str(error) or "UNBLOCKED" in str(error)):
                    await self._ensure_group(stream)
                    return nothing
            except (RedisError, OSError) as again:
                error = again
            await self._contact.failed(error, part)
            return nothing
        self._contact.answered(part)
        return answer


class _ConnectionState(RedisConnectionState):
    """Gives FastStream's subscribers the reader as their client."""

    def __init__(self, make: Callable[[], ReadyStreamReader]) -> None:
        super().__init__()
        self._make = make

    async def connect(self) -> Any:
        reader: Any = self._make()
        self._client = reader
        self._connected = True
        return reader

    async def disconnect(self) -> None:
        """Do nothing: FastStream disconnects while its subscribers may still be starting to read."""


HOW_TO_RUN: Final = (
    "a worker's broker neither runs without the worker's application nor inside of another broker:"
    " run the application, `await create_worker(relay).run()`, as a task of your own"
)


class ReadyStreamBroker(RedisBroker):
    """A FastStream broker whose subscribers read through the `ReadyStreamReader` that `make` gives.

    `opened` returns when that is possible; the broker is started by the worker's application, and by nobody else.
    """

    def __init__(
        self, url: str, make: Callable[[], ReadyStreamReader], *, opened: Callable[[], Awaitable[None]], **options: Any
    ) -> None:
        self._make = make
        self._opened = opened
        self._readers: list[ReadyStreamReader] = []
        super().__init__(url, **options)

    async def start(self) -> None:
        """Start the subscribers."""
        # Not in the application's lifespan: it could not be stopped while that begins.
        await self._opened()
        await super().start()

    @property
    def parent(self) -> None:
        """The broker that this one is included in: none."""
        return None

    @parent.setter
    def parent(self, parent: object) -> None:
        # FastStream sets it to include a broker, whose subscribers the other one then starts past `start`.
        raise RuntimeError(HOW_TO_RUN)

    def _make_connection_state(self, connection_options: dict[str, Any], kwargs: dict[str, Any]) -> Any:
        return _ConnectionState(self._make_reader)

    def _make_reader(self) -> ReadyStreamReader:
        reader = self._make()
        self._readers.append(reader)
        return reader

    async def end_reading(self) -> None:
        """End the subscribers that were started while the others were stopped, and close the connections.

        To be called when the application neither starts nor stops any more: FastStream stops while it still starts.
        """
        tasks: list[asyncio.Task[Any]] = []
        for subscriber in self.subscribers:
            tasks += getattr(subscriber, "tasks", ())
            await subscriber.stop()
        await asyncio.gather(*tasks, return_exceptions=True)
        for reader in self._readers:
            await reader.aclose()
        self._readers.clear()
