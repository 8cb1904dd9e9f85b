"""The wire form: what decodes, what is refused and why, and which bytes are canonical."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from pydantic_core import to_json

from agui_relay.source import HarnessItem, ItemError, Projection, canonical_item, decode_item, encode_item
from agui_relay.source.items import MAX_LEVELS, check_levels

EVENT = {"index": 0, "delta": {"content_delta": "hé", "part_delta_kind": "text"}, "event_kind": "part_delta"}
PLAIN: dict[str, Any] = {
    "v": 1,
    "source": "pydantic_ai",
    "thread_id": "thread",
    "run_id": "run",
    "sequence": 7,
    "occurred_at": "2026-11-29T19:46:39.507757+00:00",
    "event": EVENT,
    "projection": {"timestamp": 1795981599507},
}


def written(**changes: Any) -> bytes:
    fields = PLAIN | changes
    order = sorted(fields, key=lambda key: key == "projection")
    return to_json({key: fields[key] for key in order if fields[key] is not ...})


def result(value: Any) -> bytes:
    return written(source="result", event=..., result=value)


def test_canonical_bytes_come_back_as_they_are() -> None:
    data = written()
    item = decode_item(data)
    assert (item.source, item.thread_id, item.run_id, item.sequence) == ("pydantic_ai", "thread", "run", 7)
    assert item.projection == Projection(1795981599507)
    assert json.loads(bytes(item.event)) == EVENT
    assert encode_item(item) == data
    again, same = canonical_item(data)
    assert again == item
    assert same is data


@pytest.mark.parametrize(
    "foreign",
    [
        json.dumps(PLAIN).encode(),
        json.dumps(PLAIN, indent=2).encode(),
        json.dumps(dict(reversed(PLAIN.items())), ensure_ascii=False).encode(),
        b" \n" + written() + b"\n ",
        written().replace("é".encode(), b"\\u00e9"),
    ],
    ids=["spaces", "lines", "order", "around", "escapes"],
)
def test_any_json_form_is_read_and_written_anew(foreign: bytes) -> None:
    item, canonical = canonical_item(foreign)
    assert canonical == written()
    assert encode_item(item) == written()
    assert canonical_item(encode_item(decode_item(foreign)))[1] == written()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "JSON"),
        (b"[]", "object"),
        (b"{", "JSON"),
        (written()[:-1], "JSON"),
        (written() + b"x", "JSON"),
        (written(v=...), "`v`"),
        (written(v=2), "`v`"),
        (written(v=True), "`v`"),
        (written(source="other"), "$.source"),
        (written(source=...), "source"),
        (written(thread_id=3), "$.thread_id"),
        (written(thread_id=...), "thread_id"),
        (written(thread_id=""), "$.thread_id"),
        (written(run_id=" \t "), "$.run_id"),
        (written(run_id="a\nb"), "$.run_id"),
        (written(run_id="a\x7fb"), "$.run_id"),
        (written(run_id="字" * 86), "$.run_id"),
        (written(sequence=-1), "$.sequence"),
        (written(sequence="7"), "$.sequence"),
        (written(sequence=1.5), "$.sequence"),
        (written(sequence=2**53), "$.sequence"),
        (written(occurred_at=5), "$.occurred_at"),
        (written(occurred_at="yesterday", projection=...), "$.occurred_at"),
        (written(occurred_at="x" * 65), "$.occurred_at"),
        (written(event=...), "`event`"),
        (written(event=None), "$.event"),
        (written(event=[EVENT]), "$.event"),
        (written(event="x"), "$.event"),
        (written(result={"status": "cancelled"}), "`result`"),
        (written(extra=1), "extra"),
        (written(projection=5), "$.projection"),
        (written(projection={"timestamp": "1"}), "$.projection.timestamp"),
        (written(projection={"timestamp": 2**53}), "$.projection.timestamp"),
        (written(projection={"other": 1}), "other"),
        (written(projection={"content": 5}), "$.projection.content"),
        (written(source="result", event=...), "`result`"),
        (written(source="result"), "`result`"),
        (result(5), "result"),
        (result({}), "status"),
        (result({"status": "done"}), "$.status"),
        (result({"status": "failed"}), "failure"),
        (result({"status": "failed", "failure": {"code": "x"}}), "message"),
        (result({"status": "suspended"}), "interrupts"),
        (result({"status": "suspended", "interrupts": [{"id": 1}]}), "$.interrupts[0].id"),
        (result({"status": "completed", "usage": {"input_tokens": -1}}), "$.usage.input_tokens"),
        (written().replace("é".encode(), b"\xff"), "UTF-8"),
        (b'{"v":1,"source":"\xff"', "UTF-8"),
    ],
)
def test_refusals_say_where(data: bytes, says: str) -> None:
    for read in (decode_item, canonical_item):
        with pytest.raises(ItemError) as caught:
            read(data)
        assert says.lower() in str(caught.value).lower() or (says == "UTF-8" and "unicode" in str(caught.value).lower())


@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"NaN", b"Infinity"])
def test_numbers_must_be_finite(number: bytes) -> None:
    with pytest.raises(ItemError):
        canonical_item(written().replace(b'"index":0', b'"index":' + number))


def test_text_that_only_looks_not_finite_is_fine() -> None:
    data = written(event={**EVENT, "note": "NaN Infinity"})
    assert canonical_item(data)[1] is data
    assert canonical_item(b" " + data)[1] == data


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (rb"a\ud800b", "a\ufffdb"),
        (rb"a\udc00", "a\ufffd"),
        (rb"\ud83d\ude00", "😀"),
        (rb"\udc00\ud800", "\ufffd\ufffd"),
        (rb"\ud800\ud83d\ude00", "\ufffd😀"),
        (rb"\\ud800", "\\ud800"),
        (rb"\\\ud800\u0041", "\\\ufffdA"),
    ],
)
def test_lone_surrogates_become_replacement_characters(escaped: bytes, text: str) -> None:
    data = written().replace("hé".encode(), escaped)
    expected = {**EVENT, "delta": {"content_delta": text, "part_delta_kind": "text"}}
    for item in (decode_item(data), canonical_item(data)[0], canonical_item(b" " + data)[0]):
        assert json.loads(bytes(item.event)) == expected
    canonical = canonical_item(data)[1]
    assert canonical_item(canonical)[1] is canonical


def test_numbers_are_written_as_pydantic_writes_them() -> None:
    data = written().replace(b'"index":0', b'"index":0,"n":[1E16,1e-7,-0.0,100.0,123456789012345678901234567890]')
    _, canonical = canonical_item(data)
    assert b'"n":[1e+16,1e-7,-0.0,100.0,123456789012345678901234567890]' in canonical


def test_an_item_cannot_nest_without_end() -> None:
    def nested(levels: int) -> Any:
        value: Any = "x[["
        for _ in range(levels):
            value = [value]
        return value

    assert decode_item(written(event={"event_kind": "x", "value": nested(190), "text": '[{"' * 500}))
    for levels in (196, 1000, 100_000):
        inner = b"[" * levels + b"]" * levels
        data = written().replace(b'"index":0', b'"index":' + inner)
        for read in (decode_item, canonical_item):
            with pytest.raises(ItemError):
                read(data)


NESTED: st.SearchStrategy[Any] = st.recursive(
    st.text('[{"\\\\]}a', max_size=8), lambda inner: st.lists(inner, max_size=3), max_leaves=20
)


@settings(max_examples=200, deadline=None)
@given(value=NESTED, levels=st.integers(180, 200))
def test_only_what_is_outside_of_strings_nests(value: Any, levels: int) -> None:
    def depth(value: Any) -> int:
        return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0

    data = written(event={"x": ["here"], "y": value, "z": "[" * MAX_LEVELS})
    nested = data.replace(b'"here"', b"[" * levels + json.dumps(value).encode() + b"]" * levels)
    # Three levels are there: the item, its event, and the list.
    if 3 + levels + depth(value) <= MAX_LEVELS:
        check_levels(nested)
    else:
        with pytest.raises(ItemError, match=f"at most {MAX_LEVELS} levels of objects and lists, got"):
            check_levels(nested)


def test_ids_are_bounded_in_bytes() -> None:
    assert decode_item(written(run_id="字" * 85)).run_id == "字" * 85
    assert decode_item(written(run_id="x" * 256))
    with pytest.raises(ItemError, match="at most 256 bytes, got 257"):
        decode_item(written(run_id="x" * 257))


@pytest.mark.parametrize(
    ("occurred_at", "timestamp"),
    [
        ("2026-11-29T19:46:39.507757+00:00", 1795981599507),
        ("2026-11-29T19:46:39.507757Z", 1795981599507),
        ("2026-11-29T12:46:39-07:00", 1795981599000),
        ("2026-11-29T19:46:39", 1795981599000),
    ],
)
def test_the_timestamp_follows_from_the_time(occurred_at: str, timestamp: int) -> None:
    assert decode_item(written(occurred_at=occurred_at, projection=...)).timestamp == timestamp
    assert decode_item(written(occurred_at=occurred_at, projection=None)).timestamp == timestamp
    assert decode_item(written(occurred_at=occurred_at, projection={"timestamp": 5})).timestamp == 5


@pytest.mark.parametrize(
    ("value", "terminal"),
    [
        ({"status": "completed", "output": "x"}, "finished"),
        ({"status": "cancelled"}, "cancelled"),
        ({"status": "failed", "failure": {"code": "c", "message": "m", "details": {}}}, "failed"),
        ({"status": "suspended", "interrupts": [{"id": "i", "reason": "r"}]}, "suspended"),
    ],
)
def test_how_an_item_ends_its_run(value: Any, terminal: str) -> None:
    item = decode_item(result(value))
    assert item.terminal == terminal
    assert encode_item(item) == result(value)
    assert decode_item(written()).terminal is None


def test_encode_checks_what_it_writes() -> None:
    good = decode_item(written())
    for changes in ({"run_id": ""}, {"sequence": -1}, {"sequence": "x"}, {"event": Raw(b"5")}, {"event": Raw(b"")}):
        with pytest.raises(ItemError):
            encode_item(msgspec.structs.replace(good, **changes))
    with pytest.raises(ItemError, match="HarnessItem"):
        encode_item(PLAIN)  # type: ignore[arg-type]
    with pytest.raises(ItemError):
        encode_item(msgspec.structs.replace(good, run_id="\ud800"))
    lines = Raw(json.dumps(EVENT, indent=1).encode())
    assert encode_item(msgspec.structs.replace(good, event=lines)) == written()
    # A copy has another empty result than the one that is left out.
    assert encode_item(msgspec.structs.replace(good, result=Raw(b""))) == written()


def test_bytes_are_asked_for() -> None:
    with pytest.raises(ItemError, match="bytes"):
        canonical_item(PLAIN)  # type: ignore[arg-type]
    assert canonical_item(bytearray(written()))[1] == written()  # type: ignore[arg-type]
    assert canonical_item(memoryview(written()))[1] == written()  # type: ignore[arg-type]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(event=st.dictionaries(st.text(max_size=4), JSON, max_size=4), indent=st.sampled_from((None, 1)))
def test_canonical_is_a_fixed_point(event: dict[str, Any], indent: int | None) -> None:
    foreign = json.dumps(PLAIN | {"event": event}, indent=indent).encode()
    item, canonical = canonical_item(foreign)
    assert min(canonical) >= 0x20
    assert canonical.decode()
    assert canonical_item(canonical) == (item, canonical)
    assert decode_item(canonical) == item
    assert encode_item(item) == canonical


@settings(max_examples=300, deadline=None)
@given(
    data=st.binary(max_size=40) | st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")),
    at=st.integers(0, 400),
)
def test_damaged_bytes_are_an_item_or_an_item_error(data: bytes, at: int) -> None:
    whole = written()
    damaged = whole[:at] + data + whole[at + len(data) // 2 :]
    for read in (decode_item, canonical_item):
        try:
            item = read(damaged)
        except ItemError:
            continue
        assert isinstance(item if read is decode_item else item[0], HarnessItem)  # type: ignore[index]
