"""Every case of the table above the part cursors, fed whole, through JSON after each item, and with a processor."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec import Raw

from agui_relay.events import encode_event, to_model
from agui_relay.projection import AguiObservationError
from agui_relay.projection.projector import Projector
from agui_relay.source import HarnessItem, Projection

type Brief = tuple[Any, ...]


def item(event: dict[str, Any], *, run_id: str = "run", thread_id: str = "thread", **projection: Any) -> HarnessItem:
    return HarnessItem(
        "pydantic_ai",
        thread_id,
        run_id,
        1,
        "2026-11-29T19:46:39+00:00",
        Raw(json.dumps(event).encode()),
        projection=Projection(5, **projection),
    )


def start(kind: str, index: int = 0, **part: Any) -> dict[str, Any]:
    return {"event_kind": "part_start", "index": index, "part": {"part_kind": kind, **part}}


def end(kind: str, index: int = 0, **part: Any) -> dict[str, Any]:
    return {"event_kind": "part_end", "index": index, "part": {"part_kind": kind, **part}}


def delta(kind: str, index: int = 0, **delta: Any) -> dict[str, Any]:
    return {"event_kind": "part_delta", "index": index, "delta": {"part_delta_kind": kind, **delta}}


def request(index: Any, run_id: str = "run") -> HarnessItem:
    payload = {"type": "model_request_started", "request_index": index}
    event = {"schema_version": "1", "kind": "lifecycle", "payload": payload}
    return HarnessItem("harness", "thread", run_id, 1, "2026-11-29T19:46:39+00:00", Raw(json.dumps(event).encode()))


def brief(event: Any) -> Brief:
    """Shorten an event to its type and what is particular about it."""
    value = json.loads(encode_event(event))
    assert value.get("timestamp") is not None
    names = ("messageId", "toolCallId", "entityId", "toolCallName", "delta", "encryptedValue", "name")
    return (value["type"], *(value[name] for name in names if name in value))


def whole(items: Iterable[HarnessItem]) -> list[Brief]:
    projector = Projector()
    return [brief(event) for one in items for event in projector.project(one)]


def saved(items: Iterable[HarnessItem]) -> list[Brief]:
    projector = Projector()
    events = []
    for one in items:
        events += [brief(event) for event in projector.project(one)]
        projector = Projector.restore(projector.export())
    return events


def processed(items: Iterable[HarnessItem]) -> list[Brief]:
    projector = Projector()
    return [brief(event) for one in items for event in projector.project(one, lambda _, event: event)]


def among_others(items: Iterable[HarnessItem]) -> list[Brief]:
    projector = Projector()
    events = []
    for number, one in enumerate(items):
        events += [brief(event) for event in projector.project(one)]
        projector.project(item(delta("text", 1000 + number, content_delta="other")))
        projector.project(item(delta("thinking", content_delta="other"), run_id="child"))
    return events


WAYS = (whole, saved, processed, among_others)

T0 = "run:request-0:part-0:text"
R0 = "run:request-0:part-0:reasoning"
OPEN, MORE, CLOSE = "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"
ROPEN, RMORE, RCLOSE = "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END"
SIGN = "REASONING_ENCRYPTED_VALUE"
SEEN_START, SEEN_DELTA, SEEN_END = (("CUSTOM", f"a13n.pydantic_ai.part_{name}") for name in ("start", "delta", "end"))


def call(call_id: str = "c", name: str = "tool", args: str | None = None) -> list[Brief]:
    middle = [("TOOL_CALL_ARGS", call_id, args)] if args is not None else []
    return [("TOOL_CALL_START", call_id, name), *middle, ("TOOL_CALL_END", call_id)]


CASES: dict[str, tuple[list[dict[str, Any]], list[Brief]]] = {
    "text": (
        [start("text", content="a"), delta("text", content_delta="b"), end("text", content="ab")],
        [(OPEN, T0), (MORE, T0, "a"), (MORE, T0, "b"), (CLOSE, T0)],
    ),
    "text with the provider's id": (
        [start("text", content="", id="m"), delta("text", content_delta="b"), end("text", content="b", id="m")],
        [(OPEN, "m"), (MORE, "m", "b"), (CLOSE, "m")],
    ),
    "text without a start": ([delta("text", content_delta="b")], [(OPEN, T0), (MORE, T0, "b")]),
    "text that is only an end": (
        [end("text", content="whole", id="m")],
        [(OPEN, "m"), (MORE, "m", "whole"), (CLOSE, "m")],
    ),
    "an empty text": ([end("text", content="")], [(OPEN, T0), (CLOSE, T0)]),
    "an empty text delta": ([delta("text", content_delta="")], [SEEN_DELTA]),
    "an id that comes with the end": (
        [delta("text", content_delta="b"), end("text", content="b", id="late")],
        [(OPEN, T0), (MORE, T0, "b"), (CLOSE, T0)],
    ),
    "a final text with more": (
        [start("text", content="Hé"), delta("text", content_delta="llo "), end("text", content="Héllo wörld")],
        [(OPEN, T0), (MORE, T0, "Hé"), (MORE, T0, "llo "), (MORE, T0, "wörld"), (CLOSE, T0)],
    ),
    "a final text with less": (
        [start("text", content="Hello"), end("text", content="Hell")],
        [(OPEN, T0), (MORE, T0, "Hello"), (CLOSE, T0)],
    ),
    "a final text that is another": (
        [start("text", content="Hello"), end("text", content="Jello world")],
        [(OPEN, T0), (MORE, T0, "Hello"), (CLOSE, T0)],
    ),
    "a final text that differs within a character": (
        [start("text", content="é"), end("text", content="èx")],
        [(OPEN, T0), (MORE, T0, "é"), (CLOSE, T0)],
    ),
    "a start where a message is open": (
        [start("text", content="a", id="m"), start("text", content="b", id="n")],
        [(OPEN, "m"), (MORE, "m", "a"), (CLOSE, "m"), (OPEN, "n"), (MORE, "n", "b")],
    ),
    "another part's start where a message is open": (
        [start("thinking", content="a"), start("file", content={}), end("text", content="b")],
        [(ROPEN, R0), (RMORE, R0, "a"), (RCLOSE, R0), SEEN_START, (OPEN, T0), (MORE, T0, "b"), (CLOSE, T0)],
    ),
    "another part's end where a message is open": (
        [start("text", content="a"), end("compaction", content="b")],
        [(OPEN, T0), (MORE, T0, "a"), (CLOSE, T0), SEEN_END],
    ),
    "a call's start where a message is open": (
        [start("text", content="a"), start("tool-call", tool_name="tool", tool_call_id="c")],
        [(OPEN, T0), (MORE, T0, "a"), (CLOSE, T0), SEEN_START],
    ),
    "thinking": (
        [
            start("thinking", content="", id="rs"),
            delta("thinking", content_delta="a"),
            delta("thinking", signature_delta="s"),
            end("thinking", content="ab", signature="s", id="rs"),
        ],
        [(ROPEN, R0), (RMORE, R0, "a"), (SIGN, R0, "s"), (RMORE, R0, "b"), (RCLOSE, R0)],
    ),
    "a signature that comes with the end": (
        [delta("thinking", content_delta="a"), end("thinking", content="a", signature="s")],
        [(ROPEN, R0), (RMORE, R0, "a"), (SIGN, R0, "s"), (RCLOSE, R0)],
    ),
    "empty thinking deltas": (
        [delta("thinking"), delta("thinking", content_delta=""), delta("thinking", content_delta="a")],
        [(ROPEN, R0), SEEN_DELTA, (RMORE, R0, "a")],
    ),
    "a call": (
        [
            start("tool-call", tool_name="tool", tool_call_id="c", args=""),
            delta("tool_call", args_delta='{"a"', tool_call_id="c"),
            delta("tool_call", args_delta=":1}"),
            end("tool-call", tool_name="tool", tool_call_id="c", args='{"a":1}'),
        ],
        [SEEN_START, SEEN_DELTA, SEEN_DELTA, *call(args='{"a":1}')],
    ),
    "a call without arguments": ([end("tool-call", tool_name="tool", tool_call_id="c", args=None)], call()),
    "a call with empty arguments": ([end("tool-call", tool_name="tool", tool_call_id="c", args="")], call(args="")),
    "a call with arguments that are no text": (
        [end("tool-call", tool_name="tool", tool_call_id="c", args={"b": "字", "a": [1.0, 1e16]})],
        call(args='{"a":[1.0,1e+16],"b":"字"}'),
    ),
    "a call whose id comes with a later delta": (
        [
            delta("tool_call", tool_name_delta="to"),
            delta("tool_call", tool_call_id="c"),
            end("tool-call", tool_name="tool", tool_call_id="c"),
        ],
        [SEEN_DELTA, SEEN_DELTA, *call()],
    ),
    "a call whose id comes with the end": (
        [
            start("tool-call", tool_name="tool", tool_call_id="made-up"),
            end("tool-call", tool_name="tool", tool_call_id="c"),
        ],
        [SEEN_START, *call()],
    ),
    "arguments after the end": (
        [
            end("tool-call", tool_name="tool", tool_call_id="c", args="{}"),
            delta("tool_call", args_delta="x", tool_call_id="c"),
        ],
        [*call(args="{}"), SEEN_DELTA],
    ),
    "text to a message that ended": (
        [
            start("text", content="a"),
            end("text", content="a"),
            end("tool-call", 1, tool_name="tool", tool_call_id="c"),
            delta("text", content_delta="b"),
        ],
        [(OPEN, T0), (MORE, T0, "a"), (CLOSE, T0), *call(), (OPEN, T0), (MORE, T0, "b")],
    ),
    "a native call": (
        [
            start("builtin-tool-call", tool_name="web", tool_call_id="n"),
            delta("tool_call", args_delta="x", tool_call_id="n"),
            end("builtin-tool-call", tool_name="web", tool_call_id="n"),
            start("builtin-tool-return", 1, tool_name="web", tool_call_id="n", content="x"),
        ],
        [SEEN_START, SEEN_DELTA, SEEN_END, SEEN_START],
    ),
    "speech": (
        [start("speech"), delta("speech", transcript_delta="x"), end("speech")],
        [SEEN_START, SEEN_DELTA, SEEN_END],
    ),
    "a part of a kind yet unknown": (
        [start("hologram", content=[1]), delta("hologram"), end("hologram")],
        [SEEN_START, SEEN_DELTA, SEEN_END],
    ),
    "an event of a kind yet unknown": (
        [{"event_kind": "teleport", "index": "x", "part": 5}],
        [("CUSTOM", "a13n.pydantic_ai.teleport")],
    ),
}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("name", CASES)
def test_case(name: str, way: Any) -> None:
    events, expected = CASES[name]
    assert way(item(event) for event in events) == expected


OPENED = {
    "text": start("text", content="a", id="m"),
    "reasoning": start("thinking", content="a"),
    "call": start("tool-call", tool_name="tool", tool_call_id="c"),
    "nameless call": delta("tool_call", args_delta="x"),
}
REFUSED = [
    ("reasoning", delta("text", content_delta="b"), "open as reasoning"),
    ("call", delta("text", content_delta="b"), "open as a tool call"),
    ("text", delta("thinking", content_delta="b"), "open as text"),
    ("text", delta("thinking"), "open as text"),
    ("text", delta("tool_call", args_delta="b"), "open as text"),
    ("call", delta("tool_call", tool_call_id="d"), "the tool call 'c'"),
    ("reasoning", end("text", content="b"), "open as reasoning"),
    ("text", end("thinking", content="b"), "open as text"),
    ("text", end("tool-call", tool_name="tool", tool_call_id="c"), "open as text"),
    ("text", end("text", content="b", id="n"), "the message 'm'"),
    ("text", {"event_kind": "part_delta", "index": 0}, "needs a `delta`"),
    ("text", {"event_kind": "part_start", "index": 0}, "needs a `part`"),
    ("text", {"event_kind": "part_end", "index": 0, "part": None}, "needs a `part`"),
    ("text", {"event_kind": "function_tool_result"}, "needs a `part`"),
    ("text", delta("text", content_delta=5), "delta.content_delta"),
    ("text", start("text", content=5), "part.content"),
    ("text", start("text"), "got nothing - at `$.part.content`"),
    ("text", start("text", content="x", id=5), "part.id"),
    ("call", end("tool-call", tool_call_id="c"), "tool_name"),
    ("call", end("tool-call", tool_name="tool"), "tool_call_id"),
    ("text", {"index": 0}, "event_kind"),
    ("text", {"event_kind": "part_delta", "index": "x", "delta": {"part_delta_kind": "text"}}, "$.index"),
]


@pytest.mark.parametrize(("opened", "event", "says"), REFUSED)
@pytest.mark.parametrize("process", [None, lambda _, event: event], ids=["plain", "processor"])
def test_a_refused_item_leaves_no_trace(opened: str, event: Any, says: str, process: Any) -> None:
    projector = Projector()
    projector.project(item(OPENED[opened]))
    before = projector.export()
    with pytest.raises(AguiObservationError) as caught:
        projector.project(item(event), process)
    assert says in str(caught.value)
    assert not projector.changed
    assert projector.export() == before


def test_open_parts_keep_their_name_when_the_next_request_starts() -> None:
    items = [
        item(delta("text", content_delta="a")),
        request(1),
        item(delta("text", content_delta="b")),
        item(end("text", content="ab")),
        item(delta("text", content_delta="c")),
        request("x"),
        request(-1),
        request(True),
        item(delta("text", 1, content_delta="d")),
    ]
    t1 = "run:request-1:part-0:text"
    names = [event for way in WAYS for event in way(items) if event[0] == OPEN]
    assert names == [(OPEN, T0), (OPEN, t1), (OPEN, "run:request-1:part-1:text")] * len(WAYS)


def test_projected_arguments_win() -> None:
    event = end("tool-call", tool_name="tool", tool_call_id="c", args={"a": 1})
    assert whole([item(event, arguments='{ "a": 1 }')]) == call(args='{ "a": 1 }')


def test_a_continuation_does_not_grow_with_text() -> None:
    projector = Projector()
    projector.project(item(start("text", content="")))
    sizes = []
    for _ in range(3):
        for _ in range(200):
            projector.project(item(delta("text", content_delta="0123456789" * 100)))
        sizes.append(len(projector.export()))
    assert sizes[2] - sizes[0] <= 6
    assert sizes[2] < 250


def test_many_deltas_and_an_end_with_more_after_a_restore() -> None:
    text = "".join(chr(0x4E00 + number % 500) + "é" for number in range(3000))
    projector = Projector()
    sent = ""
    for at in range(0, 3000, 7):
        piece = text[at : at + 7]
        for event in projector.project(item(delta("text", content_delta=piece))):
            sent += getattr(to_model(event), "delta", "")
        projector = Projector.restore(projector.export())
    for event in projector.project(item(end("text", content=text))):
        sent += getattr(to_model(event), "delta", "")
    assert sent == text
