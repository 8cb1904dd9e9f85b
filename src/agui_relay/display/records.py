"""How items are kept while they change, and how an `Item` is made of one when it is asked for."""

from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from pydantic import BaseModel

from agui_relay.display.items import ContentRef, Item, ItemKind, ItemRef, ItemState, Observed
from agui_relay.display.values import Text, Value, frozen, thawed

type Time = int | float | datetime
"""When something occurred: milliseconds since the Unix epoch, or a time."""


def _opener[ModelT: BaseModel](model: type[ModelT]) -> Callable[[], ModelT]:
    """Return what makes a model without its values, for a fraction of what validating them costs.

    Its attributes can be set as those of any object, until its class is set to ``model``. It may share the names of its
    fields with others: all of them are set.
    """
    plain = {
        "__module__": __name__,
        "__init__": object.__init__,
        "__setattr__": object.__setattr__,
        # Python only takes the short way to either when neither is pydantic's.
        "__delattr__": object.__delattr__,
    }
    made = cast(Any, type(model))(f"Open{model.__name__}", (model,), plain)
    return cast(Callable[[], ModelT], made)


_open_item = _opener(Item)
_open_ref = _opener(ItemRef)
open_observed = _opener(Observed)
_REF_FIELDS = set(ItemRef.model_fields)
OBSERVED_FIELDS = set(Observed.model_fields)


class Mark:
    """Where a field that grows, and its item, stood when changes were last taken."""

    __slots__ = ("after", "field", "length")

    def __init__(self, after: int | str, field: str, length: int) -> None:
        self.after = after
        self.field = field
        self.length = length


@dataclass(slots=True, eq=False)
class Record:
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
    content: dict[str, Value] = field(default_factory=dict)
    mark: Mark | bool | None = None
    saved: bool = True
    key: str | None = None
    refs: dict[str, ContentRef] | None = None
    made: Item | None = None
    growing: Text | None = None
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

    def text(self, name: str) -> Text:
        """Return a field of the content as text that grows."""
        value = self.content.get(name)
        if type(value) is not Text:
            self.content[name] = value = Text.of(str(thawed(value))) if name in self.content else Text()
        return value

    @property
    def child(self) -> bool:
        """Whether a child run said this."""
        return bool(self.content.get("subagentRunId"))

    def item(self, attempt: int) -> Item:
        """Return a new `Item` that shares nothing."""
        ended = self.ended
        made = _open_item()
        made.__dict__ = {
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
        made.__pydantic_fields_set__ = set(Item.model_fields)
        made.__pydantic_extra__ = made.__pydantic_private__ = None
        made.__class__ = Item
        return made


def reference(record: Record) -> ItemRef:
    """Return the reference to an item as it stands."""
    content = record.content
    group = content.get("responseGroup")
    failure = thawed(content["failure"]) if "failure" in content else None
    made = _open_ref()
    made.__dict__ = {
        "id": record.id,
        "kind": record.kind,
        "state": record.state,
        "ordinal": record.ordinal,
        "response_group": group if type(group) is str else None,
        "failure": failure if type(failure) is dict else None,
        "memory_sources": None,
    }
    made.__pydantic_fields_set__ = _REF_FIELDS
    made.__pydantic_extra__ = made.__pydantic_private__ = None
    made.__class__ = ItemRef
    return made


def observed(sequence: int, event: dict[str, Any], item: ItemRef | None) -> Observed:
    """Return an event at its place. The event is the one that was given."""
    made = open_observed()
    made.__dict__ = {"sequence": sequence, "event": event, "item": item}
    made.__pydantic_fields_set__ = OBSERVED_FIELDS
    made.__pydantic_extra__ = made.__pydantic_private__ = None
    made.__class__ = Observed
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
        record.growing = None
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
