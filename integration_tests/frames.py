"""Writes frames of a run as a worker would, without a worker: what a subscription is fed in its own tests."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Sequence

from agui_relay.broker.announcement import FIRST, HIDDEN, LAST, Row, encode_body
from agui_relay.broker.keys import RunKeys
from agui_relay.broker.scripts import AppendItem, CommitCall, CommitLimits, Scripts
from agui_relay.framing.fragments import fragment_encoded

_LEASE_MS = 60_000
_KEPT_MS = 600_000
_LIMITS = CommitLimits(
    kept_ms=_KEPT_MS, fanout_bytes=1 << 22, log_bytes=1 << 30, item_bytes=1 << 24, tail_bytes=1 << 20
)


def event(number: int, size: int = 0) -> bytes:
    """Make the JSON of a numbered event with `size` bytes of payload."""
    return json.dumps(
        {"type": "CUSTOM", "name": "n", "value": {"n": number, "x": "x" * size}}, separators=(",", ":")
    ).encode()


class FrameWriter:
    """One life of a run, written commit by commit. Events above 48 KiB are fragmented."""

    def __init__(self, scripts: Scripts, keys: RunKeys, *, announcement_bytes: int = 65_536) -> None:
        self._scripts = scripts
        self.keys = keys
        self.epoch = secrets.token_hex(8)
        self.position = 0
        self.events: list[bytes] = []
        """All events written."""
        self._announcement_bytes = announcement_bytes
        self._token = secrets.token_hex(8)
        self._ordinal = 0

    async def open(self) -> FrameWriter:
        """Open the run."""
        opened = await self._scripts.open(
            self.keys, token=self._token, epoch=self.epoch, thread_id="thread-1", lease_ms=_LEASE_MS, kept_ms=_KEPT_MS
        )
        assert opened.word == "opened", opened
        return self

    async def commit(self, *events: bytes, outcome: str = "", hidden: bool = False) -> None:
        """Commit the frames of one item; `outcome` makes it the run's last, `hidden` keeps it from `chat`."""
        appended = await self._scripts.append(
            self.keys,
            token=self._token,
            known=self._ordinal,
            lease_ms=_LEASE_MS,
            kept_ms=_KEPT_MS,
            unread_bytes=1 << 20,
            thread_id="thread-1",
            items=[AppendItem(self.keys.run_id, self._ordinal, outcome, b"{}")],
        )
        assert appended.word == "ok", appended
        rows = list(self._rows(events))
        body = encode_body(rows)
        bodies = [("full", body), ("chat", encode_body([]) if hidden else body)]
        (committed,) = await self._scripts.commit_many(
            [
                CommitCall(
                    keys=self.keys,
                    entry=b"0-1",
                    epoch=self.epoch,
                    cursor=self._ordinal,
                    new_cursor=self._ordinal + 1,
                    consumed=2,
                    turn_over=False,
                    next_items=0,
                    next_bytes=0,
                    version="",
                    continuation=None,
                    frames=[(data, b"%dCUSTOM:n" % (flags | HIDDEN if hidden else flags)) for _, flags, data in rows],
                    rejected=[],
                    announced=[
                        (view, lines if len(lines) <= self._announcement_bytes else b"") for view, lines in bodies
                    ],
                )
            ],
            _LIMITS,
        )
        if isinstance(committed, BaseException):
            raise committed
        assert committed.word == "ok", committed
        self._ordinal += 1
        self.position += len(rows)
        self.events += events

    def _rows(self, events: Sequence[bytes]) -> Iterable[Row]:
        position = self.position
        for number, data in enumerate(events):
            frames = fragment_encoded(data, identity=f"thread-1:{self.keys.run_id}:{self._ordinal}:{number}")
            for index, frame in enumerate(frames):
                position += 1
                flags = (FIRST if index == 0 else 0) | (LAST if index == len(frames) - 1 else 0)
                yield Row(position, flags, frame)
