"""Decides how a CUSTOM event too large for one frame travels, and when its pieces are an event again.

A fragment is itself a CUSTOM event, named `a13n.stream.fragment`, whose value is {id, index, count, data}; the
data of all pieces, joined in order, is the JSON text of the event. Pieces are cut at characters of that text and
measured as they are sent: in UTF-8 bytes, with the escaping that a piece costs inside another JSON string.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Literal, Self

import msgspec
from ag_ui.core import CustomEvent
from pydantic import BaseModel, ConfigDict, Field, model_validator

FRAGMENT_EVENT_NAME = "a13n.stream.fragment"
WHOLE_BYTES = 48 * 1024
"""An encoded event up to this size is sent as it is."""
FRAME_BYTES = 64 * 1024
"""No encoded fragment is larger than this."""

_NAME_BYTES = FRAGMENT_EVENT_NAME.encode()
_ESCAPE = b"\\u"
_LEAST_DATA_BYTES = 1024
_encode_text = msgspec.json.Encoder().encode


def fragment_custom_event(event: CustomEvent, *, identity: str) -> list[CustomEvent]:
    """Return the frames that carry `event`: itself while its JSON has at most 48 KiB, else its fragments in order.

    `identity` tells the fragments of one event from those of others in the same subscription; choose it unique there.
    Every fragment has the event's `timestamp` and `subagent_run_id` and at most 64 KiB of encoded UTF-8.
    Raises ValueError when `identity` alone would fill a frame, or the event has no JSON form; TypeError for no event.
    """
    if not isinstance(event, CustomEvent):
        raise TypeError(f"expected a CustomEvent of ag_ui.core, got {type(event).__name__}")
    encoded = event.model_dump_json(by_alias=True).encode()
    if len(encoded) <= WHOLE_BYTES:
        return [event]
    head = _head(identity, event.timestamp, event.subagent_run_id)
    pieces = list(_pieces(encoded, len(head)))
    count = len(pieces)
    return [
        CustomEvent(
            timestamp=event.timestamp,
            subagent_run_id=event.subagent_run_id,
            name=FRAGMENT_EVENT_NAME,
            value={"id": identity, "index": index, "count": count, "data": msgspec.json.decode(b'"%b"' % piece)},
        )
        for index, piece in enumerate(pieces)
    ]


def fragment_encoded(
    encoded: bytes, *, identity: str, timestamp: int | None = None, subagent_run_id: str | None = None
) -> list[bytes]:
    """Return the frames that carry an encoded CUSTOM event, as bytes; `[encoded]` while it has at most 48 KiB.

    `timestamp` and `subagent_run_id` are those of the event; they are repeated on each fragment. The bytes are those
    of `fragment_custom_event` on the same event. Raises ValueError when `identity` alone would fill a frame.
    """
    if len(encoded) <= WHOLE_BYTES:
        return [encoded]
    head = _head(identity, timestamp, subagent_run_id)
    pieces = list(_pieces(encoded, len(head)))
    count = len(pieces)
    return [b'%b%d,"count":%d,"data":"%b"}}' % (head, index, count, piece) for index, piece in enumerate(pieces)]


def _head(identity: str, timestamp: int | None, subagent_run_id: str | None) -> bytes:
    """Return the encoded fragment up to its index, in the field order of `ag_ui.core`'s models."""
    return b'{"type":"CUSTOM"%b%b,"name":"%b","value":{"id":%b,"index":' % (
        b"" if timestamp is None else b',"timestamp":%d' % timestamp,
        b"" if subagent_run_id is None else b',"subagentRunId":%b' % _encode_text(subagent_run_id),
        _NAME_BYTES,
        _encode_text(identity),
    )


def _pieces(encoded: bytes, head_bytes: int) -> Iterator[bytes]:
    """Cut the JSON text into escaped pieces, each the longest that its frame has room for."""
    escaped = _encode_text(encoded.decode())[1:-1]
    room = FRAME_BYTES - head_bytes - len(b',"count":,"data":""}}')
    # The digits of the count are part of every frame, and the count is only known once all is cut.
    digits = 1
    while True:
        if room - 2 * digits < _LEAST_DATA_BYTES:
            raise ValueError(f"no room for data beside a fragment identity of this size ({head_bytes} bytes of head)")
        cuts = [0]
        while cuts[-1] < len(escaped):
            cuts.append(_cut(escaped, cuts[-1], room - digits - len(str(len(cuts) - 1))))
        if len(str(len(cuts) - 1)) <= digits:
            break
        digits += 1
    for start, end in itertools.pairwise(cuts):
        yield escaped[start:end]


