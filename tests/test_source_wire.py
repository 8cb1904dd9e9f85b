"""What a publisher is given becomes an item and its canonical bytes; a delta on a shorter way, to the same end."""

import random
from typing import Any

import msgspec
import pytest
from pydantic_ai.messages import PartDeltaEvent, TextPartDelta

from agui_relay.bench import recorded
from agui_relay.source import canonical_item
from agui_relay.source.wire import wire_item
from tests.test_mutations import Mutator, or_why

DETAILS = {"provider_name": None, "provider_details": None}
TEXT = 'plain, “quoted”, "escaped"\n\\ 漢字 \x01\x7f\u2028'
DELTAS: dict[str, dict[str, Any]] = {
    "text": {"content_delta": TEXT, **DETAILS, "citations_delta": None, "part_delta_kind": "text"},
    "thinking": {"content_delta": TEXT, "signature_delta": None, **DETAILS, "part_delta_kind": "thinking"},
    "tool_call": {
        "tool_name_delta": None,
        "args_delta": TEXT,
        "tool_call_id": "call-1",
        **DETAILS,
        "part_delta_kind": "tool_call",
    },
}


def written(delta: dict[str, Any], **changed: Any) -> bytes:
    fields = {
        "v": 1,
        "source": "pydantic_ai",
        "thread_id": "Faden „1“",
        "run_id": "run-1",
        "sequence": 7,
        "occurred_at": "2026-01-01T00:00:00.000001+00:00",
        "event": {"index": 0, "delta": delta, "event_kind": "part_delta"},
        "projection": {"timestamp": 1_767_225_600_000},
    }
    return msgspec.json.encode(fields | changed)


def goes_short(data: bytes) -> bool:
    """Tell whether an item goes the short way, after making sure that it does not matter."""
    long, refusal = or_why(canonical_item, data)
    short, why = or_why(wire_item, data)
    assert why == refusal
    if long is None or short is None:
        return False
    (expected, canonical), (item, stored) = long, short
    assert stored == canonical
    for name in ("thread_id", "run_id", "sequence", "occurred_at", "terminal"):
        assert getattr(item, name) == getattr(expected, name)
    return item != expected


@pytest.mark.parametrize("kind", DELTAS)
def test_a_usual_delta_goes_the_short_way_as_it_is(kind: str) -> None:
    data = written(DELTAS[kind])
    assert goes_short(data)
    assert wire_item(data)[1] is data
    assert goes_short(bytes(bytearray(data)))


@pytest.mark.parametrize(
    "data",
    [
        written(DELTAS["text"]).replace(b'"sequence":7', b'"sequence": 7'),
        written(DELTAS["text"]).replace("漢".encode(), b"\\u6f22"),
        written(DELTAS["text"]).replace(b'"v":1,', b"").replace(b'"sequence"', b'"v":1,"sequence"'),
        written(DELTAS["text"] | {"provider_details": {"a": 1e-7}}),
        written(DELTAS["text"] | {"another": None}),
        written(dict(reversed(DELTAS["thinking"].items()))),
        written(DELTAS["tool_call"] | {"args_delta": {"a": 1}}),
        written(DELTAS["text"]).replace(b'{"index":0', b'{"index":0,"index":0'),
        written(DELTAS["text"]).replace(b'{"index":0', b'{"index":0.0'),
        written(DELTAS["text"], sequence=-1),
        written(DELTAS["text"], run_id=" "),
        written(DELTAS["text"], thread_id="x" * 257),
        written(DELTAS["text"], run_id="a\nb"),
        written(DELTAS["text"], projection={"timestamp": 1_767_225_600_000, "failure": "a"}),
        written(DELTAS["text"], source="capability"),
    ],
)
def test_any_other_form_goes_the_long_way(data: bytes) -> None:
    assert not goes_short(data)


@pytest.mark.parametrize("name", recorded.names())
def test_most_deltas_of_a_recorded_run_go_the_short_way(name: str) -> None:
    deltas = [data for data in recorded.load(name) if b'"event_kind":"part_delta"' in data]
    assert sum(map(goes_short, deltas)) > 0.9 * len(deltas)


@pytest.mark.parametrize("given", [PartDeltaEvent(index=0, delta=TextPartDelta("x")), {"v": 1}, '{"v":1}'])
def test_anything_else_is_told_what_is_accepted(given: object) -> None:
    expected = f"expected a HarnessItem, its JSON as bytes, or a live item .*HarnessEvent.* got {type(given).__name__}$"
    with pytest.raises(TypeError, match=expected):
        wire_item(given)


def test_damaged_deltas_are_the_same_on_both_ways() -> None:
    pool = list(map(written, DELTAS.values()))
    chance = random.Random(20261130)
    mutate = Mutator(chance, pool)
    short = 0
    for _ in range(6_000):
        data = mutate(chance.choice(pool))
        short += goes_short(data)
    assert short > 100
