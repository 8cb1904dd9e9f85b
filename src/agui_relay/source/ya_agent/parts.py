"""Which message or tool call each part of one agent's responses is, and what of it has been sent.

A part is found by its index and kind: a text that arrives at the index of an open thought is a message of its own.
This module loads pydantic_ai; it is imported with the first event of a stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic_ai import messages
from pydantic_ai.messages import (
    FunctionToolResultEvent,
    NativeToolCallPart,
    NativeToolReturnPart,
    OutputToolResultEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
)

from agui_relay.source.ya_agent.public import Event, Json, arguments_text, make_event, public_text, scalar
from agui_relay.source.ya_agent.tool_keys import Invocation, ToolKeys

type Kind = Literal["text", "reasoning", "tool_call", "tool_return"]
type Return = ToolReturnPart | NativeToolReturnPart
type Remark = tuple[str, Json]
"""Name and payload of what has no AG-UI event of its own, and becomes a CUSTOM event of the agent."""

_CALLS = (ToolCallPart, NativeToolCallPart)
_RETURNS = (ToolReturnPart, NativeToolReturnPart)
# Deprecated, and gone in some later release; until then results still carry it.
_RETRY: tuple[type, ...] = (messages.RetryPromptPart,) if "RetryPromptPart" in vars(messages) else ()
_KINDS: tuple[Kind, ...] = ("text", "reasoning", "tool_call", "tool_return")


@dataclass(slots=True)
class Part:
    """One open part. ``sent`` is its text or arguments so far, ``held`` arguments that come as mappings."""

    kind: Kind
    id: str
    name: str | None = None
    invocation: Invocation | None = None
    sent: list[str] = field(default_factory=list)
    held: dict[Any, Any] | None = None
    has_chunk: bool = False


class AgentParts:
    """The open parts of one agent."""

    def __init__(self, agent_id: str, run_id: str, tool_keys: ToolKeys) -> None:
        self.loop_index = 0
        self._agent_id = agent_id
        self._run_id = run_id
        self._tool_keys = tool_keys
        self._open: dict[tuple[int, Kind], Part] = {}
        self._made_ids: dict[str, int] = {}

    def read(self, event: object, name: str) -> tuple[list[Event], Remark | None] | None:
        """Return what an event about a part or a tool's result gives, or None when it is about something else."""
        if isinstance(event, PartDeltaEvent):
            return self._delta(event, name)
        if isinstance(event, PartStartEvent):
            return self._start(event, name), None
        if isinstance(event, PartEndEvent):
            return self._end(event, name), None
        if isinstance(event, FunctionToolResultEvent):
            return self._tool_result(event.part, event.content), None
        if isinstance(event, OutputToolResultEvent):
            return self._tool_result(event.part, None), None
        return None

    def _start(self, event: PartStartEvent, name: str) -> list[Event]:
        """Return the events of a part that begins; one that it takes the place of ends first."""
        part = event.part
        events = self._end_replaced(event.index)
        if isinstance(part, TextPart | ThinkingPart):
            kind: Kind = "text" if isinstance(part, TextPart) else "reasoning"
            opened = self._open_message(event.index, kind, part.id)
            events.append(_message_start(opened, name))
            if part.content:
                events.append(_message_chunk(opened, part.content, name))
        elif isinstance(part, _CALLS):
            invocation = self._tool_keys.start(self._agent_id, part.tool_call_id)
            opened = Part("tool_call", part.tool_call_id, part.tool_name, invocation)
            self._open[event.index, "tool_call"] = opened
            events.append(_tool_event("TOOL_CALL_START", opened, toolCallName=part.tool_name))
            text = self._take_arguments(opened, part.args)
            if text is not None or part.tool_name:
                events.append(_tool_chunk(opened, text))
        elif isinstance(part, _RETURNS):
            self._open[event.index, "tool_return"] = Part("tool_return", part.tool_call_id)
            events.append(self._result(part, part.content))
        return events

    def _delta(self, event: PartDeltaEvent, name: str) -> tuple[list[Event], Remark | None]:
        """Return the events of a delta, and the signature of a thought, if it carries one."""
        delta = event.delta
        if isinstance(delta, TextPartDelta):
            part = self._open.get((event.index, "text")) or self._open_message(event.index, "text", None)
            return [_message_chunk(part, delta.content_delta, name)], None
        if isinstance(delta, ThinkingPartDelta):
            part = self._open.get((event.index, "reasoning")) or self._open_message(event.index, "reasoning", None)
            events = [_message_chunk(part, delta.content_delta, name)] if delta.content_delta else []
            if delta.signature_delta:
                said = {"message_id": part.id, "signature_delta": scalar(delta.signature_delta)}
                return events, ("reasoning_signature_delta", said)
            return events, None
        if isinstance(delta, ToolCallPartDelta):
            return [self._tool_delta(event.index, delta)], None
        return [], None

    def _end(self, event: PartEndEvent, name: str) -> list[Event]:
        """Return the events of a part that is complete, with all of it that no delta gave."""
        part = event.part
        if isinstance(part, TextPart | ThinkingPart):
            kind: Kind = "text" if isinstance(part, TextPart) else "reasoning"
            opened = self._open.pop((event.index, kind), None) or self._new_message(event.index, kind, part.id)
            rest = _rest(part.content, opened)
            return [*([_message_chunk(opened, rest, name)] if rest else []), _message_end(opened)]
        if isinstance(part, _CALLS):
            known = self._open.pop((event.index, "tool_call"), None)
            call_id = part.tool_call_id
            opened = known or Part("tool_call", call_id, invocation=self._tool_keys.go_on(self._agent_id, call_id))
            if opened.id != call_id and opened.invocation is not None:
                # Its result will come under the id that is known only now.
                self._tool_keys.rename(self._agent_id, call_id, opened.invocation)
            if not opened.has_chunk:
                opened.name = part.tool_name
            return _call_end(opened, part.args)
        if isinstance(part, _RETURNS):
            shown = self._open.pop((event.index, "tool_return"), None)
            return [] if shown is not None and shown.id == part.tool_call_id else [self._result(part, part.content)]
        return []

    def _tool_result(self, part: object, content: object) -> list[Event]:
        """Return the event of a tool's result: the content that goes with it, or else its own."""
        if isinstance(part, _RETURNS):
            return [self._result(part, part.content if content is None else content)]
        if isinstance(part, _RETRY):
            # What the SDK itself makes of one: the answer to the call, with outcome "retried".
            retry: Any = part
            return [self._result_event(retry.tool_call_id, retry.content if content is None else content, "retried")]
        return []

    def _result(self, part: Return, content: object) -> Event:
        return self._result_event(part.tool_call_id, content, part.outcome)

    def _result_event(self, call_id: str, content: object, outcome: str) -> Event:
        key = self._tool_keys.finish(self._agent_id, call_id).key
        event = make_event(
            "TOOL_CALL_RESULT",
            messageId=f"{key}:result",
            toolCallId=call_id,
            content=public_text(content),
            role="tool",
        )
        event["outcome"] = outcome
        event["toolCallKey"] = key
        return event

    def _tool_delta(self, index: int, delta: ToolCallPartDelta) -> Event:
        part = self._open.get((index, "tool_call"))
        if part is None:
            call_id = delta.tool_call_id or self._make_id(index, "tool_call")
            part = Part("tool_call", call_id, invocation=self._tool_keys.go_on(self._agent_id, call_id))
            self._open[index, "tool_call"] = part
        elif delta.tool_call_id and delta.tool_call_id != part.id and part.invocation is not None:
            part.id = delta.tool_call_id
            self._tool_keys.rename(self._agent_id, part.id, part.invocation)
        if delta.tool_name_delta:
            part.name = f"{part.name or ''}{delta.tool_name_delta}"
        return _tool_chunk(part, self._take_arguments(part, delta.args_delta))

    @staticmethod
    def _take_arguments(part: Part, arguments: object) -> str | None:
        """Return arguments that can be sent now. Mappings complete each other: their text waits for the last."""
        if isinstance(arguments, Mapping):
            part.held = {**(part.held or {}), **arguments}
            return None
        return arguments_text(arguments)

    def _open_message(self, index: int, kind: Kind, given_id: str | None) -> Part:
        part = self._open[index, kind] = self._new_message(index, kind, given_id)
        return part

    def _new_message(self, index: int, kind: Kind, given_id: str | None) -> Part:
        return Part(kind, given_id or self._make_id(index, kind))

    def _make_id(self, index: int, kind: Kind) -> str:
        """Return an id for a part whose provider gave none.

        Loop and index come again where requests are not announced (subagents) or a run goes on in another segment; the
        number behind them keeps the messages apart.
        """
        base = f"{self._run_id}:{self._agent_id}:{self.loop_index}:{kind}:{index}"
        number = self._made_ids[base] = self._made_ids.get(base, 0) + 1
        return base if number == 1 else f"{base}:{number}"

    def _end_replaced(self, index: int) -> list[Event]:
        events: list[Event] = []
        for kind in _KINDS:
            part = self._open.pop((index, kind), None)
            if part is None or kind == "tool_return":
                continue
            events += _call_end(part, None) if kind == "tool_call" else [_message_end(part)]
        return events


