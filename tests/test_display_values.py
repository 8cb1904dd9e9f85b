"""How content is held while it grows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_relay.display.values import Json, Text, clean, encoded, frozen, thawed


@given(pieces=st.lists(st.text(max_size=5)), limit=st.integers(0, 40), data=st.data())
def test_text_is_all_that_was_appended_up_to_a_length(pieces: list[str], limit: int, data: st.DataObject) -> None:
    text, whole = Text(), ""
    for piece in pieces:
        whole += piece
        assert text.append(piece, limit) is (len(whole) > limit)
        whole = whole[:limit]
        start = data.draw(st.integers(0, len(whole)))
        assert text.tail(start) == whole[start:]
        if data.draw(st.booleans()):
            assert text.value() == whole
        assert text.length == len(whole)
    assert text.value() == whole


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=3), children, max_size=3),
)


@given(value=JSON)
def test_json_comes_back_as_it_was(value: object) -> None:
    assert repr(thawed(frozen(value))) == repr(value)


def test_what_was_frozen_cannot_be_changed() -> None:
    value = {"a": [1]}
    held = frozen(value)
    value["a"].append(2)
    thawed(held)["a"].append(3)
    assert thawed(held) == {"a": [1]}


@pytest.mark.parametrize("value", [{"a": b"x"}, [{1}], {"a": object()}, b"x"])
def test_what_is_no_json_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="expected a JSON value"):
        frozen(value)


def test_encoded_is_compact() -> None:
    assert encoded({"a": [1, 2.0, None], "字": "\ud800"}) == '{"a":[1,2.0,null],"字":"\ufffd"}'.encode()
    assert type(frozen([])) is Json


def test_clean_text_is_the_same_object() -> None:
    for text in ("a" * 50, "字" * 50):
        assert clean(text) is text
    assert clean("\ud83d\ude00\ud800") == "😀\ufffd"
