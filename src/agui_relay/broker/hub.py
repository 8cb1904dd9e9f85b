"""Decides how all subscriptions of a process share one connection: who listens to which channel, when it is renewed.

redis-py's own PubSub re-subscribes silently, and connects twice when a writer and the reader both meet a dead
connection. So the hub takes a plain connection over from redis-py: what it brings is handed on as it comes, and one
task writes to it, not a caller's; a caller that is cancelled cannot cut the others off. Each channel's listeners are
told of every loss and of every confirmation that they did not ask for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Protocol, Self, cast

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from agui_relay.broker.faults import backoff, is_transient
from agui_relay.broker.pipe import Wire, plain_connection

_log = logging.getLogger("agui_relay.hub")

_CHANNELS_A_COMMAND: Final = 500


class Listener(Protocol):
    """One who listens to a channel. All calls come from the event loop and must return at once."""

    def message(self, data: bytes) -> None:
        """Take a message of the channel."""

    def lost(self) -> None:
        """Take note that the connection is lost: messages may be missed from here on."""

    def back(self) -> None:
        """Take note of a confirmation that was not asked for: the channel is subscribed again."""


class Channels(Protocol):
    """What brings the messages of channels: a hub, or one for each part of a cluster."""

    @property
    def feeds(self) -> dict[tuple[str, str], Listener]:
        """The listeners that the readers of a run and view share, see `feed`."""

    async def subscribe(self, channel: str, listener: Listener) -> None:
        """Listen to a channel; returns when the server has confirmed it."""

    def leave(self, channel: str, listener: Listener) -> asyncio.Future[None] | None:
        """Listen no more; returns what is done when the server has let go of the channel."""

    def suspect(self, channel: str, since: float) -> None:
        """Renew what brings a channel's messages."""

    async def close(self) -> None:
        """Drop the connection."""


class _Channel:
    """The listeners of one channel, and those who wait for its next confirmation."""

    __slots__ = ("confirmed", "listeners", "waiting")

    def __init__(self) -> None:
        self.confirmed = False
        self.listeners: list[Listener] = []
        self.waiting: list[asyncio.Future[None]] = []


