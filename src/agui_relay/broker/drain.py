"""What one batch of one run's items becomes: frames, rejected items, the continuation (no I/O)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, get_args

import msgspec

from agui_relay.broker.announcement import FIRST, HIDDEN, LAST, View, encode_body, is_hidden
from agui_relay.broker.scripts import Fetched, Frame, Rejected
from agui_relay.events import CustomEvent, Event, encode_event
from agui_relay.framing.fragments import WHOLE_BYTES, fragment_encoded
from agui_relay.projection.errors import AguiObservationError
from agui_relay.projection.projector import Projector
from agui_relay.source import HarnessItem, ItemError, decode_item

type ItemProcessor = Callable[[HarnessItem, Any], Any]
"""A worker's processor: gets an item and one of its events as an `ag_ui.core` model, returns it or None."""
_DIGIT_0 = ord("0")
_NAME_CHARACTERS = 256
"""Of a CUSTOM's name, those that stand beside each of its frames: its source may be of any length."""


class _ProcessorError(Exception):
    """Says what a processor raised, so that it is told from what the projection does."""


class Batch:
    """The outcome of projecting items `cursor + 1 ...` of a run on top of `projector`."""

    __slots__ = ("consumed", "frames", "items", "rejected", "size")

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.size = 0
        """Bytes of the frames."""
        self.rejected: list[Rejected] = []
        self.items = 0
        """How many items were projected or rejected."""
        self.consumed = 0
        """Bytes of those items."""

    def add(self, item: HarnessItem, events: Sequence[Event]) -> None:
        """Append the frames of one item's events; the identity of fragments derives from the item alone."""
        frames = self.frames
        for index, event in enumerate(events):
            data = encode_event(event)
            self.size += len(data)
            if type(event) is not CustomEvent:
                frames.append((data, _WHOLE[type(event)]))
                continue
            hidden = event.metadata is not None and _decode_shown(event.metadata).display is False
            if len(data) <= WHOLE_BYTES:
                frames.append((data, _custom(event.name[:_NAME_CHARACTERS], hidden, FIRST | LAST)))
                continue
            pieces = fragment_encoded(
                data,
                identity=f"{item.thread_id}:{item.run_id}:{item.sequence}:{index}",
                timestamp=event.timestamp,
                subagent_run_id=event.subagent_run_id,
            )
            for number, piece in enumerate(pieces, 1):
                place = (FIRST if number == 1 else 0) | (LAST if number == len(pieces) else 0)
                frames.append((piece, _custom(event.name[:_NAME_CHARACTERS], hidden, place)))

    def announced(self, view: View, position: int, limit: int) -> bytes:
        """Return what an announcement of these frames after `position` tells a view; nothing above `limit` bytes."""
        frames = list(enumerate(self.frames, position + 1))
        if view != "full":
            frames = [frame for frame in frames if not is_hidden(view, frame[1][1])]
        if sum(len(data) for _, (data, _) in frames) > limit:
            return b""
        lines = encode_body((number, meta[0] - _DIGIT_0, data) for number, (data, meta) in frames)
        return lines if len(lines) <= limit else b""


def project_batch(
    fetched: Fetched,
    restore: Callable[[], Projector],
    projector: Projector | None,
    process: ItemProcessor | None = None,
    poison: str | None = None,
    most_bytes: int = sys.maxsize,
) -> tuple[Batch, Projector]:
    """Project fetched items; a bad one is set aside and the rest goes on as if it had not been there.

    With about `most_bytes` of frames the batch is full: small items can make large frames, for instance of a message
    whose id is long.

    `restore` gives a fresh projector at the fetched cursor; `projector` is one that stands there already. An item that
    is undecodable or refused leaves the projector as it was. Should anything else be raised, nobody knows that, so the
    batch starts over without the item, and its error begins with what raised it. With `poison` the first item is set
    aside with that as its error, unseen.
    """
    given = None if process is None else _telling(process)
    refused: dict[int, str] = {}
    if poison is not None:
        refused[0] = poison
    while True:
        current = projector if projector is not None else restore()
        batch = Batch()
        again = False
        taken = 0
        for index, data in enumerate(fetched.items):
            if batch.size >= most_bytes:
                break
            taken = index + 1
            error = refused.get(index) if refused else None
            if error is None:
                try:
                    if process is None and (event := current.project_short(data)) is not None:
                        kind, frame = event
                        batch.size += len(frame)
                        batch.frames.append((frame, _SHORT[kind]))
                        continue
                    item = decode_item(data)
                    batch.add(item, current.project(item, given))
                    continue
                except (ItemError, AguiObservationError) as refusal:
                    error = f"{type(refusal).__name__}: {refusal}"
                except Exception as failure:
                    told = isinstance(failure, _ProcessorError)
                    refused[index] = str(failure) if told else f"projection: {type(failure).__name__}: {failure}"
                    again = True
                    break
            batch.rejected.append(Rejected(fetched.cursor + index + 1, error, data))
        if not again:
            batch.items = taken
            batch.consumed = sum(map(len, fetched.items[:taken]))
            return batch, current
        projector = None


def _telling(process: ItemProcessor) -> ItemProcessor:
    """Return a processor that does the same, and says of what it raises that it did."""

    def telling(item: HarnessItem, event: Any) -> Any:
        try:
            return process(item, event)
        except Exception as failure:
            raise _ProcessorError(f"processor: {type(failure).__name__}: {failure}") from failure

    return telling


_WHOLE = {kind: f"{FIRST | LAST}{kind.type_name}".encode() for kind in get_args(Event.__value__)}

_SHORT = _WHOLE | {CustomEvent: f"{FIRST | LAST}CUSTOM:a13n.pydantic_ai.part_delta".encode()}


@lru_cache(maxsize=4096)
def _custom(name: str, hidden: bool, place: int) -> bytes:
    return f"{place | HIDDEN if hidden else place}CUSTOM:{name}".encode()


class _Shown(msgspec.Struct):
    display: object = True


_decode_shown = msgspec.json.Decoder(_Shown).decode
