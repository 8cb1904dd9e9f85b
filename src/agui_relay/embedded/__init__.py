"""A real Redis server that needs no installation, for tests, demos and first steps."""

from agui_relay.embedded.server import EmbeddedRedis, EmbeddedRedisError, ending_with_parent

__all__ = ["EmbeddedRedis", "EmbeddedRedisError", "ending_with_parent"]