class Hub:
    """All channels of this process on one connection.

    `client` says how to connect; none of its connections is used. `sharded` subscribes with
    SSUBSCRIBE, for servers that announce with SPUBLISH. `answer_within` bounds, in seconds, connecting and the wait
    for a confirmation; a connection that takes longer is replaced.

    Connects when the first channel is asked for, and from then on reconnects by itself, with exponential back-off,
    until it is closed.
    """

    def __init__(self, client: Redis | RedisCluster, *, sharded: bool = False, answer_within: float = 5.0) -> None:
        self.feeds: dict[tuple[str, str], Listener] = {}
        """The listeners that the readers of a run and view share, see `feed`."""
        self._client = client
        self._answer_within = answer_within
        prefix = "S" if sharded else ""
        self._subscribe, self._unsubscribe = f"{prefix}SUBSCRIBE", f"{prefix}UNSUBSCRIBE"
        self._kinds = {f"{prefix.lower()}{word}".encode(): word for word in ("message", "subscribe", "unsubscribe")}
        self._channels: dict[bytes, _Channel] = {}
        self._leaving: dict[bytes, list[asyncio.Future[None]]] = {}
        # What the writing task has yet to send: (is a subscription, channel).
        self._outbox: deque[tuple[bool, bytes]] = deque()
        self._written = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._renewal: asyncio.Event = asyncio.Event()
        self._wire: Wire | None = None
        self._delays = backoff()
        self._was_connected = False
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def connected(self) -> bool:
        """Whether the connection stands, as far as is known."""
        return self._wire is not None

    async def subscribe(self, channel: str, listener: Listener) -> None:
        """Listen to a channel; returns when the server has confirmed it.

        Raises RedisError when the hub has never been connected and cannot connect, or when the server refuses the
        channel for good; else it waits for the server.
        """
        if self._closed:
            raise RuntimeError("the hub is closed")
        name = channel.encode()
        if self._runner is None:
            self._runner = asyncio.create_task(self._run(), name="agui-relay hub")
        state = self._channels.get(name)
        if state is None:
            state = self._channels[name] = _Channel()
            self._send(True, name)
        if state.confirmed:
            state.listeners.append(listener)
            return
        confirmed = asyncio.get_running_loop().create_future()
        state.waiting.append(confirmed)
        try:
            await self._confirmation(channel, confirmed)
        except BaseException:
            if confirmed in state.waiting:
                state.waiting.remove(confirmed)
            confirmed.cancel()
            self._leave_if_empty(name)
            raise
        state.listeners.append(listener)

    async def _confirmation(self, channel: str, confirmed: asyncio.Future[None]) -> None:
        now = asyncio.get_running_loop().time
        asked = now()
        while not confirmed.done():
            # Not wait_for: what is late is asked for again, not given up.
            await asyncio.wait([confirmed], timeout=self._answer_within)
            if not confirmed.done():
                self.suspect(channel, asked)
                asked = now()
        confirmed.result()

    def leave(self, channel: str, listener: Listener) -> asyncio.Future[None] | None:
        """Listen no more: from now on `listener` is not called.

        Returns what is done when the server has let go of the channel, or None when there is nothing to wait for.
        """
        name = channel.encode()
        state = self._channels.get(name)
        if state is None or listener not in state.listeners:
            return None
        state.listeners.remove(listener)
        if not self._leave_if_empty(name) or self._wire is None:
            return None
        left = asyncio.get_running_loop().create_future()
        self._leaving.setdefault(name, []).append(left)
        return left

    def suspect(self, channel: str, since: float) -> None:
        """Renew what brings a channel's messages: nothing has come that was due, asked for at loop time `since`.

        When the connection has brought anything after that, it is alive, and only this channel is subscribed again.
        Otherwise the connection is dropped, once for all who suspect it. Either way `Listener.back` follows, unless
        the connection dies meanwhile without a sign: ask again.
        """
        if self._wire is None:
            return
        if self._wire.heard_at > since:
            if channel.encode() in self._channels:
                self._send(True, channel.encode())
        elif not self._renewal.is_set():
            _log.warning("the connection of the channels is silent, connecting anew")
            self._renewal.set()

    async def close(self) -> None:
        """Drop the connection. Nobody is told: whoever still listens hears nothing more."""
        self._closed = True
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.cancel()
            await asyncio.gather(runner, return_exceptions=True)
        self._fail_waiting(RuntimeError("the hub is closed"))
        self._channels.clear()

    # -- the connection -------------------------------------------------------------------------------------------

    async def _address(self) -> Any:
        """Return what says how to connect: redis-py's pool, or its node of a cluster."""
        return cast("Redis", self._client).connection_pool

    async def _run(self) -> None:
        self._delays = backoff()
        while self._channels:
            connection: Any = None
            try:
                connection = plain_connection(await self._address(), self._answer_within)
                await connection.connect()
                await self._session(connection)
            except (RedisError, OSError) as error:
                if self._wire is not None:
                    _log.warning(
                        "lost the connection to Redis, subscriptions wait for it: %s: %s", type(error).__name__, error
                    )
                # What is refused for good is not asked for again.
                if not self._was_connected or not is_transient(error):
                    self._fail_waiting(error)
            finally:
                self._disconnected()
                if connection is not None:
                    await connection.disconnect(nowait=True)
            await asyncio.sleep(next(self._delays))
        self._runner = None

    async def _session(self, connection: Any) -> None:
        """Serve the channels on one connection until it breaks or is to be renewed."""
        self._was_connected = True
        self._renewal.clear()
        self._outbox.clear()
        self._outbox.extend((True, name) for name in self._channels)
        self._written.set()
        lost = asyncio.get_running_loop().create_future()

        def end(error: BaseException | None) -> None:
            if not lost.done():
                lost.set_exception(error or RedisConnectionError("closed by the server"))

        wire = self._wire = Wire(connection, self._received, end)
        tasks = [
            lost,
            asyncio.create_task(self._write(wire), name="agui-relay hub writer"),
            asyncio.create_task(self._renewal.wait(), name="agui-relay hub renewal"),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            wire.drop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()

    def _disconnected(self) -> None:
        was_connected = self._wire is not None
        self._wire = None
        # A connection that is gone holds no subscription.
        for futures in self._leaving.values():
            for left in futures:
                if not left.done():
                    left.set_result(None)
        self._leaving.clear()
        for state in self._channels.values():
            state.confirmed = False
            if was_connected:
                for listener in tuple(state.listeners):
                    _call(listener.lost)

    async def _write(self, wire: Wire) -> None:
        while True:
            await self._written.wait()
            self._written.clear()
            while self._outbox:
                is_subscription = self._outbox[0][0]
                names: list[bytes] = []
                while self._outbox and self._outbox[0][0] is is_subscription and len(names) < _CHANNELS_A_COMMAND:
                    names.append(self._outbox.popleft()[1])
                wire.send((self._subscribe if is_subscription else self._unsubscribe, *names))

    def _received(self, reply: Any) -> None:
        if isinstance(reply, RedisError):
            raise reply
        kind = self._kinds.get(reply[0])
        if kind == "message":
            state = self._channels.get(reply[1])
            if state is not None:
                for listener in tuple(state.listeners):
                    _call(listener.message, reply[2])
        elif kind == "subscribe":
            self._confirmed(reply[1])
        elif kind == "unsubscribe":
            self._left(reply[1])

    def _confirmed(self, name: bytes) -> None:
        # Only now: a server that accepts and says nothing, or refuses, is no success.
        self._delays = backoff()
        state = self._channels.get(name)
        if state is None:
            return
        state.confirmed = True
        for listener in tuple(state.listeners):
            _call(listener.back)
        for waiting in state.waiting:
            if not waiting.done():
                waiting.set_result(None)
        state.waiting.clear()

    def _left(self, name: bytes) -> None:
        for left in self._leaving.pop(name, ()):
            if not left.done():
                left.set_result(None)
        state = self._channels.get(name)
        if state is not None and state.confirmed and (True, name) not in self._outbox:
            # The server took the channel away by itself, as a cluster does with a slot that moves.
            state.confirmed = False
            for listener in tuple(state.listeners):
                _call(listener.lost)
            self._send(True, name)

    # -- the channels ---------------------------------------------------------------------------------------------

    def _send(self, is_subscription: bool, name: bytes) -> None:
        # Without a connection there is nothing to send: the next one begins with all channels.
        if self._wire is not None:
            self._outbox.append((is_subscription, name))
            self._written.set()

    def _leave_if_empty(self, name: bytes) -> bool:
        state = self._channels.get(name)
        if state is None or state.listeners or state.waiting:
            return False
        del self._channels[name]
        self._send(False, name)
        return True

    def _fail_waiting(self, error: BaseException) -> None:
        for state in self._channels.values():
            for waiting in state.waiting:
                if not waiting.done():
                    waiting.set_exception(error)
            state.waiting.clear()


def _call(method: Callable[..., None], *arguments: bytes) -> None:
    try:
        method(*arguments)
    except Exception:
        # One reader's fault must not cost the others their connection.
        _log.exception("a listener has failed")