def _cut(escaped: bytes, start: int, room: int) -> int:
    """Return the last place within `room` bytes of `start` that splits neither a character nor an escape."""
    end = start + room
    if end >= len(escaped):
        return len(escaped)
    while escaped[end] & 0xC0 == 0x80:
        end -= 1
    # An escape is two bytes, or six with \u. Its backslash is the last one of a run of odd length: the run may
    # reach back to `start`, itself a place between characters, so counting from there is exact.
    slash = escaped.rfind(b"\\", max(start, end - 5), end)
    if slash >= 0:
        run = escaped[start : slash + 1]
        length = 6 if escaped[slash + 1 : slash + 2] == b"u" else 2
        if (len(run) - len(run.rstrip(b"\\"))) % 2 and slash + length > end:
            return slash
    return end


class FragmentAssembly(BaseModel):
    """The pieces of one event that have come so far: `parts`, of `count` in all, `size` UTF-8 bytes."""

    model_config = ConfigDict(extra="forbid")
    count: int = Field(ge=1)
    parts: list[str] = Field(default_factory=list)
    size: int = 0

    @model_validator(mode="after")
    def _measure(self) -> Self:
        if not 0 < len(self.parts) < self.count:
            raise ValueError(
                f"a pending event holds 1 to {self.count - 1} of {self.count} parts, got {len(self.parts)}"
            )
        self.size = sum(map(_cost, self.parts))
        return self


class FragmentState(BaseModel):
    """What an assembler waits for, as data that survives a JSON round trip. Holds no completed event."""

    model_config = ConfigDict(extra="forbid")
    pending: dict[str, FragmentAssembly] = Field(default_factory=dict)
    gap: bool = False
    max_bytes: int = Field(default=64 * 1024 * 1024, ge=1)
    max_pending: int = Field(default=8, ge=1)


class _Assembly:
    """The pieces of one event, in order, while they come."""

    __slots__ = ("count", "parts", "size")

    def __init__(self, count: int, parts: list[str], size: int) -> None:
        self.count = count
        self.parts = parts
        self.size = size


class _Envelope(msgspec.Struct, gc=False):
    """As much of a frame as says whether it is a fragment; anything may stand in it."""

    type: object = "CUSTOM"
    name: object = None
    value: msgspec.Raw = msgspec.Raw()


class _Piece(msgspec.Struct, gc=False):
    id: str
    index: int
    count: int
    data: str


class _Whole(msgspec.Struct, gc=False):
    """The fields of a CUSTOM event whose shape a reader relies on."""

    type: Literal["CUSTOM"]
    name: str
    value: msgspec.Raw
    timestamp: int | None = None
    subagent_run_id: str | None = msgspec.field(default=None, name="subagentRunId")
    metadata: dict[str, msgspec.Raw] | None = None


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_piece = msgspec.json.Decoder(_Piece).decode
_decode_whole = msgspec.json.Decoder(_Whole).decode


class _RefusedError(Exception):
    """A fragment that cannot be joined to what came before."""


_REFUSED = (_RefusedError, msgspec.MsgspecError, ValueError, RecursionError)


