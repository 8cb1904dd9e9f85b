"""The fold as its users have it: events in, items out; to be saved at any moment, and to go on from there.

A batch is read before anything is changed, so that a refused one leaves no trace.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET

from agui_relay.display.changes import AppendChange, Change, SetChange
from agui_relay.display.continuation import DisplayContinuation, DisplaySnapshot, StreamedArguments
from agui_relay.display.folding import Held
from agui_relay.display.frames import EVENT_TYPES, Custom, Growth, Own, read_frame
from agui_relay.display.items import DisplayError, Item, Observed, StreamPosition
from agui_relay.display.reading import PART_DELTA, Message, Step
from agui_relay.display.records import OBSERVED_FIELDS, Mark, Record, observed, open_observed, reference, stream_id
from agui_relay.display.saving import read_snapshot, write_snapshot
from agui_relay.display.source import Processor, Source, failed_call
from agui_relay.display.usual import UsualFolding, with_sources
from agui_relay.display.values import Json, Streamed, Text, clean, frozen, size, thawed
from agui_relay.framing.fragments import CustomEventAssembler


class DisplayFold(UsualFolding):
    """Folds the events of one run into items, one attempt after the other.

    Attributes:
        items: The items by id. See :class:`agui_relay.display.records.Items`.
        changed: The ids of items that changed. Whoever publishes them live may clear it.
        sequence: How many events of this attempt were folded; fragments count.
        next: The ordinal of the next new item.

    """

    def __init__(
        self,
        run_id: str,
        items: Sequence[Item] = (),
        *,
        attempt: int = 0,
        first: int = 1,
        full_content: bool = False,
        retain_content: bool = False,
        processor: Processor | None = None,
        continuation: DisplayContinuation | None = None,
    ) -> None:
        """Begin an attempt, or go on from a continuation.

        Args:
            run_id: The run on display. Items are named after it.
            items: What is on display already.
            attempt: Counts the attempts at this run; positions begin with it.
            first: The ordinal of the first of ``items``.
            full_content: Nothing is cut, and no observation of a single delta or part is shown: for people at work.
            retain_content: Nothing is cut, everything is shown: for a host that stores whole values.
            processor: Sees each event of :meth:`events` first, as in ``HarnessAguiStreamObserver``.
            continuation: What an earlier fold of the same run, attempt and ``full_content`` exported.

        Raises:
            ValueError: the continuation is that of another run, attempt or ``full_content``.

        """
        super().__init__(run_id, items, attempt, first, full_content=full_content, retain_content=retain_content)
        if continuation is not None:
            self._resume(continuation)
        observer = None if continuation is None else continuation.observer
        self._source = Source(processor, observer, bounded=not (full_content or retain_content))

    def _resume(self, state: DisplayContinuation) -> None:
        expected = (self.run_id, self.attempt, self.full_content)
        got = (state.run_id, state.position.attempt, state.full_content)
        if got != expected:
            raise ValueError(
                f"expected the continuation of run, attempt and full_content {expected!r}, got that of {got!r}"
            )
        self.next, self.sequence = state.next_ordinal, state.position.sequence
        self.response_groups, self.memory_sources = dict(state.response_groups), dict(state.memory_sources)
        self.assembler = CustomEventAssembler.restore(state.fragments)
        held = state.arguments
        record = None if held is None else self._records.by_id.get(held.key)
        if held is None or record is None:
            return
        value = record.content.get("value")
        thread_id, run_id, event = held.stream
        if not isinstance(event.get("delta"), dict):
            return
        self._held = Held(held.key, (thread_id, run_id, thawed(frozen(event))), held.sequence, size(thawed(value)))
        if type(value) is Json and (streamed := Streamed.of(value.data)) is not None:
            record.content["value"] = streamed

    @classmethod
    def restore(cls, snapshot: DisplaySnapshot, *, processor: Processor | None = None) -> "DisplayFold":
        """Return a fold that goes on from a snapshot, with the same policies. It needs the same processor."""
        state = snapshot.continuation
        return cls(
            state.run_id,
            snapshot.items,
            attempt=state.position.attempt,
            full_content=state.full_content,
            retain_content=state.retain_content,
            processor=processor,
            continuation=state,
        )

    def save(self) -> bytes:
        """Return what `export` does, as JSON: ``export().model_dump_json()``, several times as fast."""
        continuation = self.export_continuation()
        data = write_snapshot(self._records.by_id.values(), self.attempt, continuation)
        return self.export().model_dump_json().encode() if data is None else data

    @classmethod
    def load(cls, data: bytes, *, processor: Processor | None = None) -> "DisplayFold":
        """Return a fold that goes on from a snapshot's JSON: ``restore(DisplaySnapshot.read(data))``, but faster.

        Raises:
            ContinuationError: it is none, or was written by a newer release.

        """
        read = read_snapshot(data)
        if read is None:
            return cls.restore(DisplaySnapshot.read(data), processor=processor)
        records, state = read
        fold = cls.restore(DisplaySnapshot.model_construct(items=[], continuation=state), processor=processor)
        fold._begin(records)
        # Once more, for what concerns the items.
        fold._resume(state)
        return fold

    @property
    def position(self) -> StreamPosition:
        """The place of the latest event."""
        return StreamPosition(attempt=self.attempt, sequence=self.sequence)

    def events(self, source: Any) -> list[dict[str, Any]]:
        """Return the AG-UI events of one ``HarnessItem`` or live item, as the JSON that the stream carries.

        Raises:
            TypeError: it is no item.
            AguiObservationError: the item is refused. Nothing has changed.

        """
        return self._source.events(source)

    def fold(
        self, events: Sequence[dict[str, Any]], source: Any = None, *, position: int | None = None
    ) -> list[Observed]:
        """Give each event its place and fold it, all or none.

        Args:
            events: AG-UI events as JSON mappings.
            source: The item they came from. When it is a tool result that failed, was denied or has to be tried again,
                its call fails with the text that says why.
            position: The place of the last event, if it is another than the next: a relay's display checkpoint counts
                frames, and an event may have been several.

        Raises:
            DisplayError: something is no AG-UI event, or has no JSON form. Nothing has changed.
            ValueError: the place was given to an event before. Nothing has changed.

        """
        if position is not None:
            return self._fold_at(position, events, source)
        failed = failed_call(source) if source is not None and events else None
        if failed is None and len(events) == 1:
            payload = events[0]
            if type(payload) is not dict:
                self._going = None
                return [self._fold_step(payload, self._read(payload))]
            going = self._going
            if going is not None:
                # Most events go on where the one before did: there is nothing to look up, or to note.
                event_type, id_field, own_id, child, length, record, held, key, item = going
                text = payload.get("delta")
                if (
                    payload.get("type") == event_type
                    and payload.get(id_field) == own_id
                    and record.growing is held
                    and len(payload) == length
                    and "timestamp" in payload
                    and (child is None or payload.get("subagentRunId") == child)
                    and type(text) is str
                ):
                    if not text.isascii():
                        text = clean(text)
                    grown = held.length + len(text)
                    if grown <= self._limit:
                        held.pieces.append(text)
                        held.length = grown
                        takes = True
                    elif takes := "truncated" in record.content:
                        held.append(text, self._limit)
                    if takes:
                        self.sequence = record.last = sequence = self.sequence + 1
                        if record.made is not None:
                            record.made = None
                        self.changed.add(key)
                        # As `observed`, without the call.
                        made = open_observed()
                        made.__dict__ = {"sequence": sequence, "event": payload, "item": item}
                        made.__pydantic_fields_set__ = OBSERVED_FIELDS
                        made.__pydantic_extra__ = made.__pydantic_private__ = None
                        made.__class__ = Observed
                        return [made]
                self._going = None
            usual = self._fold_usual(payload)
            return [self._fold_step(payload, self._read(payload)) if usual is None else usual]
        steps = [self._read(payload) for payload in events]
        # An item may change and grow again in between: by its text alone that could not be told.
        self._going = None
        seen = list(map(self._fold_step, events, steps))
        step = steps[-1] if steps else None
        if failed is not None and step is not None and (call := self._fail(step, *failed)) is not None:
            seen[-1] = observed(self.sequence, events[-1], reference(call))
        return seen

    def _fold_at(self, position: int, events: Sequence[dict[str, Any]], source: Any) -> list[Observed]:
        before = self.sequence
        if position - len(events) < before:
            raise ValueError(f"expected a position of at least {before + len(events)}, got {position}")
        self.sequence = position - len(events)
        try:
            return self.fold(events, source)
        except DisplayError:
            self.sequence = before
            raise

    def _fold_step(self, payload: dict[str, Any], step: Step | None) -> Observed:
        self.sequence = sequence = self.sequence + 1
        if type(step) is Message:
            record: Record | None = self._message(step) if step.copied is None else self._message_change(step)
        else:
            record = None if step is None else self._apply(step)
        if record is None:
            return observed(sequence, payload, None)
        item = record.ref = record.ref or reference(record)
        if type(step) is Message and step.type == "TEXT_MESSAGE_END":
            item = with_sources(item, record)
        return observed(sequence, payload, item)

    def fold_frames(self, frames: Iterable[bytes]) -> None:
        """Fold encoded frames, all or none, for who needs the display only: a worker that makes a checkpoint.

        Raises:
            DisplayError: something is no AG-UI event. Nothing has changed.

        """
        self._going = None
        reader, limit = self._reader, self._limit
        before: Growth | None = None
        record: Record | None = None
        held: Text | None = None
        for event in [read_frame(frame, reader) for frame in frames]:
            self.sequence = sequence = self.sequence + 1
            if not isinstance(event, Growth):
                before = None
                self._fold_read(event)
                continue
            if (
                before is not None
                and held is not None
                and record is not None
                and event.id == before.id
                and type(event) is type(before)
                and event.child == before.child
            ):
                # It goes on where the one before did: there is nothing to look up, or to note.
                grown = held.length + len(event.delta)
                if grown <= limit:
                    held.pieces.append(event.delta)
                    held.length = grown
                    record.last = sequence
                    continue
            record = self._fold_growing(event)
            before, held = event, record.growing

    def _fold_growing(self, event: Growth) -> Record:
        child = event.child
        if child is UNSET:
            record = self._grow(event.kind, event.id, None, event.grows, event.delta)
        else:
            record = self._grow(event.kind, f"{child}:{event.id}", child, event.grows, event.delta)
        return self._message_change(event.step(EVENT_TYPES[type(event)])) if record is None else record

    def _fold_read(self, event: Own | Custom | Step | None) -> None:
        """Fold what was read from a frame."""
        if isinstance(event, Own):
            child = None if event.child is UNSET else event.child
            key = event.id if child is None else f"{child}:{event.id}"
            copied, value = event.says()
            event_type = EVENT_TYPES[type(event)]
            self._turn(event_type, event.kind, key, child, event.at, event.id_field, event.id, copied, value)
        elif isinstance(event, Custom):
            if event.name == PART_DELTA and event.child is not None:
                child = None if event.child is UNSET else event.child
                if self._fold_arguments(event.value, child) is not None:
                    return
            step = event.step(self._reader)
            if step is not None:
                self._apply(step)
        elif event is not None:
            self._apply(event)

    def export(self) -> DisplaySnapshot:
        """Return all items and the continuation, sharing nothing. What is open stays open, in both."""
        items = [record.item(self.attempt) for record in self._records.by_id.values()]
        return DisplaySnapshot(items=items, continuation=self.export_continuation())

    def capture_delta(self) -> DisplaySnapshot:
        """Return the items that changed since the last call, and the continuation: the next part of a checkpoint.

        Clearing ``changed`` has no part in this. After a restore, all items count as changed.
        """
        records = [record for key in self._unsaved if (record := self._records.by_id.get(key)) is not None]
        for record in records:
            record.saved = True
            record.growing = None
        records.sort(key=lambda record: record.ordinal)
        snapshot = DisplaySnapshot(
            items=[record.item(self.attempt) for record in records], continuation=self.export_continuation()
        )
        self._unsaved.clear()
        return snapshot

    def export_continuation(self) -> DisplayContinuation:
        """Return what a fold needs to go on, besides the items."""
        held = self._held
        arguments = None
        if held is not None and held.sequence == self.sequence and held.key in self._records.by_id:
            arguments = StreamedArguments(key=held.key, stream=held.stream, sequence=held.sequence)
        return DisplayContinuation(
            run_id=self.run_id,
            position=self.position,
            next_ordinal=self.next,
            full_content=self.full_content,
            retain_content=self.retain_content,
            response_groups=dict(self.response_groups),
            memory_sources=dict(self.memory_sources),
            arguments=arguments,
            fragments=self.assembler.export(),
            observer=self._source.export(),
        )

    def take_changes(self) -> list[Change]:
        """Return what changed since the last call: for a text that only grew, the rest of it; else the whole item.

        In the order of ordinals. A snapshot from the moment of the last call (or, before the first, the items that the
        fold began with) and these changes are the items as they stand.
        """
        changes: list[Change] = []
        touched = [record for key in self._touched if (record := self._records.by_id.get(key)) is not None]
        touched.sort(key=lambda record: record.ordinal)
        for record in touched:
            mark = record.mark
            record.mark = record.growing = None
            if type(mark) is not Mark:
                changes.append(SetChange(item=record.item(self.attempt)))
                continue
            changes.append(
                AppendChange(
                    id=record.id,
                    field="text" if mark.field == "text" else "arguments",
                    delta=record.text(mark.field).tail(mark.length),
                    after_stream_id=stream_id(mark.after, self.attempt),
                    stream_id=stream_id(record.last, self.attempt),
                )
            )
        self._touched.clear()
        return changes
