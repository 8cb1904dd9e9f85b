"""Decides what is kept of a run's events for those who read it later, and what counts as a stored list of events.

The deltas of a message or a call become one CHUNK event, which also says all that their START and END said; those are
dropped. TOOL_CALL_START stays: it tells that a call was made, even when the run ended before its first argument.
This is for streams whose text travels in CHUNK events, as `source.ya_agent` gives them; CONTENT and ARGS events are
kept one by one. For what a relay carries, `display` keeps the conversation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

type JsonObject = dict[str, Any]

_DROPPED = frozenset(
    {
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_END",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_END",
        "TOOL_CALL_END",
    }
)

# Where a chunk's identity stands: the names to look under, the first that holds one counts. A field has two
# spellings, and the second is looked at only where the first is missing.
_IDENTITIES: dict[str, tuple[tuple[str, str], ...]] = {
    "TEXT_MESSAGE_CHUNK": (("messageId", "message_id"),),
    "REASONING_MESSAGE_CHUNK": (("messageId", "message_id"),),
    "TOOL_CALL_CHUNK": (("toolCallKey", "tool_call_key"), ("toolCallId", "tool_call_id")),
}

# What a later chunk may still add to the first one: once, and only where nothing was said.
_LATE_FIELDS: dict[str, tuple[tuple[str, str], ...]] = {
    "TEXT_MESSAGE_CHUNK": (("role", "role"), ("name", "name")),
    "REASONING_MESSAGE_CHUNK": (),
    "TOOL_CALL_CHUNK": (("toolCallName", "tool_call_name"), ("parentMessageId", "parent_message_id")),
}

_DETAILS = _DROPPED | _IDENTITIES.keys() | {"TOOL_CALL_START", "TOOL_CALL_RESULT"}


@dataclass(slots=True)
class AguiReplayConfig:
    """How agents are told apart, and whether the details of subagents are kept.

    ``agent_id_field`` is the member that names an event's agent (``yaacliAgentId``; its snake case form is read too).
    Without it no event belongs to a subagent. ``main_agent_id`` is the agent that is none.
    """

    agent_id_field: str | None = None
    main_agent_id: str = "main"
    drop_subagent_detail_events: bool = False


class _Chunk:
    """A kept CHUNK event and its text: what it was when last asked for, and what has come since."""

    __slots__ = ("event", "index", "missing", "since", "whole")

    def __init__(self, event: JsonObject, index: int, missing: tuple[tuple[str, str], ...]) -> None:
        self.event = event
        self.index = index
        self.missing = missing
        self.whole: str | None = None
        self.since: StringIO | None = None
        self._append(event.get("delta"))
        if self.text() is not None:
            event["delta"] = ""

    def add(self, event: Mapping[str, Any]) -> None:
        """Append an event's delta, None adds nothing; and take over what no chunk before it has said."""
        self._append(event.get("delta"))
        for name, other in self.missing:
            value = _member(event, name, other)
            if value is not None:
                self.event[name] = value
                self.missing = tuple(names for names in self.missing if names[0] != name)

    def _append(self, delta: object) -> None:
        if delta is None:
            return
        text = delta if isinstance(delta, str) else _as_text(delta)
        if self.since is not None:
            self.since.write(text)
        elif self.whole is None:
            self.whole = text
        else:
            self.since = StringIO()
            self.since.write(text)

    def text(self) -> str | None:
        """Return all deltas joined, None when there was none. Snapshots share it, so that it is held once."""
        if self.since is not None:
            self.whole = f"{self.whole}{self.since.getvalue()}"
            self.since = None
        return self.whole


