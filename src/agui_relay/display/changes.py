"""How a display changes in front of a reader: which changes there are, and when they apply.

A change either sets an item, whole, or appends to its text or arguments. An append names the position that the item
must stand at, so that none is lost, repeated or applied out of order without being noticed.
"""

from collections.abc import Iterable, MutableMapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agui_relay.display.items import DisplayError, Item

__all__ = ["AppendChange", "Change", "ChangeError", "SetChange", "apply_changes", "read_changes"]


class ChangeError(DisplayError):
    """A change that does not follow what the reader has: something was missed. Take a new baseline."""


class SetChange(BaseModel):
    """Put this item in the place of what has its id, or behind all others."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    change: Literal["set"] = "set"
    item: Item


class AppendChange(BaseModel):
    """Append to a field of an item that stands at ``after_stream_id``; it then stands at ``stream_id``.

    ``delta`` is empty when the field is full and only the position moved.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    change: Literal["append"] = "append"
    id: str
    field: Literal["text", "arguments"]
    delta: str
    after_stream_id: str
    stream_id: str


type Change = Annotated[SetChange | AppendChange, Field(discriminator="change")]

_changes: TypeAdapter[list[Change]] = TypeAdapter(list[Change])


def read_changes(data: bytes | str) -> list[Change]:
    """Return the changes in a JSON list.

    Raises:
        pydantic.ValidationError: they are none.

    """
    return _changes.validate_json(data)


def apply_changes(items: MutableMapping[str, Item], changes: Iterable[Change]) -> None:
    """Apply a batch of changes to a reader's items, all or none. Items are replaced, never changed.

    Raises:
        ChangeError: an append is for an item that is not there, that stands at another position, or whose field is not
            text. The items are as they were.

    """
    staged: dict[str, Item] = {}
    for change in changes:
        if isinstance(change, SetChange):
            staged[change.item.id] = change.item.model_copy(deep=True)
            continue
        item = staged.get(change.id) or items.get(change.id)
        if item is None:
            raise ChangeError(f"an append is for the item {change.id!r}, which is not there")
        if item.last_stream_id != change.after_stream_id:
            raise ChangeError(
                f"an append to the item {change.id!r} follows {change.after_stream_id}, "
                f"the item stands at {item.last_stream_id}"
            )
        text = item.content.get(change.field, "")
        if not isinstance(text, str):
            raise ChangeError(f"an append to the item {change.id!r} needs text in {change.field!r}, there is none")
        content = {**item.content, change.field: text + change.delta}
        staged[change.id] = item.model_copy(update={"content": content, "last_stream_id": change.stream_id})
    items.update(staged)
