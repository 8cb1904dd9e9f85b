"""Any interleaving of the scripts keeps a run's promises; checked against a model, on a real server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from redis.asyncio import Redis

from agui_relay.broker.announcement import View
from agui_relay.broker.keys import GROUP, RunKeys
from agui_relay.broker.scripts import (
    AppendItem,
    CommitCall,
    CommitLimits,
    FetchCall,
    Fetched,
    Frame,
    Scripts,
    Uncovered,
    ensure_group,
    inline,
)

EXAMPLES = int(os.environ.get("AGUI_RELAY_TEST_EXAMPLES", "60"))
LEASE, KEPT = 30_000, 86_400_000
LIMITS = CommitLimits(kept_ms=1000_000, fanout_bytes=1 << 20, log_bytes=150, item_bytes=20, tail_bytes=60)
WORKERS = ("one", "two")


def frames_of(item: bytes) -> list[Frame]:
    """A projection that derives from the item alone: nothing, one event in one frame, or one in two."""
    count = int(item) % 3
    flags = (b"3",) if count == 1 else (b"1", b"2")
    return [(b'{"item":%b,"frame":%d}' % (item, index), flags[index] + b"CUSTOM:x") for index in range(count)]


@dataclass
class Work:
    """What a worker has in hand: a ready entry, and perhaps what it fetched for it."""

    entry: bytes
    fetched: Fetched | None = None
    claimed: bool = False


@dataclass
class Folding:
    """What a worker makes a checkpoint of."""

    epoch: str
    uncovered: Uncovered


class Runs(RuleBasedStateMachine):
    """One run, one publisher, two workers."""

    url: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.client: Any = Redis.from_url(self.url)
        self.scripts = Scripts(self.client)
        self.keys = RunKeys("model", "run")
        self.life = 0
        self.items: list[bytes] = []
        self.sequence = 0
        self.ended = False
        self.work: dict[str, list[Work]] = {worker: [] for worker in WORKERS}
        self.last_batch: list[AppendItem] = []
        self.left_behind: set[bytes] = set()
        self.foldings: list[Folding] = []
        # The position of the checkpoint, 0 before the first, None once it was given up.
        self.covered: int | None = 0

    def do[T](self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(coroutine)

    def teardown(self) -> None:
        self.do(self.client.aclose())
        self.runner.close()

    @initialize()
    def begin(self) -> None:
        self.do(self.client.flushall())
        self.do(ensure_group(self.client, self.keys))
        self.open()

    def open(self) -> None:
        self.life += 1
        self.items, self.sequence, self.ended, self.last_batch, self.covered = [], 0, False, [], 0
        opened = self.do(
            self.scripts.open(
                self.keys, token=f"t{self.life}", epoch=f"e{self.life}", thread_id="t", lease_ms=LEASE, kept_ms=KEPT
            )
        )
        assert opened.word == "opened"

    def append(self, batch: list[AppendItem]) -> Any:
        return self.do(
            self.scripts.append(
                self.keys,
                token=f"t{self.life}",
                known=0,
                lease_ms=LEASE,
                kept_ms=KEPT,
                unread_bytes=1 << 20,
                thread_id="t",
                items=batch,
            )
        )

    @precondition(lambda self: not self.ended)
    @rule(count=st.integers(1, 5), last=st.booleans())
    def publish(self, count: int, last: bool) -> None:
        batch = []
        for index in range(count):
            self.sequence += 1
            outcome = "finished" if last and self.sequence > 10 and index == count - 1 else ""
            batch.append(AppendItem("run", self.sequence, outcome, b"%d" % self.sequence))
            self.ended = bool(outcome)
        reply = self.append(batch)
        self.items += [item.data for item in batch]
        assert (reply.word, reply.stored, reply.last) == ("ok", count, len(self.items))
        self.last_batch = batch

    @precondition(lambda self: self.last_batch)
    @rule()
    def publish_again(self) -> None:
        """The reply was lost: the same call once more stores nothing."""
        reply = self.append(self.last_batch)
        assert (reply.word, reply.stored, reply.last) == ("ok", 0, len(self.items))

    @precondition(lambda self: self.life > 1)
    @rule()
    def publish_from_an_earlier_life(self) -> None:
        reply = self.do(
            self.scripts.append(
                self.keys,
                token=f"t{self.life - 1}",
                known=0,
                lease_ms=LEASE,
                kept_ms=KEPT,
                unread_bytes=1 << 20,
                thread_id="t",
                items=[AppendItem("run", 10_000, "", b"10000")],
            )
        )
        assert reply.word == "fenced"

    @rule(worker=st.sampled_from(WORKERS))
    def read(self, worker: str) -> None:
        rows = self.do(self.client.xreadgroup(GROUP, worker, {self.keys.ready: ">"}, count=1))
        self.work[worker] += [Work(entry, inline(fields)) for _, entries in rows for entry, fields in entries]

    @rule(worker=st.sampled_from(WORKERS))
    def claim(self, worker: str) -> None:
        """The other one was silent too long, or is dead."""
        _, entries, _ = self.do(self.client.xautoclaim(self.keys.ready, GROUP, worker, 0, count=1))
        self.work[worker] += [Work(entry, claimed=True) for entry, _ in entries]

    @precondition(lambda self: any(self.work.values()))
    @rule(data=st.data(), most=st.integers(1, 4))
    def fetch(self, data: st.DataObject, most: int) -> None:
        self.fetch_for(data.draw(st.sampled_from([work for works in self.work.values() for work in works])), most)

    def fetch_for(self, work: Work, most: int) -> None:
        call = FetchCall(self.keys, work.entry, "", most, 1 << 20, claimed=work.claimed)
        [fetched] = self.do(self.scripts.fetch_many([call]))
        assert isinstance(fetched, Fetched)
        if fetched.word == "items":
            work.fetched = fetched
            # One by one once it was claimed twice without a commit.
            most = 1 if fetched.claims >= 2 else most
            assert list(fetched.items) == self.items[fetched.cursor : fetched.cursor + most]
        else:
            self.drop(work)

    @precondition(lambda self: any(work.fetched for works in self.work.values() for work in works))
    @rule(data=st.data(), turn_over=st.booleans())
    def commit(self, data: st.DataObject, turn_over: bool) -> None:
        works = [work for works in self.work.values() for work in works if work.fetched]
        self.commit_for(data.draw(st.sampled_from(works)), turn_over)

    def commit_for(self, work: Work, turn_over: bool) -> None:
        fetched = work.fetched
        assert fetched is not None
        frames = [frame for item in fetched.items for frame in frames_of(item)]
        call = CommitCall(
            keys=self.keys,
            entry=work.entry,
            epoch=fetched.epoch,
            cursor=fetched.cursor,
            new_cursor=fetched.cursor + len(fetched.items),
            consumed=sum(map(len, fetched.items)),
            turn_over=turn_over,
            next_items=2,
            next_bytes=1 << 20,
            version="v",
            continuation=b"c",
            frames=frames,
            rejected=[],
            announced=[("full", b"")],
        )
        [committed] = self.do(self.scripts.commit_many([call], LIMITS))
        work.fetched = None
        assert not isinstance(committed, BaseException)
        if committed.word != "ok" or committed.left == 0 or turn_over:
            assert not committed.items
            self.drop(work)
        elif committed.items:
            assert list(committed.items) == self.items[call.new_cursor : call.new_cursor + 2]
            work.fetched = fetched._replace(cursor=call.new_cursor, position=committed.position, items=committed.items)

    @rule(worker=st.sampled_from(WORKERS), most=st.integers(1, 9), turn_over=st.booleans())
    def work_once(self, worker: str, most: int, turn_over: bool) -> None:
        """What a worker does when nothing happens to it."""
        self.read(worker)
        for work in list(self.work[worker]):
            self.fetch_for(work, most)
            if work.fetched:
                self.commit_for(work, turn_over)

    @rule(most=st.tuples(st.integers(1, 4), st.integers(1, 4)), turn_over=st.booleans())
    def race(self, most: tuple[int, int], turn_over: bool) -> None:
        """Two workers, one of them slow, have the same entry and both commit."""
        self.read("one")
        if self.work["one"]:
            mine = self.work["one"][-1]
            theirs = Work(mine.entry)
            self.work["two"].append(theirs)
            self.fetch_for(mine, most[0])
            self.fetch_for(theirs, most[1])
            for work in (mine, theirs):
                if work.fetched:
                    self.commit_for(work, turn_over)

    @rule(worker=st.sampled_from(WORKERS), turn_over=st.booleans())
    def work_inline(self, worker: str, turn_over: bool) -> None:
        """A worker that has the continuation takes the items from the ready entry, and the next from its commits."""
        self.read(worker)
        for work in list(self.work[worker]):
            while work.fetched:
                self.commit_for(work, turn_over)

    @rule()
    def run_dry(self) -> None:
        """Whatever happened, workers that go on bring the run to its end, and nothing stays pending."""
        for works in self.work.values():
            works.clear()
        for _ in range(200):
            self.read("two")
            self.claim("two")
            if not self.work["two"]:
                break
            work = self.work["two"][-1]
            self.fetch_for(work, 3)
            if work.fetched:
                self.commit_for(work, turn_over=False)
        state = self.do(self.client.hmget(self.keys.state, "last", "cursor"))
        assert state[0] == state[1]
        assert self.do(self.client.xlen(self.keys.ready)) == 0
        assert self.do(self.client.xpending(self.keys.ready, GROUP))["pending"] == 0

    @rule()
    def begin_checkpoint(self) -> None:
        if (folding := self.uncovered()) is not None:
            self.foldings.append(folding)

    @precondition(lambda self: not self.ended)
    @rule(count=st.integers(4, 9))
    def checkpoint_beside_the_work(self, count: int) -> None:
        folding = self.uncovered()
        self.publish(count, last=False)
        self.work_once("one", 9, turn_over=False)
        if folding is not None:
            self.store(folding)

    @rule()
    def checkpoint_at_once(self) -> None:
        """What a worker does when it is told that one is due; then there is none due any more."""
        if (folding := self.uncovered()) is not None:
            self.store(folding)
            assert self.uncovered() is None

    @precondition(lambda self: self.foldings)
    @rule(data=st.data())
    def end_checkpoint(self, data: st.DataObject) -> None:
        """The run went on meanwhile; perhaps another worker was faster, or it is the run's next life."""
        folding = data.draw(st.sampled_from(self.foldings))
        self.foldings.remove(folding)
        self.store(folding)

    @precondition(lambda self: self.foldings)
    @rule(data=st.data())
    def give_up_checkpoint(self, data: st.DataObject) -> None:
        """The frames cannot be folded; that counts only if nobody else could."""
        folding = data.draw(st.sampled_from(self.foldings))
        self.foldings.remove(folding)
        is_current = self.is_current(folding)
        word = self.do(
            self.scripts.checkpoint(
                self.keys, epoch=folding.epoch, covered=folding.uncovered.covered, log_bytes=LIMITS.log_bytes
            )
        )
        assert word == ("ok" if is_current else "stale")
        if is_current:
            self.covered = None

    @rule()
    def checkpoint_of_frames_that_are_lost(self) -> None:
        """A failover took them back: nothing may be covered that is not there."""
        lost = Uncovered("due", self.covered or 0, head=len(self.frames()) + 1)
        assert self.write(Folding(f"e{self.life}", lost)) == "stale"

    @precondition(lambda self: self.life > 1)
    @rule()
    def checkpoint_from_an_earlier_life(self) -> None:
        earlier = Uncovered("due", self.covered or 0, head=len(self.frames()))
        assert self.write(Folding(f"e{self.life - 1}", earlier)) == "stale"

    def uncovered(self) -> Folding | None:
        epoch = f"e{self.life}"
        uncovered = self.do(
            self.scripts.uncovered(self.keys, epoch=epoch, log_bytes=LIMITS.log_bytes, tail_bytes=LIMITS.tail_bytes)
        )
        if uncovered.word == "well":
            return None
        assert (uncovered.word, uncovered.covered, uncovered.head) == ("due", self.covered, len(self.frames()))
        assert uncovered.stored == (self.snapshots(uncovered.covered) if uncovered.covered else {})
        return Folding(epoch, uncovered)

    def is_current(self, folding: Folding) -> bool:
        return folding.epoch == f"e{self.life}" and folding.uncovered.covered == self.covered

    def store(self, folding: Folding) -> None:
        is_current = self.is_current(folding)
        assert self.write(folding) == ("ok" if is_current else "stale")
        if is_current:
            self.covered = folding.uncovered.head

    def write(self, folding: Folding) -> str:
        return self.do(
            self.scripts.checkpoint(
                self.keys,
                epoch=folding.epoch,
                covered=folding.uncovered.covered,
                log_bytes=LIMITS.log_bytes,
                position=folding.uncovered.head,
                folded=folding.uncovered.tail,
                shown=20 + folding.uncovered.head,
                snapshots=self.snapshots(folding.uncovered.head),
            )
        )

    @staticmethod
    def snapshots(position: int) -> dict[View, bytes]:
        return {"full": b"all up to %d" % position, "chat": b"chat up to %d" % position}

    def frames(self) -> list[Frame]:
        """All frames of the run so far."""
        cursor = int(self.do(self.client.hget(self.keys.state, "cursor")))
        return [frame for item in self.items[:cursor] for frame in frames_of(item)]

    def drop(self, work: Work) -> None:
        for works in self.work.values():
            if work in works:
                works.remove(work)

    @rule()
    def forget_worker(self) -> None:
        """Killed: what it had in hand is only in the pending list now."""
        self.work["one"].clear()

    @rule()
    def destroy_group(self) -> None:
        self.do(self.client.xgroup_destroy(self.keys.ready, GROUP))
        self.do(ensure_group(self.client, self.keys))

    @rule()
    def lose_ready_entries(self) -> None:
        """The ready stream is deleted; the next append or heartbeat of a reader queues the run again."""
        self.do(self.client.delete(self.keys.ready))
        self.do(ensure_group(self.client, self.keys))
        self.do(self.scripts.join(self.keys, view="full", subscription_id="s", lease_ms=LEASE, kept_ms=KEPT, nonce="n"))

    @rule(worker=st.sampled_from(WORKERS))
    def remove_consumer(self, worker: str) -> None:
        """By hand: what was pending for it stays in the stream, and nobody gets it; a look at the run mends that."""
        self.do(self.client.xgroup_delconsumer(self.keys.ready, GROUP, worker))
        self.mend()

    @rule()
    def delete_ready_stream(self) -> None:
        """Nobody publishes or reads; a worker notices that the group is gone, and looks at the run."""
        self.do(self.client.delete(self.keys.ready))
        self.do(ensure_group(self.client, self.keys))
        self.mend()

    @precondition(lambda self: any(self.work.values()))
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        """A worker stops and has not begun with an entry."""
        work = data.draw(st.sampled_from([work for works in self.work.values() for work in works]))
        self.drop(work)
        self.mend(work.entry)
        assert not self.do(self.client.xrange(self.keys.ready, work.entry, work.entry))

    def mend(self, given_back: bytes = b"") -> None:
        assert self.do(self.scripts.mend(self.keys, lease_ms=LEASE, given_back=given_back)) in ("well", "queued")
        assert self.do(self.scripts.mend(self.keys, lease_ms=LEASE)) == "well"

    @rule()
    def next_life(self) -> None:
        self.left_behind = {entry for entry, _ in self.do(self.client.xrange(self.keys.ready))}
        self.do(self.client.delete(self.keys.state))
        self.open()

    @invariant()
    def promises_hold(self) -> None:
        if self.life:
            self.do(self.check())

    async def check(self) -> None:
        state = {key.decode(): value for key, value in (await self.client.hgetall(self.keys.state)).items()}
        last, cursor, position = int(state["last"]), int(state["cursor"]), int(state["position"])
        assert cursor <= last == len(self.items)

        # Frames are a prefix of the projection, of which the oldest whole events may be gone.
        rows = await self.client.xrange(self.keys.frames)
        frames = [frame for item in self.items[:cursor] for frame in frames_of(item)]
        assert position == len(frames)
        gone = position - len(rows)
        assert [row_id for row_id, _ in rows] == [b"%d-0" % number for number in range(gone + 1, position + 1)]
        assert [(row[b"frame"], row[b"meta"]) for _, row in rows] == frames[gone:]
        assert not rows or rows[0][1][b"meta"][0] & 1
        size = sum(len(row[b"frame"]) for _, row in rows)
        assert size == int(state.get("log", 0))
        assert gone == 0 or size > LIMITS.log_bytes // 2

        # Only what the checkpoint covers is gone, and of that everything while the log is above its bound.
        stored = await self.client.hgetall(self.keys.display)
        if self.covered is None:
            assert state["covered"] == b"none"
            assert stored == {}
            assert size <= LIMITS.log_bytes
        else:
            assert int(state.get("covered", 0)) == self.covered <= position
            assert gone <= self.covered
            assert size <= LIMITS.log_bytes or gone == self.covered
            assert int(state.get("tail", 0)) == sum(len(data) for data, _ in frames[self.covered :])
            if self.covered:
                snapshots = {view.encode(): data for view, data in self.snapshots(self.covered).items()}
                assert stored == {b"position": b"%d" % self.covered, **snapshots}
                assert int(state["shown"]) == 20 + self.covered
            else:
                assert stored == {}

        # Unread items never go.
        kept = await self.client.xrange(self.keys.items)
        assert [row[b"item"] for _, row in kept] == self.items[len(self.items) - len(kept) :]
        assert len(kept) >= last - cursor
        assert sum(map(len, self.items[len(self.items) - len(kept) : cursor])) <= max(LIMITS.item_bytes, 2)

        # One entry while something is unread, else none; what an earlier life left is settled when a worker meets it.
        entries = {entry for entry, _ in await self.client.xrange(self.keys.ready)}
        mine = {state["ready"]} if "ready" in state else set()
        assert entries - self.left_behind == mine
        assert len(mine) == (cursor < last)
        assert int(state["unread"]) == sum(map(len, self.items[cursor:]))
        assert state["status"] == (b"live" if not self.ended else b"finished" if cursor == last else b"closing")

        for key in await self.client.keys("*:run:*"):
            assert await self.client.pttl(key) > 0, key


def test_any_interleaving_keeps_the_promises(redis_url: str) -> None:
    Runs.url = redis_url
    run_state_machine_as_test(
        Runs,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
