"""The rules by which an AG-UI client takes a run's events, as a checker for tests.

They are those of the JavaScript client's `verifyEvents` (order, and nothing open at the end), its rules for
subagents and owners, and what a screen needs beyond that: results that join a call of the same owner.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

type Event = Mapping[str, Any]


class Violation(NamedTuple):
    at: int
    rule: str
    detail: str


@dataclass(frozen=True)
class _Family:
    """One kind of thing that opens, goes on and closes, known by an id."""

    noun: str
    id_field: str


_TEXT = _Family("text", "messageId")
_REASONING = _Family("reasoning", "messageId")
_CALL = _Family("call", "toolCallId")

_OPENS = {"TEXT_MESSAGE_START": _TEXT, "REASONING_MESSAGE_START": _REASONING, "TOOL_CALL_START": _CALL}
_CONTINUES = {"TEXT_MESSAGE_CONTENT": _TEXT, "REASONING_MESSAGE_CONTENT": _REASONING, "TOOL_CALL_ARGS": _CALL}
_CLOSES = {"TEXT_MESSAGE_END": _TEXT, "REASONING_MESSAGE_END": _REASONING, "TOOL_CALL_END": _CALL}
_TERMINAL = ("RUN_FINISHED", "RUN_ERROR")


@dataclass
class _Run:
    unended: Collection[str]
    found: list[Violation] = field(default_factory=list)
    index: int = -1
    started: Event | None = None
    terminal: str | None = None
    owners: dict[tuple[str, str], str | None] = field(default_factory=dict)
    """Who said each open thing, by noun and id."""
    closed_calls: dict[str, str | None] = field(default_factory=dict)
    subagents: dict[str, bool] = field(default_factory=dict)
    """Whether each subagent is open."""

    def violate(self, rule: str, detail: object) -> None:
        self.found.append(Violation(self.index, rule, str(detail)))

    def take(self, event: Event) -> None:
        kind = event["type"]
        self.index += 1
        if self.terminal is not None:
            self.violate("after-terminal", kind)
            return
        if kind == "RUN_STARTED":
            if self.started is not None:
                self.violate("started-twice", event["runId"])
            self.started = event
            return
        if self.started is None and kind != "RUN_ERROR":
            self.violate("not-started", kind)
        owner = event.get("subagentRunId")
        if kind.startswith("SUBAGENT_"):
            self.take_subagent(kind, owner, event)
        elif kind in _TERMINAL:
            self.take_terminal(kind, event)
        elif kind in _OPENS:
            self.open(_OPENS[kind], owner, event)
        elif kind in _CONTINUES:
            self.touch(_CONTINUES[kind], owner, event)
        elif kind in _CLOSES:
            family = _CLOSES[kind]
            if self.touch(family, owner, event):
                speaker = self.owners.pop((family.noun, event[family.id_field]))
                if family is _CALL:
                    self.closed_calls[event["toolCallId"]] = speaker
        elif kind == "TOOL_CALL_RESULT":
            self.take_result(owner, event)
        if owner is not None and owner not in self.subagents:
            self.violate("unknown-owner", owner)

    def open(self, family: _Family, owner: str | None, event: Event) -> None:
        key = (family.noun, event[family.id_field])
        if key in self.owners:
            self.violate(f"{family.noun}-open-twice", key[1])
        self.owners[key] = owner

    def touch(self, family: _Family, owner: str | None, event: Event) -> bool:
        key = (family.noun, event[family.id_field])
        if key not in self.owners:
            verb = "ended" if event["type"] in _CLOSES else "continued"
            self.violate(f"{family.noun}-{verb}-unopened", key[1])
            return False
        # Without an owner of its own, it has that of what it goes on with.
        if owner is not None and self.owners[key] != owner:
            self.violate("owner-changed", f"{key[1]}: {self.owners[key]} then {owner}")
        return True

    def take_result(self, owner: str | None, event: Event) -> None:
        call = event["toolCallId"]
        if ("call", call) in self.owners:
            self.violate("result-before-end", call)
        elif call not in self.closed_calls:
            self.violate("result-without-call", call)
        elif self.closed_calls[call] != owner:
            self.violate("result-of-another-owner", call)

    def take_subagent(self, kind: str, owner: str | None, event: Event) -> None:
        if owner is None:
            self.violate("subagent-without-id", kind)
            return
        if kind == "SUBAGENT_STARTED":
            if owner in self.subagents:
                self.violate("subagent-started-twice", owner)
            self.subagents[owner] = True
            parent = event.get("parentSubagentRunId")
            if parent is not None and parent not in self.subagents:
                self.violate("unknown-parent", parent)
            return
        if not self.subagents.get(owner):
            self.violate("subagent-ended-unopened", owner)
        self.subagents[owner] = False
        for (noun, identity), speaker in self.owners.items():
            if speaker == owner:
                self.violate(f"{noun}-open-at-the-end-of-its-subagent", identity)

    def take_terminal(self, kind: str, event: Event) -> None:
        self.terminal = kind
        if kind == "RUN_ERROR":
            # An error may leave anything open: the client takes it as what the failure cut off.
            return
        for name in ("runId", "threadId"):
            if self.started is not None and event[name] != self.started[name]:
                self.violate("another-run", event[name])
        self.check_end()

    def check_end(self) -> None:
        for (noun, identity), speaker in self.owners.items():
            if speaker not in self.unended:
                self.violate(f"{noun}-open-at-the-end", identity)
        for subagent, is_open in self.subagents.items():
            if is_open and subagent not in self.unended:
                self.violate("subagent-open-at-the-end", subagent)


def violations(events: Iterable[Event], *, unended: Collection[str] = ()) -> list[Violation]:
    """Return what a client would object to in the complete events of one run, in order.

    `unended` names the subagents that the source never ended; they, and what they said last, may stay open.
    A run without its terminal event is one violation, after all others.
    """
    run = _Run(unended)
    for event in events:
        run.take(event)
    if run.terminal is None:
        run.index += 1
        run.violate("not-terminated", "")
        run.check_end()
    return run.found
