"""Carries an agent run to every watcher: Harness items from Redis Streams, as AG-UI events, each once and in order.

Each name is imported when it is first asked for: who only observes needs neither Redis nor FastStream.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agui_relay.broker.errors import CursorError, ItemTooLarge, RelayError, RunBusy, RunEnded, RunLost, RunNotFound
    from agui_relay.broker.publisher import Publisher
    from agui_relay.broker.settings import RelaySettings
    from agui_relay.broker.subscription import Delivery, DisplayCheckpoint, GapNotice, Subscription
    from agui_relay.broker.worker import create_worker
    from agui_relay.framing.fragments import CustomEventAssembler, fragment_custom_event
    from agui_relay.projection.errors import AguiObservationError
    from agui_relay.projection.observer import AguiEventProcessor, HarnessAguiObserver, HarnessAguiStreamObserver
    from agui_relay.relay import Relay
    from agui_relay.source import HarnessItem, ItemError, decode_item, encode_item, from_harness
    from agui_relay.source.content import AUTHORED_INPUT_EVENT_NAMES, ContentMetadata, tool_result_content

__version__ = version("agui-relay")

_HOMES = {
    "AUTHORED_INPUT_EVENT_NAMES": "source.content",
    "AguiEventProcessor": "projection.observer",
    "AguiObservationError": "projection.errors",
    "ContentMetadata": "source.content",
    "CursorError": "broker.errors",
    "CustomEventAssembler": "framing.fragments",
    "Delivery": "broker.subscription",
    "DisplayCheckpoint": "broker.subscription",
    "GapNotice": "broker.subscription",
    "HarnessAguiObserver": "projection.observer",
    "HarnessAguiStreamObserver": "projection.observer",
    "HarnessItem": "source",
    "ItemError": "source",
    "ItemTooLarge": "broker.errors",
    "Publisher": "broker.publisher",
    "Relay": "relay",
    "RelayError": "broker.errors",
    "RelaySettings": "broker.settings",
    "RunBusy": "broker.errors",
    "RunEnded": "broker.errors",
    "RunLost": "broker.errors",
    "RunNotFound": "broker.errors",
    "Subscription": "broker.subscription",
    "create_worker": "broker.worker",
    "decode_item": "source",
    "encode_item": "source",
    "fragment_custom_event": "framing.fragments",
    "from_harness": "source",
    "tool_result_content": "source.content",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]


__all__ = [
    "AUTHORED_INPUT_EVENT_NAMES",
    "AguiEventProcessor",
    "AguiObservationError",
    "ContentMetadata",
    "CursorError",
    "CustomEventAssembler",
    "Delivery",
    "DisplayCheckpoint",
    "GapNotice",
    "HarnessAguiObserver",
    "HarnessAguiStreamObserver",
    "HarnessItem",
    "ItemError",
    "ItemTooLarge",
    "Publisher",
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
