"""The runs that are measured, as live Harness items made here."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from a13n_harness.events import HarnessEvent, HarnessExtensionEvent
from pydantic_ai.messages import (
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "naïve", "reviewers", "watch"]


class _Writer:
    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._sequence = 0

    def __call__(self, event: Any) -> HarnessEvent:
        self._sequence += 1
        return HarnessEvent(
            thread_id="thread-1",
            run_id=self._run_id,
            sequence=self._sequence,
            occurred_at=START + timedelta(milliseconds=self._sequence),
            event=event,
        )

    def started(self) -> HarnessEvent:
        return self(HarnessExtensionEvent(kind="lifecycle", payload={"type": "run_started"}))


def text_run(deltas: int, run_id: str = "run-1") -> Iterator[HarnessEvent]:
    """Yield a run whose answer streams in as many text deltas; no terminal item."""
    write = _Writer(run_id)
    yield write.started()
    yield write(PartStartEvent(index=0, part=TextPart(content="")))
    for number in range(deltas):
        yield write(PartDeltaEvent(index=0, delta=TextPartDelta(content_delta=WORDS[number % len(WORDS)] + " ")))


def arguments_run(deltas: int, run_id: str = "run-1", per_call: int = 200) -> Iterator[HarnessEvent]:
    """Yield a run that streams the arguments of tool calls; no terminal item."""
    write = _Writer(run_id)
    yield write.started()
    for number in range(0, deltas, per_call):
        part = ToolCallPart(tool_name="search", args="", tool_call_id=f"call-{number}")
        yield write(PartStartEvent(index=0, part=part))
        pieces = [WORDS[index % len(WORDS)] + '\\"' for index in range(min(per_call, deltas - number))]
        for piece in pieces:
            yield write(
                PartDeltaEvent(index=0, delta=ToolCallPartDelta(args_delta=piece, tool_call_id=part.tool_call_id))
            )
        yield write(PartEndEvent(index=0, part=ToolCallPart("search", "".join(pieces), part.tool_call_id)))
