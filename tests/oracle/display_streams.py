"""Random AG-UI events as a display may meet them: in any order, of any run, with what only a host would add."""

from __future__ import annotations

import json
from typing import Any

from a13n_stream_protocol import fragment_custom_event
from ag_ui.core import CustomEvent
from hypothesis import strategies as st

from tests.oracle.streams import Source

type Payload = dict[str, Any]

CHILDREN = (None, None, None, None, None, "child-1", "child-2")
MESSAGES = ("m1", "m1", "m1", "m2", "字")
CALLS = ("call-1", "call-2", "web\n1")
KINDS = ("TEXT_MESSAGE", "REASONING_MESSAGE", "TOOL_CALL")
SIZES = (32_700, 32_768, 40_000, 262_144, 262_145, 300_000)


class Writer:
    """Writes the events of one stream."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.sequence = 0
        self.at = 1_795_981_599_644
        self.pieces: list[list[Payload]] = []

    def event(self, event_type: str, child: str | None, **fields: Any) -> Payload:
        source = self.source
        self.at += source.below(3) * 700
        payload: Payload = {"type": event_type}
        payload["timestamp"] = self.at
        if child is not None:
            payload["subagentRunId"] = child
        payload.update({name: value for name, value in fields.items() if value is not None})
        if source.chance(3):
            payload["metadata"] = source.mapping(1)
        return payload

    def text(self) -> str:
        if self.source.chance(2):
            return "x" * self.source.pick(SIZES)
        return self.source.text()

    def custom(self, name: str, event: Any, child: str | None, **fields: Any) -> Payload:
        self.sequence += 1
        value = {
            "thread_id": "thread-1",
            "run_id": child or "run-1",
            "sequence": self.sequence,
            "occurred_at": "2026-11-29T19:46:39.644757+00:00",
            "event": event,
        }
        return self.event("CUSTOM", child, name=name, value=value, **fields)


def message(write: Writer, child: str | None) -> Payload:
    source = write.source
    kind = source.pick(KINDS)
    step = source.pick(("START", "CONTENT", "CONTENT", "CONTENT", "END"))
    if kind == "TOOL_CALL":
        own: Payload = {"toolCallId": source.pick(CALLS)}
        if step == "CONTENT":
            return write.event("TOOL_CALL_ARGS", child, **own, delta=write.text())
        if step == "START":
            parent = source.pick((None, "m1"))
            return write.event("TOOL_CALL_START", child, **own, toolCallName="search", parentMessageId=parent)
        return write.event(f"TOOL_CALL_{step}", child, **own)
    own = {"messageId": source.pick(MESSAGES)}
    group = "host" if source.chance(3) else None
    if step == "CONTENT":
        return write.event(f"{kind}_CONTENT", child, **own, delta=write.text(), responseGroup=group)
    role = source.pick(("assistant", "assistant", "assistant", "user")) if kind == "TEXT_MESSAGE" else "reasoning"
    return write.event(f"{kind}_{step}", child, **own, role=role if step == "START" else None, responseGroup=group)


def signature(write: Writer, child: str | None) -> Payload:
    entity = write.source.pick(MESSAGES)
    return write.event("REASONING_ENCRYPTED_VALUE", child, subtype="message", entityId=entity, encryptedValue="sig")


def result(write: Writer, child: str | None) -> Payload:
    source = write.source
    content: Any = write.text()
    if source.chance(30):
        content = [{"type": "text", "text": write.text()}, {"type": "text", "text": "b"}]
    call = source.pick(CALLS)
    fields: Payload = {"messageId": f"{call}:result", "toolCallId": call, "content": content, "role": "tool"}
    return write.event("TOOL_CALL_RESULT", child, **fields)


def lifecycle(write: Writer, child: str | None) -> Payload:
    if child is None:
        return write.event("RUN_STARTED", None, threadId="thread-1", runId="run-1", protocolVersion="1.0")
    kind = write.source.pick(("STARTED", "FINISHED", "ERROR"))
    return write.event(f"SUBAGENT_{kind}", child, name="researcher", code="failed")


def ending(write: Writer, child: str | None) -> Payload:
    if write.source.chance(50):
        return write.event("RUN_ERROR", None, message="broken", code="model_error")
    return write.event("RUN_FINISHED", None, threadId="t", runId="run-1", result=write.source.json(), usage=[{"a": 1}])


def arguments(write: Writer, child: str | None) -> Payload:
    source = write.source
    delta = {
        "tool_name_delta": source.pick((None, None, None, None, "search")),
        "args_delta": source.pick((write.text(), write.text(), write.text(), None, {"a": 1})),
        "tool_call_id": source.pick(("call-1", "call-1", "call-1", None)),
        "part_delta_kind": source.pick(("tool_call", "tool_call", "tool_call", "text")),
    }
    event = {"index": source.pick((0, 0, 0, 1)), "delta": delta, "event_kind": "part_delta"}
    return write.custom("a13n.pydantic_ai.part_delta", event, child)


def harness(write: Writer, child: str | None) -> Payload:
    source = write.source
    kind, payload = source.pick(
        (
            ("lifecycle", {"type": "model_request_started", "request_index": 1}),
            ("lifecycle", {"type": "model_request_started", "request_index": 2}),
            ("lifecycle", {"type": "model_request_completed"}),
            ("context", source.mapping()),
            ("usage", "text"),
        )
    )
    return write.custom(f"a13n.harness.{kind}", {"schema_version": "1", "kind": kind, "payload": payload}, child)


def memory(write: Writer, child: str | None) -> Payload:
    source = write.source
    kind, status, sources = source.pick(
        (("memory_recall", "recall", "records"), ("memory_context", "context", "files"))
    )
    memories: list[Any] = []
    for number in range(source.below(3)):
        entry: Payload = {
            "memory": f"memory-{number}",
            status: source.pick(("recalled", "full", "failed", "recalled", "full", "other")),
        }
        if source.chance(92):
            given = {"id": "r", "sha256": "0"} if kind == "memory_recall" else {"path": "p", "sha256": "0", "bytes": 3}
            entry[sources] = [given] if source.chance(92) else [{"odd": 1}]
        if source.chance(20):
            entry["cursor"] = source.pick(("9", "9", "9", 9))
        memories.append(entry)
    payload = {"type": kind, "memories": source.pick((memories, memories, memories, None, ["x"]))}
    return write.custom("a13n.harness.context", {"schema_version": "1", "kind": "context", "payload": payload}, child)


def authored(write: Writer, child: str | None) -> Payload:
    source = write.source
    origin = source.pick(("user", "steering", "context"))
    medium = source.chance(40)
    content: Any = {"kind": "binary", "size_bytes": 3} if medium else write.text()
    event = {
        "input_id": "input-1",
        "source": origin,
        "content": content,
        "message_id": source.pick(("input:1", "m1")),
        "role": "user",
    }
    name = "a13n.input.media" if medium else f"a13n.input.{origin}"
    return write.custom(name, event, child, metadata={"display": True})


def tool_fact(write: Writer, child: str | None) -> Payload:
    source = write.source
    call = source.pick(CALLS)
    match source.below(4):
        case 0:
            part: Payload = {"part_kind": "tool-return", "tool_name": "search", "tool_call_id": call}
            part |= {"content": write.text() if source.chance(50) else source.json(), "metadata": None}
            part["outcome"] = source.pick(("failed", "denied", "retried", "interrupted", "success", None))
            if source.chance(20):
                part["part_kind"] = "retry-prompt"
            name = source.pick(("function_tool_result", "output_tool_result"))
            return write.custom(f"a13n.pydantic_ai.{name}", {"part": part, "event_kind": name}, child)
        case 1:
            args: Any = source.pick((None, '{"a":1}', {"b": write.text(), "a": 1}))
            part = {"part_kind": "builtin-tool-call", "tool_name": "web", "tool_call_id": call, "args": args}
        case 2:
            part = {"part_kind": "builtin-tool-return", "tool_name": "web", "tool_call_id": call}
            part |= {"content": source.json(), "outcome": "success"}
        case _:
            about: tuple[Payload, ...] = (
                {"file_path": "a", "before": write.text(), "after": "b"},
                {"images": [source.json()], "unavailable": True},
                {"apps": [1]},
            )
            event = {"tool_call_id": call, "event_kind": "capability", "kind": "x", **source.pick(about)}
            name = source.pick(("a13n.filesystem.edit_applied", "a13n.tool_images", "a13n.harness-ui.tool_images"))
            name = source.pick((name, "a13n.mcp_apps", "a13n.harness-ui.mcp_apps"))
            return write.custom(name, event, child)
    part["provider_name"] = source.pick((None, "openai"))
    name = source.pick(("part_start", "part_end"))
    return write.custom(f"a13n.pydantic_ai.{name}", {"index": 0, "part": part, "event_kind": name}, child)


def other(write: Writer, child: str | None) -> Payload:
    source = write.source
    match source.below(4):
        case 0:
            return write.event(source.pick(("STATE_SNAPSHOT", "STEP_STARTED", "RAW")), child, snapshot={}, event={})
        case 1:
            return write.event("CUSTOM", child, name="elsewhere", value=source.json())
        case 2:
            name = source.pick(("a13n.context.handoff_summary", "a13n.context.compaction_summary"))
            text = "x" * source.pick((1, 40_000))
            return write.custom(name, {"summary": text, "event_kind": "capability"}, child)
        case _:
            return write.custom("elsewhere.thing", {"event_kind": "capability", "data": write.text()}, child)


def pieces(write: Writer, child: str | None) -> Payload:
    """Begin a large event; its other pieces come in between what follows."""
    source = write.source
    kind = source.below(3)
    if kind == 0:
        whole = authored(write, child)
        whole["value"]["event"]["content"] = "y" * 60_000
    elif kind == 1:
        whole = arguments(write, child)
        whole["value"]["event"]["delta"]["args_delta"] = '{"' * 30_000
    else:
        whole = write.custom("elsewhere.large", {"event_kind": "capability", "data": "z" * 100_000}, child)
    whole.pop("metadata", None)
    frames = fragment_custom_event(CustomEvent.model_validate(whole), identity=f"large-{source.number()}")
    payloads = [frame.model_dump(mode="json", by_alias=True) for frame in frames]
    if source.chance(10):
        del payloads[source.below(len(payloads) - 1) + 1]
    write.pieces.append(payloads[1:])
    return payloads[0]


KINDS_OF_EVENT = (
    *((message,) * 14),
    *((arguments,) * 5),
    *(
        signature,
        result,
        result,
        lifecycle,
        harness,
        harness,
        memory,
        memory,
        authored,
        tool_fact,
        tool_fact,
        tool_fact,
        other,
    ),
    *(pieces, ending),
)


@st.composite
def display_streams(draw: st.DrawFn) -> list[list[Payload]]:
    """Draw the events of one run, in batches as a source's items would give them."""
    source = Source(draw)
    write = Writer(source)
    batches: list[list[Payload]] = []
    child: str | None = None
    kind = message
    for _ in range(source.below(70)):
        if source.chance(50):
            kind = source.pick(KINDS_OF_EVENT)
            child = source.pick(CHILDREN)
        batches.append([kind(write, child) for _ in range(1 + source.below(3) // 2)])
        waiting = [rest for rest in write.pieces if rest]
        if waiting and source.chance(70):
            batches.append([source.pick(waiting).pop(0)])
    batches += [[payload] for rest in write.pieces for payload in rest]
    return batches


def encoded(payload: Payload) -> bytes:
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
