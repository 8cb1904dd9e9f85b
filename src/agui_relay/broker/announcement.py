"""Decides how frames and the state of their log are told: messages of a channel, rows of the log, cursors.

A message is one line of JSON, in an announcement followed by one line for each frame: ``<position> <flags> <frame>``
(encoded JSON holds no raw newline). An announcement covers the positions `first` to `last` also where a line is
missing: the subscription's view hides that frame. Without any line, not even an empty one, the frames were too
large to be sent along and are in the log; with `first` above `last` only the status changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from agui_relay.broker.errors import CursorError

Status = Literal["live", "closing", "finished", "suspended", "cancelled", "failed", "abandoned", "gone"]
Outcome = Literal["finished", "suspended", "cancelled", "failed", "abandoned", "lost"]
View = Literal["full", "chat"]

VIEWS: Final[tuple[View, ...]] = ("full", "chat")
RANKS: Final[Mapping[Status, int]] = {
    "live": 0,
    "closing": 1,
    "finished": 2,
    "suspended": 2,
    "cancelled": 2,
    "failed": 2,
    "abandoned": 2,
    "gone": 2,
}
"""How far a run has come; a life of a run only goes up. From 2 on nothing is added to its log."""

FIRST: Final = 1
"""Flag: the frame is the first of its event."""
LAST: Final = 2
"""Flag: the frame is the last of its event; a whole event has both."""
HIDDEN: Final = 4
"""Flag: the event is not for display."""

_ARGUMENTS: Final = b"TOOL_CALL_ARGS"
_OBSERVATIONS: Final = (b"CUSTOM:a13n.harness.", b"CUSTOM:a13n.pydantic_ai.")
_TOOL_RESULTS: Final = frozenset(
    {b"CUSTOM:a13n.pydantic_ai.function_tool_result", b"CUSTOM:a13n.pydantic_ai.output_tool_result"}
)

# Canonical text only: one place has one cursor. Nineteen digits hold every position that a stream id can have here.
_CURSOR = re.compile(r"([0-9A-Za-z]{1,64}):(0|[1-9][0-9]{0,18})", re.ASCII)


class MessageError(ValueError):
    """A message of a channel is not of the form that the relay writes."""


class Cursor(NamedTuple):
    """A place in one life of a run's frame log: everything up to `position` has been read; 0 is the beginning."""

    epoch: str
    position: int

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Return the cursor that `str()` wrote; raises CursorError for anything else."""
        match = _CURSOR.fullmatch(text)
        if match is None:
            raise CursorError(f"expected a cursor like 'a1b2c3:42' (epoch, colon, position), got {text[:100]!r}")
        return cls(match[1], int(match[2]))

    def __str__(self) -> str:
        return f"{self.epoch}:{self.position}"


class Row(NamedTuple):
    """One frame as a reader gets it, from a channel or from the log.

    `flags` are FIRST and LAST, and HIDDEN where the reader's own view hides the frame.
    """

    position: int
    flags: int
    data: bytes


class Report(msgspec.Struct, frozen=True, gc=False):
    """What the server says of a run: the life that its log belongs to, the last position in it, its status.

    Of a run that is not there: epoch `""`, head 0, status `gone`.
    """

    epoch: str
    head: int
    status: Status


class Announcement(msgspec.Struct, frozen=True, gc=False):
    """New frames, `first` to `last`, or only a new status. `rows` is None when the frames must be read from the log."""

    epoch: str
    first: int
    last: int
    status: Status
    rows: tuple[Row, ...] | None = None


class Echo(msgspec.Struct, frozen=True, gc=False):
    """The answer to a heartbeat, in order with the announcements; `nonce` is `""` when nobody asked."""

    report: Report
    nonce: str


class _Header(msgspec.Struct, gc=False):
    epoch: str
    status: Status
    first: int | None = None
    last: int | None = None
    head: int | None = None
    echo: str | None = None


_decode_header = msgspec.json.Decoder(_Header).decode


def encode_body(rows: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Return the lines of an announcement, without its header; one empty line when a view hides every frame."""
    return b"\n".join(b"%d %d %b" % row for row in rows) or b"\n"


