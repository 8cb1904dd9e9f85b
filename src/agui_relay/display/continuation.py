"""What a fold needs to go on, as a model that survives JSON, and which forms of it this release reads."""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from agui_relay.display.items import Item, StreamPosition
from agui_relay.display.memory import MemorySource
from agui_relay.framing.fragments import FragmentState
from agui_relay.projection.errors import ContinuationError
from agui_relay.projection.observer import ObserverContinuation

VERSION = 1
"""Raised by a release whose continuations an older one would misread."""


class StreamedArguments(BaseModel):
    """The observation that streamed arguments go on in: its item, what its deltas share, and the last one's place."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    key: str
    stream: tuple[str, str, dict[str, JsonValue]]
    sequence: int


class DisplayContinuation(BaseModel):
    """The state of a fold between two events, without the items.

    Its size follows what is open, not what was said. Items that no event will change any more may be kept elsewhere.
    """

    model_config = ConfigDict(extra="forbid")
    version: int = VERSION
    run_id: str
    position: StreamPosition
    next_ordinal: int = Field(ge=1)
    full_content: bool = False
    retain_content: bool = Field(default=False, exclude_if=lambda retained: not retained)
    response_groups: dict[str, str] = Field(default_factory=dict)
    memory_sources: dict[str, tuple[MemorySource, ...]] = Field(
        default_factory=dict, exclude_if=lambda sources: not sources
    )
    arguments: StreamedArguments | None = None
    fragments: FragmentState = Field(default_factory=FragmentState)
    observer: ObserverContinuation = Field(default_factory=ObserverContinuation)

    @model_validator(mode="before")
    @classmethod
    def _check_version(cls, data: Any) -> Any:
        version = data.get("version", VERSION) if isinstance(data, dict) else VERSION
        if isinstance(version, int) and version > VERSION:
            raise ContinuationError(f"the continuation has version {version}, this release reads up to {VERSION}")
        return data


class DisplaySnapshot(BaseModel):
    """Items as they stood at one position, what is open among them, and what a fold needs to go on from there."""

    model_config = ConfigDict(extra="forbid")
    items: list[Item]
    continuation: DisplayContinuation

    @classmethod
    def read(cls, data: bytes | str) -> Self:
        """Return the snapshot in this JSON.

        Raises:
            ContinuationError: it is none, or was written by a newer release.

        """
        try:
            return cls.model_validate_json(data)
        except ValueError as error:
            raise ContinuationError(f"not a display snapshot: {error}") from error
