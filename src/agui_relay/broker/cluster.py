"""How a relay works with a Redis Cluster: what redis-py's cluster client lacks for it, and which node to ask what."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import SSLConnection, parse_url
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisClusterException, ResponseError, SlotNotCoveredError

from agui_relay.broker.errors import RelayError

type Client = Redis | RedisCluster


class ClusterClient(RedisCluster):
    """redis-py's cluster client, made to wait and to fail as its plain client does. XREADGROUP takes one stream only.

    redis-py raises when all connections to a node are busy; here a command waits for its turn. And when no node can be
    reached, or a slot has none, redis-py raises what is no RedisError; here it is a ConnectionError, which passes.

    `turns` is the number of commands that are on their way at a time.
    """

    def __init__(self, *args: Any, turns: int, **options: Any) -> None:
        # Not as many connections as turns: one that was lost is replaced before it is let go.
        super().__init__(*args, **{**options, "max_connections": 2 * turns})
        self._turns = asyncio.Semaphore(turns)

    async def initialize(self, *args: Any, **options: Any) -> Any:
        """Learn which nodes there are. Raises redis-py's ConnectionError when that fails."""
        try:
            return await super().initialize(*args, **options)
        except RedisClusterException as error:
            raise RedisConnectionError(str(error)) from error

    async def aclose(self) -> None:
        """Close all connections, also those of a client that was about to learn the nodes anew."""
        await super().aclose()
        await self.nodes_manager.aclose()

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command to the node that it is for."""
        if args[0] == "XREADGROUP":
            # Else redis-py asks a server each time which of the arguments is the key; here it is the last but one.
            options.setdefault("target_nodes", await self.node_of(args[-2]))
        async with self._turns:
            try:
                return await super().execute_command(*args, **options)
            except SlotNotCoveredError as error:
                raise RedisConnectionError(str(error)) from error

    async def node_of(self, key: str) -> Any:
        """Return the redis-py `ClusterNode` that holds a key, as far as is known."""
        await self.initialize()
        try:
            return self.get_node_from_key(key)
        except SlotNotCoveredError as error:
            raise RedisConnectionError(str(error)) from error


def cluster_client(source: str | RedisCluster, **options: Any) -> ClusterClient:
    """Make a cluster client for a URL, or with the settings of another one; `options` win over both.

    Raises RelayError when the URL names what a cluster does not have: a database other than 0, a unix socket.
    """
    if isinstance(source, str):
        settings: dict[str, Any] = dict(parse_url(source))
        if settings.pop("db", 0) or "path" in settings:
            raise RelayError(
                "the server is a Redis Cluster, which has no unix socket and only database 0; give its port"
            )
        is_tls = settings.pop("connection_class", None) is SSLConnection
    else:
        manager = source.nodes_manager
        settings = {
            **source.connection_kwargs,
            "startup_nodes": source.get_nodes() or source.startup_nodes,
            "require_full_coverage": manager.require_full_coverage,
            "address_remap": manager.address_remap,
        }
        is_tls = issubclass(settings["connection_class"], SSLConnection)
        # What redis-py computes from the rest is not for its constructor.
        known = inspect.signature(RedisCluster.__init__).parameters
        settings = {name: value for name, value in settings.items() if name in known}
    return ClusterClient(**{**settings, "ssl": is_tls, **options})


async def belongs_to_cluster(client: Redis) -> bool:
    """Return whether the server is a node of a Redis Cluster; False when it does not say."""
    try:
        info = await client.info("cluster")
    except ResponseError:
        return False
    return bool(info.get("cluster_enabled"))


async def primaries(client: Client) -> list[dict[str, Any]]:
    """Return the options with which a command goes to each server that holds keys."""
    if not isinstance(client, RedisCluster):
        return [{}]
    await client.initialize()
    return [{"target_nodes": node} for node in client.get_primaries()]


async def server_time(client: Client, key: str) -> int:
    """Return the milliseconds that the clock of the server which holds `key` shows."""
    options = {"target_nodes": await client.node_of(key)} if isinstance(client, ClusterClient) else {}
    seconds, microseconds = await client.execute_command("TIME", **options)
    return int(seconds) * 1000 + int(microseconds) // 1000


async def ask_all(client: Client, commands: Sequence[Sequence[Any]]) -> list[Any]:
    """Send several commands at once, not as a transaction; raises the first error."""
    if isinstance(client, RedisCluster):
        return list(await asyncio.gather(*(client.execute_command(*command) for command in commands)))
    async with client.pipeline(transaction=False) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)
        replies: list[Any] = await pipeline.execute()
        return replies
