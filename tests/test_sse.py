"""Server-sent events of stored events."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from ag_ui.core import EventType

from agui_relay import Delivery, DisplayCheckpoint
from agui_relay.broker.announcement import Cursor
from agui_relay.sse import (
    BufferedStreamEvent,
    build_buffered_stream_event,
    encode_sse_delivery,
    encode_sse_event,
    format_sse_event,
    resolve_event_cursor,
)


def test_an_event_is_three_fields() -> None:
    event = build_buffered_stream_event(7, {"type": "CUSTOM", "name": "ü", "value": "a\r\nb"}, terminal=True)
    assert event == BufferedStreamEvent(
        id="7", payload={"type": "CUSTOM", "name": "ü", "value": "a\r\nb"}, terminal=True
    )
    assert format_sse_event(event) == {
        "id": "7",
        "event": "CUSTOM",
        "data": '{"type": "CUSTOM", "name": "ü", "value": "a\\r\\nb"}',
    }
    assert (
        encode_sse_event(event)
        == ('id: 7\nevent: CUSTOM\ndata: {"type": "CUSTOM", "name": "ü", "value": "a\\r\\nb"}\n\n').encode()
    )


def test_the_payload_is_the_events_own() -> None:
    payload: dict[str, Any] = {"type": "CUSTOM"}
    event = build_buffered_stream_event("a", payload)
    payload["type"] = "changed"
    assert (event.id, event.payload, event.terminal) == ("a", {"type": "CUSTOM"}, False)


def test_an_event_without_a_type_is_a_message_and_an_enum_is_its_value() -> None:
    assert format_sse_event(BufferedStreamEvent("1", {}))["event"] == "message"
    assert format_sse_event(BufferedStreamEvent("1", {"type": EventType.RUN_ERROR}))["event"] == "RUN_ERROR"


def test_every_line_ends_with_lf_alone() -> None:
    data = encode_sse_event(BufferedStreamEvent("1", {"type": "CUSTOM", "value": "\r\n\r\n\x85\u2028data: x"}))
    assert b"\r" not in data
    assert data.count(b"\n") == 4
    assert json.loads(data.decode().split("\n")[2].removeprefix("data: "))["value"] == "\r\n\r\n\x85\u2028data: x"


@pytest.mark.parametrize("character", ["\r", "\n", "\0"])
def test_nothing_breaks_out_of_its_line(character: str) -> None:
    with pytest.raises(ValueError, match="the id of a server-sent event must not contain CR, LF or NUL"):
        format_sse_event(BufferedStreamEvent(f"1{character}data: x", {}))
    with pytest.raises(ValueError, match="the type of a server-sent event must not contain CR, LF or NUL"):
        format_sse_event(BufferedStreamEvent("1", {"type": f"CUSTOM{character}data: x"}))


def test_numbers_that_json_has_not_are_null() -> None:
    payload = {"type": "CUSTOM", "value": [math.nan, {"a": math.inf, "b": (1.5, -math.inf)}, "NaN"]}
    data = format_sse_event(BufferedStreamEvent("1", payload))["data"]
    assert json.loads(data, parse_constant=pytest.fail) == {
        "type": "CUSTOM",
        "value": [None, {"a": None, "b": [1.5, None]}, "NaN"],
    }


def test_lone_surrogates_are_replaced() -> None:
    event = BufferedStreamEvent("\ud800", {"type": "\udfff", "value": ["a\ud800b", "\U0001f600"]})
    assert json.loads(encode_sse_event(event).decode().split("\n")[2].removeprefix("data: ")) == {
        "type": "\ufffd",
        "value": ["a\ufffdb", "\U0001f600"],
    }


def test_what_has_no_json_form_is_an_error() -> None:
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    with pytest.raises(ValueError, match="Circular"):
        format_sse_event(BufferedStreamEvent("1", cycle))
    with pytest.raises(TypeError, match="not JSON serializable"):
        format_sse_event(BufferedStreamEvent("1", {"value": object()}))


def test_a_delivery_is_its_cursor_and_its_own_bytes() -> None:
    cursor = Cursor.parse("a1b2:17")
    delivery = Delivery(17, '{"type":"CUSTOM","name":"n","value":"ü\\r\\n"}'.encode(), cursor)
    expected = 'id: a1b2:17\ndata: {"type":"CUSTOM","name":"n","value":"ü\\r\\n"}\n\n'
    assert encode_sse_delivery(delivery).decode() == expected
    checkpoint = DisplayCheckpoint(17, b'{"items":[]}', cursor, "run-1")
    assert encode_sse_delivery(checkpoint, event="display") == b'id: a1b2:17\nevent: display\ndata: {"items":[]}\n\n'
    with pytest.raises(ValueError, match="must not contain CR, LF or NUL"):
        encode_sse_delivery(checkpoint, event="display\n")


@pytest.mark.parametrize(
    ("last_event_id", "cursor"),
    [(None, 0), ("", 0), ("0", 0), ("12", 12), (" 12 ", 12), ("-3", 0), ("1.5", 0), ("abc:5", 0), ("9" * 5_000, 0)],
)
def test_where_a_client_goes_on(last_event_id: str | None, cursor: int) -> None:
    assert resolve_event_cursor(last_event_id) == cursor
