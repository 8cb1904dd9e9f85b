"""The boundary between an agent and its viewers: which lifecycle events leave, and which of their fields.

Fail-closed. What `ALLOWED` does not list is dropped: unknown and future events, and fields that a later release of the
SDK adds. Event ids, times, prompts, injected messages, results of deferred tools and resumable state are not listed.
"""

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from agui_relay.source.plain import omitted
from agui_relay.source.ya_agent.public import Json, scalar

type Reader = Callable[[Any], Json]

_PREVIEW_CHARACTERS = 200
_ERROR_CHARACTERS = 1_000
_ELLIPSIS = "..."


class Shown(NamedTuple):
    """The name a client knows an event by, and how each field that may leave is read from the attribute so called.

    ``shape`` makes the payload of what was read and the run a client looks at; without it they are the payload.
    """

    name: str
    fields: Mapping[str, Reader]
    shape: Callable[[dict[str, Json], str], Json] | None = None


def _bounded(value: object, limit: int) -> Json:
    text = scalar(value)
    if isinstance(text, str) and len(text) > limit:
        return text[: limit - len(_ELLIPSIS)] + _ELLIPSIS
    return text


def _preview(value: object) -> Json:
    return _bounded(value, _PREVIEW_CHARACTERS)


def _error(value: object) -> Json:
    return _bounded(value, _ERROR_CHARACTERS)


def _list_of(read: Reader) -> Reader:
    return lambda value: [read(entry) for entry in value] if isinstance(value, list | tuple) else omitted(value)


def _by_name(read: Reader) -> Reader:
    return lambda value: (
        {str(scalar(name)): read(entry) for name, entry in value.items()}
        if isinstance(value, Mapping)
        else omitted(value)
    )


def _record_of(**readers: Reader) -> Reader:
    """Read an object field by field, in the order in which its class declares them; a missing object is None."""
    return lambda value: None if value is None else read_fields(value, readers)


def _usage_record_of(**readers: Reader) -> Reader:
    """Like `_record_of`, without the fields that the class does not have (they differ between releases)."""

    def read(value: object) -> Json:
        if value is None:
            return None
        declared: Any = getattr(type(value), "__dataclass_fields__", None) or getattr(type(value), "model_fields", {})
        return read_fields(value, {name: readers[name] for name in declared if name in readers})

    return read


def read_fields(value: object, readers: Mapping[str, Reader]) -> dict[str, Json]:
    """Return the listed attributes of an object, each through its reader."""
    return {name: read(getattr(value, name, None)) for name, read in readers.items()}


_cost = _usage_record_of(
    currency=scalar,
    input_amount=scalar,
    output_amount=scalar,
    total_amount=scalar,
    priced_requests=scalar,
    unpriced_requests=scalar,
    basis=scalar,
    source=scalar,
)
_usage = _usage_record_of(
    input_tokens=scalar,
    cache_write_tokens=scalar,
    cache_write_1h_tokens=scalar,
    cache_read_tokens=scalar,
    output_tokens=scalar,
    unmeasured_requests=scalar,
    output_reasoning_tokens=scalar,
    input_audio_tokens=scalar,
    cache_audio_read_tokens=scalar,
    output_audio_tokens=scalar,
    audio_seconds=scalar,
    details=_by_name(scalar),
    cost=scalar,
    requests=scalar,
    tool_calls=scalar,
    cost_estimate=_cost,
)
_snapshot = _record_of(total_usage=_usage, total_cost_estimate=_cost, model_cost_estimates=_by_name(_cost))
_change = _record_of(path=scalar, action=scalar, destination=scalar)
_task = _record_of(
    id=scalar,
    subject=scalar,
    status=scalar,
    active_form=scalar,
    owner=scalar,
    blocked_by=_list_of(scalar),
    blocks=_list_of(scalar),
)
_subagent: dict[str, Reader] = {"execution_id": scalar, "mode": scalar, "agent_id": scalar, "agent_name": scalar}


def _of_this_run(read: dict[str, Json], run_id: str) -> Json:
    """Name the run that is looked at: the snapshot's own is internal."""
    snapshot = read["snapshot"]
    return {"run_id": run_id, **snapshot} if isinstance(snapshot, dict) else snapshot


def _only_their_number(read: dict[str, Json], run_id: str) -> Json:
    return {"message_count": read["messages"]}


def _count(value: object) -> Json:
    return len(value) if isinstance(value, list | tuple) else omitted(value)


def _fields(*names: str, **read: Reader) -> dict[str, Reader]:
    return {**dict.fromkeys(names, scalar), **read}


