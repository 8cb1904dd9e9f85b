"""What a display shows, as its readers see it: items, references to them, positions, and how an item is named."""

import hashlib
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from agui_relay.display.memory import MemorySource

__all__ = [
    "MAX_FIELD_CHARS",
    "MAX_OBSERVATION_BYTES",
    "ContentRef",
    "DisplayError",
    "Item",
    "ItemKind",
    "ItemRef",
    "ItemState",
    "Observed",
    "StreamPosition",
    "item_id",
]

type ItemKind = Literal["text_message", "reasoning_message", "tool_call", "observation"]
type ItemState = Literal["in_progress", "completed", "interrupted", "failed"]

MAX_OBSERVATION_BYTES = 32_768
"""An observation whose value is larger, as compact JSON in UTF-8, keeps only its name."""

MAX_FIELD_CHARS = 262_144
"""A message's text, a call's arguments and a textual result keep so many characters; other results so many bytes."""


class DisplayError(ValueError):
    """Something that is no AG-UI event, or has no JSON form. The display is as it was before."""


class StreamPosition(BaseModel):
    """A place in a run's display stream: the attempt, and the count of events taken in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    attempt: int = Field(ge=0)
    sequence: int = Field(ge=0)

    def __str__(self) -> str:
        return f"{self.attempt}-{self.sequence}"


class ContentRef(BaseModel):
    """A value that the host keeps elsewhere, with a preview. Loaded through the host, by whoever may."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    id: str
    size_bytes: int = Field(ge=0)
    media_type: Literal["text/plain", "application/json"]
    preview: str
    truncated: bool = False


class Item(BaseModel):
    """One thing on display: a message, reasoning, a tool call, or an observation.

    ``ordinal`` is its place in the display: 1, 2, 3, without a hole. ``first_stream_id`` and ``last_stream_id`` are the
    positions of the first and the latest event about it. ``ended_at`` is there while it is completed or failed.
    """

    model_config = ConfigDict(extra="forbid")
    id: str
    ordinal: int = Field(ge=1)
    kind: ItemKind
    state: ItemState
    first_stream_id: str
    last_stream_id: str
    started_at: datetime
    ended_at: datetime | None = None
    content: dict[str, JsonValue]
    content_refs: dict[str, ContentRef] = Field(default_factory=dict, exclude_if=lambda refs: not refs)


class ItemRef(BaseModel):
    """The item that an event changed, and how it stands after it. Frozen: the deltas of one message share theirs.

    ``memory_sources`` comes with the end of a text message only, not with each of its deltas.
    """

    model_config = ConfigDict(frozen=True)
    id: str
    kind: ItemKind
    state: ItemState
    ordinal: int | None = Field(default=None, ge=1)
    response_group: str | None = None
    failure: dict[str, JsonValue] | None = None
    memory_sources: tuple[MemorySource, ...] | None = Field(default=None, exclude_if=lambda sources: sources is None)


class Observed(BaseModel):
    """One event at its place in the stream, with the item it changed, if it changed one."""

    sequence: int
    event: dict[str, Any]
    item: ItemRef | None


def item_id(run_id: str, kind: ItemKind, source_id: str) -> str:
    """Return the id of an item: the same in every attempt, so that a tool call that is tried again stays one item."""
    return "itm_" + hashlib.sha256(f"{run_id}\0{kind}\0{source_id}".encode()).hexdigest()[:32]