def _message_start(part: Part, name: str) -> Event:
    if part.kind == "text":
        return make_event("TEXT_MESSAGE_START", messageId=part.id, role="assistant", name=name)
    return make_event("REASONING_MESSAGE_START", messageId=part.id, role="reasoning")


def _message_chunk(part: Part, text: str, name: str) -> Event:
    part.sent.append(text)
    if part.kind == "text":
        return make_event("TEXT_MESSAGE_CHUNK", messageId=part.id, role="assistant", delta=text, name=name)
    return make_event("REASONING_MESSAGE_CHUNK", messageId=part.id, delta=text)


def _message_end(part: Part) -> Event:
    return make_event("TEXT_MESSAGE_END" if part.kind == "text" else "REASONING_MESSAGE_END", messageId=part.id)


def _tool_event(kind: str, part: Part, **members: Any) -> Event:
    event = make_event(kind, toolCallId=part.id, **members)
    if part.invocation is not None:
        event["toolCallKey"] = part.invocation.key
    return event


def _tool_chunk(part: Part, text: str | None) -> Event:
    part.has_chunk = True
    if text is not None:
        part.sent.append(text)
    return _tool_event("TOOL_CALL_CHUNK", part, toolCallName=part.name or None, delta=text)


def _call_end(part: Part, final: object) -> list[Event]:
    """Return the end of a call, and before it those of its arguments that have not been sent."""
    if part.invocation is not None:
        part.invocation.over = True
    complete = part.held if final is None else final
    rest: str | None
    if isinstance(complete, Mapping):
        # Text that was sent says the same, or cannot be taken back.
        rest = None if any(part.sent) else arguments_text(complete)
    else:
        text = arguments_text(complete)
        rest = text if text is None or not part.sent else _rest(text, part) or None
    end = _tool_event("TOOL_CALL_END", part)
    return [end] if rest is None and part.has_chunk else [_tool_chunk(part, rest), end]


def _rest(text: str, part: Part) -> str:
    """Return what a complete text has beyond what was sent; nothing when it does not begin with that."""
    sent = "".join(part.sent)
    return text[len(sent) :] if text.startswith(sent) else ""
