"""Live objects become items: as public as their class says, without media, and whatever they hold."""

import subprocess
import sys
import warnings
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any

import pytest
from a13n_harness.content import ContentMetadata as HarnessMetadata
from a13n_harness.events import (
    HarnessEvent,
    HarnessExtensionEvent,
    HarnessRunResultEvent,
    InputMediaEvent,
    InputTextEvent,
)
from a13n_harness.result import HarnessRunResult, SafeFailure
from a13n_harness.state import HarnessState
from a13n_harness.tools.deferred import DeferredToolRequests
from a13n_harness.usage import RunUsageSummary
from pydantic import BaseModel, Field, TypeAdapter, field_serializer
from pydantic_ai import messages as ai
from pydantic_ai.tools import DeferredToolResults
from pydantic_core import from_json

from agui_relay.source import HarnessItem, ItemError, canonical_item, decode_item, encode_item, from_harness

AT = datetime(2026, 11, 29, 19, 46, 39, 507757, tzinfo=UTC)
SECRET = b"\x89PNG\r\n SECRET \xff\xfe"
BASE64 = "iVBORw0KIFNFQ1JFVCD//g=="
IMAGE = ai.BinaryContent(SECRET, media_type="image/png")
DATA_URL = ai.ImageUrl("data:image/png;base64," + BASE64)


def live(event: Any, **changes: Any) -> HarnessEvent:
    fields: dict[str, Any] = {"thread_id": "thread", "run_id": "run", "sequence": 3, "occurred_at": AT}
    return HarnessEvent(**(fields | changes), event=event)


def item_of(event: Any) -> HarnessItem:
    """Make the item, and make sure that its bytes are canonical and free of media."""
    item = from_harness(live(event))
    data = encode_item(item)
    assert canonical_item(data)[1] is data
    assert decode_item(data) == item
    assert b"SECRET" not in data
    assert BASE64.encode()[:12] not in data
    return item


def event_of(event: Any) -> Any:
    return from_json(bytes(item_of(event).event))


@dataclass(kw_only=True)
class PictureEvent(ai.CapabilityEvent, namespace="test.harness", name="picture"):
    title: str
    image: bytes = b""
    extra: Any = None


@dataclass(kw_only=True)
class GuardedEvent(ai.CapabilityEvent, namespace="test.harness", name="guarded"):
    hidden: Annotated[bytes, Field(exclude=True)] = b""
    masked: Annotated[str, Field(serialization_alias="Masked")] = ""
    image: bytes = b""


class Masked(BaseModel):
    password: str
    picture: bytes = b""

    @field_serializer("password")
    def _mask(self, value: str) -> str:
        return "*" * len(value)


class Opaque:
    pass


@pytest.mark.parametrize(
    "event",
    [
        ai.PartDeltaEvent(index=0, delta=ai.TextPartDelta("x")),
        ai.PartDeltaEvent(index=2, delta=ai.TextPartDelta('é"\n\x01', provider_name="p", provider_details={"a": 1e16})),
        ai.PartDeltaEvent(index=0, delta=ai.TextPartDelta("")),
        ai.PartDeltaEvent(index=0, delta=ai.ThinkingPartDelta(content_delta="x")),
        ai.PartDeltaEvent(index=0, delta=ai.ThinkingPartDelta(signature_delta="s", provider_name="p")),
        ai.PartDeltaEvent(index=0, delta=ai.ThinkingPartDelta(provider_details=lambda details: details or {})),
        ai.PartDeltaEvent(index=0, delta=ai.ToolCallPartDelta(args_delta='{"a', tool_call_id="c")),
        ai.PartDeltaEvent(index=0, delta=ai.ToolCallPartDelta(args_delta={"a": 1}, tool_name_delta="n")),
        ai.PartDeltaEvent(index=0, delta=ai.SpeechPartDelta(transcript="x")),
        ai.PartStartEvent(index=0, part=ai.TextPart("x", id="m", provider_name="p")),
        ai.PartEndEvent(index=0, part=ai.ToolCallPart("n", {"b": 1, "a": 2}, "c"), next_part_kind="text"),
        ai.PartStartEvent(
            index=0,
            part=ai.NativeToolReturnPart("n", [ai.ImageUrl("https://x/y.png"), {"a": 1}], "c", timestamp=AT),
        ),
        ai.FunctionToolCallEvent(ai.ToolCallPart("n", '{"a":1}', "c"), args_valid=True),
        ai.FinalResultEvent(tool_name=None, tool_call_id=None),
        PictureEvent(title="t"),
    ],
    ids=lambda event: type(getattr(event, "delta", getattr(event, "part", event))).__name__,
)
def test_the_event_is_what_its_class_writes(event: Any) -> None:
    expected = TypeAdapter(type(event)).dump_json(event, by_alias=True, exclude={"image"})
    got = event_of(event)
    got.pop("image", None)
    assert got == from_json(expected)
    assert list(got) == list(from_json(expected))


