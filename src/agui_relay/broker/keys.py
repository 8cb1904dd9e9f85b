"""How a run's identity becomes Redis keys and channels, all in one hash slot."""

from __future__ import annotations

from binascii import crc_hqx
from functools import cached_property
from urllib.parse import quote

GROUP = "projectors"
"""The consumer group of every ready stream."""

ID_BYTES = 256
"""Most UTF-8 bytes of a run id or a thread id."""


class PartitionKeys:
    """The keys that the runs of one partition have in common.

    They and the keys of those runs share the hash tag `{namespace:partition}`, so that a script may touch any of them
    on a Redis Cluster.
    """

    def __init__(self, namespace: str, partition: int) -> None:
        self.namespace = namespace
        self.partition = partition
        self._tag = f"{{{namespace}:{partition}}}"

    @property
    def ready(self) -> str:
        """Stream with one entry for each run of the partition that has unread items."""
        return f"{self._tag}:ready"

    @property
    def leases(self) -> str:
        """Sorted set of live runs by the expiry of their publisher's lease."""
        return f"{self._tag}:leases"

    @property
    def runs(self) -> str:
        """Sorted set of runs by their last change."""
        return f"{self._tag}:runs"


class RunKeys(PartitionKeys):
    """The keys of one run and of its partition.

    The run id comes from outside: it is percent-encoded, so that no character of it can reach another run's key or a
    channel pattern.

    Raises:
        ValueError: the run id is blank, above 256 bytes of UTF-8, or has control characters.

    """

    def __init__(self, namespace: str, run_id: str, partitions: int = 1) -> None:
        check_id("run id", run_id)
        # The polynomial of Redis Cluster's own key slots.
        super().__init__(namespace, crc_hqx(run_id.encode(), 0) % partitions if partitions > 1 else 0)
        self.run_id = run_id
        self._run = f"{self._tag}:run:{quote(run_id, safe='')}"

    @property
    def state(self) -> str:
        """Hash with the run's epoch, cursor, position, continuation and status."""
        return f"{self._run}:state"

    @property
    def items(self) -> str:
        """Stream of items; the id is `<ordinal>-0`."""
        return f"{self._run}:items"

    @property
    def frames(self) -> str:
        """Stream of frames; the id is `<position>-0`."""
        return f"{self._run}:frames"

    @property
    def subs(self) -> str:
        """Sorted set of subscriptions by the expiry of their lease."""
        return f"{self._run}:subs"

    @property
    def rejected(self) -> str:
        """Stream of items that could not be projected; the id is `<ordinal>-0`."""
        return f"{self._run}:rejected"

    @property
    def display(self) -> str:
        """Hash with the display checkpoint and the position it covers."""
        return f"{self._run}:display"

    @property
    def channel_prefix(self) -> str:
        """What precedes the subscription id in the names of the run's channels."""
        return f"{self._run}:sub:"

    def channel(self, subscription_id: str) -> str:
        """Return the channel on which one subscription is told of new frames."""
        return self.channel_prefix + subscription_id

    @cached_property
    def all(self) -> tuple[str, ...]:
        """The KEYS of every script of a run, in the order that `scripts/prelude.lua` names them."""
        return (
            self.state,
            self.items,
            self.frames,
            self.subs,
            self.rejected,
            self.display,
            self.ready,
            self.leases,
            self.runs,
        )


def config_key(namespace: str) -> str:
    """Return the key of the hash with what all processes of a namespace must agree on."""
    return f"{{{namespace}}}:config"


def check_id(what: str, value: str) -> None:
    """Refuse an id that is blank, above 256 bytes of UTF-8, has control characters or no UTF-8 form (ValueError)."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} {value!r} has a lone surrogate and so no UTF-8 form") from None
    if not value.strip():
        raise ValueError(f"{what} is blank: {value!r}")
    if size > ID_BYTES:
        raise ValueError(f"{what} has {size} bytes, at most {ID_BYTES} are allowed: {value[:64]!r}...")
    if any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in value):
        raise ValueError(f"{what} has control characters: {value!r}")
