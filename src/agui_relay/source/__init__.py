"""Harness items: the wire form, and the adapters that make items of live objects."""

from agui_relay.source.errors import ItemError
from agui_relay.source.harness import from_harness
from agui_relay.source.items import HarnessItem, Projection, canonical_item, decode_item, encode_item

__all__ = [
    "HarnessItem",
    "ItemError",
    "Projection",
    "canonical_item",
    "decode_item",
    "encode_item",
    "from_harness",
]
