"""Which observations say what an agent remembered, and what of that is shown: sources, never their content."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

__all__ = ["FileSource", "MemorySource", "RecordSource", "memory_sources"]


class RecordSource(BaseModel):
    """One record that was recalled: its id and the hash of its content."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    id: str
    sha256: str


class FileSource(BaseModel):
    """One file that was loaded: its path in the memory, hash and size; ``truncated`` when only its start was."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    path: str
    sha256: str
    bytes: int = Field(ge=0)
    truncated: bool = False


class MemorySource(BaseModel):
    """What one memory gave to a run, or that it did not. Evidence of a delivery, not of what the model made of it.

    ``cursor`` is a place in the memory's feed of changes. ``sources_truncated`` says that the lists are not complete.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: Literal["record", "file"]
    memory: str
    memory_id: str | None = None
    status: Literal["recalled", "failed", "timeout", "full", "changes", "unchanged", "omitted", "unavailable"]
    records: tuple[RecordSource, ...] = ()
    files: tuple[FileSource, ...] = ()
    cursor: str | None = None
    sources_truncated: bool = False


# By the type of the observation: the kind of its sources, where a memory's status stands, and where its sources.
_OBSERVATIONS = {"memory_recall": ("record", "recall", "records"), "memory_context": ("file", "context", "files")}
_WITH_SOURCES = frozenset({"recalled", "full", "changes", "unchanged", "omitted"})
_OPTIONAL = ("memory_id", "records", "files", "cursor", "sources_truncated")


def memory_sources(payload: dict[str, Any]) -> tuple[MemorySource, ...] | None:
    """Return the sources that the payload of a context observation names.

    None when it is about something else, or older or other than we know: no evidence is not evidence of nothing.
    """
    kind = payload.get("type")
    observation = _OBSERVATIONS.get(kind) if isinstance(kind, str) else None
    memories = payload.get("memories")
    if observation is None or not isinstance(memories, list):
        return None
    name, status_key, sources_key = observation
    sources: list[MemorySource] = []
    for memory in memories:
        status = memory.get(status_key) if isinstance(memory, dict) else None
        if not isinstance(status, str) or (status in _WITH_SOURCES and sources_key not in memory):
            return None
        given = {key: memory[key] for key in _OPTIONAL if key in memory}
        try:
            sources.append(
                MemorySource.model_validate({"kind": name, "memory": memory.get("memory"), "status": status, **given})
            )
        except ValidationError:
            return None
    return tuple(sources)
