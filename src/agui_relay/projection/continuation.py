"""The continuation of a projector: its form in JSON, and which forms this release can go on from."""

import msgspec
from msgspec import Struct

from agui_relay.projection.errors import ContinuationError
from agui_relay.projection.parts import RunState
from agui_relay.projection.subagents import Trace

VERSION = 1
"""Raised by a release whose continuations an older one would misread."""


class Continuation(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a projector knows between two items: who the root is, what is open where, which children ended."""

    v: int = 0
    root: RunState | None = None
    settled: bool = False
    runs: list[RunState] = []
    traces: dict[str, Trace] = {}


class _Version(Struct):
    v: int


_continuations = msgspec.json.Decoder(Continuation)
_versions = msgspec.json.Decoder(_Version)
_encode = msgspec.json.Encoder().encode


def write_continuation(continuation: Continuation) -> bytes:
    """Return the continuation as JSON, marked with this release's version."""
    continuation.v = VERSION
    return _encode(continuation)


def read_continuation(data: bytes) -> Continuation:
    """Return the continuation in these bytes.

    Raises:
        ContinuationError: it is not one of ours, or was written by a newer release.

    """
    try:
        version = _versions.decode(data).v
    except msgspec.MsgspecError as error:
        raise ContinuationError(f"not a continuation: {error}") from error
    if version > VERSION:
        raise ContinuationError(
            f"the continuation has version {version}, this release reads up to {VERSION}; a newer worker must go on"
        )
    try:
        continuation = _continuations.decode(data)
    except msgspec.MsgspecError as error:
        raise ContinuationError(f"not a continuation: {error}") from error
    if version < 1:
        raise ContinuationError(f"expected a continuation's version to be at least 1, got {version}")
    return continuation
