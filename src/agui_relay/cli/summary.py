"""One line for one event, or one item of a display: what a person who follows a run wants to see of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from agui_relay.display import Item

_WIDTH = 100

# What to show of an event of each type.
_FIELDS = {
    "RUN_STARTED": "runId",
    "RUN_FINISHED": "result",
    "RUN_ERROR": "message",
    "TEXT_MESSAGE_CONTENT": "delta",
    "REASONING_MESSAGE_CONTENT": "delta",
    "TOOL_CALL_START": "toolCallName",
    "TOOL_CALL_ARGS": "delta",
    "TOOL_CALL_RESULT": "content",
    "SUBAGENT_STARTED": "name",
    "SUBAGENT_ERROR": "message",
    "CUSTOM": "name",
}


def summary(event: bytes) -> str:
    """Return the type of an encoded event, its size when it is large, and the part of its content that matters."""
    fields: dict[str, Any] = msgspec.json.decode(event)
    kind = str(fields.get("type"))
    words = [kind]
    if "subagentRunId" in fields:
        words.append(f"[{fields['subagentRunId']}]")
    if len(event) > 10_000:
        words.append(f"{len(event):,} bytes")
    if (detail := fields.get(_FIELDS.get(kind, ""))) is not None:
        words.append(one_line(detail if isinstance(detail, str) else msgspec.json.encode(detail).decode()))
    return " ".join(words)


def item_summary(item: Item) -> str:
    """Return the kind of an item, its state, and the part of its content that matters."""
    details = (item.content.get(field) for field in ("type", "toolCallName", "name", "text", "result"))
    return " ".join([item.kind, item.state, *(one_line(detail) for detail in details if isinstance(detail, str))])


def one_line(text: str, width: int = _WIDTH) -> str:
    """Return the text without anything that moves the cursor of a terminal, cut to `width` characters."""
    # A run's content comes from outside: no escape sequence of it may reach the terminal.
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text[: width + 1])
    return shown if len(shown) <= width else shown[: width - 1] + "…"
