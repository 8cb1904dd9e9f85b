"""Decides how many callers share one connection: each command is written at once, the answers come in its order.

redis-py takes a connection from its pool for every command, looks whether it is still alive, and reads through a stream
with a timeout: that is four fifths of the time of a small script's call. Here redis-py makes the connection, and then
what it sends and receives passes it by.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import hiredis
from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.connection import DefaultParser
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.maint_notifications import MaintNotificationsConfig

Argument = bytes | str | int

_LOOKS: Final = 10
"""Looks at a connection in the time that it may stand still; it is given up by up to one of them late."""

if sys.platform == "linux":
    import fcntl
    import termios

    def _held(connection: Any) -> int:
        """Return the bytes that the system holds of what a socket has sent: the other side has not taken them."""
        return int.from_bytes(fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)), sys.byteorder)

elif sys.platform == "darwin":
    import socket

    _SO_NWRITE: Final = 0x1024

    def _held(connection: Any) -> int:
        """Return the same."""
        return int(connection.getsockopt(socket.SOL_SOCKET, _SO_NWRITE))

else:

    def _held(connection: Any) -> int:
        """Return 0: what the system holds is not known here."""
        return 0


def plain_connection(address: Any, answer_within: float) -> Any:
    """Return a redis-py connection that does nothing by itself, to be connected.

    `address` is redis-py's pool, or its node of a cluster; `answer_within` bounds, in seconds, what redis-py waits for.
    """
    options = {
        **address.connection_kwargs,
        "decode_responses": False,
        "health_check_interval": 0,
        "socket_timeout": answer_within,
        "socket_connect_timeout": answer_within,
        "retry": Retry(NoBackoff(), 0),
        # Messages come as plain arrays; redis-py formats every pushed one for its debug log.
        "protocol": 2,
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
        "maint_notifications_pool_handler": None,
        "oss_cluster_maint_notifications_handler": None,
    }
    return address.connection_class(**options)


class Wire(asyncio.Protocol):
    """A connection taken over from redis-py, which has made it: calls `received` with each reply, then `lost` once.

    A reply that is an error comes as redis-py's exception. Both are called from the event loop and must return at once.
    """

    def __init__(
        self, connection: Any, received: Callable[[Any], None], lost: Callable[[BaseException | None], None]
    ) -> None:
        self._received = received
        self._lost = lost
        # The parser of replies that redis-py itself uses.
        self._reader = hiredis.Reader(protocolError=exceptions.InvalidResponse, replyError=DefaultParser.parse_error)
        self._error: BaseException | None = None
        self.heard_at = self._taken_at = asyncio.get_running_loop().time()
        """Loop time when the last bytes came, or the connection was taken over."""
        self._sent = self._taken = 0
        # Kept, as the transport is closed with it; redis-py is to forget it.
        self._writer = connection._writer
        connection._reader = connection._writer = None
        self._transport = cast("asyncio.Transport", self._writer.transport)
        # What TLS has encrypted waits in the transport below its own, which asyncio has no public name for.
        below = getattr(getattr(self._transport, "_ssl_protocol", None), "_transport", None)
        self._transports = (self._transport,) if below is None else (self._transport, cast("asyncio.Transport", below))
        self.open = not self._transport.is_closing()
        """Whether something can be sent, as far as is known."""
        self._transport.set_protocol(self)
        if not self.open:
            # Closed before: the transport has told, or will tell, the protocol that it had.
            asyncio.get_running_loop().call_soon(lost, None)

    def send(self, command: Sequence[Argument]) -> int:
        """Write a command, without waiting; return how many bytes were written up to its end."""
        # What is said of the types of `pack_command` is of a tuple of one.
        packed = hiredis.pack_command(cast("Any", tuple(command)))
        self._sent += len(packed)
        self._transport.write(packed)
        return self._sent

    def moved_at(self, end: int) -> float:
        """Return the loop time when bytes last came, or were seen to have gone; that shows only from call to call.

        Those behind the first `end` bytes do not count: the system of a server that stands still takes them.
        """
        waiting = sum(transport.get_write_buffer_size() for transport in self._transports)
        # A system may not tell, and the socket may be closed already.
        with suppress(OSError, ValueError):
            waiting += _held(self._transport.get_extra_info("socket"))
        # What is encrypted is larger than what was sent: then less seems taken than is, never more.
        taken = min(self._sent - waiting, end)
        if taken > self._taken:
            self._taken_at = asyncio.get_running_loop().time()
        self._taken = taken
        return max(self.heard_at, self._taken_at)

    def drop(self, error: BaseException | None = None) -> None:
        """Close the connection at once; `lost` follows, with `error`."""
        self.open = False
        self._error = self._error or error
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        if not self.open:
            return
        self.heard_at = asyncio.get_running_loop().time()
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                self._received(reply)
        except exceptions.RedisError as error:
            self.drop(error)
        except Exception as error:
            # What no server says is a lost connection as well, to those who know only those.
            self.drop(exceptions.InvalidResponse(f"a reply cannot be read: {type(error).__name__}: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note that the connection is closed."""
        self.open = False
        self._lost(self._error or exc)