class CustomEventAssembler:
    """Joins the fragments of one live subscription into events; hands everything else through.

    An event is returned once, whole, or never. `gap` turns true, and stays so, when fragments were invalid,
    inconsistent, out of order, nested or over a bound: something was missed, and only a new subscription with a
    new assembler can say what. A lost tail with nothing behind it does not show. No frame makes it raise.
    A relay's `GapNotice` is another thing: it names frames that the log no longer holds.

    `max_bytes` bounds the UTF-8 bytes of data held for all unfinished events together, `max_pending` how many
    may be unfinished; beyond that the oldest is given up. Both must be positive, else ValueError.
    """

    def __init__(self, *, max_bytes: int = 64 * 1024 * 1024, max_pending: int = 8) -> None:
        if max_bytes < 1 or max_pending < 1:
            raise ValueError(f"assembler bounds must be positive, got {max_bytes=} and {max_pending=}")
        self.max_bytes = max_bytes
        self.max_pending = max_pending
        self.gap = False
        self._pending: dict[str, _Assembly] = {}
        self._size = 0

    def accept(self, payload: Mapping[str, object]) -> Mapping[str, object] | None:
        """Take one serialized event and return a complete one, or None while its fragments are incomplete.

        An event that is no fragment is returned as it came.
        """
        if payload.get("name") != FRAGMENT_EVENT_NAME or payload.get("type", "CUSTOM") != "CUSTOM":
            return payload
        try:
            value = payload.get("value")
            if not isinstance(value, Mapping):
                raise _RefusedError
            text = self._add(value.get("id"), value.get("index"), value.get("count"), value.get("data"))
            if text is None:
                return None
            event = CustomEvent.model_validate_json(text)
            if event.name == FRAGMENT_EVENT_NAME:
                raise _RefusedError
            return event.model_dump(mode="json", by_alias=True)
        except _REFUSED:
            self.gap = True
            return None

    def accept_encoded(self, frame: bytes) -> bytes | None:
        """Take one encoded frame and return a complete encoded event, or None while its fragments are incomplete.

        A frame that is no fragment is returned as it came, in most cases without being parsed.
        """
        # The name can only hide from a search for its bytes behind \u escapes.
        if _NAME_BYTES not in frame and _ESCAPE not in frame:
            return frame
        try:
            envelope = _decode_envelope(frame)
        except _REFUSED:
            # Not JSON. With the name in it, it was most likely a fragment once.
            if _NAME_BYTES not in frame:
                return frame
            self.gap = True
            return None
        if envelope.name != FRAGMENT_EVENT_NAME or envelope.type != "CUSTOM":
            return frame
        try:
            piece = _decode_piece(envelope.value)
            text = self._add(piece.id, piece.index, piece.count, piece.data)
            if text is None:
                return None
            complete = text.encode()
            if _decode_whole(complete).name == FRAGMENT_EVENT_NAME:
                raise _RefusedError
            return complete
        except _REFUSED:
            self.gap = True
            return None

    def export(self) -> FragmentState:
        """Return what is pending, detached from this assembler."""
        return FragmentState(
            pending={
                identity: FragmentAssembly(count=assembly.count, parts=assembly.parts)
                for identity, assembly in self._pending.items()
            },
            gap=self.gap,
            max_bytes=self.max_bytes,
            max_pending=self.max_pending,
        )

    @classmethod
    def restore(cls, state: FragmentState) -> Self:
        """Return an assembler that goes on where the exported one stood."""
        assembler = cls(max_bytes=state.max_bytes, max_pending=state.max_pending)
        assembler.gap = state.gap
        assembler._pending = {
            identity: _Assembly(saved.count, list(saved.parts), saved.size) for identity, saved in state.pending.items()
        }
        assembler._size = sum(assembly.size for assembly in assembler._pending.values())
        return assembler

    def _add(self, identity: object, index: object, count: object, data: object) -> str | None:
        """Take one piece; return the whole text when it was the last one. A piece that does not fit is refused."""
        if not (
            isinstance(identity, str)
            and isinstance(data, str)
            and isinstance(index, int)
            and isinstance(count, int)
            and not isinstance(index, bool)
            and not isinstance(count, bool)
            and 0 <= index < count
        ):
            raise _RefusedError
        try:
            size = _cost(data)
            identity.encode()
        except UnicodeEncodeError:
            self._drop(identity)
            raise
        if index == 0:
            # Sent again from its first piece: nothing is lost by starting over.
            self._drop(identity)
            while len(self._pending) >= self.max_pending:
                self._drop(next(iter(self._pending)))
                self.gap = True
            assembly = self._pending[identity] = _Assembly(count, [], 0)
        else:
            if identity not in self._pending:
                raise _RefusedError
            assembly = self._pending[identity]
        if assembly.count != count or len(assembly.parts) != index or self._size + size > self.max_bytes:
            self._drop(identity)
            raise _RefusedError
        assembly.parts.append(data)
        assembly.size += size
        self._size += size
        if index + 1 < count:
            return None
        self._drop(identity)
        return "".join(assembly.parts)

    def _drop(self, identity: str) -> None:
        assembly = self._pending.pop(identity, None)
        if assembly is not None:
            self._size -= assembly.size


def _cost(data: str) -> int:
    """Return the UTF-8 bytes of a piece; an empty one counts as one, so that no number of them is free."""
    return len(data.encode()) or 1
