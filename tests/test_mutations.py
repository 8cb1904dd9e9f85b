"""Items with something wrong in them: each is refused with a reason or projected, never a crash, never a hang."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from ag_ui.core import Event
from pydantic import TypeAdapter

from agui_relay.events import encode_event
from agui_relay.framing.fragments import WHOLE_BYTES, fragment_encoded
from agui_relay.projection.errors import AguiObservationError
from agui_relay.projection.projector import Projector
from agui_relay.source import ItemError, canonical_item, decode_item, encode_item
from tests.case_files import load_cases

COUNT = int(os.environ.get("AGUI_RELAY_TEST_MUTATIONS", "8000"))
SEED = int(os.environ.get("AGUI_RELAY_TEST_SEED", "20261129"))
PATIENCE = float(os.environ.get("AGUI_RELAY_TEST_TIMEOUT", "2"))
"""Seconds of processor time that one item may take."""

TYPED = TypeAdapter[Any](Event)
NUMBERS = (
    *("0", "-1", "-0", "1e999", "-1e999", "1e308", "1e-400", "0.1", "1.0", "1e16", "01", "+1", "1.", ".5", "0x10"),
    *("9007199254740992", "-9007199254740993", "18446744073709551616", "9" * 400, "1" + "0" * 5000, "1e99999999999"),
    *("NaN", "Infinity", "-Infinity", "-", "1_000"),
)
STRINGS = (
    *(r'"\ud800"', r'"\udc00\ud800"', r'"\ud83d\ude00"', r'"\u0000"', r'"\u000a"', '"\n"', '"\x00"', '"\u2028"', '""'),
    *('"\ufeff"', r'"\u00ff"', r'"\x41"', '"' + "x" * 300 + '"', '"a13n.stream.fragment"', '"RUN_FINISHED"', "'a'"),
)
OTHERS = ("null", "true", "false", "[]", "{}", "[null]", '{"":null}', "[[],{}]", "", "undefined", "{", "]", ",", ":")


class Mutator:
    """Makes one thing wrong with an item's bytes, or a few."""

    def __init__(self, chance: random.Random, pool: list[bytes]) -> None:
        self._chance = chance
        self._pool = pool
        self._ways: list[Callable[[bytes], bytes]] = [
            self.flip,
            self.truncate,
            self.cut_out,
            self.double,
            self.splice,
            self.replace_value,
            self.replace_value,
            self.replace_value,
            self.nest,
            self.double_key,
            self.rename_key,
            self.swap_values,
            self.spread,
        ]

    def __call__(self, data: bytes) -> bytes:
        for _ in range(self._chance.choice((1, 1, 1, 2, 4))):
            data = self._chance.choice(self._ways)(data)
        return data

    def _cut(self, data: bytes) -> int:
        return self._chance.randrange(len(data) + 1)

    def flip(self, data: bytes) -> bytes:
        """Flip bits."""
        changed = bytearray(data)
        for _ in range(self._chance.choice((1, 1, 2, 8))):
            if changed:
                changed[self._chance.randrange(len(changed))] ^= 1 << self._chance.randrange(8)
        return bytes(changed)

    def truncate(self, data: bytes) -> bytes:
        return data[: self._cut(data)] if self._chance.random() < 0.7 else data[self._cut(data) :]

    def cut_out(self, data: bytes) -> bytes:
        first, last = sorted((self._cut(data), self._cut(data)))
        return data[:first] + data[last:]

    def double(self, data: bytes) -> bytes:
        first, last = sorted((self._cut(data), self._cut(data)))
        return data[:last] + data[first:]

    def splice(self, data: bytes) -> bytes:
        """Go on with another item's bytes."""
        other = self._chance.choice(self._pool)
        return data[: self._cut(data)] + other[self._cut(other) :]

    def spread(self, data: bytes) -> bytes:
        """Write the same JSON in another form."""
        try:
            value = json.loads(data)
            return json.dumps(
                value, indent=self._chance.choice((None, 0, 2)), ensure_ascii=self._chance.random() < 0.5
            ).encode("utf-8", "surrogatepass")
        except (ValueError, RecursionError):
            return data

    def _value(self) -> bytes:
        return self._chance.choice(self._chance.choice((NUMBERS, STRINGS, OTHERS))).encode("utf-8", "surrogatepass")

    def _tokens(self, data: bytes) -> list[tuple[int, int, bool]]:
        """Find scalars and strings: where each begins and ends, and whether it is a key. Cheap, and wrong in places."""
        found: list[tuple[int, int, bool]] = []
        position = 0
        while position < len(data):
            if data[position] == 0x22:
                end = position + 1
                while end < len(data) and data[end] != 0x22:
                    end += 2 if data[end] == 0x5C else 1
                found.append((position, min(end + 1, len(data)), data[end + 1 : end + 2] == b":"))
                position = end + 1
            elif data[position] in b"-0123456789tfn":
                end = position
                while end < len(data) and data[end] not in b",]} \n":
                    end += 1
                found.append((position, end, False))
                position = end
            else:
                position += 1
        return found

    def replace_value(self, data: bytes) -> bytes:
        """Put another value, perhaps of a wrong type, in the place of one."""
        values = [token for token in self._tokens(data) if not token[2]]
        if not values:
            return self._value()
        first, last, _ = self._chance.choice(values)
        return data[:first] + self._value() + data[last:]

    def nest(self, data: bytes) -> bytes:
        """Put many levels in the place of a value."""
        levels = self._chance.choice((2, 100, 183, 184, 185, 196, 197, 250, 1000, 5000))
        opening, closing = self._chance.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")))
        tail = closing * levels if self._chance.random() < 0.9 else b""
        values = [token for token in self._tokens(data) if not token[2]]
        first, last = self._chance.choice(values)[:2] if values else (0, 0)
        return data[:first] + opening * levels + b"1" + tail + data[last:]

    def double_key(self, data: bytes) -> bytes:
        """Say a key twice, with another value."""
        keys = [token for token in self._tokens(data) if token[2]]
        if not keys:
            return data
        first, last, _ = self._chance.choice(keys)
        return data[:first] + data[first:last] + b":" + self._value() + b"," + data[first:]

    def rename_key(self, data: bytes) -> bytes:
        keys = [token for token in self._tokens(data) if token[2]]
        if not keys:
            return data
        first, last, _ = self._chance.choice(keys)
        other, end, _ = self._chance.choice(keys)
        return data[:first] + data[other:end] + data[last:]

    def swap_values(self, data: bytes) -> bytes:
        values = [token for token in self._tokens(data) if not token[2]]
        if len(values) < 2:
            return data
        (first, last, _), (other, end, _) = sorted(self._chance.sample(values, 2))
        return data[:first] + data[other:end] + data[last:other] + data[first:last] + data[end:]


