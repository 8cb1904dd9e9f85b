"""Which failures of Redis pass by themselves, and how long to wait before the next try."""

from __future__ import annotations

import random
import ssl
from collections.abc import Iterator

from redis import exceptions

_LASTING = exceptions.AuthenticationError | exceptions.AuthorizationError | exceptions.NoPermissionError
_PASSING = (
    "BUSY ",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "UNBLOCKED",
)
# redis-py removes these words from the message and puts them into the class.
_PASSING_CLASSES = frozenset(
    {
        "AskError",
        "BusyLoadingError",
        "ClusterDownError",
        "ClusterError",
        "MasterDownError",
        "MovedError",
        "OutOfMemoryError",
        "ReadOnlyError",
        "TryAgainError",
    }
)


def is_transient(error: BaseException) -> bool:
    """Return whether the same call may succeed later: a lost connection, a failover, a server still loading."""
    # redis-py raises what is wrong with a certificate as a lost connection.
    if isinstance(error, _LASTING) or isinstance(error.__context__, ssl.SSLCertVerificationError):
        return False
    if type(error).__name__ in _PASSING_CLASSES:
        return True
    if isinstance(error, exceptions.ResponseError):
        return str(error).startswith(_PASSING)
    return isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError | OSError)


def backoff(first: float = 0.02, most: float = 1.0) -> Iterator[float]:
    """Yield the seconds to wait before each next try: doubling up to `most`, each with jitter of a half."""
    delay = first
    while True:
        yield delay * random.uniform(0.5, 1.0)
        delay = min(most, delay * 2)
