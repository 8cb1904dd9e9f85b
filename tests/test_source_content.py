"""Readable content of tool results: equal to the reference where that has one, a marker where it crashes."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

import a13n_stream_protocol as reference
import pytest
from a13n_harness.content import ContentItem
from a13n_harness.content import ContentMetadata as HarnessMetadata
from ag_ui.core import TextPart
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from pydantic_ai import messages as ai

from agui_relay.source.content import AUTHORED_INPUT_EVENT_NAMES, ContentMetadata, tool_result_content


class Weather(BaseModel):
    city: str
    degrees: float = Field(default=1.5, serialization_alias="temp")
    picture: Any = None


@dataclass
class Point:
    x: int
    at: datetime | None = None


class Color(StrEnum):
    RED = "red"


class Opaque:
    pass


PICTURE = ai.BinaryContent(b"\x89PNG", media_type="image/png")
HIDDEN = HarnessMetadata(display=False)


@pytest.mark.parametrize(
    "value",
    [
        "text",
        "",
        None,
        True,
        5,
        1e16,
        Color.RED,
        Decimal("1.50"),
        datetime(2026, 1, 1, tzinfo=UTC),
        b"\x00\xff",
        bytearray(b"abc"),
        {"b": 1, "a": [1.0, -0.0, "字", None]},
        {7: "x", None: 2, 1.5: 3, True: 4},
        {"when": datetime(2026, 1, 1, tzinfo=UTC), "c": Color.RED, "set": {1}},
        (1, 2),
        [],
        {},
        Weather(city="Ulm"),
        Weather(city="Ulm", picture=PICTURE),
        [Point(1), Point(2, datetime(2026, 1, 1, tzinfo=UTC))],
        {"deep": [PICTURE, b"x"]},
        PICTURE,
        [PICTURE, "text", {"a": 1}, b"x", Point(1)],
        ai.ImageUrl("https://x/y.png"),
        ai.ImageUrl("https://x/y"),
        ai.AudioUrl("http://x/y.mp3"),
        ai.VideoUrl("https://x/y.mp4"),
        ai.DocumentUrl("https://x/y.pdf"),
        ai.DocumentUrl("https://x/y.png"),
        ai.ImageUrl("data:image/png;base64,AAAA"),
        ai.ImageUrl("ftp://x/y.png"),
        ai.UploadedFile(file_id="f", provider_name="openai"),
        ai.UploadedFile(file_id="f", provider_name="openai", media_type="image/png"),
        ai.TextContent("shown"),
        ai.TextContent("hidden", metadata={"display": False}),
        [ai.TextContent("hidden", metadata={"display": False}), "x"],
        [ai.CachePoint(), ai.TextContent("x")],
        [ContentItem(ai.CachePoint()), ContentItem("x", HIDDEN), ContentItem("y")],
        ContentItem(PICTURE, HIDDEN),
        {"in a mapping": ContentItem(PICTURE, HIDDEN), "b": ai.TextContent("x")},
    ],
    ids=lambda value: type(value).__name__,
)
def test_content_is_that_of_the_reference(value: Any) -> None:
    ours, theirs = tool_result_content(value), reference.tool_result_content(value)
    if isinstance(theirs, list):
        assert isinstance(ours, list)
        assert [part.model_dump_json() for part in ours] == [part.model_dump_json() for part in theirs]
    else:
        assert ours == theirs


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(value=JSON)
def test_json_is_that_of_the_reference(value: Any) -> None:
    assert tool_result_content(value) == reference.tool_result_content(value)


def endless() -> Any:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), '"[omitted: not a finite number]"'),
        ([float("inf"), 1], '["[omitted: not a finite number]",1]'),
        (Opaque(), '"[omitted: Opaque has no JSON form]"'),
        ({"a": Opaque(), "b": 1}, '{"a":"[omitted: Opaque has no JSON form]","b":1}'),
        (endless(), '{"self":"[omitted: a value that contains itself]"}'),
        ("\ud800", "\ufffd"),
        ({"\ud800": "\ud83d\ude00"}, '{"\ufffd":"😀"}'),
        (memoryview(b"abc"), '{"payload_omitted":true,"size_bytes":3}'),
        (10**5000, '"[omitted: int has no JSON form]"'),
    ],
    ids=range(9),
)
def test_what_has_no_json_form_is_marked(value: Any, text: str) -> None:
    assert tool_result_content(value) == text


def test_nesting_ends_somewhere() -> None:
    for levels in (183, 300, 100_000):
        text = tool_result_content(nested(levels))
        assert isinstance(text, str)
        assert ("nested deeper" in text) is (levels > 183)


def test_the_same_value_twice_is_no_cycle() -> None:
    shared = [1]
    assert tool_result_content([shared, shared]) == "[[1],[1]]"


def test_a_part_of_a_list_may_be_odd() -> None:
    parts = tool_result_content([PICTURE, Opaque(), float("nan"), "\ud800"])
    assert isinstance(parts, list)
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    assert len(texts) == 4
    assert texts[3] == "\ufffd"


def test_metadata() -> None:
    assert ContentMetadata().model_dump() == HarnessMetadata().model_dump()
    given = {"display": False, "source_id": "s", "media": True, "other": [1]}
    for make in (ContentMetadata, HarnessMetadata):
        assert make.from_native(given).model_dump() == given
        assert make.from_native("text") == make()
    assert ContentMetadata.model_validate(HarnessMetadata(display=False)) == ContentMetadata(display=False)
    assert ContentMetadata.from_native({"display": "maybe"}) == ContentMetadata()
    with pytest.raises(ValueError, match="frozen"):
        ContentMetadata().display = False


def test_authored_inputs() -> None:
    assert AUTHORED_INPUT_EVENT_NAMES == reference.AUTHORED_INPUT_EVENT_NAMES
