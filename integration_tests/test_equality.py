"""The same events as the library's and the reference's, through Redis: the cases as data, and live Harness runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import a13n_stream_protocol as reference
import pytest

from agui_relay import Delivery, ItemError, Relay, RunEnded, create_worker
from integration_tests.harness_runs import RUNS
from integration_tests.test_worker import running
from tests.case_files import Case, load_cases


@pytest.fixture
async def relay(redis_url: str) -> AsyncIterator[Relay]:
    """A relay with a worker."""
    async with Relay(redis_url) as relay, running(create_worker(relay)):
        yield relay


async def delivered(relay: Relay, run_id: str) -> list[Any]:
    async with asyncio.timeout(30), relay.subscribe(run_id) as subscription:
        deliveries = [delivery async for delivery in subscription]
    assert all(isinstance(delivery, Delivery) for delivery in deliveries)
    return [json.loads(delivery.data) for delivery in deliveries if isinstance(delivery, Delivery)]


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case.name)
async def test_a_case_through_a_worker(relay: Relay, case: Case) -> None:
    refused = set()
    try:
        async with relay.publisher(case.run_id, thread_id=case.thread_id) as publisher:
            for place, item in enumerate(case.encoded()):
                try:
                    await publisher.publish(item)
                except ItemError:
                    refused.add(place)
    except RunEnded:
        assert case.delivered != case.events, "only a case about what comes too late may meet this"
    assert refused <= case.refused
    assert await delivered(relay, case.run_id) == case.delivered
    rejected = [row async for row in relay.rejected(case.run_id)]
    assert len(rejected) + len(refused) == len(case.refused)


def reference_projection(run: Sequence[Any]) -> list[Any]:
    """The reference's events for live items, reassembled."""
    observer = reference.HarnessAguiStreamObserver(retain_events=False)
    assembler = reference.CustomEventAssembler()
    events = []
    for item in run:
        for event in observer.observe(item):
            whole = assembler.accept(event.model_dump(mode="json", by_alias=True))
            if whole is not None:
                events.append(whole)
    assert not assembler.gap
    return events


@pytest.mark.parametrize("name", RUNS)
async def test_a_live_harness_run_gives_what_the_reference_gives(relay: Relay, name: str) -> None:
    run = []
    reader: asyncio.Task[list[Any]] | None = None
    async with asyncio.timeout(30):
        items = RUNS[name]()
        first = await anext(items)
        run.append(first)
        reader = asyncio.create_task(delivered(relay, first.run_id))
        async with relay.publisher(first.run_id, thread_id=first.thread_id) as publisher:
            await publisher.publish(first)
            async for item in items:
                run.append(item)
                await publisher.publish(item)
        assert await reader == reference_projection(run)
    assert [row async for row in relay.rejected(first.run_id)] == []