ALLOWED: dict[str, Shown] = {
    "ModelRequestStartEvent": Shown("model_request_start", _fields("loop_index", "message_count")),
    "ModelRequestCompleteEvent": Shown(
        "model_request_complete", _fields("loop_index", "duration_seconds", "context_tokens", "context_window_size")
    ),
    "UsageSnapshotEvent": Shown("usage_snapshot", {"snapshot": _snapshot}, _of_this_run),
    "SubagentStartEvent": Shown("subagent_start", {**_subagent, "prompt_preview": _preview}),
    "SubagentCompleteEvent": Shown(
        "subagent_complete",
        {
            **_subagent,
            "success": scalar,
            "request_count": scalar,
            "result_preview": _preview,
            "error": _error,
            "duration_seconds": scalar,
        },
    ),
    "CompactStartEvent": Shown("compact_start", _fields("message_count")),
    "CompactCompleteEvent": Shown("compact_complete", _fields("original_message_count", "compacted_message_count")),
    "CompactFailedEvent": Shown("compact_failed", {"error": _error, "message_count": scalar}),
    "HandoffStartEvent": Shown("handoff_start", _fields("message_count")),
    "HandoffCompleteEvent": Shown("handoff_complete", _fields("original_message_count")),
    "HandoffFailedEvent": Shown("handoff_failed", {"error": _error, "message_count": scalar}),
    "AgentExecutionStartEvent": Shown(
        "agent_execution_start", _fields("message_history_count", "attempt_index", "is_resume_attempt")
    ),
    "AgentExecutionCompleteEvent": Shown(
        "agent_execution_complete",
        _fields("total_loops", "total_duration_seconds", "final_message_count", "attempt_index"),
    ),
    "AgentExecutionFailedEvent": Shown(
        "agent_execution_failed",
        {
            "error": _error,
            **_fields("error_type", "total_loops", "total_duration_seconds", "attempt_index", "recoverable"),
        },
    ),
    "AgentExecutionResumeEvent": Shown(
        "agent_execution_resume",
        {
            "attempt_index": scalar,
            "previous_attempt_index": scalar,
            "error": _error,
            "error_type": scalar,
            "message_history_count": scalar,
        },
    ),
    "ToolCallsStartEvent": Shown("tool_calls_start", _fields("loop_index")),
    "ToolCallsCompleteEvent": Shown("tool_calls_complete", _fields("loop_index", "duration_seconds")),
    "NamespaceStatusEvent": Shown("namespace_status", {"namespace_status": _by_name(scalar)}),
    "FileChangeEvent": Shown("file_change", {"tool_name": scalar, "changes": _list_of(_change)}),
    "TaskEvent": Shown("task", {"tasks": _list_of(_task)}),
    "NoteEvent": Shown("note", {"entries": _by_name(scalar)}),
    "BackgroundShellStartEvent": Shown("background_shell_start", _fields("process_id")),
    "BackgroundShellCompleteEvent": Shown("background_shell_complete", _fields("process_id", "exit_code")),
    "BackgroundShellKilledEvent": Shown("background_shell_killed", _fields("process_id")),
}
"""What may leave of the events of ``ya_agent_sdk.events``, by class name. A subclass shows what its base does."""

ALLOWED_OF_PYDANTIC_AI: dict[str, Shown] = {
    "FinalResultEvent": Shown("final_result", _fields("tool_name", "tool_call_id")),
    "EnqueuedMessagesEvent": Shown("enqueued_messages", {"messages": _count}, _only_their_number),
}
"""What may leave of the events of ``pydantic_ai`` that are neither parts nor tool results."""


_MODULES = {"ya_agent_sdk.events": ALLOWED, "pydantic_ai.messages": ALLOWED_OF_PYDANTIC_AI}


@lru_cache(maxsize=512)
def _shown(kind: type) -> Shown | None:
    # Looked up where they are loaded, not imported: an event cannot be of a class that nobody loaded.
    allowed = {
        getattr(module, name, None): shown
        for path, listed in _MODULES.items()
        if (module := sys.modules.get(path)) is not None
        for name, shown in listed.items()
    }
    return next((allowed[base] for base in kind.__mro__ if base in allowed), None)


def public_lifecycle(event: object, *, run_id: str) -> tuple[str, Json] | None:
    """Return the name and the payload that a client may see of an event, or None when it may see nothing."""
    kind: Any = type(event)
    shown = _shown(kind)
    if shown is None:
        return None
    read = read_fields(event, shown.fields)
    return shown.name, read if shown.shape is None else shown.shape(read, run_id)
