"""JSON values as text: whichever way they are read, they are written as Python writes them."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agui_relay.source import ItemError
from agui_relay.source.reading import json_text

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([1e-4, 9.999e-5, 1e16, 9999999999999998.0, -0.0, 5e-324])
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=400, deadline=None)
@given(value=VALUES)
@example({"é": 1, "z": 2, "\uffff": 3, "😀": 4, "": '\x7f\u2028\x1f\b\f\n\r\t"\\/'})
def test_json_is_written_as_python_writes_it(value: Any) -> None:
    expected = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    for ensure_ascii in (True, False):
        assert json_text(json.dumps(value, ensure_ascii=ensure_ascii, indent=1).encode()) == expected


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"1.50", "1.5"),
        (b"-0", "0"),
        (b"-0.0", "-0.0"),
        (b"1E2", "100.0"),
        (b"1e-7", "1e-07"),
        (b"123456789012345678901234567890", "123456789012345678901234567890"),
        (b'{"b":1,"a":2,"b":3}', '{"a":2,"b":3}'),
        (rb'"\/\u00e9"', '"/é"'),
    ],
)
def test_other_forms_of_json(data: bytes, text: str) -> None:
    assert json_text(data) == text


@pytest.mark.parametrize("data", [b"", b"{", b"[1,]", rb'"\ud800"', b'"\xff"', b"[" * 5000])
def test_what_is_not_json_is_refused(data: bytes) -> None:
    with pytest.raises(ItemError):
        json_text(data)
