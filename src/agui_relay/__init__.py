"""Carries an agent run to every watcher: Harness items from Redis Streams, as AG-UI events, each once and in order."""

from importlib.metadata import version

from agui_relay.broker.errors import CursorError, ItemTooLarge, RelayError, RunBusy, RunEnded, RunLost, RunNotFound
from agui_relay.broker.settings import RelaySettings
from agui_relay.broker.subscription import Delivery, GapNotice, Subscription
from agui_relay.framing.fragments import CustomEventAssembler, fragment_custom_event
from agui_relay.projection.errors import AguiObservationError
from agui_relay.projection.observer import AguiEventProcessor, HarnessAguiObserver, HarnessAguiStreamObserver
from agui_relay.relay import Relay, create_worker
from agui_relay.source import HarnessItem, ItemError, decode_item, encode_item, from_harness
from agui_relay.source.content import AUTHORED_INPUT_EVENT_NAMES, ContentMetadata, tool_result_content

__version__ = version("agui-relay")

__all__ = [
    "AUTHORED_INPUT_EVENT_NAMES",
    "AguiEventProcessor",
    "AguiObservationError",
    "ContentMetadata",
    "CursorError",
    "CustomEventAssembler",
    "Delivery",
    "GapNotice",
    "HarnessAguiObserver",
    "HarnessAguiStreamObserver",
    "HarnessItem",
    "ItemError",
    "ItemTooLarge",
    "Relay",
    "RelayError",
    "RelaySettings",
    "RunBusy",
    "RunEnded",
    "RunLost",
    "RunNotFound",
    "Subscription",
    "__version__",
    "create_worker",
    "decode_item",
    "encode_item",
    "fragment_custom_event",
    "from_harness",
    "tool_result_content",
]
