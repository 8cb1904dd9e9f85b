"""The leak check finds what it is for; a check that cannot fail protects nothing."""

from collections.abc import Callable

import pytest
from redis import Redis


@pytest.mark.leaves_keys("that is what is tested")
def test_only_a_key_of_a_run_without_expiry_is_a_leak(
    redis_url: str, find_leaked_keys: Callable[[], list[str]]
) -> None:
    with Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0, "the server is not empty at the start of a test"
        client.set("{agui:0}:run:r-1:state", "value", px=60_000)
        client.set("{agui:0}:ready", "value")
        assert find_leaked_keys() == []
        client.set("{agui:3}:run:r%3A1:frames", "value")
        client.set("{agui:0}:run:r-1:items", "value")
        assert find_leaked_keys() == ["{agui:0}:run:r-1:items", "{agui:3}:run:r%3A1:frames"]
