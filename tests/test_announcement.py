"""What channels and logs say, and cursors, survive their written form; anything else is refused with a reason."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_relay.broker.announcement import (
    FIRST,
    HIDDEN,
    LAST,
    Announcement,
    Cursor,
    Echo,
    MessageError,
    Report,
    Row,
    Status,
    View,
    decode_message,
    decode_row,
    encode_announcement,
    encode_body,
    encode_echo,
)
from agui_relay.broker.errors import CursorError


@pytest.mark.parametrize(("text", "position"), [("a:0", 0), ("c0ffee:42", 42), ("A1:9999999999999999999", 10**19 - 1)])
def test_a_cursor_is_parsed_and_written_alike(text: str, position: int) -> None:
    cursor = Cursor.parse(text)
    assert cursor == (text.partition(":")[0], position)
    assert str(cursor) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "-1", "0", "x:y", "a:-3", ":", "a:", ":5", "a:5:6", "a: 5", " a:5", "a:5\n", "a:05", "a:+5", "a:1_0"),
        *("a:5.0", "a:1e3", "a:٣", "é:5", "a b:5", "*:5", "a:0x5", "a:99999999999999999999", "a" * 65 + ":5", "\x00:1"),
    ],
)
def test_a_malformed_cursor_is_refused_and_quoted(text: str) -> None:
    with pytest.raises(CursorError, match="epoch, colon, position") as refusal:
        Cursor.parse(text)
    assert repr(text[:100]) in str(refusal.value)


def test_a_refused_cursor_is_quoted_in_part_only() -> None:
    with pytest.raises(CursorError) as refusal:
        Cursor.parse("x" * 10_000_000)
    assert len(str(refusal.value)) < 300


def test_an_announcement_carries_its_frames() -> None:
    data = encode_announcement(
        "e1", 5, 7, "live", encode_body([Row(5, 3, b'{"a":1}'), Row(6, 1, b"{}"), Row(7, 2, b"x y z")])
    )
    assert data == b'{"epoch":"e1","first":5,"last":7,"status":"live"}\n5 3 {"a":1}\n6 1 {}\n7 2 x y z'
    rows = (Row(5, FIRST | LAST, b'{"a":1}'), Row(6, FIRST, b"{}"), Row(7, LAST, b"x y z"))
    assert decode_message(data) == Announcement("e1", 5, 7, "live", rows)


def test_frames_that_were_left_out_are_not_frames_that_are_hidden() -> None:
    assert decode_message(encode_announcement("e", 5, 7, "live")) == Announcement("e", 5, 7, "live", None)
    all_hidden = decode_message(encode_announcement("e", 5, 7, "live", encode_body([])))
    assert all_hidden == Announcement("e", 5, 7, "live", ())


def test_a_frame_that_was_sent_is_not_hidden() -> None:
    message = decode_message(b'{"epoch":"e","first":5,"last":5,"status":"live"}\n5 7 {}')
    assert message == Announcement("e", 5, 5, "live", (Row(5, FIRST | LAST, b"{}"),))


def test_an_announcement_may_be_of_the_status_alone() -> None:
    data = encode_announcement("e", 8, 7, "finished")
    assert decode_message(data) == Announcement("e", 8, 7, "finished", None)


@pytest.mark.parametrize("report", [Report("e1", 7, "live"), Report("", 0, "gone")])
def test_an_echo_carries_its_nonce(report: Report) -> None:
    assert decode_message(encode_echo(report, "n.1")) == Echo(report, "n.1")


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\n", b"null", b"[]", b"{}", b"\xff\xfe", b'{"epoch":"e"}', b'{"epoch":"e","status":"live"}'),
        b'{"epoch":"e","first":5,"status":"live"}',
        b'{"epoch":"e","first":0,"last":3,"status":"live"}',
        b'{"epoch":"e","first":5,"last":3,"status":"live"}',
        b'{"epoch":"e","first":5,"last":7,"status":"odd"}',
        b'{"epoch":"e","first":"5","last":7,"status":"live"}',
        b'{"epoch":7,"first":5,"last":7,"status":"live"}',
        b'{"epoch":"e","head":-1,"status":"live","echo":"n"}',
        b'{"epoch":"e","status":"live","echo":"n"}',
        b'{"epoch":"e","first":5,"last":7,"status":"live"}\n5 3',
        b'{"epoch":"e","first":5,"last":7,"status":"live"}\n4 3 {}',
        b'{"epoch":"e","first":5,"last":7,"status":"live"}\n8 3 {}',
        b'{"epoch":"e","first":5,"last":7,"status":"live"}\n6 3 {}\n5 3 {}',
        b'{"epoch":"e","first":5,"last":7,"status":"live"}\n5 3 {}\n5 3 {}',
        b'{"epoch":"e","first":5,"last":7,"status":"live"}\n5 9 {}',
        b'{"epoch":"e","first":5,"last":7,"status":"live"}\n5 x {}',
        b"[" * 100_000,
    ],
)
def test_a_message_of_another_form_is_refused(data: bytes) -> None:
    with pytest.raises(MessageError, match="expected"):
        decode_message(data)


@given(data=st.binary(max_size=200))
def test_no_message_does_worse_than_being_refused(data: bytes) -> None:
    with contextlib.suppress(MessageError):
        decode_message(data)


STATUSES: list[Status] = ["live", "closing", "finished", "suspended", "cancelled", "failed", "abandoned"]


@given(
    epoch=st.text("0123456789abcdef", min_size=1, max_size=64),
    first=st.integers(1, 10**15),
    frames=st.lists(st.tuples(st.sampled_from([0, 1, 2, 3]), st.binary(max_size=50).filter(lambda f: b"\n" not in f))),
    status=st.sampled_from(STATUSES),
)
def test_every_announcement_survives(epoch: str, first: int, frames: list[tuple[int, bytes]], status: Status) -> None:
    rows = tuple(Row(first + index, flags, frame) for index, (flags, frame) in enumerate(frames))
    last = first + len(rows) - 1
    data = encode_announcement(epoch, first, last, status, encode_body(rows))
    assert decode_message(data) == Announcement(epoch, first, last, status, rows)


@pytest.mark.parametrize(
    ("meta", "view", "flags"),
    [
        (b"3TEXT_MESSAGE_CONTENT", "full", FIRST | LAST),
        (b"1CUSTOM:a13n.stream.fragment", "full", FIRST),
        (b"7CUSTOM:x", "full", FIRST | LAST),
        (b"7CUSTOM:x", "chat", FIRST | LAST | HIDDEN),
        (b"4CUSTOM:x", "chat", HIDDEN),
        (b"2CUSTOM:x", "chat", LAST),
        (b"3TEXT_MESSAGE_CONTENT", "chat", FIRST | LAST),
        (b"3TOOL_CALL_START", "chat", FIRST | LAST),
        (b"3TOOL_CALL_ARGS", "chat", FIRST | LAST | HIDDEN),
        (b"3TOOL_CALL_ARGS", "full", FIRST | LAST),
        (b"1CUSTOM:a13n.harness.lifecycle", "chat", FIRST | HIDDEN),
        (b"3CUSTOM:a13n.harness.lifecycle", "full", FIRST | LAST),
        (b"3CUSTOM:a13n.harness-ui.tool_images", "chat", FIRST | LAST),
        (b"3CUSTOM:a13n.pydantic_ai.part_delta", "chat", FIRST | LAST | HIDDEN),
        (b"3CUSTOM:a13n.pydantic_ai.function_tool_result", "chat", FIRST | LAST),
        (b"3CUSTOM:a13n.pydantic_ai.output_tool_result", "chat", FIRST | LAST),
        (b"7CUSTOM:a13n.pydantic_ai.output_tool_result", "chat", FIRST | LAST | HIDDEN),
        (b"3CUSTOM:a13n.input.user", "chat", FIRST | LAST),
    ],
)
@pytest.mark.parametrize("is_mapping", [True, False])
def test_a_row_of_the_log_is_hidden_where_its_view_says_so(
    meta: bytes, view: View, flags: int, is_mapping: bool
) -> None:
    fields = {b"frame": b"{}", b"meta": meta} if is_mapping else [b"frame", b"{}", b"meta", meta]
    assert decode_row((b"17-0", fields), view) == Row(17, flags, b"{}")


@pytest.mark.parametrize(
    "fields",
    [
        {b"frame": b"{}"},
        {b"meta": b"3X"},
        {b"frame": b"{}", b"meta": b""},
        {b"frame": b"{}", b"meta": b"CUSTOM"},
        {},
    ],
)
def test_an_entry_that_is_no_frame_holds_nothing_usable(fields: dict[bytes, bytes]) -> None:
    assert decode_row((b"17-0", fields), "full") == Row(17, 0, b"")
