"""The parts of a model's response: what opens, continues and ends a message or tool call, and what is refused.

A part is known by its index within its run. While it is open it has a cursor; a cursor is never changed, only replaced,
so that deciding about an event writes nothing.

==============  ======================================  =======================================================
event           no open part at the index               an open part of the same kind (another kind is refused)
==============  ======================================  =======================================================
text start      opens, sends the content it brings      ends the open message first (of whatever kind), then opens
text delta      opens, sends                            sends
text end        opens, sends all, ends                  sends the rest that the deltas did not give, ends
thinking ...    as text, with signatures                as text, with signatures
tool start      observed; its call id is noted          replaces the cursor
tool delta      observed; its call id is noted          observed; another call id is refused
tool end        the whole standard call, at once        the same, under the id of the completed part
other start     observed                                ends an open message first
other end       observed                                ends an open message first
==============  ======================================  =======================================================

*Observed* means that the event has no standard form: the projector makes it a CUSTOM.
"""

from zlib import crc32

from msgspec import Struct

from agui_relay.events import (
    Event,
    ReasoningEncryptedValueEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
)
from agui_relay.projection.errors import AguiObservationError
from agui_relay.source.reading import Delta, Part


class TextCursor(Struct, frozen=True, gc=False, array_like=True, tag="text"):
    """An open text message.

    ``named`` tells that the source gave the id. ``sent`` counts the UTF-8 bytes sent so far and ``check`` is their
    CRC-32: enough to know at the end whether the final text continues what was sent, without keeping it.
    """

    id: str
    named: bool = False
    sent: int = 0
    check: int = 0


class ReasoningCursor(Struct, frozen=True, gc=False, array_like=True, tag="reasoning"):
    """An open reasoning message; ``signed`` once a signature was sent."""

    id: str
    signed: bool = False
    sent: int = 0
    check: int = 0


class ToolCursor(Struct, frozen=True, gc=False, array_like=True, tag="tool"):
    """A tool call whose arguments still come. The id is None until the source gives one."""

    id: str | None = None


type Cursor = TextCursor | ReasoningCursor | ToolCursor


class RunState(Struct, kw_only=True):
    """What is open in one run. Of a child, ``child`` is its own run id, with which its events are marked."""

    run_id: str
    thread_id: str | None = None
    child: str | None = None
    request_index: int = 0
    parts: dict[int, Cursor] = {}

    def part_id(self, index: int, kind: str) -> str:
        """Name a part that the source did not name."""
        return f"{self.run_id}:request-{self.request_index}:part-{index}:{kind}"


def end_message(cursor: Cursor | None, timestamp: int, child: str | None) -> list[Event]:
    """End the message of a cursor, if it is one."""
    if type(cursor) is TextCursor:
        return [TextMessageEndEvent(timestamp=timestamp, subagent_run_id=child, message_id=cursor.id)]
    if type(cursor) is ReasoningCursor:
        return [ReasoningMessageEndEvent(timestamp=timestamp, subagent_run_id=child, message_id=cursor.id)]
    return []


def end_all(run: RunState, timestamp: int) -> list[Event]:
    """End every open message of a run, in the order in which they were opened."""
    return [event for cursor in run.parts.values() for event in end_message(cursor, timestamp, run.child)]


def start(run: RunState, index: int, part: Part, timestamp: int) -> tuple[list[Event], Cursor | None, bool]:
    """Decide about the start of a part: the events, the cursor after it, and whether the event is observed as well."""
    child = run.child
    before = run.parts.get(index)
    events = end_message(before, timestamp, child)
    kind = part.part_kind
    if kind == "text":
        text = part.text
        message_id = part.id or run.part_id(index, "text")
        events.append(
            TextMessageStartEvent(timestamp=timestamp, subagent_run_id=child, message_id=message_id, role="assistant")
        )
        events += _text_content(message_id, text, timestamp, child)
        data = text.encode()
        return events, TextCursor(message_id, bool(part.id), len(data), crc32(data)), False
    if kind == "thinking":
        text = part.text
        # Several parts can share the id of one provider item; the index keeps them apart.
        message_id = run.part_id(index, "reasoning")
        events.append(
            ReasoningMessageStartEvent(
                timestamp=timestamp, subagent_run_id=child, message_id=message_id, role="reasoning"
            )
        )
        events += _reasoning_content(message_id, text, timestamp, child)
        events += _signature(message_id, part.signature, timestamp, child)
        data = text.encode()
        return events, ReasoningCursor(message_id, bool(part.signature), len(data), crc32(data)), False
    if kind in ("tool-call", "builtin-tool-call"):
        return events, ToolCursor(part.tool_call_id or None), True
    # A part without a standard form takes no place: arguments still come for a call.
    return events, before if type(before) is ToolCursor else None, True


