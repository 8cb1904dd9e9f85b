"""How a relay works with a Redis Cluster: what redis-py's cluster client lacks for it, and which node to ask what."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Sequence
from typing import Any, Final, cast

from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    ClusterDownError,
    ClusterError,
    DataError,
    MovedError,
    RedisClusterException,
    RedisError,
    ResponseError,
    SlotNotCoveredError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from agui_relay.broker.errors import RelayError

_LEARN_AGAIN_AFTER: Final = 0.5
_TRY_AGAIN_AFTER: Final = 0.05
"""Seconds."""
_REDIRECTIONS: Final = 16

type Client = Redis | RedisCluster


class ClusterClient(RedisCluster):
    """redis-py's cluster client, made to wait and to fail as its plain client does.

    Which nodes there are is left to redis-py. But its connections to a node do not wait when all are busy, and when one
    has failed it closes others under the hands of those who use them. So here commands with a key go through a plain
    client for each node, with up to `turns` connections. When no node can be reached, or a slot has none, redis-py
    raises what is no RedisError; here it is a ConnectionError, which passes. And redis-py learns all nodes anew, at
    the cost of tens of milliseconds, whenever a call has failed; here at most twice a second, so that one node that is
    away does not cost those who call the others.

    Of the commands with keys in unusual places EVAL, EVALSHA and XREADGROUP (of one stream) are known.
    """

    def __init__(self, *args: Any, turns: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self._connections = turns
        self._nodes: dict[str, Any] = {}
        self._learning = asyncio.Lock()
        self._learnt_at = -math.inf
        self._unreachable: RedisConnectionError | None = None

    async def initialize(self, *args: Any, **options: Any) -> Any:
        """Learn which nodes there are, unless that is known. Raises redis-py's ConnectionError when it fails."""
        if self._initialize:
            async with self._learning:
                if self._initialize:
                    await self._learn(*args, **options)
        return self

    async def _learn(self, *args: Any, **options: Any) -> None:
        now = asyncio.get_running_loop().time
        if now() - self._learnt_at < _LEARN_AGAIN_AFTER:
            if self._unreachable is not None:
                raise RedisConnectionError(*self._unreachable.args)
            if self.get_default_node() is None:
                self.set_default_node(self.get_primaries()[0])
            self._initialize = False
            return
        try:
            await super().initialize(*args, **options)
        except (RedisClusterException, RedisError, OSError) as error:
            self._learnt_at, self._unreachable = now(), RedisConnectionError(str(error))
            raise self._unreachable from error
        self._learnt_at, self._unreachable = now(), None

    async def aclose(self) -> None:
        """Close all connections, also those of a client that was about to learn the nodes anew."""
        await super().aclose()
        await self.nodes_manager.aclose()
        nodes, self._nodes = self._nodes, {}
        for client in nodes.values():
            await client.aclose()

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command to the node that it is for."""
        target = options.get("target_nodes")
        if isinstance(target, ClusterNode):
            del options["target_nodes"]
            return await self._send(target, args, options)
        if target is not None or args[0] in self.command_flags:
            return await super().execute_command(*args, **options)
        key = await self._key_of(args)
        for _ in range(_REDIRECTIONS):
            try:
                return await self._send(await self.node_of(key), args, options)
            except MovedError as error:
                await self.nodes_manager.move_slot(error)
            except AskError as error:
                node = self.get_node(error.host, error.port)
                if node is not None:
                    return await self._send(node, args, options, asking=True)
                self._initialize = True
            except TryAgainError:
                # Half of the keys have moved already.
                await asyncio.sleep(_TRY_AGAIN_AFTER)
        raise ClusterError(f"{key!r} is sent from node to node")

    async def _send(
        self, node: ClusterNode, args: Sequence[Any], options: dict[str, Any], *, asking: bool = False
    ) -> Any:
        client = self._nodes.get(node.name)
        if client is None:
            settings = {**node.connection_kwargs, "retry": Retry(NoBackoff(), 1)}
            client = self._nodes[node.name] = Redis.from_pool(
                BlockingConnectionPool(
                    connection_class=node.connection_class, max_connections=self._connections, timeout=None, **settings
                )
            )
        try:
            if not asking:
                return await client.execute_command(*args, **options)
            async with client.pipeline(transaction=False) as pipeline:
                pipeline.execute_command("ASKING")
                pipeline.execute_command(*args, **options)
                return (await pipeline.execute())[1]
        except (RedisConnectionError, RedisTimeoutError, ClusterDownError, OSError):
            # Others may have taken over: before the next command the nodes are learnt anew.
            self._initialize = True
            raise

    async def _key_of(self, args: Sequence[Any]) -> Any:
        if args[0] in ("EVALSHA", "EVAL"):
            return args[3]
        if args[0] == "XREADGROUP":
            return args[-2]
        await self.initialize()
        keys = await self.commands_parser.get_keys(*args)
        if not keys:
            raise DataError(f"no node is known for the command {args[0]}, which has no key")
        return keys[0]

    async def node_of(self, key: Any) -> ClusterNode:
        """Return the redis-py `ClusterNode` that holds a key, as far as is known."""
        await self.initialize()
        try:
            return cast("ClusterNode", self.get_node_from_key(key))
        except SlotNotCoveredError as error:
            raise RedisConnectionError(str(error)) from error


def cluster_client(source: str | RedisCluster, **options: Any) -> ClusterClient:
    """Make a cluster client for a URL, or with the settings of another one; `options` win over both.

    Raises RelayError when the URL names what a cluster does not have: a database other than 0, a unix socket.
    """
    if isinstance(source, str):
        settings: dict[str, Any] = dict(parse_url(source))
        if settings.pop("db", 0) or "path" in settings:
            raise RelayError("a Redis Cluster has no unix sockets and no database but 0: give the port of a node")
        is_tls = settings.pop("connection_class", None) is SSLConnection
        settings["decode_responses"] = False
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
