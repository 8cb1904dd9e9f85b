"""A generator is only worth what it reaches: every kind of item, and every event the reference knows."""

from __future__ import annotations

from collections import Counter
from typing import Any, get_args

import a13n_stream_protocol as reference
import pytest
from a13n_harness.events import HarnessEvent, HarnessExtensionKind
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.oracle.known_faults import Watch, known_fault
from tests.oracle.streams import Item, streams

EVENTS = (
    *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
    *("REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "REASONING_ENCRYPTED_VALUE", "REASONING_MESSAGE_END"),
    *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT", "CUSTOM"),
    *("RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR"),
)
ITEMS = (
    *("PartStartEvent", "PartDeltaEvent", "PartEndEvent", "FinalResultEvent", "EnqueuedMessagesEvent"),
    *("FunctionToolCallEvent", "OutputToolCallEvent", "FunctionToolResultEvent", "OutputToolResultEvent"),
    *("ToolAvailabilityDeltaEvent", "DeferredToolRequestsEvent", "DeferredToolResultsEvent"),
    *("RealtimeTurnCompleteEvent", "RealtimeSessionErrorEvent", "StepEvent", "UnknownCustomEvent", "MeterEvent"),
    *("GaugeEvent", "ProgressEvent", "PreviewEvent", "UnknownCapabilityEvent", "InputTextEvent", "InputMediaEvent"),
)
PARTS = ("TextPart", "ThinkingPart", "ToolCallPart", "NativeToolCallPart", "NativeToolReturnPart", "CompactionPart")
STATUSES = ("completed", "suspended", "failed", "cancelled")


@pytest.mark.timeout(300)
def test_the_generator_reaches_every_kind_and_only_known_faults() -> None:
    seen: Counter[str] = Counter()

    @settings(
        max_examples=600,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(items=streams())
    def generate(items: list[Item]) -> None:
        theirs = reference.HarnessAguiStreamObserver(retain_events=False)
        watch = Watch()
        for item in items:
            fault = known_fault(watch, item)
            if fault is not None:
                seen[fault[0]] += 1
                return
            # Valid streams: nothing that is not known makes the reference refuse.
            seen.update(event.type.value for event in theirs.observe(item))
            seen.update(names(item))
            watch.take(item)

    expected = [*EVENTS, *ITEMS, "of a child", "PartDeltaEvent SpeechPartDelta"]
    expected += [f"{event} {part}" for event in ("PartStartEvent", "PartEndEvent") for part in PARTS]
    expected += [f"PartDeltaEvent {kind}PartDelta" for kind in ("Text", "Thinking", "ToolCall")]
    expected += [f"result {status}" for status in STATUSES]
    expected += [f"extension {kind}" for kind in get_args(HarnessExtensionKind.__value__)]
    # What is generated depends on more than the seed, on the modules that are loaded for instance: as many as it takes.
    for number in range(1, 6):
        if not all(seen[name] for name in expected):
            seed(number)(generate)()
    assert [name for name in expected if not seen[name]] == []


def names(item: Item) -> list[str]:
    """Return what is counted of one item."""
    found = ["of a child"] if item.run_id != "run-1" else []
    if not isinstance(item, HarnessEvent):
        return [*found, f"result {item.result.status}"]
    event: Any = item.event
    kind = type(event).__name__
    found.append(kind)
    found += [f"{kind} {type(getattr(event, name)).__name__}" for name in ("part", "delta") if hasattr(event, name)]
    if kind == "HarnessExtensionEvent":
        found.append(f"extension {event.kind}")
    return found
