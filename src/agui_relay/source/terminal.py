"""Writes the terminal result of a live run: its output if it has a JSON form, and what a suspended run waits for."""

import math
from collections.abc import Mapping
from typing import Any

from agui_relay.source.items import MAX_SAFE_INTEGER, MAX_VALUE_LEVELS
from agui_relay.source.plain import Json, clean, clean_text, tool_value

_CLIENT_TOOL = "a13n.harness.client-tool"  # The metadata key under which the Harness keeps a client tool's own name.


def write_result(result: Any) -> dict[str, Json]:
    """Return the wire form of a ``HarnessRunResult``."""
    status = result.status
    plain: dict[str, Json] = {"status": status}
    if status == "completed":
        plain |= _output(result)
    plain["usage"] = _usage(result.usage)
    if status == "failed":
        plain["failure"] = clean(result.failure.model_dump(mode="json", by_alias=True))
    elif status == "suspended":
        plain["interrupts"] = _interrupts(result)
    return plain


def _output(result: Any) -> dict[str, Json]:
    """Return the output, or that it is omitted: one without a JSON form must not be shown as something else."""
    try:
        try:
            output = result.output_json()
        except UnicodeError:
            raise
        except ValueError:
            # The Harness takes no lone surrogates; everything else it refuses is refused here too.
            output = result.output
        _require_plain(output, 0)
        return {"output": clean(output)}
    except Exception:
        return {"result_omitted": True}


def _require_plain(value: Any, level: int) -> None:
    """Raise for anything that is no JSON value, is not finite, or nests too deep."""
    kind = type(value)
    if kind is list or kind is dict:
        if level >= MAX_VALUE_LEVELS:
            raise ValueError("nested too deep")
        for entry in value.values() if kind is dict else value:
            _require_plain(entry, level + 1)
        if kind is dict and not all(type(key) is str for key in value):
            raise ValueError("not a JSON object")
    elif kind is float:
        if not math.isfinite(value):
            raise ValueError("not finite")
    elif value is not None and kind not in (str, int, bool):
        raise ValueError("not a JSON value")


def _usage(usage: Any) -> dict[str, int | None]:
    return {
        "input_tokens": _count(usage.input_tokens),
        "output_tokens": _count(usage.output_tokens),
        "cache_read_tokens": _count(usage.cache_read_tokens),
        "cache_write_tokens": _count(usage.cache_write_tokens),
        "reasoning_tokens": _count(usage.details.get("reasoning_tokens")),
    }


def _count(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and 0 <= value <= MAX_SAFE_INTEGER else None


def _interrupts(result: Any) -> list[Json]:
    deferred = result.deferred
    interrupts = [
        {
            "id": clean_text(entry.target_call.tool_call_id),
            "reason": reason,
            "toolCallId": clean_text(entry.model_call.tool_call_id),
            "metadata": {
                "tool_name": _tool_name(entry.target_call, deferred.metadata, reason),
                "args": tool_value(entry.target_call.args, None),
                "tool_metadata": tool_value(deferred.metadata.get(entry.target_call.tool_call_id), None),
            },
        }
        for reason, calls in (("approval", deferred.approvals), ("external", deferred.calls))
        for entry in calls
    ]
    # AG-UI has no suspended run without an interrupt, and this run did not succeed either.
    return interrupts or [{"id": f"{clean_text(result.run_id)}:suspended", "reason": result.suspend_reason}]


def _tool_name(call: Any, metadata: Mapping[str, Any], reason: str) -> str:
    """Return the name of a tool; a tool of the client goes by the name under which the client declared it."""
    marker = metadata.get(call.tool_call_id, {}).get(_CLIENT_TOOL) if reason == "external" else None
    declared = marker.get("declared_name") if isinstance(marker, Mapping) else None
    return clean_text(declared if isinstance(declared, str) and declared else call.tool_name)
