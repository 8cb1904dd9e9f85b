"""The errors a user of the relay can meet, each naming the run it speaks of."""


class RelayError(Exception):
    """Base of what the relay itself raises; errors of the connection stay `redis.exceptions.RedisError`."""


class RunNotFound(RelayError):  # noqa: N818 - a public name
    """No publisher opened the run within the time a subscription was willing to wait."""


class RunBusy(RelayError):  # noqa: N818 - a public name
    """Another publisher holds the live run; only its token takes the run up again."""


class RunEnded(RelayError):  # noqa: N818 - a public name
    """The run has its terminal item, or was declared abandoned; nothing can be added to it."""


class RunLost(RelayError):  # noqa: N818 - a public name
    """The run's keys are gone, or acknowledged items were lost and are no longer at hand."""


class ItemTooLarge(RelayError):  # noqa: N818 - a public name
    """An encoded item is above `RelaySettings.item_bytes`; it was not stored."""


class CursorError(RelayError, ValueError):
    """A cursor is not of the form `epoch:position`."""