def test_media_is_described_wherever_it_is() -> None:
    described = {"kind": "binary", "media_type": "image/png", "size_bytes": len(SECRET), "payload_omitted": True}
    omitted = {"payload_omitted": True, "size_bytes": len(SECRET)}
    start = ai.PartStartEvent(index=0, part=ai.FilePart(content=IMAGE, id="f"))
    assert event_of(start)["part"] == {
        "content": described,
        "id": "f",
        "provider_name": None,
        "provider_details": None,
        "part_kind": "file",
    }
    native = ai.NativeToolReturnPart("n", [IMAGE, DATA_URL, {"deep": [SECRET]}], "c", timestamp=AT)
    content = event_of(ai.PartEndEvent(index=0, part=native))["part"]["content"]
    assert content[0] == described
    assert content[1]["payload_omitted"] is True
    assert "url" not in content[1]
    assert content[2] == {"deep": [omitted]}
    speech = ai.SpeechPart(speaker="user", transcript="hi", audio=IMAGE)
    assert event_of(ai.PartStartEvent(index=0, part=speech))["part"]["audio"] == described
    delta = ai.PartDeltaEvent(index=0, delta=ai.SpeechPartDelta(transcript="hi", audio_chunk=SECRET))
    assert event_of(delta)["delta"]["audio_chunk"] == omitted
    # Whether bytes happen to be text does not decide.
    assert event_of(PictureEvent(title="t", image=b"plain"))["image"] == {"payload_omitted": True, "size_bytes": 5}
    got = event_of(PictureEvent(title="t", image=SECRET, extra={"a": [IMAGE, memoryview(SECRET)], "b": 1}))
    assert (got["title"], got["image"], got["extra"]) == ("t", omitted, {"a": [described, omitted], "b": 1})
    call = ai.ToolCallPart("n", {"picture": SECRET}, "c")
    assert event_of(ai.PartEndEvent(index=0, part=call))["part"]["args"] == {"picture": omitted}
    unknown = ai.UnknownCapabilityEvent(kind="elsewhere.picture", data={"picture": SECRET, "a": 1})
    assert event_of(unknown)["picture"] == omitted


def test_what_a_class_leaves_out_stays_out_beside_media() -> None:
    got = event_of(GuardedEvent(hidden=SECRET, masked="m", image=SECRET))
    assert "hidden" not in got
    assert got["Masked"] == "m"
    assert got["image"]["payload_omitted"] is True
    nested = event_of(PictureEvent(title="t", extra=Masked(password="hunter2", picture=SECRET)))["extra"]
    assert nested == {"password": "*******", "picture": {"payload_omitted": True, "size_bytes": len(SECRET)}}


def test_batches_are_reduced_to_ids() -> None:
    request = ai.ModelRequest(parts=[ai.UserPromptPart(["secret words", IMAGE])])
    enqueued = ai.EnqueuedMessagesEvent(enqueue_id="e", messages=(request,), parts=(ai.UserPromptPart("secret words"),))
    assert event_of(enqueued) == {"event_kind": "enqueued_messages", "enqueue_id": "e"}
    results = DeferredToolResults(calls={"a": IMAGE}, approvals={"b": True})
    assert event_of(ai.DeferredToolResultsEvent(results)) == {
        "event_kind": "deferred_tool_results",
        "call_ids": ["a"],
        "approval_ids": ["b"],
    }


