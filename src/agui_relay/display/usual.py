"""The events that most streams are made of, folded one by one without the detour of a step.

A way of folding is either taken whole, with the same outcome as by the event's step, or not at all: then None is
returned, nothing has changed, and the step is asked.
"""

from typing import Any

from agui_relay.display.folding import ROOT, Folding
from agui_relay.display.items import ItemKind, ItemRef, Observed
from agui_relay.display.memory import MemorySource
from agui_relay.display.reading import GROWTHS, LAST_TIME, PART_DELTA, TURNS
from agui_relay.display.records import Record, observed, reference
from agui_relay.display.values import Value, clean, thawed


class UsualFolding(Folding):
    """Knows the usual events by their looks alone: a known type, and no fields but the usual ones."""

    def _fold_usual(self, payload: dict[str, Any]) -> Observed | None:
        event_type = payload.get("type")
        if type(event_type) is not str:
            return None
        turn = TURNS.get(event_type)
        if turn is None:
            growth = GROWTHS.get(event_type)
            if growth is not None:
                return self._fold_growth(payload, event_type, growth)
            return self._fold_delta(payload) if event_type == "CUSTOM" and payload.get("name") == PART_DELTA else None
        # The start or end of something that the run itself says.
        kind, id_field, says = turn
        own_id, at = payload.get(id_field), payload.get("timestamp")
        if type(own_id) is not str or not own_id.isascii() or type(at) is not int or not 0 <= at <= LAST_TIME:
            return None
        said: dict[str, Value] | None = None
        if says is not None:
            value = payload.get(says)
            if len(payload) != 4 or type(value) is not str or not value.isascii():
                return None
            said = {id_field: own_id, says: value}
        elif len(payload) != 3:
            return None
        self.sequence = sequence = self.sequence + 1
        record = self._named[kind].get(own_id)
        if record is None and said is not None:
            record = self._open(kind, own_id, at, said)
            if record.content is said:
                # It is new, and noted as that.
                if self.response_groups:
                    self._group(said, ROOT)
                item = record.ref = reference(record)
                return observed(sequence, payload, item)
        if (
            record is None
            or said is not None
            or kind == "tool_call"
            or id_field not in record.content
            or (self.response_groups and "responseGroup" not in record.content)
            or self.memory_sources
        ):
            record = self._turn(event_type, kind, own_id, None, at, id_field, own_id, said, None)
        else:
            self._settle(record, "completed", at)
        item = reference(record)
        if event_type == "TEXT_MESSAGE_END" and "memory_sources" in record.content:
            item = with_sources(item, record)
        return observed(sequence, payload, item)

    def _fold_growth(
        self, payload: dict[str, Any], event_type: str, growth: tuple[ItemKind, str, str]
    ) -> Observed | None:
        """Fold a delta of a message or a call."""
        kind, id_field, field = growth
        own_id, text, child = payload.get(id_field), payload.get("delta"), payload.get("subagentRunId")
        length = 4 if "timestamp" in payload else 3
        if type(own_id) is not str or type(text) is not str:
            return None
        key = own_id
        if child is not None:
            if type(child) is not str or child == "":
                return None
            length += 1
            key = f"{child}:{own_id}"
        if len(payload) != length:
            return None
        self.sequence = sequence = self.sequence + 1
        record = self._grow(kind, key, child, field, text if text.isascii() else clean(text))
        if record is None:
            self.sequence = sequence - 1
            return None
        item = record.ref = record.ref or reference(record)
        if record.growing is not None:
            self._going = (event_type, id_field, own_id, child, length, record, record.growing, record.id, item)
        return observed(sequence, payload, item)

    def _fold_delta(self, payload: dict[str, Any]) -> Observed | None:
        """Fold a delta of the arguments that were last folded."""
        child = payload.get("subagentRunId")
        if child is None and "subagentRunId" in payload:
            return None
        self.sequence = sequence = self.sequence + 1
        record = self._fold_arguments(payload.get("value"), child)
        if record is None:
            self.sequence = sequence - 1
            return None
        item = record.ref = record.ref or reference(record)
        return observed(sequence, payload, item)

    def _fold_arguments(self, value: Any, child: Any) -> Record | None:
        """Lengthen the arguments that were last folded, if this is more of them."""
        held = self._held
        if held is None or held.sequence != self.sequence - 1:
            return None
        record = self._records.by_id.get(held.key)
        thread_id, run_id, shared = held.stream
        shared_delta = shared["delta"]
        try:
            event = value["event"]
            delta = event["delta"]
            text = delta["args_delta"]
            if (
                type(text) is not str
                or value["thread_id"] != thread_id
                or value["run_id"] != run_id
                or {**delta, "args_delta": None} != shared_delta
                or {**event, "delta": shared_delta} != shared
            ):
                return None
        except (LookupError, TypeError):
            return None
        if record is None or child != record.content.get("subagentRunId"):
            return None
        return self._continue(held, record, text if text.isascii() else clean(text))


def with_sources(item: ItemRef, record: Record) -> ItemRef:
    """Return a reference that tells the memory sources of its item too, if it has any."""
    if "memory_sources" not in record.content:
        return item
    sources = thawed(record.content["memory_sources"])
    if not isinstance(sources, list):
        return item
    return item.model_copy(update={"memory_sources": tuple(map(MemorySource.model_validate, sources))})
