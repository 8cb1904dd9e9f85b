"""Decides how whatever a publisher is given becomes an item and the bytes that are stored."""

from typing import Any

from agui_relay.source.deltas import WholeDeltaItem, canonical_delta
from agui_relay.source.harness import LIVE_ITEM, from_harness
from agui_relay.source.items import HarnessItem, canonical_item, encode_item, encode_made

type WireItem = HarnessItem | WholeDeltaItem


def wire_item(given: HarnessItem | bytes | Any) -> tuple[WireItem, bytes]:
    """Return the item and its canonical bytes, of a `HarnessItem`, the JSON of one, or a live `a13n_harness` item.

    Raises:
        ItemError: it is not valid; the message says where.
        TypeError: it is none of these.

    """
    if isinstance(given, HarnessItem):
        return given, encode_item(given)
    if isinstance(given, bytes | bytearray | memoryview):
        data = bytes(given)
        delta = canonical_delta(data)
        return canonical_item(data) if delta is None else (delta, data)
    try:
        made = from_harness(given)
    except TypeError:
        got = type(given).__name__
        raise TypeError(f"expected a HarnessItem, its JSON as bytes, or {LIVE_ITEM}, got {got}") from None
    return made, encode_made(made)