def tool_return(content: Any, **changes: Any) -> ai.FunctionToolResultEvent:
    return ai.FunctionToolResultEvent(
        ai.ToolReturnPart("n", content, "c", timestamp=AT, **changes), content=["for the model", IMAGE]
    )


def test_a_result_keeps_what_the_tool_returned_only() -> None:
    supplement = {"a13n.tool-content": {"result_index": 0}, "private": "secret"}
    item = item_of(tool_return([{"b": 1, "a": [1.0]}, "for the model", IMAGE], metadata=supplement))
    part = from_json(bytes(item.event))["part"]
    assert part["content"] == {"b": 1, "a": [1.0]}
    assert part["metadata"] is None
    assert item.projection is not None
    assert not bytes(item.projection.content)
    assert b"for the model" not in encode_item(item)
    broken = item_of(tool_return(["x"], metadata={"a13n.tool-content": {"result_index": 7}}))
    assert "omitted" in from_json(bytes(broken.event))["part"]["content"]
    assert b'"x"' not in bytes(broken.event)


def test_media_in_a_result_becomes_content_parts() -> None:
    item = item_of(tool_return(["look", IMAGE, ai.ImageUrl("https://x/y.png")]))
    assert item.projection is not None
    parts = from_json(bytes(item.projection.content))
    assert parts[0] == {"type": "text", "text": "look"}
    assert parts[1]["type"] == "text"
    assert parts[2] == {
        "type": "image",
        "source": {"type": "url", "value": "https://x/y.png", "mimeType": "image/png"},
    }


@pytest.mark.parametrize("outcome", ["failed", "denied", "retried", "interrupted"])
def test_a_failed_result_says_what_a_display_shows(outcome: Any) -> None:
    item = item_of(tool_return({"why": "x" * 5000, "picture": SECRET}, outcome=outcome, metadata={"k": 1}))
    part = from_json(bytes(item.event))["part"]
    assert part["outcome"] == outcome
    assert part["metadata"] == {"k": 1}
    assert part["content"]["picture"]["payload_omitted"] is True
    assert item.projection is not None
    assert item.projection.failure is not None
    assert len(item.projection.failure) == 4096
    assert from_json(bytes(item.event))["content"] is None


@pytest.mark.parametrize("metadata", [Opaque(), {"a": Opaque()}, {"a": SECRET}, [IMAGE]], ids=range(4))
def test_metadata_without_json_form_does_not_leave(metadata: Any) -> None:
    for outcome in ("failed", "success"):
        part = event_of(tool_return("no", outcome=outcome, metadata=metadata))["part"]
        assert part["metadata"] is None
        assert part["content"] == "no"


def test_a_retry_prompt_is_a_failed_result() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        part = ai.RetryPromptPart("again", tool_name="n", tool_call_id="c", timestamp=AT)
    for kind in (ai.FunctionToolResultEvent, ai.OutputToolResultEvent):
        item = item_of(kind(part))  # type: ignore[arg-type]
        assert from_json(bytes(item.event))["part"]["part_kind"] == "retry-prompt"
        assert item.projection is not None
        assert item.projection.failure == "again"


def cycle() -> list[Any]:
    value: list[Any] = [1]
    value.append(value)
    return value


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


