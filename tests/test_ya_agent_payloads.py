"""What tool results and an application's payloads become: JSON for clients, without media and without surprises."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, Field
from pydantic_ai.messages import BinaryContent, FunctionToolResultEvent, ImageUrl, TextContent, ToolReturnPart
from ya_agent_sdk.context import StreamEvent  # type: ignore[import-untyped]

from agui_relay.source.ya_agent import AguiAdapterConfig, AguiEventAdapter


class Colour(Enum):
    RED = "red"


class Model(BaseModel):
    name: str = "model"
    when: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    hidden: str = Field(default="hidden", exclude=True)


class WithMedia(Model):
    image: BinaryContent = BinaryContent(b"\x89PNG", media_type="image/png")


@dataclass
class Record:
    number: int = 1
    model: Model = field(default_factory=Model)
    more: Any = None


class Broken(BaseModel):
    name: str = "x"

    def model_dump(self, **_: Any) -> Any:
        raise RuntimeError("no")


class Opaque:
    def __repr__(self) -> str:
        return "secret"


PNG = BinaryContent(b"\x89PNG", media_type="image/png")
PNG_SHOWN = {"kind": "binary", "media_type": "image/png", "size_bytes": 4, "payload_omitted": True}
MODEL_SHOWN = {"name": "model", "when": "2026-01-01T00:00:00Z"}
URL = "https://a.example/i.png"


def shown(value: Any) -> Any:
    """Return what is shown of a value, which is the same as payload and as result."""
    adapter = AguiEventAdapter(session_id="session", run_id="run", config=AguiAdapterConfig("app"))
    custom = json.dumps(adapter.build_run_custom_event("x", [value]), allow_nan=False)
    result = FunctionToolResultEvent(part=ToolReturnPart("search", [value], "call-1"))
    (event,) = adapter.adapt_stream_event(StreamEvent("main", "Main", result))
    assert json.loads(event["content"], parse_constant=pytest.fail) == json.loads(custom)["value"]
    return json.loads(custom)["value"][0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), "2026-01-01T00:00:00+00:00"),
        (Path("/a/b"), "/a/b"),
        (Decimal("1.50"), "1.50"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Colour.RED, "Colour.RED"),
        ({1}, [1]),
        ((1, [2.5, True, None]), [1, [2.5, True, None]]),
        (Record(), {"number": 1, "model": MODEL_SHOWN, "more": None}),
        (Model(), MODEL_SHOWN),
    ],
)
def test_values_are_written(value: Any, expected: Any) -> None:
    assert shown(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"bytes", {"payload_omitted": True, "size_bytes": 5}),
        (bytearray(b"\xff"), {"payload_omitted": True, "size_bytes": 1}),
        (memoryview(b"\xff\xff"), {"payload_omitted": True, "size_bytes": 2}),
        (PNG, PNG_SHOWN),
        (WithMedia(), {"name": "model", "when": "2026-01-01T00:00:00+00:00", "image": PNG_SHOWN}),
        (Record(more=[PNG]), {"number": 1, "model": MODEL_SHOWN, "more": [PNG_SHOWN]}),
        (ImageUrl(URL), {"kind": "image-url", "url": URL, "media_type": "image/png"}),
        (
            ImageUrl("data:image/png;base64,AAAA"),
            {"kind": "image-url", "payload_omitted": True, "media_type": "image/png"},
        ),
        (TextContent("text", metadata={"private": 1}), {"content": "text", "kind": "text-content"}),
    ],
)
def test_media_are_described_by_kind_and_size(value: Any, expected: Any) -> None:
    assert shown(value) == expected


def test_what_has_no_json_form_is_marked() -> None:
    assert shown(math.nan) == shown(-math.inf) == "[omitted: not a finite number]"
    assert shown(Opaque()) == "[omitted: Opaque has no JSON form]"
    assert shown(Broken()) == "[omitted: Broken has no JSON form]"
    assert shown(10**5_000) == "[omitted: int has no JSON form]"
    assert shown("a\ud800b") == "a\ufffdb"


def test_keys_are_kept_apart() -> None:
    assert shown({1: "a", "1": "b"}) == {"1 (int)": "a", "1": "b"}
    assert shown({"1": "b", 1: "a"}) == {"1": "b", "1 (int)": "a"}
    assert shown({1.5: "a", "1.5": "b", "1.5 (float)": "c"}) == {
        "1.5 (float) 2": "a",
        "1.5": "b",
        "1.5 (float)": "c",
    }
    assert shown({None: 1, "None": 2, b"k": 3, Colour.RED: 4, 5: 6}) == {
        "None (NoneType)": 1,
        "None": 2,
        "[omitted: bytes has no JSON form]": 3,
        "Colour.RED": 4,
        "5": 6,
    }


def test_cycles_and_depth_are_marked() -> None:
    cycle: dict[str, Any] = {"list": []}
    cycle["list"].append(cycle)
    assert shown(cycle) == {"list": ["[omitted: a value that contains itself]"]}
    shared = {"a": 1}
    assert shown([shared, shared]) == [shared, shared]
    deep: Any = []
    for _ in range(5_000):
        deep = [deep]
    assert "nested deeper" in json.dumps(shown(deep))
