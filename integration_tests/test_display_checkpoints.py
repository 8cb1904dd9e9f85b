"""Display checkpoints as workers store them: the fold of all frames up to their position, and no hole behind it."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from itertools import batched
from typing import Any

import pytest

from agui_relay.broker.announcement import FIRST, HIDDEN, LAST, VIEWS, View, is_hidden
from agui_relay.broker.checkpoints import Checkpoints
from agui_relay.broker.drain import project_batch
from agui_relay.broker.folded import CheckpointError, FoldedViews, NewerCheckpointError
from agui_relay.broker.keys import RunKeys
from agui_relay.broker.packed import pack, unpack
from agui_relay.broker.scripts import Fetched, Frame, Scripts
from agui_relay.broker.settings import RelaySettings
from agui_relay.broker.subscription import DisplayCheckpoint, GapNotice
from agui_relay.broker.worker import create_worker
from agui_relay.display import DisplayFold, DisplaySnapshot
from agui_relay.display.items import MAX_FIELD_CHARS
from agui_relay.embedded import EmbeddedRedis
from agui_relay.projection.projector import Projector
from agui_relay.relay import Relay
from agui_relay.source import HarnessItem, decode_item, encode_item, from_harness
from integration_tests import items
from integration_tests.cluster import Cluster
from integration_tests.displays import message, observation
from integration_tests.frames import FrameWriter
from integration_tests.harness_runs import RUNS
from integration_tests.processes import Fleet
from integration_tests.test_worker import publish, running
from integration_tests.waiting import eventually

SEED = int(os.environ.get("AGUI_RELAY_TEST_SEED", str(secrets.randbelow(10**9))))
KEYS = RunKeys("agui", "run-1")
SMALL = RelaySettings(
    frame_log_bytes=1 << 18, display_tail_bytes=1 << 15, batch_items=64, batch_bytes=1 << 16, claim_idle=0.5
)


@pytest.fixture
async def relay(redis_url: str) -> AsyncIterator[Relay]:
    """A relay of which little is kept."""
    async with Relay(redis_url, settings=SMALL) as relay:
        yield relay


def frames_of(run: Sequence[HarnessItem | bytes]) -> list[Frame]:
    """All frames that the library gives for the items."""
    encoded = [item if isinstance(item, bytes) else encode_item(item) for item in run]
    root = decode_item(encoded[0])
    fetched = Fetched("items", cursor=0, items=encoded)
    batch, _ = project_batch(fetched, lambda: Projector(run_id=root.run_id, thread_id=root.thread_id), None)
    assert not batch.rejected
    return batch.frames


def folded(run_id: str, frames: Sequence[Frame], view: View) -> DisplaySnapshot:
    """The fold of frames of which none is missing."""
    fold = DisplayFold(run_id)
    fold.fold_frames([frame for frame, meta in frames if not is_hidden(view, meta)])
    return DisplaySnapshot.read(fold.export().model_dump_json())


class Moment:
    """A run's state, display checkpoint and log as they stood together, and what must be true of them."""

    def __init__(self, keys: RunKeys, replies: Sequence[Any]) -> None:
        state, self.display, log = replies
        self.run_id = keys.run_id
        self.state = {name.decode(): value for name, value in state.items()}
        self.head, self.size = int(self.state.get("position", 0)), int(self.state.get("log", 0))
        self.is_given_up = self.state.get("covered") == b"none"
        self.covered = 0 if self.is_given_up else int(self.state.get("covered", 0))
        self.log = [(int(entry.split(b"-")[0]), (row[b"frame"], row[b"meta"])) for entry, row in log]
        self.oldest = self.log[0][0] if self.log else self.head + 1

    @classmethod
    async def of(cls, relay: Relay, keys: RunKeys = KEYS) -> Moment:
        async with relay.client.pipeline(transaction=True) as pipeline:
            pipeline.hgetall(keys.state).hgetall(keys.display).xrange(keys.frames)
            return cls(keys, await pipeline.execute())

    def check(self, frames: Sequence[Frame]) -> None:
        """Compare with all frames of the run: the checkpoint is their fold, and the log goes on with what follows."""
        assert not self.is_given_up
        assert [position for position, _ in self.log] == list(range(self.oldest, self.head + 1))
        assert [frame for _, frame in self.log] == frames[self.oldest - 1 : self.head]
        assert self.oldest <= self.covered + 1 <= self.head + 1
        assert self.size == sum(len(frame) for _, (frame, _) in self.log)
        assert int(self.state.get("tail", 0)) == sum(len(frame) for frame, _ in frames[self.covered : self.head])
        if not self.covered:
            assert self.display == {}
            return
        assert self.display.keys() == {b"position", b"full", b"chat"}
        assert int(self.display[b"position"]) == self.covered
        assert frames[self.covered - 1][1][0] & LAST, "the end of an event"
        assert int(self.state["shown"]) == sum(len(unpack(self.display[view.encode()])) for view in VIEWS)
        rest = [frame for position, frame in self.log if position > self.covered]
        for view in VIEWS:
            stored = DisplaySnapshot.read(unpack(self.display[view.encode()]))
            assert stored == folded(self.run_id, frames[: self.covered], view)
            fold = DisplayFold.restore(stored)
            fold.fold_frames([frame for frame, meta in rest if not is_hidden(view, meta)])
            assert fold.export() == folded(self.run_id, frames[: self.head], view)