@dataclass(slots=True)
class AguiReplayBuffer:
    """The events of a run in compact form, as they come.

    Memory and time grow with the length of the texts, not with the number of their deltas. A RUN_STARTED begins a new
    run: ids that it uses again are other messages and calls.
    """

    config: AguiReplayConfig = field(default_factory=AguiReplayConfig)
    events: list[JsonObject] = field(default_factory=list)
    """What is kept. The text of chunks is only in `snapshot`."""
    _chunks: list[_Chunk] = field(default_factory=list, init=False, repr=False, compare=False)
    _open: dict[str, dict[str, _Chunk]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def append(self, event: Mapping[str, Any]) -> None:
        """Take one event; it is not changed, nor kept itself. An event without a type is ignored."""
        if self.config.drop_subagent_detail_events and self.is_subagent_detail_event(event):
            return
        kind = _kind(event)
        known = self._open.get(kind)
        if known is not None:
            # Nearly every event goes this way: a further chunk, with its identity in the first place.
            identity = event.get(_IDENTITIES[kind][0][0])
            chunk = known.get(identity) if type(identity) is str else None
            if chunk is not None:
                chunk.add(event)
                return
        if kind in _IDENTITIES:
            self._append_chunk(kind, event)
        elif kind and kind not in _DROPPED:
            if event["type"] == "RUN_STARTED":
                self._open.clear()
            self.events.append(dict(event))

    def extend_snapshot(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Start over from these events, for example an earlier snapshot; chunks that follow complete its chunks."""
        given = list(events)
        self.clear()
        for event in given:
            self.append(event)

    def snapshot(self) -> list[JsonObject]:
        """Return the compact events. What is appended later changes none of them."""
        result = [event.copy() for event in self.events]
        for chunk in self._chunks:
            text = chunk.text()
            if text is not None:
                result[chunk.index]["delta"] = text
        return result

    def clear(self) -> None:
        """Forget everything."""
        self.events.clear()
        self._chunks.clear()
        self._open.clear()

    def is_subagent_event(self, event: Mapping[str, Any]) -> bool:
        """Tell whether an event names an agent other than the main one."""
        name = self.config.agent_id_field
        if name is None:
            return False
        agent_id = _identifier(_member(event, name, _snake_case(name)))
        return agent_id is not None and agent_id != self.config.main_agent_id

    def is_subagent_detail_event(self, event: Mapping[str, Any]) -> bool:
        """Tell whether an event is dropped because it is a subagent's message or tool call."""
        if not self.config.drop_subagent_detail_events:
            return False
        return _kind(event) in _DETAILS and self.is_subagent_event(event)

    def _append_chunk(self, kind: str, event: Mapping[str, Any]) -> None:
        identities = (_identifier(_member(event, name, other)) for name, other in _IDENTITIES[kind])
        identity = next((identity for identity in identities if identity is not None), None)
        if identity is None:
            self.events.append(dict(event))
            return
        known = self._open.setdefault(kind, {})
        chunk = known.get(identity)
        if chunk is not None:
            chunk.add(event)
            return
        kept = dict(event)
        missing = tuple(names for names in _LATE_FIELDS[kind] if kept.get(names[0]) is None)
        known[identity] = chunk = _Chunk(kept, len(self.events), missing)
        self._chunks.append(chunk)
        self.events.append(kept)


def compact_agui_events(
    events: Iterable[Mapping[str, Any]], *, config: AguiReplayConfig | None = None
) -> list[JsonObject]:
    """Return the compact form of a run's events.

    It joins the CHUNK events of the streams of `source.ya_agent`. The events of a relay have none, so of these it only
    drops the START and END events; a `DisplayFold` is what makes them few.
    """
    replay = AguiReplayBuffer(config or AguiReplayConfig())
    for event in events:
        replay.append(event)
    return replay.snapshot()


def is_subagent_event(
    event: Mapping[str, Any], *, agent_id_field: str = "yaacliAgentId", main_agent_id: str = "main"
) -> bool:
    """Tell whether an event names an agent other than the main one."""
    return AguiReplayBuffer(AguiReplayConfig(agent_id_field, main_agent_id)).is_subagent_event(event)


def is_subagent_detail_event(
    event: Mapping[str, Any], *, agent_id_field: str = "yaacliAgentId", main_agent_id: str = "main"
) -> bool:
    """Tell whether an event is a message or a tool call of an agent other than the main one."""
    config = AguiReplayConfig(agent_id_field, main_agent_id, drop_subagent_detail_events=True)
    return AguiReplayBuffer(config).is_subagent_detail_event(event)


def validate_agui_events(
    raw_payload: object, *, payload_name: str = "AGUI events payload", allow_none: bool = False
) -> list[JsonObject] | None:
    """Return a stored list of events as it is; only its shape is looked at: a list of JSON objects.

    None is returned for None where `allow_none`. Anything else raises TypeError, which speaks of `payload_name`.
    """
    if raw_payload is None and allow_none:
        return None
    return _event_objects(raw_payload, payload_name, "AGUI event objects")


def parse_message_events(raw_message_payload: object) -> list[JsonObject] | None:
    """Return the stored events of a message, None when nothing was stored; TypeError when they are no such list."""
    return validate_agui_events(raw_message_payload, payload_name="message payload", allow_none=True)


def parse_required_message_events(
    raw_message_payload: object, *, payload_name: str = "message payload"
) -> list[JsonObject]:
    """Return the stored events of a message, which must be there; TypeError when they are no such list."""
    return _event_objects(raw_message_payload, payload_name, "AGUI event objects")


def validate_display_events(raw_payload: object) -> list[JsonObject]:
    """Return the events of a stored display; TypeError when they are no list of JSON objects."""
    return _event_objects(raw_payload, "display_messages payload", "AGUI event objects")


def _event_objects(payload: object, payload_name: str, expected: str) -> list[JsonObject]:
    if not isinstance(payload, list):
        got = type(payload).__name__
        raise TypeError(f"{payload_name} must be a top-level JSON array of {expected}, got {got}")
    for index, event in enumerate(payload):
        if not isinstance(event, dict):
            got = type(event).__name__
            raise TypeError(f"{payload_name} must contain only {expected}, got {got} at index {index}")
    return list(payload)


def _kind(event: Mapping[str, Any]) -> str:
    kind = event.get("type", "")
    if type(kind) is not str:
        # The members of ag_ui's EventType are strings, too.
        kind = str.__str__(kind) if isinstance(kind, str) else str(kind)
    return kind.strip()


def _member(event: Mapping[str, Any], name: str, other: str) -> Any:
    return event[name] if name in event else event.get(other)


def _identifier(value: object) -> str | None:
    return (value.strip() or None) if isinstance(value, str) else None


def _as_text(delta: object) -> str:
    return json.dumps(delta, ensure_ascii=False) if isinstance(delta, dict | list) else str(delta)


def _snake_case(name: str) -> str:
    return "".join(
        f"_{letter.lower()}" if letter.isupper() and at else letter.lower() for at, letter in enumerate(name)
    )