class Pipe:
    """Commands to one server, on one connection that is made when the first is called, and again when it was lost.

    `client`, a `redis.asyncio.Redis`, says how to connect; none of its connections is used. A connection on which
    nothing comes and nothing goes for `answer_within` seconds while an answer is due is given up: a long command or
    answer on a slow line takes its time.
    """

    def __init__(self, client: Any, *, answer_within: float) -> None:
        self._client: Redis = client
        self._answer_within = answer_within
        self._wire: Wire | None = None
        self._connecting = asyncio.Lock()
        self._drops = 0
        # Whoever waits, and how far their command goes, in bytes.
        self._waiting: deque[tuple[asyncio.Future[Any], int]] = deque()
        self._asked_at = 0.0
        self._watch: asyncio.TimerHandle | None = None

    async def call(self, *command: Argument) -> Any:
        """Return the reply to one command.

        Raises redis-py's exceptions: ResponseError for a reply that is an error; ConnectionError or TimeoutError when
        there is none, and then nobody knows whether the command had an effect.
        """
        wire = self._wire
        if wire is None or not wire.open:
            wire = await self._connect()
        return await self._send(wire, command)

    async def call_many(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Return the replies to many commands, sent together; an exception stands where one failed."""
        wire = self._wire
        if wire is None or not wire.open:
            wire = await self._connect()
        return await asyncio.gather(*[self._send(wire, command) for command in commands], return_exceptions=True)

    def _send(self, wire: Wire, command: Sequence[Argument]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        end = wire.send(command)
        if not self._waiting:
            self._asked_at = loop.time()
            if self._watch is None:
                self._watch = loop.call_later(self._answer_within / _LOOKS, self._look)
        reply = loop.create_future()
        self._waiting.append((reply, end))
        return reply

    async def _connect(self) -> Wire:
        drops = self._drops
        async with self._connecting:
            self._check(drops)
            if self._wire is None or not self._wire.open:
                self._fail(None)
                connection = plain_connection(self._client.connection_pool, self._answer_within)
                try:
                    await connection.connect()
                    self._check(drops)
                except BaseException:
                    await connection.disconnect(nowait=True)
                    raise
                self._wire = wire = Wire(connection, self._received, lambda error: self._lost(wire, error))
            return self._wire

    def _check(self, drops: int) -> None:
        """Make sure that nobody has dropped the pipe since there were so many drops."""
        if drops != self._drops:
            raise exceptions.ConnectionError("the connection to Redis was given up while it was made")

    def _received(self, reply: Any) -> None:
        if not self._waiting:
            raise exceptions.InvalidResponse("the server answered what nobody had asked")
        waiting, _ = self._waiting.popleft()
        if isinstance(reply, exceptions.RedisError):
            if isinstance(reply, exceptions.ReadOnlyError) and self._wire is not None:
                # Another server is the primary now; the next connection finds it.
                self._wire.drop(reply)
            if not waiting.done():
                waiting.set_exception(reply)
        elif not waiting.done():
            waiting.set_result(reply)

    def _lost(self, wire: Wire, error: BaseException | None) -> None:
        if wire is self._wire:
            self._wire = None
            self._fail(error)

    def _fail(self, error: BaseException | None) -> None:
        """Tell everybody who waits that there will be no answer."""
        waiting, self._waiting = self._waiting, deque()
        is_late = isinstance(error, exceptions.TimeoutError)
        kind = exceptions.TimeoutError if is_late else exceptions.ConnectionError
        for reply, _ in waiting:
            if not reply.done():
                reply.set_exception(kind(f"the connection to Redis was lost: {error or 'closed by the server'}"))

    def _look(self) -> None:
        """Give up a connection that stands still though an answer is due."""
        self._watch = None
        if not self._waiting or self._wire is None:
            return
        loop = asyncio.get_running_loop()
        _, end = self._waiting[0]
        left = max(self._asked_at, self._wire.moved_at(end)) + self._answer_within - loop.time()
        if left <= 0:
            self._wire.drop(exceptions.TimeoutError(f"no answer for {self._answer_within:g} s"))
        else:
            self._watch = loop.call_later(min(left, self._answer_within / _LOOKS), self._look)

    def drop(self) -> None:
        """Close the connection; whoever waits gets a ConnectionError. The next call connects anew."""
        self._drops += 1
        wire, self._wire = self._wire, None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if wire is not None:
            wire.drop()
        self._fail(None)
