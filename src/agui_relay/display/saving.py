"""Snapshots as bytes, without a model for each item: what a worker writes and reads at each checkpoint."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from agui_relay.display.continuation import DisplayContinuation
from agui_relay.display.items import ItemKind, ItemState
from agui_relay.display.records import Record, stream_id, written
from agui_relay.display.values import Json, Streamed, Text, Value, frozen


class _Saved(Struct, forbid_unknown_fields=True, gc=False):
    """An item, field for field as the model has it."""

    id: str
    ordinal: Annotated[int, Meta(ge=1)]
    kind: ItemKind
    state: ItemState
    first_stream_id: str
    last_stream_id: str
    started_at: datetime
    ended_at: datetime | None
    content: dict[str, Any]
    # Only a host knows them: such a snapshot is read and written as a model.
    content_refs: UnsetType = UNSET


class _Snapshot(Struct, forbid_unknown_fields=True):
    items: list[_Saved]
    continuation: Raw


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Snapshot).decode


def write_snapshot(records: Iterable[Record], attempt: int, continuation: DisplayContinuation) -> bytes | None:
    """Return the JSON of a snapshot; None when it takes a model to write it."""
    items: list[bytes] = []
    try:
        for record in records:
            if record.refs:
                return None
            # Item by item: what is made for one is gone before the next.
            content: dict[str, Any] = {}
            for name, value in record.content.items():
                kind = type(value)
                if kind is Json:
                    content[name] = Raw(value.data)  # type: ignore[union-attr]
                elif kind is Text or kind is Streamed:
                    content[name] = value.value()  # type: ignore[union-attr]
                else:
                    content[name] = value
            ended = record.ended
            items.append(
                _encode(
                    _Saved(
                        record.id,
                        record.ordinal,
                        record.kind,
                        record.state,
                        stream_id(record.first, attempt),
                        stream_id(record.last, attempt),
                        written(record.started),
                        None if ended is None else written(ended),
                        content,
                    )
                )
            )
    except (ValueError, OverflowError):
        # An integer of more than 64 bits.
        return None
    return b'{"items":[%b],"continuation":%b}' % (b",".join(items), continuation.model_dump_json().encode())


def read_snapshot(data: bytes) -> tuple[list[Record], DisplayContinuation] | None:
    """Return the items and the continuation of a snapshot; None when it takes a model to read it, or to refuse it."""
    try:
        snapshot = _decode(data)
        continuation = DisplayContinuation.model_validate_json(bytes(snapshot.continuation))
    except ValueError:
        return None
    return list(map(_record, snapshot.items)), continuation


def _record(item: _Saved) -> Record:
    content: dict[str, Value] = item.content
    for name, value in item.content.items():
        if type(value) is not str:
            content[name] = frozen(value, trusted=True)
    return Record(
        item.id,
        item.kind,
        item.ordinal,
        item.first_stream_id,
        item.last_stream_id,
        item.started_at,
        item.ended_at,
        item.state,
        content,
    )