ODD = [
    float("nan"),
    float("inf"),
    Opaque(),
    Opaque,
    cycle(),
    nested(300),
    nested(5_000),
    {1: nested(300)},
    {(1, 2): 3, None: 4},
    "\ud800",
    "\ud83d\ude00",
    {"\udc00": "\udc00"},
    {Opaque()},
    10**5000,
    b"\xff",
    lambda value: value,
]


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_no_value_is_too_odd(odd: Any) -> None:
    events: list[Any] = [
        tool_return(odd),
        tool_return([odd, {"a": odd}]),
        tool_return(odd, outcome="failed"),
        tool_return("x", outcome="failed", metadata=odd),
        PictureEvent(title="t", extra=odd),
        ai.UnknownCapabilityEvent(kind="elsewhere.thing", data={"a": odd}),
        ai.UnknownCapabilityEvent(kind="a13n.input.text", data={"a": odd}),
        ai.UnknownCustomEvent(name="thing", data={"a": odd}),
        ai.PartEndEvent(index=0, part=ai.ToolCallPart("n", {"a": odd}, "c")),
        ai.FunctionToolCallEvent(ai.ToolCallPart("n", {"a": odd}, "c")),
        ai.PartDeltaEvent(index=0, delta=ai.ToolCallPartDelta(args_delta={"a": odd})),
        ai.PartDeltaEvent(index=0, delta=ai.TextPartDelta("x", provider_details={"a": odd})),
        ai.PartStartEvent(index=0, part=ai.NativeToolReturnPart("n", odd, "c")),
        ai.PartStartEvent(index=0, part=ai.CompactionPart("x", provider_details={"a": odd})),
    ]
    for event in events:
        item_of(event)


def test_markers_say_what_was_omitted() -> None:
    content = event_of(tool_return({"n": float("nan"), "o": Opaque(), "c": cycle(), "d": nested(300), "k": 1}))
    got = content["part"]["content"]
    assert got["k"] == 1
    assert got["n"] == "[omitted: not a finite number]"
    assert got["o"] == "[omitted: Opaque has no JSON form]"
    assert got["c"] == [1, "[omitted: a value that contains itself]"]
    assert "nested deeper than" in str(got["d"])


def test_surrogates_are_replaced_in_every_place_alike() -> None:
    for event in (
        ai.PartDeltaEvent(index=0, delta=ai.TextPartDelta("a\ud800b")),
        ai.PartDeltaEvent(index=0, delta=ai.ThinkingPartDelta(content_delta="a\ud800b")),
        ai.PartDeltaEvent(index=0, delta=ai.ToolCallPartDelta(args_delta="a\ud800b")),
        ai.PartEndEvent(index=0, part=ai.TextPart("a\ud800b")),
        tool_return("a\ud800b"),
        InputTextEvent(input_id="i", source="user", content="a\ud800b"),
    ):
        assert "a\ufffdb".encode() in bytes(item_of(event).event)
    item = from_harness(live(ai.FinalResultEvent(tool_name=None, tool_call_id=None), run_id="r\ud800"))
    assert item.run_id == "r\ufffd"


def test_hidden_input_stays_hidden() -> None:
    metadata = HarnessMetadata.model_validate({"display": False, "odd": Opaque()})
    got = event_of(InputTextEvent(input_id="i", source="context", content="x", metadata=metadata))["metadata"]
    assert got["display"] is False
    media = InputMediaEvent(input_id="i", source="user", content={"kind": "x", "data": SECRET}, metadata=metadata)  # type: ignore[dict-item]
    got = event_of(media)
    assert got["metadata"]["display"] is False
    assert got["content"]["data"]["payload_omitted"] is True


@pytest.mark.parametrize(
    "at",
    [
        AT,
        AT.replace(microsecond=0),
        AT.replace(microsecond=500_000),
        AT.replace(microsecond=1),
        AT.astimezone(timezone(timedelta(hours=-7, minutes=-30))),
        AT.replace(tzinfo=timezone.utc),  # noqa: UP017
        datetime(1, 1, 1, 0, 0, 0, 5, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2026, 11, 29, 12, 0, 0, 7),
    ],
    ids=str,
)
def test_times_are_those_of_python(at: datetime) -> None:
    item = from_harness(live(ai.FinalResultEvent(tool_name=None, tool_call_id=None), occurred_at=at))
    assert item.occurred_at == at.isoformat()
    assert item.timestamp == int(at.timestamp() * 1000)


class Announcement:
    """Has an event kind and no way to be written."""

    @property
    def event_kind(self) -> str:
        return "announcement"


