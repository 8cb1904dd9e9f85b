"""A Redis Cluster of embedded servers on this machine, formed without redis-cli."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from redis.asyncio import Redis

from agui_relay.embedded import EmbeddedRedis, EmbeddedRedisError
from integration_tests.waiting import eventually

SLOTS = 16_384
_ATTEMPTS = 3


class Cluster:
    """Primaries without replicas, each with an equal share of the slots, for as long as the block lasts.

    `options` are passed on to every server. A node that is killed and started again is the same node: it keeps its
    name and its slots, and its data if the options say so.
    """

    def __init__(self, *options: str, nodes: int = 3) -> None:
        self._options = options
        self._count = nodes
        self.nodes: list[EmbeddedRedis] = []

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def url(self) -> str:
        """Where the first node listens; it tells of the others."""
        return self.nodes[0].url

    async def start(self) -> None:
        """Start the servers, and return when each of them says that the cluster is whole."""
        try:
            for bus in _free_ports(self._count):
                self.nodes.append(await self._node(bus))
            await self._form()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the servers."""
        nodes, self.nodes = self.nodes, []
        for node in nodes:
            await node.close()

    def owner(self, slot: int) -> int:
        """Return the number of the node that has been given a slot."""
        return min(slot // (SLOTS // self._count), self._count - 1)

    async def whole(self) -> bool:
        """Whether every node knows all nodes and takes commands."""
        return all([await _is_whole(node, len(self.nodes)) for node in self.nodes])

    async def add_replica(self, of: int) -> EmbeddedRedis:
        """Start a replica of a node; returns when it has all data and every node knows it."""
        [bus] = _free_ports(1)
        replica = await self._node(bus)
        self.nodes.append(replica)
        primary = self.nodes[of]
        async with Redis.from_url(replica.url) as client, Redis.from_url(primary.url) as other:
            await command(other, "CLUSTER", "MEET", "127.0.0.1", str(replica.port), str(bus))
            await eventually(self.whole, within=20)
            await command(client, "CLUSTER", "REPLICATE", await command(other, "CLUSTER", "MYID"))

            async def is_in_step() -> bool:
                shards = str(await command(other, "CLUSTER", "SHARDS"))
                return (await client.info("replication"))["master_link_status"] == "up" and "replica" in shards

            await eventually(is_in_step, within=20)
        return replica

    async def move(self, slot: int, source: int, target: int) -> None:
        """Move a slot with its keys from one node to another; returns when it is there."""
        async with Redis.from_url(self.nodes[source].url) as here, Redis.from_url(self.nodes[target].url) as there:
            name = await command(there, "CLUSTER", "MYID")
            await command(here, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", name)

            async def has_moved() -> bool:
                [latest, *_] = await command(here, "CLUSTER", "GETSLOTMIGRATIONS")
                assert latest[b"state"] not in (b"failed", b"cancelled"), latest
                return bool(latest[b"state"] == b"success")

            await eventually(has_moved)

    async def _node(self, bus: int) -> EmbeddedRedis:
        # The bus would be on the port + 10,000, which need not exist.
        node = EmbeddedRedis(
            *("--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-node-timeout", "2000"),
            *self._options,
            port=0,
        )
        for attempt in range(_ATTEMPTS):
            try:
                await node.start()
                break
            except EmbeddedRedisError:
                # Somebody else may have taken one of the ports meanwhile.
                if attempt == _ATTEMPTS - 1:
                    raise
        return node

    async def _form(self) -> None:
        share = SLOTS // self._count
        for number, node in enumerate(self.nodes):
            end = SLOTS - 1 if number == self._count - 1 else (number + 1) * share - 1
            async with Redis.from_url(node.url) as client:
                await command(client, "CLUSTER", "ADDSLOTSRANGE", number * share, end)
                await command(client, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                if number > 0:
                    bus = str((await client.config_get("cluster-port"))["cluster-port"])
                    async with Redis.from_url(self.url) as first:
                        await command(first, "CLUSTER", "MEET", "127.0.0.1", str(node.port), bus)
        await eventually(self.whole, within=20)


async def command(client: Any, *words: bytes | str | int) -> Any:
    """Send what redis-py has no typed method for."""
    return await client.execute_command(*words)


async def _is_whole(node: EmbeddedRedis, count: int) -> bool:
    if not node.running:
        return False
    async with Redis.from_url(node.url) as client:
        info = (await command(client, "CLUSTER", "INFO")).decode()
    return "cluster_state:ok" in info and f"cluster_known_nodes:{count}" in info


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