def text_delta(run: RunState, index: int, delta: str, timestamp: int) -> tuple[list[Event], Cursor]:
    """Decide about more text, which is not empty."""
    cursor = run.parts.get(index)
    child = run.child
    data = delta.encode()
    if type(cursor) is TextCursor:
        message_id = cursor.id
        return [
            TextMessageContentEvent(timestamp=timestamp, subagent_run_id=child, message_id=message_id, delta=delta)
        ], TextCursor(message_id, cursor.named, cursor.sent + len(data), crc32(data, cursor.check))
    if cursor is not None:
        raise _kind_changed(run, index, cursor, "text")
    message_id = run.part_id(index, "text")
    return [
        TextMessageStartEvent(timestamp=timestamp, subagent_run_id=child, message_id=message_id, role="assistant"),
        TextMessageContentEvent(timestamp=timestamp, subagent_run_id=child, message_id=message_id, delta=delta),
    ], TextCursor(message_id, False, len(data), crc32(data))


def more_text(run: RunState, index: int, delta: Delta, timestamp: int) -> Event | None:
    """Decide and write, at once, about more text of an open message. None, and no change, if it is anything else."""
    text = delta.content_delta
    if not text or delta.signature_delta:
        return None
    cursor = run.parts.get(index)
    data = text.encode()
    if delta.part_delta_kind == "text":
        if type(cursor) is not TextCursor:
            return None
        run.parts[index] = TextCursor(cursor.id, cursor.named, cursor.sent + len(data), crc32(data, cursor.check))
        return TextMessageContentEvent(timestamp=timestamp, subagent_run_id=run.child, message_id=cursor.id, delta=text)
    if type(cursor) is not ReasoningCursor:
        return None
    run.parts[index] = ReasoningCursor(cursor.id, cursor.signed, cursor.sent + len(data), crc32(data, cursor.check))
    return ReasoningMessageContentEvent(
        timestamp=timestamp, subagent_run_id=run.child, message_id=cursor.id, delta=text
    )


def continues(run: RunState, index: int, delta: Delta) -> bool:
    """Tell whether a delta is more arguments of an open tool call, and changes nothing else."""
    cursor = run.parts.get(index)
    return type(cursor) is ToolCursor and (not delta.tool_call_id or delta.tool_call_id == cursor.id)


def thinking_delta(run: RunState, index: int, delta: Delta, timestamp: int) -> tuple[list[Event], Cursor]:
    """Decide about more thinking or a signature. Without events the delta is observed."""
    cursor = run.parts.get(index)
    child = run.child
    events: list[Event] = []
    if cursor is None:
        cursor = ReasoningCursor(run.part_id(index, "reasoning"))
        events.append(
            ReasoningMessageStartEvent(
                timestamp=timestamp, subagent_run_id=child, message_id=cursor.id, role="reasoning"
            )
        )
    elif type(cursor) is not ReasoningCursor:
        raise _kind_changed(run, index, cursor, "reasoning")
    message_id, text, signature = cursor.id, delta.content_delta, delta.signature_delta
    if text:
        events.append(
            ReasoningMessageContentEvent(timestamp=timestamp, subagent_run_id=child, message_id=message_id, delta=text)
        )
        data = text.encode()
        cursor = ReasoningCursor(message_id, cursor.signed, cursor.sent + len(data), crc32(data, cursor.check))
    if signature:
        events += _signature(message_id, signature, timestamp, child)
        cursor = ReasoningCursor(message_id, True, cursor.sent, cursor.check)
    return events, cursor


def tool_delta(run: RunState, index: int, delta: Delta) -> Cursor:
    """Decide about more arguments: they are observed, and the call keeps its id."""
    cursor = run.parts.get(index)
    given = delta.tool_call_id
    if cursor is None:
        return ToolCursor(given or None)
    if type(cursor) is not ToolCursor:
        raise _kind_changed(run, index, cursor, "tool call")
    if not given or given == cursor.id:
        return cursor
    if cursor.id is None:
        # Some providers tell the id only with a later chunk.
        return ToolCursor(given)
    raise AguiObservationError(
        f"part {index} of run {run.run_id!r} is the tool call {cursor.id!r}, it got a delta of {given!r}"
    )


def end(run: RunState, index: int, part: Part, arguments: str | None, timestamp: int) -> tuple[list[Event], bool]:
    """Decide about the end of a part: the events, and whether it is observed as well. ``arguments`` is for a call."""
    cursor = run.parts.get(index)
    kind = part.part_kind
    if kind == "text":
        return _end_text(run, index, part, cursor, timestamp), False
    if kind == "thinking":
        return _end_thinking(run, index, part, cursor, timestamp), False
    if kind == "tool-call":
        if cursor is not None and type(cursor) is not ToolCursor:
            raise _kind_changed(run, index, cursor, "tool call")
        return _tool_call(part, arguments, timestamp, run.child), False
    return end_message(cursor, timestamp, run.child), True


