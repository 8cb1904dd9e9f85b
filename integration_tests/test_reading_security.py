"""Whoever reads gets the run that was asked for: no id, cursor or channel leads to another one."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from fnmatch import fnmatchcase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agui_relay.broker.announcement import Row, encode_announcement, encode_body
from agui_relay.broker.keys import RunKeys
from agui_relay.broker.settings import RelaySettings
from agui_relay.broker.subscription import Delivery, GapNotice, Subscription
from agui_relay.relay import Relay
from integration_tests.frames import FrameWriter, event
from integration_tests.waiting import eventually

HOSTILE = [
    "run-1",
    "run-*",
    "run-?",
    "run-[1]",
    "*",
    "run 1",
    " run-1",
    "run-1 ",
    "run%2D1",
    "run%",
    "%",
    "%%2A",
    "{run-1}",
    "}:run:run-1",
    "{agui:0}:run:run-1",
    "run-1:state",
    "run-1:sub:",
    "run-1:frames",
    "../run-1",
    "run-1\\",
    "run-1'\"",
    "run\u20281",
    "r\u00fcn-\U0001f600",
    "\u00fc" * 128,
    "x" * 256,
]
REFUSED = [
    "",
    "   ",
    "run\n1",
    "run-1\r\n",
    "run\x001",
    "run\x7f1",
    "run\x851",
    "x" * 257,
    "x" * 300,
    "\u00fc" * 150,
    "\ud800",
]


@pytest.fixture
async def relay(redis_url: str) -> AsyncIterator[Relay]:
    async with Relay(redis_url, settings=RelaySettings(subscription_lease=0.6)) as relay:
        yield relay


async def read(subscription: Subscription) -> list[bytes]:
    async with asyncio.timeout(20):
        return [delivery.data async for delivery in subscription if isinstance(delivery, Delivery)]


# -- run ids ------------------------------------------------------------------------------------------------------


async def test_runs_with_hostile_names_side_by_side(relay: Relay) -> None:
    async def live(number: int, name: str) -> tuple[list[bytes], list[bytes]]:
        writer = FrameWriter(relay.scripts, RunKeys("agui", name))
        async with relay.subscribe(name) as subscription:
            reading = asyncio.create_task(read(subscription))
            await writer.open()
            await writer.commit(event(number))
            await writer.commit(event(number, 70_000), event(-number))
            await writer.commit(outcome="finished")
            return await reading, writer.events

    for given_events, written in await asyncio.gather(*itertools.starmap(live, enumerate(HOSTILE))):
        assert given_events == written
        assert len(written) == 3
    assert {run.run_id async for run in relay.runs()} == set(HOSTILE)


async def test_removing_a_run_with_a_hostile_name_leaves_the_others(relay: Relay) -> None:
    for number, name in enumerate(HOSTILE):
        await (await FrameWriter(relay.scripts, RunKeys("agui", name)).open()).commit(event(number))
    for name in HOSTILE[1:]:
        assert await relay.delete(name)
    assert [run.run_id async for run in relay.runs()] == ["run-1"]
    run = await relay.run("run-1")
    assert run is not None
    assert run.frames == 1


@pytest.mark.parametrize("name", REFUSED, ids=repr)
async def test_a_name_that_no_run_can_have_is_refused_everywhere(relay: Relay, name: str) -> None:
    for use in (relay.subscribe, relay.publisher):
        with pytest.raises(ValueError, match="run id"):
            use(name)
    with pytest.raises(ValueError, match="run id"):
        await relay.delete(name)
    with pytest.raises(ValueError, match="run id"):
        await relay.run(name)
    assert await relay.client.keys("*:run:*") == []


names = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=60).filter(str.strip)


@given(one=names | st.sampled_from(HOSTILE), other=names | st.sampled_from(HOSTILE), subscription=st.uuids())
@settings(max_examples=300)
def test_no_name_reaches_the_keys_or_the_channels_of_another(one: str, other: str, subscription: object) -> None:
    mine, theirs = RunKeys("agui", one), RunKeys("agui", other)
    own = {*mine.all[:6], mine.channel(str(subscription))}
    for name in own:
        assert name.startswith("{agui:0}:run:")
        # One hash tag, and nothing that is a pattern, a space or a separator of keys.
        assert (name.count("{"), name.count("}")) == (1, 1)
        assert not set(name) & set("*?[]^\\ \t\r\n'\"")
        assert name.isascii()
    if one != other:
        foreign = {*theirs.all[:6], theirs.channel(str(subscription))}
        assert not own & foreign
        assert not any(fnmatchcase(name, pattern) for name in foreign for pattern in own)
        assert not theirs.channel("x").startswith(mine.channel_prefix)


# -- cursors ------------------------------------------------------------------------------------------------------


async def test_a_cursor_of_another_run_starts_over_and_mixes_nothing(relay: Relay) -> None:
    mine = await FrameWriter(relay.scripts, RunKeys("agui", "mine")).open()
    theirs = await FrameWriter(relay.scripts, RunKeys("agui", "theirs")).open()
    await mine.commit(*map(event, range(5)))
    await theirs.commit(*(event(100 + number) for number in range(5)))
    await mine.commit(outcome="finished")
    await theirs.commit(outcome="finished")
    async with relay.subscribe("mine", after=f"{theirs.epoch}:3") as subscription:
        notice, *rest = [item async for item in subscription]
    assert notice == GapNotice(4, 3, restarts=True, cursor=f"{mine.epoch}:0")
    assert [item.data for item in rest if isinstance(item, Delivery)] == mine.events
    assert all(item.cursor.startswith(f"{mine.epoch}:") for item in rest)


async def test_a_cursor_of_an_earlier_life_starts_over_and_mixes_nothing(relay: Relay) -> None:
    keys = RunKeys("agui", "run-1")
    first = await FrameWriter(relay.scripts, keys).open()
    await first.commit(*map(event, range(5)))
    await first.commit(outcome="finished")
    await relay.delete("run-1")
    second = await FrameWriter(relay.scripts, keys).open()
    await second.commit(event(7), outcome="finished")
    async with relay.subscribe("run-1", after=f"{first.epoch}:3") as subscription:
        notice, delivery = [item async for item in subscription]
    assert notice == GapNotice(4, 3, restarts=True, cursor=f"{second.epoch}:0")
    assert isinstance(delivery, Delivery)
    assert delivery.data == event(7)


async def test_a_cursor_beyond_the_end_gives_no_more_than_there_is(relay: Relay) -> None:
    writer = await FrameWriter(relay.scripts, RunKeys("agui", "run-1")).open()
    await writer.commit(event(1), outcome="finished")
    async with relay.subscribe("run-1", after=f"{writer.epoch}:9999999999999999999") as subscription:
        notice, delivery = [item async for item in subscription]
    assert isinstance(notice, GapNotice)
    assert notice.restarts
    assert isinstance(delivery, Delivery)
    assert delivery.data == event(1)


# -- subscriptions ------------------------------------------------------------------------------------------------


async def test_subscription_ids_are_never_used_again_and_cannot_be_guessed(relay: Relay) -> None:
    await FrameWriter(relay.scripts, RunKeys("agui", "run-1")).open()
    seen = set()
    for _ in range(50):
        async with relay.subscribe("run-1") as subscription:
            seen.add(subscription.subscription_id)
    assert len(seen) == 50
    for name in seen:
        # 128 random bits.
        assert len(name) == 32
        assert len(bytes.fromhex(name)) == 16


async def test_a_subscription_id_is_of_its_run_only(relay: Relay) -> None:
    mine, theirs = RunKeys("agui", "mine"), RunKeys("agui", "theirs")
    writer = await FrameWriter(relay.scripts, mine).open()
    other = await FrameWriter(relay.scripts, theirs).open()
    pubsub = relay.client.pubsub()
    async with relay.subscribe("mine") as subscription:
        # Somebody who knows the id, but may only listen to another run's channels.
        await pubsub.subscribe(theirs.channel(subscription.subscription_id))
        await relay.scripts.leave(theirs, view="full", subscription_id=subscription.subscription_id)
        await writer.commit(event(1))
        await other.commit(event(2))
        await writer.commit(outcome="finished")
        assert await read(subscription) == [event(1)]
    await relay.client.publish(theirs.channel("end"), b"")
    heard = [message async for message in _at_hand(pubsub)]
    assert [message["type"] for message in heard] == ["subscribe"]
    await pubsub.aclose()


async def _at_hand(pubsub: object) -> AsyncIterator[dict[str, object]]:
    while (message := await pubsub.get_message(timeout=0.1)) is not None:  # type: ignore[attr-defined]
        yield message


async def test_what_others_write_into_a_channel_is_not_delivered(relay: Relay) -> None:
    keys = RunKeys("agui", "run-1")
    writer = await FrameWriter(relay.scripts, keys).open()
    await writer.commit(event(1))
    async with relay.subscribe("run-1") as subscription:
        assert isinstance(first := await anext(subscription), Delivery)
        assert first.data == event(1)
        channel = keys.channel(subscription.subscription_id)
        forged = encode_body([Row(2, 3, event(666))])
        for message in (
            b"",
            b"not of ours",
            b"\xff\xfe",
            b"[" * 100_000,
            b'{"epoch":"","head":0,"status":"gone","echo":""}',
            b'{"epoch":"other","head":9,"status":"finished","echo":"guessed"}',
            encode_announcement("other", 2, 2, "finished", forged),
            encode_announcement("other", 1, 0, "finished"),
        ):
            await relay.client.publish(channel, message)
        await writer.commit(event(2))
        await writer.commit(event(3), outcome="finished")
        assert await read(subscription) == [event(2), event(3)]
        assert subscription.outcome == "finished"


async def test_a_run_that_is_asked_for_by_a_pattern_is_not_there(relay: Relay) -> None:
    writer = await FrameWriter(relay.scripts, RunKeys("agui", "run-1")).open()
    async with relay.subscribe("*", wait_for_run=30) as subscription:
        reading = asyncio.create_task(read(subscription))
        await writer.commit(event(1))

        async def is_subscribed() -> bool:
            return len(await relay.client.pubsub_channels()) == 1

        await eventually(is_subscribed)
        other = await FrameWriter(relay.scripts, RunKeys("agui", "*")).open()
        await other.commit(event(2), outcome="finished")
        assert await reading == [event(2)]
