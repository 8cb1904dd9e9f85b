"""How items are kept while they change, and how an `Item` is made of one when it is asked for."""

from collections.abc import Iterator, MutableMapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from pydantic import BaseModel

from agui_relay.display.items import ContentRef, Item, ItemKind, ItemRef, ItemState, Observed
from agui_relay.display.values import Text, Value, frozen, thawed

type Time = int | float | datetime
"""When something occurred: milliseconds since the Unix epoch, or a time."""

_new = object.__new__
_set_values = BaseModel.__dict__["__dict__"].__set__
_set_present = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_set_extra = BaseModel.__dict__["__pydantic_extra__"].__set__
_set_private = BaseModel.__dict__["__pydantic_private__"].__set__
_REF_FIELDS = set(ItemRef.model_fields)
_OBSERVED_FIELDS = set(Observed.model_fields)


class Mark:
    """Where a field that grows, and its item, stood when changes were last taken."""

    __slots__ = ("after", "field", "length")

    def __init__(self, after: int | str, field: str, length: int) -> None:
        self.after = after
        self.field = field
        self.length = length


class Record(Struct, eq=False):
    """An item that can still change. Times and positions are only written out when an `Item` is made.

    Attributes:
        key: The source's own id, within its kind; known once an event named it.
        made: The item as it was last handed out, until it changes.
        mark: What happened since changes were last taken: nothing, a field grew, or (True) something else.
        growing: The field that grows, once that was noted: until something else happens to it, or changes are taken.
        saved: Whether it is as it was when it was last captured.
        ref: The reference that was last handed out, until more changes than a text that grows.

    """

    id: str
    kind: ItemKind
    ordinal: int
    first: int | str
    last: int | str
    started: Time
    ended: Time | None = None
    state: ItemState = "in_progress"
    content: dict[str, Value] = {}
    refs: dict[str, ContentRef] | None = None
    key: str | None = None
    made: Item | None = None
    mark: Mark | bool | None = None
    growing: Text | None = None
    saved: bool = True
    ref: ItemRef | None = None

    @classmethod
    def of(cls, item: Item) -> "Record":
        """Return a record of an item, sharing nothing with it."""
        return cls(
            id=item.id,
            kind=item.kind,
            ordinal=item.ordinal,
            first=item.first_stream_id,
            last=item.last_stream_id,
            started=item.started_at,
            ended=item.ended_at,
            state=item.state,
            content={name: frozen(value) for name, value in item.content.items()},
            refs=dict(item.content_refs) or None,
        )

    def text(self, field: str) -> Text:
        """Return a field of the content as text that grows."""
        value = self.content.get(field)
        if type(value) is not Text:
            self.content[field] = value = Text("" if field not in self.content else str(thawed(value)))
        return value

    @property
    def child(self) -> bool:
        """Whether a child run said this."""
        return bool(self.content.get("subagentRunId"))

    def item(self, attempt: int) -> Item:
        """Return a new `Item` that shares nothing."""
        ended = self.ended
        values: dict[str, Any] = {
            "id": self.id,
            "ordinal": self.ordinal,
            "kind": self.kind,
            "state": self.state,
            "first_stream_id": stream_id(self.first, attempt),
            "last_stream_id": stream_id(self.last, attempt),
            "started_at": written(self.started),
            "ended_at": None if ended is None else written(ended),
            "content": {name: thawed(value) for name, value in self.content.items()},
            "content_refs": dict(self.refs or {}),
        }
        return _made(Item, values, set(values))


def reference(record: Record) -> ItemRef:
    """Return the reference to an item as it stands."""
    content = record.content
    group = content.get("responseGroup")
    failure = thawed(content["failure"]) if "failure" in content else None
    # As in _made, without another call.
    record.ref = made = _new(ItemRef)
    values = {
        "id": record.id,
        "kind": record.kind,
        "state": record.state,
        "ordinal": record.ordinal,
        "response_group": group if type(group) is str else None,
        "failure": failure if type(failure) is dict else None,
        "memory_sources": None,
    }
    _set_values(made, values)
    _set_present(made, _REF_FIELDS)
    _set_extra(made, None)
    _set_private(made, None)
    return made


def observed(sequence: int, event: dict[str, Any], item: ItemRef | None) -> Observed:
    """Return an event at its place. The event is the one that was given."""
    # As in _made, without another call: this is made for every event.
    made = _new(Observed)
    _set_values(made, {"sequence": sequence, "event": event, "item": item})
    _set_present(made, _OBSERVED_FIELDS)
    _set_extra(made, None)
    _set_private(made, None)
    return made


def _made[ModelT](model: type[ModelT], values: dict[str, Any], present: set[str]) -> ModelT:
    """Make a model of values that are known to be valid, for a fraction of what validating them costs.

    ``present`` names all fields that can be set, so that models may share it.
    """
    made = _new(model)
    _set_values(made, values)
    _set_present(made, present)
    _set_extra(made, None)
    _set_private(made, None)
    return made


def stream_id(place: int | str, attempt: int) -> str:
    """Return a position as items show it; a number is one of this attempt."""
    return place if type(place) is str else f"{attempt}-{place}"


def now() -> datetime:
    """Return the time that an event has which says none."""
    return datetime.now(UTC)


def written(at: Time) -> datetime:
    """Return a time as items show it."""
    return at if isinstance(at, datetime) else datetime.fromtimestamp(at / 1000, UTC)


class Records:
    """All items of a display: by id, and within their kind by the id that their source was heard to use."""

    __slots__ = ("by_id", "by_key", "open_children")

    def __init__(self) -> None:
        self.by_id: dict[str, Record] = {}
        self.by_key: dict[str, dict[str, Record]] = {"text_message": {}, "reasoning_message": {}, "tool_call": {}}
        self.open_children: dict[str, Record] = {}
        """What child runs have begun and not ended."""

    def put(self, record: Record) -> None:
        """Add a record, or put it in the place of another with its id."""
        self.drop(record.id)
        self.by_id[record.id] = record
        if record.state == "in_progress" and record.child:
            self.open_children[record.id] = record

    def drop(self, id: str) -> None:  # noqa: A002 - as in Item
        """Forget a record; nothing happens when it is not known."""
        record = self.by_id.get(id)
        if record is None:
            return
        if record.key is not None:
            self.by_key[record.kind].pop(record.key, None)
        self.open_children.pop(id, None)


class Items(MutableMapping[str, Item]):
    """The items by their ids, in the order in which they came.

    An item is made when it is looked up and stays as it is; the next look-up after a change gives another one. A host
    may take items out that no event will change any more, or put others in their place.
    """

    __slots__ = ("_attempt", "_records")

    def __init__(self, records: Records, attempt: int) -> None:
        self._records = records
        self._attempt = attempt

    def __getitem__(self, key: str) -> Item:
        record = self._records.by_id[key]
        made = record.made
        if made is None:
            made = record.made = record.item(self._attempt)
        return made

    def __setitem__(self, key: str, item: Item) -> None:
        if item.id != key:
            raise ValueError(f"expected an item with the id {key!r}, got {item.id!r}")
        self._records.put(Record.of(item))

    def __delitem__(self, key: str) -> None:
        if key not in self._records.by_id:
            raise KeyError(key)
        self._records.drop(key)
        del self._records.by_id[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._records.by_id)

    def __len__(self) -> int:
        return len(self._records.by_id)

    def __contains__(self, key: object) -> bool:
        return key in self._records.by_id

    def __repr__(self) -> str:
        return repr(dict(self))
