"""How the snapshots of a display checkpoint are stored and sent: as compressed JSON, a fifth of it or less."""

import zlib

_FAST = 1


def pack(snapshot: bytes) -> bytes:
    """Return a snapshot as it is stored."""
    return zlib.compress(snapshot, _FAST)


def unpack(stored: bytes) -> bytes:
    """Return the snapshot that is stored.

    Raises:
        ValueError: it is damaged, or something else.

    """
    try:
        return zlib.decompress(stored)
    except zlib.error as error:
        raise ValueError(f"expected compressed JSON: {error}") from error