def encode_announcement(epoch: str, first: int, last: int, status: Status, body: bytes | None = None) -> bytes:
    """Return an announcement; without a body its readers take the frames from the log."""
    header = b'{"epoch":"%b","first":%d,"last":%d,"status":"%b"}' % (epoch.encode(), first, last, status.encode())
    return header if body is None else header + b"\n" + body


def encode_echo(report: Report, nonce: str) -> bytes:
    """Return the answer to a heartbeat."""
    return b'{"epoch":"%b","head":%d,"status":"%b","echo":"%b"}' % (
        report.epoch.encode(),
        report.head,
        report.status.encode(),
        nonce.encode(),
    )


def decode_message(data: bytes) -> Announcement | Echo:
    """Return what a channel's message says; raises MessageError for what the relay would not write."""
    line, newline, body = data.partition(b"\n")
    try:
        header = _decode_header(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MessageError(f"expected a JSON header, got {line[:100]!r}: {error}") from None
    if header.echo is not None and header.head is not None and header.head >= 0:
        return Echo(Report(header.epoch, header.head, header.status), header.echo)
    if header.first is None or header.last is None or header.first < 1 or header.last < header.first - 1:
        raise MessageError(f"expected an echo with its head, or an announcement's first and last, got {line[:200]!r}")
    rows = _rows(body, header.first, header.last) if newline else None
    return Announcement(header.epoch, header.first, header.last, header.status, rows)


def _rows(body: bytes, first: int, last: int) -> tuple[Row, ...]:
    rows: list[Row] = []
    previous = first - 1
    for line in body.split(b"\n"):
        if not line:
            continue
        try:
            position_text, flags_text, frame = line.split(b" ", 2)
            position, flags = int(position_text), int(flags_text)
        except ValueError:
            raise MessageError(f"expected '<position> <flags> <frame>', got {line[:100]!r}") from None
        if not previous < position <= last or not 0 <= flags < 2 * HIDDEN:
            raise MessageError(f"expected a position from {previous + 1} to {last} and its flags, got {line[:40]!r}")
        # A line that was sent is to be shown, whatever other views do.
        rows.append(Row(position, flags & ~HIDDEN, frame))
        previous = position
    return tuple(rows)


def entry_fields(raw: Mapping[bytes, bytes] | Sequence[bytes]) -> Mapping[bytes, bytes]:
    """Return the fields of a stream's entry, which a script gives as a list."""
    return raw if isinstance(raw, Mapping) else dict(zip(raw[::2], raw[1::2], strict=False))


def decode_row(entry: tuple[bytes, Mapping[bytes, bytes] | Sequence[bytes]], view: View) -> Row:
    """Return one entry of a run's frame log, hidden or not for `view`.

    An entry that is no frame becomes a row without flags and data: a position that holds nothing usable.
    """
    entry_id, raw = entry
    # The id of a frame is `<position>-0`; the server takes no id without a number.
    position = int(entry_id.partition(b"-")[0])
    fields = entry_fields(raw)
    try:
        flags = int(fields[b"meta"][:1])
        frame = fields[b"frame"]
    except (KeyError, ValueError):
        return Row(position, 0, b"")
    return Row(position, flags | HIDDEN if is_hidden(view, fields[b"meta"]) else flags & ~HIDDEN, frame)


def is_hidden(view: View, meta: bytes) -> bool:
    """Whether a view leaves out the event that the log describes by `meta`: flags, type, colon, name of a CUSTOM.

    `full` shows all. `chat` shows the conversation: not what says of itself that it is not for display, not the deltas
    of arguments, and of what the Harness and Pydantic AI observe only the results of tools, since failed ones have no
    event of their own.
    """
    if view == "full":
        return False
    kind = meta[1:]
    return (
        bool(int(meta[:1]) & HIDDEN)
        or kind == _ARGUMENTS
        or (kind.startswith(_OBSERVATIONS) and kind not in _TOOL_RESULTS)
    )
