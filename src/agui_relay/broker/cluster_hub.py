"""Which connections bring the channels of a Redis Cluster: one hub for each slot, on the node that has it."""

from __future__ import annotations

import asyncio
from typing import Any

from redis.exceptions import TimeoutError as RedisTimeoutError

from agui_relay.broker.cluster import ClusterClient
from agui_relay.broker.hub import Hub, Listener


class SlotHub(Hub):
    """All channels of one slot on one connection to the node that has it.

    The server ends the subscriptions of a slot that moves away and refuses to renew them: the connection is made anew.
    """

    def __init__(self, client: ClusterClient, key: str, *, answer_within: float = 5.0) -> None:
        super().__init__(client, sharded=True, answer_within=answer_within)
        self._cluster = client
        self._key = key

    async def _address(self) -> Any:
        # Being redirected teaches the client where the slot is.
        try:
            async with asyncio.timeout(self._answer_within):
                await self._cluster.execute_command("EXISTS", self._key)
                return await self._cluster.node_of(self._key)
        except TimeoutError:
            raise RedisTimeoutError(f"no node has answered for {self._key!r}") from None


class ClusterHub:
    """All channels of this process on a Redis Cluster.

    The channels of a run are in the slot of its partition, so there are at most as many connections as partitions.
    """

    def __init__(self, client: ClusterClient, *, answer_within: float = 5.0) -> None:
        self.feeds: dict[tuple[str, str], Listener] = {}
        """The listeners that the readers of a run and view share, see `feed`."""
        self._client = client
        self._answer_within = answer_within
        self._hubs: dict[int, SlotHub] = {}
        self._closed = False

    async def subscribe(self, channel: str, listener: Listener) -> None:
        """Listen to a channel; see `Hub.subscribe`."""
        if self._closed:
            raise RuntimeError("the hub is closed")
        slot = self._client.keyslot(channel)
        hub = self._hubs.get(slot)
        if hub is None:
            hub = self._hubs[slot] = SlotHub(self._client, channel, answer_within=self._answer_within)
        await hub.subscribe(channel, listener)

    def leave(self, channel: str, listener: Listener) -> asyncio.Future[None] | None:
        """Listen no more; see `Hub.leave`."""
        hub = self._hubs.get(self._client.keyslot(channel))
        return None if hub is None else hub.leave(channel, listener)

    def suspect(self, channel: str, since: float) -> None:
        """Renew what brings a channel's messages; see `Hub.suspect`."""
        hub = self._hubs.get(self._client.keyslot(channel))
        if hub is not None:
            hub.suspect(channel, since)

    async def close(self) -> None:
        """Drop all connections."""
        self._closed = True
        await asyncio.gather(*(hub.close() for hub in self._hubs.values()))
        self._hubs.clear()
