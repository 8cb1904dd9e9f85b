"""What each step changes: which item it is about, what becomes of its content and its state. Nothing here can fail.

The work for a step depends neither on the length of what it continues nor on the number of items: text is collected in
pieces, and an `Item` is only made when somebody asks for it.
"""

import hashlib
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw

from agui_relay.display.items import (
    MAX_FIELD_CHARS,
    MAX_OBSERVATION_BYTES,
    DisplayError,
    Item,
    ItemKind,
    ItemRef,
    ItemState,
)
from agui_relay.display.memory import MemorySource
from agui_relay.display.reading import (
    PART_DELTA,
    Delta,
    Fragment,
    Input,
    Lifecycle,
    Message,
    Observation,
    Reader,
    Step,
    Stream,
    ToolFact,
)
from agui_relay.display.records import Items, Mark, Record, Records, Time
from agui_relay.display.source import fitting
from agui_relay.display.values import OMITTED, Json, Streamed, Text, Value, encoded, frozen, size
from agui_relay.framing.fragments import CustomEventAssembler

SCOPES_KEPT = 256
"""Response groups and memory sources are kept for so many runs: the root, and the children heard of last."""

ROOT = "root"
"""Stands for the run itself where children have their ids."""
_ENDS = frozenset({"TEXT_MESSAGE_END", "REASONING_MESSAGE_END", "TOOL_CALL_RESULT"})
_UNBOUNDED = 2**63 - 1

_decode_parts = msgspec.json.Decoder(list[Raw]).decode
_encode = msgspec.json.Encoder().encode


class Held:
    """The observation that streamed arguments are collected in, while nothing else comes between them."""

    __slots__ = ("key", "sequence", "size", "stream")

    def __init__(self, key: str, stream: Stream, sequence: int, size: int) -> None:
        self.key = key
        self.stream = stream
        self.sequence = sequence
        self.size = size
        """The bytes of the observation's value as JSON, with all its arguments."""


type Going = tuple[str, str, str, str | None, int, Record, Text, str, ItemRef]
"""What the latest event appended to. The event's type, the field with the id, the id, the child, how many fields there
are; and then the record, the text, the item's id, and the reference, all of them good while the record says that this
text grows.
"""