def test_an_event_needs_a_kind_and_nothing_else() -> None:
    assert event_of(Announcement())["event_kind"] == "announcement"
    with pytest.raises(ItemError, match="event_kind"):
        from_harness(live(Opaque()))
    with pytest.raises(TypeError, match=r"expected a live item of a13n_harness .*HarnessEvent.* got Opaque$"):
        from_harness(Opaque())
    with pytest.raises(ItemError, match="could not be written"):
        from_harness(live(ai.PartDeltaEvent(index=0, delta=Opaque())))  # type: ignore[arg-type]


def test_an_extension_keeps_its_fields() -> None:
    extension = HarnessExtensionEvent(kind="usage", payload={"type": "x", "n": 1e16})
    item = item_of(extension)
    assert item.source == "harness"
    assert bytes(item.event) == b'{"schema_version":"1","kind":"usage","payload":{"type":"x","n":1e+16}}'


def result_of(**changes: Any) -> Any:
    fields: dict[str, Any] = {
        "thread_id": "thread_root",
        "run_id": "run",
        "usage": RunUsageSummary(input_tokens=3, output_tokens=4, details={"reasoning_tokens": 2}),
        "output": None,
        "state": HarnessState.new(thread_id="thread_root"),
    }
    result: HarnessRunResult[Any] = HarnessRunResult(**(fields | changes))
    event = HarnessRunResultEvent(thread_id="thread_root", run_id="run", sequence=9, occurred_at=AT, result=result)
    item = from_harness(event)
    assert decode_item(encode_item(item)) == item
    return from_json(bytes(item.result))


@pytest.mark.parametrize("output", ["x", None, {"a": [1, 2.5]}, "a\ud800"])
def test_output_is_json(output: Any) -> None:
    written = result_of(status="completed", output=output)
    expected = "a\ufffd" if output == "a\ud800" else output
    assert written["output"] == expected
    assert written["usage"] == {
        "input_tokens": 3,
        "output_tokens": 4,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
        "reasoning_tokens": 2,
    }


@pytest.mark.parametrize("output", [float("nan"), Opaque(), {"a": float("inf")}, nested(300), b"\xff"], ids=range(5))
def test_output_without_json_form_is_omitted(output: Any) -> None:
    written = result_of(status="completed", output=output)
    assert written["result_omitted"] is True
    assert "output" not in written


def test_other_results() -> None:
    assert result_of(status="cancelled", state=None)["status"] == "cancelled"
    failure = SafeFailure.model_validate({"code": "c", "message": "m", "details": {"a": 1}})
    assert result_of(status="failed", state=None, failure=failure)["failure"] == {
        "code": "c",
        "message": "m",
        "retry_hint": "none",
        "details": {"a": 1},
    }
    empty = result_of(status="suspended", suspend_reason="deferred", deferred=DeferredToolRequests())
    assert empty["interrupts"] == [{"id": "run:suspended", "reason": "deferred"}]
    huge = RunUsageSummary(input_tokens=2**60, output_tokens=1)
    assert result_of(status="cancelled", state=None, usage=huge)["usage"]["input_tokens"] is None


def test_no_agent_library_is_imported() -> None:
    code = (
        "import sys; from agui_relay.source import from_harness;"
        "from agui_relay.source.content import ContentMetadata, tool_result_content;"
        "import agui_relay.projection.observer;"
        "assert tool_result_content({'b': [1], 'a': b'x'}).startswith('{\"a\":{\"payload_omitted\":true');"
        "assert ContentMetadata.from_native({'display': False}).display is False;"
        "assert not [name for name in sys.modules if name.startswith(('a13n_', 'pydantic_ai'))];\n"
        "try: from_harness(object())\nexcept TypeError: print('fine')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "fine\n", done.stderr


@dataclass
class Wide:
    """Many fields, none of them media."""

    values: list[Any] = field(default_factory=lambda: [{"a": 1}] * 3)
    event_kind: str = "wide"


def test_plain_events_of_any_class() -> None:
    assert event_of(Wide()) == {"values": [{"a": 1}] * 3, "event_kind": "wide"}
