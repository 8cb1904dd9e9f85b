"""Relay: a Redis that runs are published to, subscribed to and looked at through."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis, RedisCluster
from redis.exceptions import RedisError
from redis.maint_notifications import MaintNotificationsConfig

from agui_relay.broker.cluster import ClusterClient, belongs_to_cluster, cluster_client, primaries
from agui_relay.broker.cluster_hub import ClusterHub
from agui_relay.broker.errors import RelayError
from agui_relay.broker.hub import Channels, Hub
from agui_relay.broker.inspection import RejectedItem, RunInfo, rejected_items, run_info, run_infos
from agui_relay.broker.keys import RunKeys, check_id, config_key
from agui_relay.broker.pipe import Pipe
from agui_relay.broker.publisher import Publisher
from agui_relay.broker.scripts import Scripts
from agui_relay.broker.settings import RelaySettings
from agui_relay.broker.subscription import Subscription

_log = logging.getLogger("agui_relay")

_CONNECTIONS = 64
_ANSWER_WITHIN = 10.0
"""Seconds after which a connection that gives no answer counts as dead."""


class Relay:
    """A Redis that runs are carried through.

    Use it as an async context manager; entering it again inside counts, and the last one to leave closes. `url` is
    `redis://`, `rediss://` or `unix://`; when the server belongs to a Redis Cluster, all of the cluster is used. Give
    `client`, an existing `redis.asyncio.Redis` that does not decode responses, to use its connections; it is never
    closed here. Of a `redis.asyncio.RedisCluster` only the settings are used.

    Raises on entering: RelayError when another process of the namespace is set to another number of partitions, or
    when the server belongs to a cluster and neither the URL nor the client can reach all of it. redis-py's errors.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        settings: RelaySettings | None = None,
        client: Redis | RedisCluster | None = None,
    ) -> None:
        if (url is None) == (client is None):
            raise ValueError("give either a Redis URL or an existing client")
        if url is not None and "://" not in url:
            raise ValueError(f"expected a URL like redis://host:6379/0, got {url!r}")
        if client is not None and client.get_connection_kwargs().get("decode_responses"):
            raise ValueError("the client must not decode responses: make it with decode_responses=False")
        self.url = url or "redis://client"
        """Where Redis is."""
        self.settings = settings or RelaySettings()
        """The limits and times in force."""
        self._given = client
        self._client: Redis | ClusterClient | None = None
        self._pipes: list[Pipe] = []
        self._scripts: Scripts | None = None
        self._hub: Channels | None = None
        self._entered = 0
        self._turn = asyncio.Lock()

    @property
    def client(self) -> Any:
        """The redis-py client for ordinary commands, its replies bytes; only inside the relay's block."""
        if self._client is None:
            raise RuntimeError("the relay is not open: use it inside `async with relay:`")
        return self._client

    @property
    def is_cluster(self) -> bool:
        """Whether Redis is a Redis Cluster; only inside the relay's block."""
        return isinstance(self.client, ClusterClient)

    @property
    def scripts(self) -> Scripts:
        """The scripts on `client`; only inside the relay's block."""
        if self._scripts is None:
            raise RuntimeError("the relay is not open: use it inside `async with relay:`")
        return self._scripts

    async def __aenter__(self) -> Self:
        async with self._turn:
            if self._scripts is None:
                await self._open()
            self._entered += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered -= 1
        async with self._turn:
            # Meanwhile somebody else may have entered.
            if self._entered == 0:
                await self._close()

    async def _open(self) -> None:
        try:
            client = self._client = await self._connect()
            await self._agree()
            if isinstance(client, ClusterClient):
                self._scripts = Scripts(client, cluster=True)
                self._hub = ClusterHub(client)
            else:
                self._pipes = [pipe, bulk] = [Pipe(client, answer_within=_ANSWER_WITHIN) for _ in range(2)]
                self._scripts = Scripts(client, pipe=pipe, bulk=bulk)
                self._hub = Hub(Redis.from_pool(self._pool(None, 1)))
        except BaseException:
            await self._close()
            raise

    async def _close(self) -> None:
        hub, self._hub = self._hub, None
        client, self._client = self._client, None
        pipes, self._pipes = self._pipes, []
        self._scripts = None
        if hub is not None:
            await hub.close()
        for pipe in pipes:
            pipe.drop()
        if client is not None and client is not self._given:
            await client.aclose()

    async def _connect(self) -> Redis | ClusterClient:
        """Return the client for a server, or for the cluster that it belongs to."""
        if isinstance(self._given, RedisCluster):
            return self._cluster_client(0.0, _CONNECTIONS)
        client = self._given or Redis.from_pool(self._pool(0.0, _CONNECTIONS))
        try:
            if not await belongs_to_cluster(client):
                return client
            if client is self._given:
                raise RelayError("the server belongs to a Redis Cluster: give a RedisCluster as client, or its URL")
        except BaseException:
            if client is not self._given:
                await client.aclose()
            raise
        await client.aclose()
        return self._cluster_client(0.0, _CONNECTIONS)

    def make_client(self, *, blocking_for: float = 0.0, connections: int = _CONNECTIONS) -> Redis | RedisCluster:
        """Return a client of its own connections to the relay's Redis, to be closed; only inside the relay's block.

        `blocking_for` is how many seconds a command may block on the server; `connections` is how many commands may be
        on their way at a time, the others wait.
        """
        if self.is_cluster:
            return self._cluster_client(blocking_for, connections)
        return Redis.from_pool(self._pool(blocking_for, connections))

    def _cluster_client(self, blocking_for: float, connections: int) -> ClusterClient:
        source = self._given if isinstance(self._given, RedisCluster) else self.url
        return cluster_client(source, socket_timeout=_ANSWER_WITHIN + blocking_for, turns=connections)

    def _pool(self, blocking_for: float | None, connections: int) -> ConnectionPool:
        timeout = None if blocking_for is None else _ANSWER_WITHIN + blocking_for
        # A full pool waits for a connection instead of failing: many publishers share it.
        options: dict[str, Any] = {
            "socket_timeout": timeout,
            "max_connections": connections,
            "timeout": None,
            # While they are on, redis-py hands out pooled connections that the server has closed.
            "maint_notifications_config": MaintNotificationsConfig(enabled=False),
        }
        if self._given is None:
            from_url = BlockingConnectionPool.from_url(self.url, **options)
            # What an address says goes before options.
            from_url.connection_kwargs["decode_responses"] = False
            return from_url
        assert isinstance(self._given, Redis)
        pool = self._given.connection_pool
        return BlockingConnectionPool(
            connection_class=pool.connection_class,
            **{**pool.connection_kwargs, "maint_notifications_pool_handler": None, **options},
        )

    async def _agree(self) -> None:
        """Refuse to run beside processes that spread the runs differently; warn of a server that may evict keys."""
        key, mine = config_key(self.settings.namespace), str(self.settings.partitions)
        client = self.client
        theirs = await client.hget(key, "partitions")
        if theirs is None:
            # Not always: who only looks, or deletes, can do so on a server that is full.
            await client.hsetnx(key, "partitions", mine)
            theirs = await client.hget(key, "partitions")
        if theirs.decode() != mine:
            raise RelayError(
                f"namespace {self.settings.namespace!r} has {theirs.decode()} partitions, this process is set to {mine}"
            )
        try:
            memories = [await client.info("memory", **to) for to in await primaries(client)]
        except (RedisError, OSError):
            return
        for policy in {memory.get("maxmemory_policy", "noeviction") for memory in memories} - {"noeviction"}:
            _log.warning("Redis evicts keys (maxmemory-policy %s): runs can be lost; set noeviction", policy)

    def _keys(self, run_id: str) -> RunKeys:
        return RunKeys(self.settings.namespace, run_id, self.settings.partitions)

    def publisher(self, run_id: str, *, thread_id: str | None = None, token: str | None = None) -> Publisher:
        """Return the publisher of a run, an async context manager that leases the run while it is open.

        Leaving the block waits until everything is stored. A run that has no terminal item by then ends `abandoned`.
        `thread_id` may be left out when the run's own first item tells it. `token`, another publisher's
        `Publisher.token`, takes its live run up again.

        Raises on entering: RunBusy, RunEnded. ValueError for ids that are blank, above 256 bytes or have control
        characters.
        """
        keys = self._keys(run_id)
        if thread_id is not None:
            check_id("thread id", thread_id)
        return Publisher(self.scripts, keys, self.settings, thread_id=thread_id, token=token)

    def subscribe(
        self,
        run_id: str,
        *,
        after: str | None = None,
        view: str = "full",
        start: str = "log",
        wait_for_run: float = 30.0,
    ) -> Subscription:
        """Return a subscription to a run, an async context manager and an async iterator that ends with the run.

        `after` is the cursor of the last delivery that is known already. Without it, `start` says what comes first:
        `log`, the first event; `display`, a `DisplayCheckpoint` with what the run has come to, then the events after
        it. Events that are asked for but are not kept any more are told by a `GapNotice`, which a checkpoint follows
        if it covers them. A run that does not exist yet is waited for, `wait_for_run` seconds (then RunNotFound).

        Raises ValueError for a `start` or `view` that is none, CursorError for a malformed `after`.
        """
        if self._hub is None:
            raise RuntimeError("the relay is not open: use it inside `async with relay:`")
        return Subscription(
            scripts=self.scripts,
            keys=self._keys(run_id),
            settings=self.settings,
            hub=self._hub,
            after=after,
            view=view,
            start=start,
            wait_for_run=wait_for_run,
        )

    async def delete(self, run_id: str) -> bool:
        """Remove all keys of a run, live or ended; return whether there was one. Its readers end with `lost`."""
        return await self.scripts.delete(self._keys(run_id))

    async def run(self, run_id: str) -> RunInfo | None:
        """Return the state of one run, or None when there is no such run."""
        return await run_info(self.client, self._keys(run_id))

    def runs(self) -> AsyncIterator[RunInfo]:
        """Iterate over the runs kept, the last changed first."""
        return run_infos(self.client, self.settings)

    def rejected(self, run_id: str) -> AsyncIterator[RejectedItem]:
        """Iterate over the items of a run that could not be projected."""
        return rejected_items(self.client, self._keys(run_id))
