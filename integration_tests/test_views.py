"""Views: who reads `chat` gets exactly the events that belong to a conversation, whichever way they come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from agui_relay import Delivery, ItemError, Relay, RunEnded, create_worker
from agui_relay.broker.announcement import FIRST, LAST, Announcement, decode_message
from agui_relay.broker.keys import RunKeys
from integration_tests import items
from integration_tests.test_worker import running
from integration_tests.waiting import eventually
from tests.case_files import Case, load_cases

KEYS = RunKeys("agui", "run-1")
RESULTS = {"a13n.pydantic_ai.function_tool_result", "a13n.pydantic_ai.output_tool_result"}


@pytest.fixture
async def relay(redis_url: str) -> AsyncIterator[Relay]:
    """A relay with a worker."""
    async with Relay(redis_url) as relay, running(create_worker(relay)):
        yield relay


def belongs(event: Mapping[str, Any]) -> bool:
    """Whether an event is of the conversation, judged by the event itself."""
    name = event.get("name", "") if event["type"] == "CUSTOM" else ""
    return not (
        event["type"] == "TOOL_CALL_ARGS"
        or (event["type"] == "CUSTOM" and event.get("metadata", {}).get("display", True) is False)
        or name.startswith("a13n.harness.")
        or (name.startswith("a13n.pydantic_ai.") and name not in RESULTS)
    )


async def read(relay: Relay, run_id: str, **options: Any) -> tuple[list[Any], str | None]:
    """Read to the end; the events, and the cursor then."""
    async with asyncio.timeout(30), relay.subscribe(run_id, **options) as subscription:
        events = []
        async for delivery in subscription:
            assert isinstance(delivery, Delivery), delivery
            events.append(json.loads(delivery.data))
        return events, subscription.cursor


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case.name)
async def test_both_views_of_a_case_side_by_side(relay: Relay, case: Case) -> None:
    early = asyncio.gather(read(relay, case.run_id, view="chat"), read(relay, case.run_id))
    try:
        async with relay.publisher(case.run_id, thread_id=case.thread_id) as publisher:
            for item in case.encoded():
                try:
                    await publisher.publish(item)
                except ItemError:
                    continue
    except RunEnded:
        pass
    chat = [event for event in case.delivered if belongs(event)]
    (chat_early, cursor), (full_early, full_cursor) = await early
    assert chat_early == chat
    assert full_early == case.delivered
    assert cursor == full_cursor
    assert await read(relay, case.run_id, view="chat") == (chat, cursor)


async def publish_mixed(relay: Relay) -> None:
    """A run of shown and hidden events, small and large."""
    async with relay.publisher("run-1", thread_id="thread-1") as publisher:
        for item in (
            items.started(1),
            items.item(2, {"kind": "usage", "payload": {"x": "y" * 300_000}}, source="harness"),
            items.text_start(3),
            items.text_delta(4, "a"),
            items.custom(5, "a13n.harness.looks-like-one", {"x": "z" * 200_000}),
            items.custom(6, "demo.document", {"x": "\u00fc" * 200_000}),
            items.text_delta(7, "b"),
            items.item(8, {"kind": "usage", "payload": {}}, source="harness"),
            items.text_end(9, "ab"),
            items.result(10),
        ):
            await publisher.publish(item)


async def test_a_reader_resumes_from_any_position_also_from_a_hidden_one(relay: Relay) -> None:
    await publish_mixed(relay)
    everything: list[tuple[int, Any]] = []
    async with relay.subscribe("run-1") as subscription:
        async for delivery in subscription:
            assert isinstance(delivery, Delivery)
            everything.append((delivery.position, json.loads(delivery.data)))
            epoch = delivery.cursor.partition(":")[0]
    assert any(not belongs(event) and len(json.dumps(event)) > 100_000 for _, event in everything)
    head = everything[-1][0]
    for position, _ in [(0, None), *everything]:
        chat = [event for at, event in everything if at > position and belongs(event)]
        assert await read(relay, "run-1", view="chat", after=f"{epoch}:{position}") == (chat, f"{epoch}:{head}")


async def test_the_cursor_moves_on_over_what_is_hidden(relay: Relay) -> None:
    async with relay.publisher("run-1", thread_id="thread-1") as publisher:
        await publisher.publish(items.started(1))
        async with relay.subscribe("run-1", view="chat") as chat:
            first = await anext(chat)
            assert isinstance(first, Delivery)
            assert first.event["type"] == "RUN_STARTED"
            for number in range(2, 12):
                await publisher.publish(items.item(number, {"kind": "usage", "payload": {}}, source="harness"))
                await publisher.flush()

            async def is_at_the_head() -> bool:
                run = await relay.run("run-1")
                assert run is not None
                return run.lag == 0 and chat.cursor == f"{run.epoch}:{run.frames}"

            await eventually(is_at_the_head)
            assert chat.backlog == chat.repaired == 0
            await publisher.publish(items.result(12))
            rest = [delivery.event async for delivery in chat if isinstance(delivery, Delivery)]
            assert [event["type"] for event in rest] == ["RUN_FINISHED"]


async def test_a_view_is_announced_from_the_commit_after_its_reader_came(relay: Relay) -> None:
    pubsub = relay.client.pubsub()
    await pubsub.subscribe(KEYS.channel("raw"))

    async def hear() -> Announcement:
        async with asyncio.timeout(10):
            async for message in pubsub.listen():
                if message["type"] == "message":
                    told = decode_message(message["data"])
                    if isinstance(told, Announcement):
                        return told
        raise AssertionError

    async def nothing_unread() -> bool:
        run = await relay.run("run-1")
        return run is not None and run.lag == 0

    async with relay.publisher("run-1", thread_id="thread-1") as publisher:
        await publisher.publish(items.started(1))
        await publisher.flush()
        await eventually(nothing_unread)
        await relay.scripts.join(
            KEYS, view="chat", subscription_id="raw", lease_ms=60_000, kept_ms=60_000, nonce="nonce"
        )
        told = []
        for item in (
            items.text_start(2),
            items.text_delta(3, "a"),
            items.item(4, {"kind": "usage", "payload": {}}, source="harness"),
        ):
            await publisher.publish(item)
            told.append(await hear())
        await publisher.publish(items.result(5))
    await pubsub.aclose()
    unasked, shown, hidden = told
    assert unasked.rows is None
    assert shown.rows is not None
    assert [(row.position, row.flags) for row in shown.rows] == [(shown.first, FIRST | LAST)]
    assert (hidden.rows, hidden.first) == ((), hidden.last)