def conversation(messages: int, chance: random.Random, *, run_id: str = "run-1") -> list[HarnessItem]:
    """Make a run of texts, children and observations, of which some are fragmented."""
    child = {"run_id": f"{run_id}-child", "thread_id": "thread-2"}
    ids = {"run_id": run_id}
    run = [items.started(1, **ids), items.started(1, **child)]
    sequence = iter(range(2, 1 << 30))
    for number in range(messages):
        who = child if number % 4 == 3 else ids
        words = [f"{number}.{word} " + "é" * chance.randrange(12) for word in range(chance.randrange(1, 90))]
        run.append(items.text_start(next(sequence), **who))
        run += [items.text_delta(next(sequence), word, **who) for word in words]
        run.append(items.text_end(next(sequence), "".join(words), **who))
        if number % 3 == 0:
            size = 100_000 if number % 12 == 6 else 300
            run.append(
                items.custom(next(sequence), "demo.document", {"number": number, "text": "字" * (size // 3)}, **ids)
            )
    run += [items.result(next(sequence), **child), items.result(next(sequence), **ids)]
    return run


async def ended(relay: Relay, keys: RunKeys = KEYS) -> bool:
    """Whether a run has ended and no checkpoint is due any more."""
    settings = relay.settings
    status, epoch = await relay.client.hmget(keys.state, "status", "epoch")
    if status != b"finished":
        return False
    reply = await relay.scripts.uncovered(
        keys, epoch=epoch.decode(), log_bytes=settings.frame_log_bytes, tail_bytes=settings.display_tail_bytes
    )
    return reply.word == "well"


def test_a_fold_goes_on_from_any_event() -> None:
    frames = frames_of(conversation(12, random.Random(0)))
    rows = [(b"%d-0" % number, {b"frame": data, b"meta": meta}) for number, (data, meta) in enumerate(frames, 1)]
    views = FoldedViews("run-1")
    begin = 0
    for end in range(1, len(frames) + 1):
        if not frames[end - 1][1][0] & LAST or (end % 7 and end < len(frames)):
            continue
        views.add(rows[begin:end])
        assert views.position == begin + len(rows[begin:end]) == end
        views = FoldedViews("run-1", end, views.export())
        begin = end
    for view, snapshot in views.export().items():
        assert DisplaySnapshot.read(snapshot) == folded("run-1", frames, view)


def test_a_fold_takes_only_what_follows() -> None:
    views = FoldedViews("run-1")
    row = {b"frame": observation(1), b"meta": b"3CUSTOM:n"}
    with pytest.raises(CheckpointError, match="expected the frame 1"):
        views.add([(b"2-0", row)])
    with pytest.raises(CheckpointError, match="expected the frame 2"):
        views.add([(b"1-0", row), (b"3-0", row)])
    with pytest.raises(CheckpointError, match="expected frame and meta at 1"):
        views.add([(b"1-0", {b"frame": b"{}"})])
    with pytest.raises(CheckpointError, match="is not stored"):
        FoldedViews("run-1", 5, {})
    with pytest.raises(CheckpointError, match="cannot be read"):
        FoldedViews("run-1", 5, dict.fromkeys(VIEWS, b"{}"))
    newer = b'{"items":[],"continuation":{"version":99}}'
    with pytest.raises(NewerCheckpointError, match="99"):
        FoldedViews("run-1", 5, dict.fromkeys(VIEWS, newer))


async def test_frames_are_covered_before_they_go(relay: Relay) -> None:
    run = conversation(120, random.Random(1))
    frames = frames_of(run)
    assert sum(len(data) for data, _ in frames) > 4 * SMALL.frame_log_bytes
    moments = []
    async with running(create_worker(relay)):
        async with relay.publisher("run-1", thread_id="thread-1") as publisher:
            for number, item in enumerate(run):
                await publisher.publish(item)
                if number % 200 == 199:
                    await publisher.flush()
                    moments.append(await Moment.of(relay))
        await eventually(partial(ended, relay))
        last = await Moment.of(relay)
    for moment in [*moments, last]:
        moment.check(frames)
        # A run that is ahead of its checkpoint waits: there is never more than the bound and one batch.
        assert moment.size < SMALL.frame_log_bytes + 4 * SMALL.batch_bytes
    assert len({moment.covered for moment in moments}) > 3
    assert last.head == len(frames)
    assert last.size <= SMALL.frame_log_bytes
    assert last.oldest > 1
    # It dies with the run.
    expiries = [await relay.client.pexpiretime(key) for key in (KEYS.state, KEYS.display, KEYS.frames)]
    assert len(set(expiries)) == 1
    assert expiries[0] - time.time() * 1000 < 3_700_000


async def test_runs_of_the_harness(redis_url: str) -> None:
    """Reasoning, tools of every outcome, children: each with bounds so small that they matter."""
    settings = RelaySettings(frame_log_bytes=4096, display_tail_bytes=512, batch_items=8)
    covered = 0
    async with Relay(redis_url, settings=settings) as relay, running(create_worker(relay)):
        for live in RUNS.values():
            run = [from_harness(item) async for item in live()]
            root = run[0]
            keys = RunKeys("agui", root.run_id)
            async with relay.publisher(root.run_id, thread_id=root.thread_id) as publisher:
                for item in run:
                    await publisher.publish(item)
            await eventually(partial(has_outcome, relay, keys))
            moment = await Moment.of(relay, keys)
            moment.check(frames_of(run))
            covered += moment.oldest > 1
    assert covered > len(RUNS) / 2


async def has_outcome(relay: Relay, keys: RunKeys) -> bool:
    """Whether a run has ended, and its log is within its bound."""
    status, log = await relay.client.hmget(keys.state, "status", "log")
    return status not in (b"live", b"closing") and int(log) <= relay.settings.frame_log_bytes


@pytest.mark.parametrize("tail", [1 << 20, RelaySettings().display_tail_bytes])
async def test_a_hundred_thousand_items_replay_in_under_two_megabytes(redis_url: str, tail: int) -> None:
    """Whether the worker has folded most of it, or nothing yet and the reader does."""
    count = 100_000
    # From a template: to make so many items takes longer than all the rest.
    template = encode_item(items.text_delta(3, "@ is about thirty characters. "))
    run = [encode_item(items.started(1)), encode_item(items.text_start(2))]
    run += [
        template.replace(b'"sequence":3,', b'"sequence":%d,' % number).replace(b"@", b"%d" % number)
        for number in range(3, count)
    ]
    run.append(encode_item(items.result(count)))
    settings = RelaySettings(display_tail_bytes=tail)
    text = "".join(f"{number} is about thirty characters. " for number in range(3, count))
    async with Relay(redis_url, settings=settings) as relay, running(create_worker(relay)):
        async with relay.publisher("run-1", thread_id="thread-1") as publisher:
            for item in run:
                await publisher.publish(item)
        await eventually(partial(ended, relay), within=60)
        moment = await Moment.of(relay)
        assert moment.head >= count
        assert (moment.covered > count / 2) == (tail == 1 << 20)
        for view in VIEWS:
            async with asyncio.timeout(30), relay.subscribe("run-1", view=view, start="display") as subscription:
                given = [item async for item in subscription]
            first = given[0]
            assert isinstance(first, DisplayCheckpoint)
            assert sum(len(item.data) for item in given if not isinstance(item, GapNotice)) < 2_000_000
            [said] = [item for item in first.snapshot.items if item.kind == "text_message"]
            assert said.content["text"] == text[:MAX_FIELD_CHARS]


async def test_a_short_run_has_none(redis_url: str) -> None:
    async with Relay(redis_url) as relay, running(create_worker(relay)):
        await publish(relay, list(items.text_run(2000)))
        await eventually(partial(ended, relay))
        moment = await Moment.of(relay)
    assert (moment.covered, moment.oldest, moment.display) == (0, 1, {})


# -- runs that cannot be folded ---------------------------------------------------------------------------------------


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def check_given_up(moment: Moment, frames: Sequence[Frame]) -> None:
    """The log is bounded all the same, and nothing is left of a display."""
    assert moment.is_given_up
    assert moment.display == {}
    assert moment.size <= SMALL.frame_log_bytes
    assert moment.oldest > 1
    assert [frame for _, frame in moment.log] == list(frames)[moment.oldest - moment.head - 1 :]


@pytest.mark.parametrize("row", [b"no JSON", b"[]", b'{"type":"TEXT_MESSAGE_CONTENT","messageId":7,"delta":"x"}'])
async def test_a_run_with_an_unusable_frame_is_bounded(
    relay: Relay, caplog: pytest.LogCaptureFixture, row: bytes
) -> None:
    writer = await FrameWriter(relay.scripts, KEYS).open()
    await writer.commit(row)
    run = list(items.text_run(3000))
    async with running(create_worker(relay)):
        async with relay.publisher("run-1", thread_id="thread-1", token=writer._token) as publisher:
            for item in run:
                await publisher.publish(item)
        await eventually(partial(ended, relay))
        moment = await Moment.of(relay)
    check_given_up(moment, frames_of(run))
    [error] = errors(caplog)
    assert "'run-1' has no display checkpoint" in error


async def test_a_run_with_missing_frames_is_bounded(relay: Relay, caplog: pytest.LogCaptureFixture) -> None:
    run = list(items.text_run(3000))
    async with running(create_worker(relay)):
        async with relay.publisher("run-1", thread_id="thread-1") as publisher:
            for item in run[:50]:
                await publisher.publish(item)
            await publisher.flush()
            await eventually(partial(is_projected, relay, 50))
            assert await relay.client.xdel(KEYS.frames, "20-0") == 1
            for item in run[50:]:
                await publisher.publish(item)
        await eventually(partial(ended, relay))
        check_given_up(await Moment.of(relay), frames_of(run))
    [error] = errors(caplog)
    assert "expected the frame 20" in error


async def test_a_run_whose_checkpoint_is_gone_is_bounded(relay: Relay, caplog: pytest.LogCaptureFixture) -> None:
    run = list(items.text_run(5000))
    async with running(create_worker(relay)):
        async with relay.publisher("run-1", thread_id="thread-1") as publisher:
            for item in run[:2000]:
                await publisher.publish(item)
            await publisher.flush()
            await eventually(partial(is_projected, relay, 2000))
            await eventually(lambda: relay.client.delete(KEYS.display))
            for part in batched(run[2000:], 200, strict=False):
                for item in part:
                    await publisher.publish(item)
                await publisher.flush()
                # One that was in the making when the first was removed is stored whole.
                await relay.client.delete(KEYS.display)
        await eventually(partial(ended, relay))
        await eventually(partial(is_given_up, relay))
        check_given_up(await Moment.of(relay), frames_of(run))
    [error] = errors(caplog)
    assert "is not stored" in error


async def is_given_up(relay: Relay) -> bool:
    return bool(await relay.client.hget(KEYS.state, "covered") == b"none")


async def is_projected(relay: Relay, cursor: int) -> bool:
    return int(await relay.client.hget(KEYS.state, "cursor") or 0) >= cursor


async def test_a_display_that_is_too_large_is_given_up(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    settings = SMALL.model_copy(update={"display_bytes": 60_000})
    run = list(items.text_run(8000))
    async with Relay(redis_url, settings=settings) as relay, running(create_worker(relay)):
        await publish(relay, run)
        await eventually(partial(ended, relay))
        await eventually(partial(is_given_up, relay))
        check_given_up(await Moment.of(relay), frames_of(run))
    [error] = errors(caplog)
    assert "at most 60000 are kept" in error


# -- several workers, several lives -----------------------------------------------------------------------------------


class Interrupted(Scripts):
    """Scripts with an event between the making of a checkpoint and its storing."""

    def __init__(self, client: Any, between: Callable[[], Any]) -> None:
        super().__init__(client)
        self._between: Callable[[], Any] | None = between

    async def checkpoint(self, *args: Any, **options: Any) -> str:
        between, self._between = self._between, None
        if between is not None:
            await between()
        return await super().checkpoint(*args, **options)


async def make(checkpoints: Checkpoints, writer: FrameWriter) -> int:
    """Let a checkpoint be made; return how many were stored."""
    before = checkpoints.made
    checkpoints.due(writer.keys, writer.epoch, lags=True)
    await checkpoints.wait([writer.keys.run_id])
    assert not checkpoints.lagging
    return checkpoints.made - before


def rows(writer: FrameWriter) -> list[Frame]:
    return [(event, b"%dCUSTOM:n" % (FIRST | LAST)) for event in writer.events]


async def write(writer: FrameWriter, messages: range) -> None:
    for number in messages:
        await writer.commit(*message(number, deltas=100))


async def test_the_slower_of_two_workers_stores_nothing(relay: Relay) -> None:
    writer = await FrameWriter(relay.scripts, KEYS).open()
    await write(writer, range(4))
    quick = Checkpoints(relay.scripts, SMALL)

    async def others_make_it() -> None:
        await write(writer, range(4, 6))
        assert await make(quick, writer) == 1

    slow = Checkpoints(Interrupted(relay.client, others_make_it), SMALL)
    assert await make(slow, writer) == 0
    moment = await Moment.of(relay)
    assert moment.covered == moment.head == writer.position
    moment.check(rows(writer))
    # Neither does it again when none is due.
    assert await make(slow, writer) == await make(quick, writer) == 0
    # Both go on from what is stored.
    await write(writer, range(6, 10))
    assert await make(slow, writer) == 1
    (await Moment.of(relay)).check(rows(writer))


async def test_a_slow_worker_does_not_give_up_what_another_has_made(
    relay: Relay, caplog: pytest.LogCaptureFixture
) -> None:
    """The frames that it looks for are covered and trimmed already."""
    settings = SMALL.model_copy(update={"frame_log_bytes": 1})
    writer = await FrameWriter(relay.scripts, KEYS).open()
    await write(writer, range(4))
    quick = Checkpoints(relay.scripts, settings)

    class Slow(Scripts):
        async def read_frames(self, *args: Any, **options: Any) -> Any:
            assert await make(quick, writer) in (0, 1)
            return await super().read_frames(*args, **options)

    assert await make(Checkpoints(Slow(relay.client), SMALL), writer) == 0
    moment = await Moment.of(relay)
    assert moment.covered == writer.position
    moment.check(rows(writer))
    assert not errors(caplog)


async def test_a_checkpoint_of_an_earlier_life_is_refused(relay: Relay) -> None:
    writer = await FrameWriter(relay.scripts, KEYS).open()
    await write(writer, range(4))
    later = FrameWriter(relay.scripts, KEYS)

    async def the_run_begins_anew() -> None:
        await relay.delete("run-1")
        await later.open()
        await write(later, range(9))

    assert await make(Checkpoints(Interrupted(relay.client, the_run_begins_anew), SMALL), writer) == 0
    moment = await Moment.of(relay)
    assert (moment.covered, moment.display) == (0, {})
    moment.check(rows(later))

    async def the_run_is_deleted() -> None:
        await relay.delete("run-1")

    assert await make(Checkpoints(Interrupted(relay.client, the_run_is_deleted), SMALL), later) == 0
    assert await relay.client.exists(*KEYS.all[:6]) == 0


async def test_a_deleted_run_leaves_no_display_to_the_next_life(relay: Relay) -> None:
    writer = await FrameWriter(relay.scripts, KEYS).open()
    await write(writer, range(4))
    checkpoints = Checkpoints(relay.scripts, SMALL)
    assert await make(checkpoints, writer) == 1
    await relay.delete("run-1")
    assert not await relay.client.exists(KEYS.display)
    again = await FrameWriter(relay.scripts, KEYS).open()
    await write(again, range(5))
    (await Moment.of(relay)).check(rows(again))
    assert await make(checkpoints, again) == 1
    (await Moment.of(relay)).check(rows(again))


async def test_a_checkpoint_of_a_newer_release_is_left_alone(relay: Relay, caplog: pytest.LogCaptureFixture) -> None:
    writer = await FrameWriter(relay.scripts, KEYS).open()
    await write(writer, range(4))
    assert await make(Checkpoints(relay.scripts, SMALL), writer) == 1
    snapshot = unpack(await relay.client.hget(KEYS.display, "full"))
    newer = pack(snapshot.replace(b'"version":1', b'"version":2'))
    await relay.client.hset(KEYS.display, "full", newer)
    await write(writer, range(4, 9))
    older = Checkpoints(relay.scripts, SMALL)
    for _ in range(3):
        assert await make(older, writer) == 0
    assert await relay.client.hget(KEYS.display, "full") == newer
    [warning] = errors(caplog)
    assert "left to another worker" in warning
    # Unless nobody comes.
    log = int(await relay.client.hget(KEYS.state, "log"))
    bounded = Checkpoints(relay.scripts, SMALL.model_copy(update={"frame_log_bytes": log // 2 - 1}))
    assert await make(bounded, writer) == 0
    assert await relay.client.hget(KEYS.state, "covered") == b"none"
    assert int(await relay.client.hget(KEYS.state, "log")) < log // 2


async def test_a_worker_that_stops_drops_what_it_has_begun(relay: Relay) -> None:
    writer = await FrameWriter(relay.scripts, KEYS).open()
    await write(writer, range(4))
    stopping = Checkpoints(relay.scripts, SMALL)
    stopping.due(KEYS, writer.epoch, lags=True)
    waiting = asyncio.create_task(stopping.wait(["run-1"]))
    await asyncio.sleep(0)
    await stopping.close()
    async with asyncio.timeout(5):
        await waiting
    assert not stopping.lagging
    stopping.due(KEYS, writer.epoch)
    (await Moment.of(relay)).check(rows(writer))
    assert await make(Checkpoints(relay.scripts, SMALL), writer) == 1


async def test_hidden_events_are_not_in_the_chat(relay: Relay) -> None:
    writer = await FrameWriter(relay.scripts, KEYS).open()
    frames: list[Frame] = []
    for number in range(400):
        hidden = number % 2 == 0
        await writer.commit(observation(number, 100), hidden=hidden)
        frames.append((writer.events[-1], b"%dCUSTOM:n" % (FIRST | LAST | (HIDDEN if hidden else 0))))
    assert await make(Checkpoints(relay.scripts, SMALL), writer) == 1
    moment = await Moment.of(relay)
    moment.check(frames)
    shown = [len(DisplaySnapshot.read(unpack(moment.display[view.encode()])).items) for view in VIEWS]
    assert shown == [400, 200]


async def test_on_a_cluster() -> None:
    run = conversation(40, random.Random(2))
    settings = SMALL.model_copy(update={"partitions": 3})
    async with (
        Cluster() as cluster,
        Relay(cluster.url, settings=settings) as relay,
        running(create_worker(relay)),
    ):
        await publish(relay, run)
        keys = RunKeys("agui", "run-1", 3)
        await eventually(partial(ended, relay, keys))
        client = relay.client
        moment = Moment(
            keys,
            [await client.hgetall(keys.state), await client.hgetall(keys.display), await client.xrange(keys.frames)],
        )
    assert moment.covered > 0
    moment.check(frames_of(run))


# -- workers that are killed ------------------------------------------------------------------------------------------


def pieces(run: Sequence[HarnessItem], chance: random.Random) -> Iterator[Sequence[HarnessItem]]:
    at = 0
    while at < len(run):
        size = chance.randrange(20, 200)
        yield run[at : at + size]
        at += size


@pytest.mark.timeout(120)
async def test_workers_killed_while_they_make_checkpoints() -> None:
    """At any moment the checkpoint and the rest of the log are the fold of all frames up to the head."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    environment = {
        "AGUI_RELAY_FRAME_LOG_BYTES": "100000",
        "AGUI_RELAY_DISPLAY_TAIL_BYTES": "10000",
        "AGUI_RELAY_CLAIM_IDLE": "0.3",
        "AGUI_RELAY_BATCH_ITEMS": "32",
    }
    settings = RelaySettings(frame_log_bytes=100_000, display_tail_bytes=10_000)
    runs = {name: conversation(60, chance, run_id=name) for name in ("run-1", "run-2", "run-3")}
    moments: list[Moment] = []
    async with EmbeddedRedis() as server, Relay(server.url, settings=settings) as relay:

        async def play(name: str, own: random.Random) -> None:
            async with relay.publisher(name, thread_id="thread-1") as publisher:
                for piece in pieces(runs[name], own):
                    for item in piece:
                        await publisher.publish(item)
                    # The agent's own pace.
                    await asyncio.sleep(own.uniform(0.02, 0.2))

        async def look(own: random.Random) -> None:
            while True:
                await asyncio.sleep(own.uniform(0.0, 0.15))
                moments.append(await Moment.of(relay, RunKeys("agui", own.choice(list(runs)))))

        async def kill(fleet: Fleet, own: random.Random) -> None:
            while True:
                await asyncio.sleep(own.uniform(0.1, 0.9))
                fleet.kill_one(own)
                fleet.fill()

        with Fleet(server.url, 3, environment=environment) as fleet:
            beside = [
                asyncio.create_task(look(random.Random(chance.random()))),
                asyncio.create_task(kill(fleet, random.Random(chance.random()))),
            ]
            try:
                await asyncio.gather(*(play(name, random.Random(chance.random())) for name in runs))
            finally:
                for task in beside:
                    task.cancel()
                await asyncio.gather(*beside, return_exceptions=True)
            assert all(task.cancelled() for task in beside)
            for name in runs:
                await eventually(partial(has_outcome_at_all, relay, RunKeys("agui", name)), within=40)
        last = [await Moment.of(relay, RunKeys("agui", name)) for name in runs]
    frames = {name: frames_of(run) for name, run in runs.items()}
    for moment in [*chance.sample(moments, min(40, len(moments))), *last]:
        moment.check(frames[moment.run_id])
    assert [moment.head for moment in last] == [len(frames[moment.run_id]) for moment in last]
    assert all(moment.oldest > 1 for moment in last)


async def has_outcome_at_all(relay: Relay, keys: RunKeys) -> bool:
    return bool(await relay.client.hget(keys.state, "status") == b"finished")