def _end_text(run: RunState, index: int, part: Part, cursor: Cursor | None, timestamp: int) -> list[Event]:
    child = run.child
    text = part.text
    if cursor is None:
        message_id = part.id or run.part_id(index, "text")
        return [
            TextMessageStartEvent(timestamp=timestamp, subagent_run_id=child, message_id=message_id, role="assistant"),
            *_text_content(message_id, text, timestamp, child),
            TextMessageEndEvent(timestamp=timestamp, subagent_run_id=child, message_id=message_id),
        ]
    if type(cursor) is not TextCursor:
        raise _kind_changed(run, index, cursor, "text")
    message_id = cursor.id
    if cursor.named and part.id and part.id != message_id:
        raise AguiObservationError(
            f"part {index} of run {run.run_id!r} is the message {message_id!r}, it ends as message {part.id!r}"
        )
    # An id that comes only now comes too late: the message was opened under another.
    return [
        *_text_content(message_id, _rest(text, cursor.sent, cursor.check), timestamp, child),
        TextMessageEndEvent(timestamp=timestamp, subagent_run_id=child, message_id=message_id),
    ]


def _end_thinking(run: RunState, index: int, part: Part, cursor: Cursor | None, timestamp: int) -> list[Event]:
    child = run.child
    events: list[Event] = []
    if cursor is None:
        cursor = ReasoningCursor(run.part_id(index, "reasoning"))
        events.append(
            ReasoningMessageStartEvent(
                timestamp=timestamp, subagent_run_id=child, message_id=cursor.id, role="reasoning"
            )
        )
    elif type(cursor) is not ReasoningCursor:
        raise _kind_changed(run, index, cursor, "reasoning")
    message_id = cursor.id
    events += _reasoning_content(message_id, _rest(part.text, cursor.sent, cursor.check), timestamp, child)
    if not cursor.signed:
        events += _signature(message_id, part.signature, timestamp, child)
    events.append(ReasoningMessageEndEvent(timestamp=timestamp, subagent_run_id=child, message_id=message_id))
    return events


def _rest(final: str, sent: int, check: int) -> str:
    """Return what of the final text was not sent yet; nothing when it does not continue what was sent.

    AG-UI cannot take text back, and its tail behind another beginning would be a third text that nobody wrote.
    """
    if not sent:
        return final
    data = final.encode()
    if len(data) <= sent or crc32(data[:sent]) != check:
        return ""
    try:
        return data[sent:].decode()
    except UnicodeDecodeError:
        return ""


def _text_content(message_id: str, text: str, timestamp: int, child: str | None) -> list[Event]:
    if not text:
        return []
    return [TextMessageContentEvent(timestamp=timestamp, subagent_run_id=child, message_id=message_id, delta=text)]


def _reasoning_content(message_id: str, text: str, timestamp: int, child: str | None) -> list[Event]:
    if not text:
        return []
    return [ReasoningMessageContentEvent(timestamp=timestamp, subagent_run_id=child, message_id=message_id, delta=text)]


def _signature(message_id: str, signature: str | None, timestamp: int, child: str | None) -> list[Event]:
    if not signature:
        return []
    return [
        ReasoningEncryptedValueEvent(
            timestamp=timestamp,
            subagent_run_id=child,
            subtype="message",
            entity_id=message_id,
            encrypted_value=signature,
        )
    ]


def _tool_call(part: Part, arguments: str | None, timestamp: int, child: str | None) -> list[Event]:
    call_id, name = part.tool_call_id, part.tool_name
    if call_id is None or name is None:
        raise AguiObservationError("a completed tool call needs `tool_name` and `tool_call_id`, one of them is missing")
    events: list[Event] = [
        ToolCallStartEvent(timestamp=timestamp, subagent_run_id=child, tool_call_id=call_id, tool_call_name=name)
    ]
    if arguments is not None:
        events.append(
            ToolCallArgsEvent(timestamp=timestamp, subagent_run_id=child, tool_call_id=call_id, delta=arguments)
        )
    events.append(ToolCallEndEvent(timestamp=timestamp, subagent_run_id=child, tool_call_id=call_id))
    return events


_NAMES: dict[type, str] = {TextCursor: "text", ReasoningCursor: "reasoning", ToolCursor: "a tool call"}


def _kind_changed(run: RunState, index: int, cursor: Cursor, got: str) -> AguiObservationError:
    return AguiObservationError(
        f"part {index} of run {run.run_id!r} is open as {_NAMES[type(cursor)]}, it got an event of {got}"
    )