class Folding:
    """The items of one run and what is known between two events."""

    def __init__(
        self, run_id: str, items: Sequence[Item], attempt: int, first: int, *, full_content: bool, retain_content: bool
    ) -> None:
        self.run_id, self.attempt = run_id, attempt
        self.full_content, self.retain_content = full_content, retain_content
        self.sequence = 0
        self.next = first
        self.response_groups: dict[str, str] = {}
        self.memory_sources: dict[str, tuple[MemorySource, ...]] = {}
        self.assembler = CustomEventAssembler()
        self._records = Records()
        self._named = self._records.by_key
        self.items = Items(self._records, attempt)
        self.changed: set[str] = set()
        self._unsaved: set[str] = set()
        self._touched: set[str] = set()
        self._begin(list(map(Record.of, items)))
        self._reader = Reader()
        self._read = self._reader.read
        self._held: Held | None = None
        self._going: Going | None = None
        self._hashes: dict[ItemKind, hashlib._Hash] = {}
        self._whole = full_content or retain_content
        self._limit = _UNBOUNDED if self._whole else MAX_FIELD_CHARS

    def _begin(self, records: Sequence[Record]) -> None:
        """Take what is on display already. All of it counts as changed."""
        for record in records:
            record.saved = False
            self._records.put(record)
        self.next += len(records)
        self.changed.update(self._records.by_id)
        self._unsaved.update(self._records.by_id)

    def _apply(self, step: Step) -> Record | None:
        kind = type(step)
        if kind is Message:
            return self._message(step)  # type: ignore[arg-type]
        if kind is Delta:
            return self._delta(step)  # type: ignore[arg-type]
        if isinstance(step, Observation):
            return self._observation(step)
        if isinstance(step, ToolFact):
            return self._tool_fact(step)
        if isinstance(step, Input):
            return self._input(step)
        if isinstance(step, Fragment):
            return self._fragment(step)
        assert isinstance(step, Lifecycle)
        if step.ends:
            self._interrupt_children()
        return self._observe(step.at, step.content)

    def _message(self, step: Message) -> Record:
        if step.field is not None and step.copied is None:
            record = self._grow(step.kind, step.key, step.child, step.field, step.text)
            if record is not None:
                return record
        return self._message_change(step)

    def _grow(self, kind: ItemKind, key: str, child: str | None, field: str, text: str) -> Record | None:
        """Lengthen a field, if that is all there is to do. Most events do nothing else."""
        record = self._named[kind].get(key)
        if record is None:
            return None
        if self.response_groups and "responseGroup" not in record.content and (child or ROOT) in self.response_groups:
            return None
        held = record.growing
        if held is None:
            content = record.content
            if record.state != "in_progress" or record.refs or not ("messageId" in content or "toolCallId" in content):
                return None
            if field in content:
                held = record.text(field)
            else:
                content[field] = held = Text([], 0)
            record.growing = held
            # That it is only going to be lengthened is noted once.
            if record.mark is None:
                record.mark = Mark(record.last, field, held.length)
                self._touched.add(record.id)
            if record.saved:
                record.saved = False
                self._unsaved.add(record.id)
        grown = held.length + len(text)
        if grown <= self._limit:
            held.pieces.append(text)
            held.length = grown
        elif "truncated" in record.content:
            held.append(text, self._limit)
        else:
            return None
        record.last = self.sequence
        if record.made is not None:
            record.made = None
        self.changed.add(record.id)
        return record

    def _message_change(self, step: Message) -> Record:
        if step.field is None:
            return self._turn(
                step.type, step.kind, step.key, step.child, step.at, step.id_field, step.id, step.copied, step.value
            )
        record = self._named[step.kind].get(step.key) or self._open(step.kind, step.key, step.at)
        content = record.content
        self._describe(content, step.child, step.id_field, step.id, step.copied)
        if record.text(step.field).append(step.text, self._limit):
            content["truncated"] = True
        return self._settle(record, record.state, step.at)

    def _turn(
        self,
        event_type: str,
        kind: ItemKind,
        key: str,
        child: str | None,
        at: Time,
        id_field: str,
        own_id: str,
        copied: dict[str, Value] | None,
        value: Value,
    ) -> Record:
        """Fold an event that begins or ends something, or says its result."""
        record = self._named[kind].get(key) or self._open(kind, key, at, copied)
        content, state = record.content, record.state
        if content is not copied:
            self._describe(content, child, id_field, own_id, copied)
        elif self.response_groups:
            self._group(content, child or ROOT)
        if event_type in _ENDS:
            state = "completed"
            if event_type == "TOOL_CALL_RESULT":
                self._result(content, value)
            elif self.memory_sources and event_type == "TEXT_MESSAGE_END" and content.get("role") == "assistant":
                sources = self.memory_sources.get(child or ROOT)
                if sources is not None:
                    content["memory_sources"] = frozen([source.model_dump(mode="json") for source in sources])
        elif event_type == "TOOL_CALL_END":
            content["arguments_complete"] = True
        elif event_type == "REASONING_ENCRYPTED_VALUE":
            content["encrypted_value"] = value
        elif content is copied and "subagentRunId" not in content:
            # It is new, and noted as that.
            return record
        return self._settle(record, state, at)

    def _describe(
        self, content: dict[str, Value], child: str | None, id_field: str, own_id: str, copied: dict[str, Value] | None
    ) -> None:
        """Note what an event says of the item it is about."""
        if copied is not None:
            content.update(copied)
        elif id_field not in content:
            content[id_field] = own_id
            if child is not None:
                content["subagentRunId"] = child
        if self.response_groups:
            self._group(content, child or ROOT)

    def _result(self, content: dict[str, Value], value: Value) -> None:
        if type(value) is not Json:
            self._bounded(content, "result", str(value))
            return
        fits = self._whole or len(value.data) <= MAX_FIELD_CHARS
        content["result_parts"] = value if fits else Json(_encode(fitting(_decode_parts(value.data))))
        if not fits:
            content["truncated"] = True

    def _delta(self, step: Delta) -> Record | None:
        if self.full_content:
            return None
        held = self._held
        if held is not None and held.sequence == self.sequence - 1 and held.stream == step.stream:
            record = self._records.by_id.get(held.key)
            if record is not None:
                if step.about is not None:
                    record.content.update(step.about)
                return self._continue(held, record, step.text)
        data = encoded(step.value, trusted=True) if step.data is None else step.data
        small = len(data) <= MAX_OBSERVATION_BYTES or self.retain_content
        content: dict[str, Value] = {"name": PART_DELTA, "value": (Streamed.of(data) if small else None) or OMITTED}
        if step.about is not None:
            content.update(step.about)
        record = self._observe(step.at, content)
        self._held = Held(record.id, step.stream, self.sequence, len(data))
        return record

    def _continue(self, held: Held, record: Record, text: str) -> Record:
        """Lengthen the arguments of an observation."""
        held.sequence = self.sequence
        content = record.content
        value = content.get("value")
        if type(value) is Streamed:
            # Characters are escaped one by one: the value grows by those of the text.
            held.size += len(_encode(text)) - 2
            value.text.pieces.append(text)
            if held.size > MAX_OBSERVATION_BYTES and not self.retain_content:
                content["value"] = OMITTED
        if record.saved or record.mark is not True:
            return self._repeated(record)
        record.last = self.sequence
        record.made = None
        self.changed.add(record.id)
        return record

    def _fragment(self, step: Fragment) -> Record | None:
        complete = self.assembler.accept(step.payload)
        if complete is None:
            return None
        try:
            whole = self._read(complete, trusted=True)
        except DisplayError:
            self.assembler.gap = True
            return None
        if isinstance(whole, Delta):
            # It came in pieces: it neither continues an observation nor is it continued.
            value = frozen(whole.value, trusted=True)
            whole = Observation(whole.at, whole.child, PART_DELTA, value, whole.about, streamed=True)
        return None if whole is None or isinstance(whole, Fragment) else self._apply(whole)

    def _observation(self, step: Observation) -> Record | None:
        scope = step.child or ROOT
        if step.starts_response:
            _keep(self.response_groups, scope, f"{self.run_id}:{self.attempt}:{self.sequence}")
        if step.sources is not None:
            kinds = {source.kind for source in step.sources}
            kept = tuple(source for source in self.memory_sources.get(scope, ()) if source.kind not in kinds)
            _keep(self.memory_sources, scope, (*kept, *step.sources))
        if self.full_content and step.streamed:
            return None
        value = step.value
        if (len(value.data) if type(value) is Json else size(value)) > MAX_OBSERVATION_BYTES:
            shown = self.retain_content or (self.full_content and step.summary)
            value = value if shown else OMITTED
        content: dict[str, Value] = {"name": step.name, "value": value}
        if step.about is not None:
            content.update(step.about)
        return self._observe(step.at, content)

    def _input(self, step: Input) -> Record:
        record = self._named["text_message"].get(step.key) or self._open("text_message", step.key, step.at)
        content = step.content
        if step.text is not None:
            self._bounded(content, "text", step.text)
        content["input_source"], content["input_group"] = step.source, step.group
        return self._settle(record, "completed", step.at, content)

    def _tool_fact(self, step: ToolFact) -> Record:
        record = self._named["tool_call"].get(step.key) or self._open("tool_call", step.key, step.at)
        content = record.content
        content.update(step.about)
        self._group(content, step.child or ROOT)
        if step.arguments is not None:
            self._bounded(content, "arguments", step.arguments)
        if step.result is not UNSET:
            if self._whole or size(step.result) <= MAX_FIELD_CHARS:
                content["value"] = step.result
            else:
                content["truncated"] = True
        content.update(step.facts)
        return self._settle(record, step.state or record.state, step.at)

    def _fail(self, last: Step, call_id: str, message: str) -> Record | None:
        """Let a call fail, if it is on display. The latest step tells whose it is, and when."""
        record = self._find("tool_call", f"{last.child}:{call_id}" if last.child else call_id)
        if record is None:
            return None
        record.content["failure"] = frozen({"code": "tool_failed", "message": message})
        return self._settle(record, "failed", last.at)

    def _interrupt_children(self) -> None:
        """Mark what children had begun when the run ended: it will not end any more."""
        for record in list(self._records.open_children.values()):
            self._settle(record, "interrupted", record.started)

    def _group(self, content: dict[str, Value], scope: str) -> None:
        """Put an item into the response that its run is giving, unless it is in one."""
        if "responseGroup" not in content and (group := self.response_groups.get(scope)) is not None:
            content["responseGroup"] = group

    def _bounded(self, content: dict[str, Value], field: str, text: str) -> None:
        content[field] = held = Text()
        if held.append(text, self._limit):
            content["truncated"] = True

    # Items

    def _find(self, kind: ItemKind, key: str) -> Record | None:
        record = self._named[kind].get(key)
        if record is None:
            record = self._records.by_id.get(self._name(kind, key))
        return record

    def _open(self, kind: ItemKind, key: str, at: Time, content: dict[str, Value] | None = None) -> Record:
        """Return the record of an item that a source now names; when it was not there, a new one with this content."""
        own_id = self._name(kind, key)
        record = self._records.by_id.get(own_id)
        if record is None:
            record = self._add(own_id, kind, at, None, "in_progress", {} if content is None else content)
        record.key = key
        self._named[kind][key] = record
        return record

    def _observe(self, at: Time, content: dict[str, Value]) -> Record:
        """Show an observation at the place of this event."""
        key = self._name("observation", f"{self.attempt}:{self.sequence}")
        record = self._records.by_id.get(key)
        if record is not None:
            return self._settle(record, "completed", at, content)
        return self._add(key, "observation", at, at, "completed", content)

    def _name(self, kind: ItemKind, source_id: str) -> str:
        """Return what `item_id` does. What all items of a kind share is hashed once."""
        hashed = self._hashes.get(kind)
        if hashed is None:
            hashed = self._hashes[kind] = hashlib.sha256(f"{self.run_id}\0{kind}\0".encode())
        hashed = hashed.copy()
        hashed.update(source_id.encode())
        return f"itm_{hashed.hexdigest()[:32]}"

    def _add(
        self, key: str, kind: ItemKind, at: Time, ended: Time | None, state: ItemState, content: dict[str, Value]
    ) -> Record:
        """Add an item that was not there, noted as changed."""
        sequence, ordinal = self.sequence, self.next
        self.next = ordinal + 1
        record = Record(key, kind, ordinal, sequence, sequence, at, ended, state, content, True, False)
        self._records.by_id[key] = record
        self._touched.add(key)
        self._unsaved.add(key)
        self.changed.add(key)
        return record

    def _repeated(self, record: Record) -> Record:
        """Note that an item has other content, and stands as it stood."""
        key = record.id
        if record.growing is not None:
            record.growing = None
        if record.made is not None:
            record.made = None
        if record.mark is not True:
            record.mark = True
            self._touched.add(key)
        if record.saved:
            record.saved = False
            self._unsaved.add(key)
        record.last = self.sequence
        self.changed.add(key)
        return record

    def _settle(self, record: Record, state: ItemState, at: Time, content: dict[str, Value] | None = None) -> Record:
        """Note how an item stands after a change."""
        if content is None:
            content = record.content
        else:
            record.content = content
        if "subagentRunId" in content and record.child:
            if state == "in_progress":
                self._records.open_children[record.id] = record
            else:
                self._records.open_children.pop(record.id, None)
        record.state = state
        record.ended = at if state == "completed" or state == "failed" else None
        record.ref = None
        if record.refs:
            # They stood for the content as it was.
            record.refs = None
        return self._repeated(record)


def _keep[ValueT](known: dict[str, ValueT], scope: str, value: ValueT) -> None:
    """Note the latest value of a run, and give up the run that was heard of longest ago when there are too many."""
    known.pop(scope, None)
    known[scope] = value
    if len(known) > SCOPES_KEPT:
        del known[next(other for other in known if other != ROOT)]
