"""Everything without a standard AG-UI event: under which name it becomes a CUSTOM, and what its value holds.

The value says where the event came from. Its ``event`` is the public JSON of the source, byte for byte, so the names of
other origins cannot be taken for ours: what a capability emits has ``event_kind: "capability"``.
"""

from functools import lru_cache

import msgspec
from msgspec import Raw

from agui_relay.events import CustomEvent, InputValue, SourceValue
from agui_relay.source.items import HarnessItem
from agui_relay.source.reading import (
    CapabilityEvent,
    ExtensionEvent,
    InputEvent,
    ToolExtra,
    read,
    read_or_none,
)

# What frames of a split event are called. No source event may travel under this name: a client would wait for the rest.
_FRAGMENT_NAME = "a13n.stream.fragment"
_CAPABILITY_PREFIX = "a13n.capability."


def native(item: HarnessItem, kind: str, timestamp: int, child: str | None) -> CustomEvent:
    """Return the CUSTOM of an event of Pydantic AI."""
    return CustomEvent(
        timestamp=timestamp,
        subagent_run_id=child,
        name="a13n.pydantic_ai." + kind,
        value=SourceValue(item.thread_id, item.run_id, item.sequence, item.occurred_at, item.event),
    )


def encoded_delta(observed: bytes, timestamp: int, child: str | None) -> bytes:
    """Return the same for a delta, encoded, around the members of its value that its item's bytes hold already."""
    return b'{"type":"CUSTOM","timestamp":%d%b%b}}' % (timestamp, _delta_head(child), observed)


@lru_cache(maxsize=1024)
def _delta_head(child: str | None) -> bytes:
    owner = b"" if child is None else b',"subagentRunId":%b' % msgspec.json.encode(child)
    return owner + b',"name":"a13n.pydantic_ai.part_delta","value":{'


def extension(item: HarnessItem, event: ExtensionEvent, timestamp: int, child: str | None) -> CustomEvent:
    """Return the CUSTOM of an observation of the Harness; what a tool observes carries its own name too."""
    name = f"a13n.harness.{event.kind}"
    if event.kind == "tool" and (tool := read_or_none(event.payload, ToolExtra)) is not None:
        name = f"{name}.{tool.name}"
    return _custom(item, name, item.event, timestamp, child)


def capability(item: HarnessItem, timestamp: int, child: str | None) -> CustomEvent:
    """Return the CUSTOM of a capability's event, under its own kind; of an input, under the name of its source."""
    event = read(item.event, CapabilityEvent)
    kind = event.kind
    if kind in ("a13n.input.text", "a13n.input.media"):
        authored = read_or_none(item.event, InputEvent)
        if authored is not None and _is_input(authored):
            return _input(item, authored, timestamp, child)
    name = _CAPABILITY_PREFIX + kind if kind == _FRAGMENT_NAME else kind
    return _custom(item, name, item.event, timestamp, child)


def _is_input(event: InputEvent) -> bool:
    content = bytes(event.content)[:1]
    fits = content == b'"' if event.kind == "a13n.input.text" else content == b"{"
    return fits and bytes(event.metadata)[:1] == b"{"


def _input(item: HarnessItem, event: InputEvent, timestamp: int, child: str | None) -> CustomEvent:
    return CustomEvent(
        timestamp=timestamp,
        metadata=event.metadata,
        subagent_run_id=child,
        name="a13n.input.media" if event.kind == "a13n.input.media" else f"a13n.input.{event.source}",
        value=SourceValue(
            item.thread_id,
            item.run_id,
            item.sequence,
            item.occurred_at,
            InputValue(
                event.input_id,
                event.source,
                event.content,
                f"{item.run_id}:input:{item.sequence}",
                "user" if event.source in ("user", "steering") else "system",
            ),
        ),
    )


def _custom(item: HarnessItem, name: str, event: Raw, timestamp: int, child: str | None) -> CustomEvent:
    return CustomEvent(
        timestamp=timestamp,
        subagent_run_id=child,
        name=name,
        value=SourceValue(item.thread_id, item.run_id, item.sequence, item.occurred_at, event),
    )
