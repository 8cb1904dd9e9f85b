"""From Harness items to AG-UI events. Knows no server, no clock and no event loop."""

from agui_relay.projection.errors import AguiObservationError, ContinuationError

__all__ = ["AguiObservationError", "ContinuationError"]
