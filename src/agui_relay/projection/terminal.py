"""The end of a root run: which AG-UI event a terminal result becomes, and what it says about usage."""

import msgspec
from msgspec import UNSET, Raw, UnsetType

from agui_relay.events import (
    CancelledOutcome,
    Event,
    Interrupt,
    InterruptOutcome,
    RunErrorEvent,
    RunFinishedEvent,
    SuccessOutcome,
    TerminalSource,
    TokenUsage,
)
from agui_relay.source.items import MAX_SAFE_INTEGER, HarnessItem
from agui_relay.source.result import Result, Usage, WireInterrupt, read_failure

_SUCCESS = SuccessOutcome()
_CANCELLED = CancelledOutcome()


def run_end(item: HarnessItem, result: Result, timestamp: int) -> Event:
    """Return RUN_FINISHED, or RUN_ERROR for a failed run."""
    usage = token_usage(result.usage)
    raw_event = TerminalSource(
        item.thread_id,
        item.run_id,
        item.sequence,
        item.occurred_at,
        result.status,
        True if result.status == "completed" and result.result_omitted else UNSET,
        result.failure if result.status == "failed" else UNSET,
    )
    if result.status == "failed":
        failure = read_failure(result)
        return RunErrorEvent(
            timestamp=timestamp, raw_event=raw_event, message=failure.message, code=failure.code, usage=usage
        )
    output: Raw | None = None
    outcome: SuccessOutcome | CancelledOutcome | InterruptOutcome
    if result.status == "completed":
        outcome = _SUCCESS
        if not isinstance(result.output, UnsetType) and not result.result_omitted and bytes(result.output) != b"null":
            output = result.output
    elif result.status == "suspended":
        outcome = InterruptOutcome([_interrupt(entry) for entry in result.interrupts])
    else:
        outcome = _CANCELLED
    return RunFinishedEvent(
        timestamp=timestamp,
        raw_event=raw_event,
        thread_id=item.thread_id,
        run_id=item.run_id,
        result=output,
        outcome=outcome,
        usage=usage,
    )


def token_usage(usage: Usage | None) -> list[TokenUsage] | None:
    """Return the usage as AG-UI counts it, or None when nothing was used."""
    if usage is None:
        return None
    counted = (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
    if not any(count != 0 for count in counted):
        return None
    total = None
    if usage.input_tokens is not None and usage.output_tokens is not None:
        total = usage.input_tokens + usage.output_tokens
    return [
        TokenUsage(
            input_tokens=_count(usage.input_tokens),
            output_tokens=_count(usage.output_tokens),
            total_tokens=_count(total),
            reasoning_tokens=_count(usage.reasoning_tokens),
            cached_input_tokens=_count(usage.cache_read_tokens),
            cache_write_input_tokens=_count(usage.cache_write_tokens),
        )
    ]


def _count(value: int | None) -> int | None:
    return value if value is not None and value <= MAX_SAFE_INTEGER else None


def _interrupt(entry: WireInterrupt) -> Interrupt:
    return Interrupt(
        subagent_run_id=entry.subagent_run_id,
        id=entry.id,
        reason=entry.reason,
        message=entry.message,
        tool_call_id=entry.tool_call_id,
        response_schema=_object(entry.response_schema),
        expires_at=entry.expires_at,
        metadata=_object(entry.metadata),
    )


def _object(value: dict[str, Raw] | UnsetType) -> Raw | UnsetType:
    return UNSET if isinstance(value, UnsetType) else Raw(msgspec.json.encode(value))