class Prober:
    """Feeds items to all that reads them, beside the true ones of a run, and holds what comes out to the promises."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.faults: dict[str, bytes] = {}
        self.slowest = 0.0

    def try_out(self, projector: Projector, data: bytes) -> None:
        started = time.process_time()
        try:
            self.outcomes[self._try_out(projector, data)] += 1
        except Exception as fault:  # whatever it is, it is one fault of many
            self.outcomes["fault"] += 1
            self.faults.setdefault(f"{type(fault).__name__}: {str(fault)[:200]}", data)
        took = time.process_time() - started
        self.slowest = max(self.slowest, took)
        if took > PATIENCE:
            self.faults.setdefault(f"took {took:.1f} s", data)

    def _try_out(self, projector: Projector, data: bytes) -> str:
        item, why = or_why(decode_item, data)
        published, why_not = or_why(canonical_item, data)
        # Publishing is stricter with numbers that are none, and more lenient with what a second look repairs.
        if published is None:
            assert why_not
            if item is not None:
                assert "finite" in why_not or "JSON" in why_not, why_not
            return "refused as an item"
        assert item is not None or why
        item, canonical = published
        assert decode_item(canonical) == item
        assert encode_item(item) == canonical
        assert decode_item(encode_item(item)) == item
        before = projector.export()
        events, why = or_why(projector.project, item)
        if events is None:
            assert why
            assert projector.export() == before
            return "refused by the projector"
        for index, event in enumerate(events):
            encoded = encode_event(event)
            assert b"\n" not in encoded
            assert min(encoded) >= 0x20
            TYPED.validate_json(encoded)
            if len(encoded) > WHOLE_BYTES:
                fragment_encoded(encoded, identity=f"x:{index}")
        Projector.restore(projector.export())
        return "projected"


def or_why[A, R](call: Callable[[A], R], argument: A) -> tuple[R | None, str]:
    """Return what a call gives, or why it refuses."""
    try:
        return call(argument), ""
    except (ItemError, AguiObservationError) as refusal:
        return None, str(refusal)


@pytest.mark.timeout(max(60, COUNT // 200))
def test_mutated_items_are_refused_or_projected() -> None:
    print(f"seed {SEED}: {COUNT} items")
    chance = random.Random(SEED)
    runs = [case.encoded() for case in load_cases()]
    runs += [[canonical_item(data)[1] for data in run if _is_valid(data)] for run in runs]
    mutate = Mutator(chance, [data for run in runs for data in run])
    prober = Prober()
    done = 0
    while done < COUNT:
        run = chance.choice(runs)
        projector = Projector()
        for data in run:
            for _ in range(chance.randrange(4)):
                prober.try_out(projector, mutate(data))
                done += 1
            try:
                projector.project(decode_item(data))
            except (ItemError, AguiObservationError):
                continue
    print(dict(prober.outcomes), f"slowest {prober.slowest:.3f} s")
    assert not prober.faults, "\n".join(f"{what}: {data[:1000]!r}" for what, data in list(prober.faults.items())[:20])
    assert min(prober.outcomes[kind] for kind in ("refused as an item", "projected")) > COUNT // 50


@pytest.mark.parametrize(
    "part",
    [b'{[\\"', b'{"a":', b'[{"a":"', b'"{[', b"\\", b'\\\\"{[', b"\\u", b"\\ud800", b"1e9", b"{", b"]", b'"'],
    ids=repr,
)
@pytest.mark.parametrize("end", [b"", b'"', b"\\", b'"}}', b"}"], ids=repr)
def test_the_cost_of_an_item_follows_its_length(part: bytes, end: bytes) -> None:
    """What is only looked for in vain must not be looked for from each place on."""
    head = (
        b'{"v":1,"source":"harness","thread_id":"t","run_id":"r","sequence":1,"occurred_at":"2026-01-01","event":{"a":"'
    )
    prober = Prober()
    prober.try_out(Projector(), head + part * 100_000 + end)
    prober.try_out(Projector(), head + b"{[" * 200 + part * 100_000 + end)
    assert not prober.faults, list(prober.faults)


def _is_valid(data: bytes) -> bool:
    try:
        decode_item(data)
    except ItemError:
        return False
    return True
