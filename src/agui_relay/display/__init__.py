"""What a run looks like to who comes late: messages, reasoning, tool calls and observations instead of events."""

from agui_relay.display.changes import (
    AppendChange,
    Change,
    ChangeError,
    SetChange,
    apply_changes,
    read_changes,
)
from agui_relay.display.continuation import DisplayContinuation, DisplaySnapshot
from agui_relay.display.fold import DisplayFold
from agui_relay.display.items import (
    ContentRef,
    DisplayError,
    Item,
    ItemKind,
    ItemRef,
    ItemState,
    Observed,
    StreamPosition,
    item_id,
)
from agui_relay.display.memory import FileSource, MemorySource, RecordSource

__all__ = [
    "AppendChange",
    "Change",
    "ChangeError",
    "ContentRef",
    "DisplayContinuation",
    "DisplayError",
    "DisplayFold",
    "DisplaySnapshot",
    "FileSource",
    "Item",
    "ItemKind",
    "ItemRef",
    "ItemState",
    "MemorySource",
    "Observed",
    "RecordSource",
    "SetChange",
    "StreamPosition",
    "apply_changes",
    "item_id",
    "read_changes",
]
