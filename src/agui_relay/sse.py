"""Decides how an event, stored or from a relay, is written as a server-sent event, and where a client goes on.

Lines end with LF alone: CRLF breaks AG-UI's HttpAgent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agui_relay.broker.deliveries import Delivery, DisplayCheckpoint

type JsonObject = dict[str, Any]


@dataclass(slots=True)
class BufferedStreamEvent:
    """An event with its place in a stream. After one that is ``terminal`` the stream ends."""

    id: str
    payload: JsonObject
    terminal: bool = False


def build_buffered_stream_event(
    event_id: int | str, payload: Mapping[str, Any], *, terminal: bool = False
) -> BufferedStreamEvent:
    """Return a stream event; the payload is copied, not what is in it."""
    return BufferedStreamEvent(id=str(event_id), payload=dict(payload), terminal=terminal)


def format_sse_event(event: BufferedStreamEvent) -> dict[str, str]:
    """Return the fields ``id``, ``event`` (the payload's type) and ``data`` (its JSON, on one line).

    The data is JSON that every client reads: a number that is not finite is null, a lone surrogate U+FFFD. Raises
    ValueError when the id or the type would break out of its line, or the payload contains itself; TypeError when the
    payload holds what has no JSON form.
    """
    kind = event.payload.get("type", "message")
    name = str(kind.value if isinstance(kind, Enum) else kind)
    return {"id": _one_line("id", event.id), "event": _one_line("type", name), "data": _data(event.payload)}


def encode_sse_event(event: BufferedStreamEvent) -> bytes:
    """Return the same as the bytes of one server-sent event."""
    fields = format_sse_event(event)
    return "".join(f"{name}: {value}\n" for name, value in fields.items()).encode() + b"\n"


def encode_sse_delivery(delivery: Delivery | DisplayCheckpoint, *, event: str | None = None) -> bytes:
    """Return what a relay's subscription gave as the bytes of one server-sent event: its cursor, and its JSON as it is.

    `event` names its type; without one it is a plain message, which is what a browser's `onmessage` gets. Raises
    ValueError when the type would break out of its line.
    """
    kind = "" if event is None else f"event: {_one_line('type', event)}\n"
    return b"id: %b\n%bdata: %b\n\n" % (delivery.cursor.encode(), kind.encode(), delivery.data)


def resolve_event_cursor(last_event_id: str | None) -> int:
    """Return the number in a ``Last-Event-ID``; 0, the start, when there is none or it is below 0 or no number.

    It is for ids as ya-agent-stream-protocol gives them. The cursor of a relay is no number: give it to
    ``relay.subscribe(after=...)`` as it came.
    """
    if last_event_id is None:
        return 0
    try:
        return max(int(last_event_id), 0)
    except ValueError:
        return 0


def _one_line(what: str, text: str) -> str:
    if any(character in text for character in "\r\n\0"):
        raise ValueError(f"the {what} of a server-sent event must not contain CR, LF or NUL, got {text!r}")
    return _without_surrogates(text)


def _data(payload: JsonObject) -> str:
    try:
        text = json.dumps(payload, ensure_ascii=False, allow_nan=False)
    except ValueError:
        json.dumps(payload)  # A cycle fails again.
        text = json.dumps(_finite(payload), ensure_ascii=False)
    return _without_surrogates(text)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value


def _without_surrogates(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
