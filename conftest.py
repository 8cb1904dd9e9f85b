"""Fixtures of every test: a packaged server for each test process, empty for each test, and a check for leaked keys."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from redis import Redis

from agui_relay.embedded import EmbeddedRedis

LEAK_MARKER = "leaves_keys(reason): the test may leave keys of a run without an expiry"


def pytest_configure(config: pytest.Config) -> None:
    """Register our markers, so that a misspelt one is an error."""
    config.addinivalue_line("markers", LEAK_MARKER)


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[EmbeddedRedis]:
    """Start the server that the tests of this process share; most need only `redis_url`."""
    server = EmbeddedRedis()
    asyncio.run(server.start())
    try:
        yield server
    finally:
        asyncio.run(server.close())


@pytest.fixture
def find_leaked_keys(shared_redis: EmbeddedRedis) -> Iterator[Callable[[], list[str]]]:
    """Give the search for keys of runs (`{namespace:partition}:run:...`) that would stay for ever."""

    def find() -> list[str]:
        keys = sorted(client.scan_iter(match="{*}:run:*", count=1_000))
        expiries = client.pipeline(transaction=False)
        for key in keys:
            expiries.pttl(key)
        return [key.decode() for key, expiry in zip(keys, expiries.execute(), strict=True) if expiry == -1]

    with Redis.from_url(shared_redis.url) as client:
        yield find


@pytest.fixture
def redis_url(
    shared_redis: EmbeddedRedis, find_leaked_keys: Callable[[], list[str]], request: pytest.FixtureRequest
) -> Iterator[str]:
    """Tell where an empty server listens. Afterwards every key of a run must have an expiry, or be gone.

    A test that stops or kills its server enters an `EmbeddedRedis` of its own.
    """
    # What a test has left on its way may come after its end. Tests count connections: none of ours stays.
    with Redis.from_url(shared_redis.url) as client:
        client.flushall()
    yield shared_redis.url
    leaked = find_leaked_keys()
    with Redis.from_url(shared_redis.url) as client:
        client.flushall()
    if request.node.get_closest_marker("leaves_keys") is None and leaked:
        pytest.fail(f"keys of a run left without an expiry: {', '.join(leaked)}")
