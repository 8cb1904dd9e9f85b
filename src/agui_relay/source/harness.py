"""Makes items of the live objects of a13n-harness: what of them is public, and how it is written."""

from typing import Any

from agui_relay.source.items import HarnessItem


def from_harness(live: Any) -> HarnessItem:
    """Return the item of a live ``a13n_harness`` item."""
    raise NotImplementedError
