"""Plays a run through a real server, two worker processes and three watchers, and judges what each of them got.

Draws nothing: whoever shows it reads the attributes while it plays, and is told what happens through `tell`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Literal, Self

from agui_relay import Delivery, DisplayCheckpoint, Relay
from agui_relay.broker.subscription import Subscription
from agui_relay.demo.line import Line
from agui_relay.demo.recording import Recording
from agui_relay.embedded import EmbeddedRedis, ending_with_parent

WORKERS = ("worker-1", "worker-2")
# Shares of the run's events: when the line of one watcher is cut, when it may be mended at the earliest, and when the
# late one joins. What the cut one misses has the large event in it.
CUT_AT, MENDED_FROM, LATE_AT = 0.20, 0.35, 0.60
CUT_SECONDS = 1.2  # at least
_END_TIMEOUT = 30.0  # seconds after the last item until every watcher must have its end
_STOP_TIMEOUT = 10.0  # seconds for a worker to end after SIGTERM


class DemoError(RuntimeError):
    """The demo could not be played to its end."""


class Watcher:
    """One subscriber, on connections of its own."""

    def __init__(self, name: str, story: str) -> None:
        self.name = name
        self.story = story
        """What happens to it, in a few words."""
        self.state: Literal["waiting", "watching", "cut off", "done"] = "waiting"
        self.events: list[bytes] = []
        self.outcome: str | None = None
        self.last_cursor = ""
        self._subscription: Subscription | None = None
        self._progress = asyncio.Event()

    async def has(self, share: float, total: int) -> None:
        """Wait until it has that share of `total` events."""
        while self.delivered < share * total:
            self._progress.clear()
            await self._progress.wait()

    async def end(self) -> None:
        """Wait until it has seen the end of the run."""
        while self.state != "done":
            self._progress.clear()
            await self._progress.wait()

    @property
    def delivered(self) -> int:
        """Events so far."""
        return len(self.events)

    @property
    def repaired(self) -> int:
        """Frames it missed on its channel and read from the log instead."""
        return self._subscription.repaired if self._subscription is not None else 0

    @property
    def reconnects(self) -> int:
        """How often its connection came back."""
        return self._subscription.reconnects if self._subscription is not None else 0

    async def watch(self, url: str, run_id: str, ready: asyncio.Event | None = None) -> None:
        """Subscribe from the start of the run to its end."""
        async with Relay(url) as relay, relay.subscribe(run_id) as subscription:
            self._subscription = subscription
            self.state = "watching"
            if ready is not None:
                ready.set()
            async for delivery in subscription:
                if isinstance(delivery, DisplayCheckpoint):
                    raise DemoError(f"the {self.name} watcher was given a display up to frame {delivery.position}")
                if not isinstance(delivery, Delivery):
                    raise DemoError(f"the {self.name} watcher lost frames {delivery.first} to {delivery.last}")
                self.events.append(delivery.data)
                self.last_cursor = delivery.cursor
                self._progress.set()
            self.outcome = subscription.outcome
        self.state = "done"
        self._progress.set()


class Stage:
    """One performance of a recorded run."""

    def __init__(
        self, recording: Recording, *, speed: float = 1.0, tell: Callable[[str], None] = lambda text: None
    ) -> None:
        self.recording = recording
        self.tell = tell
        self.published = 0
        self.workers: list[str] = []
        """Names of the workers that are up."""
        self.steady = Watcher("steady", "undisturbed")
        self.cut = Watcher("cut", "cut off once")
        self.late = Watcher("late", f"joined at {LATE_AT:.0%}")
        self.watchers = (self.steady, self.cut, self.late)
        self._speed = speed

    @property
    def frames(self) -> int:
        """Frames in the log at the end of the run: the position of the last one."""
        return int(self.steady.last_cursor.rpartition(":")[2] or 0)

    def is_equal(self, watcher: Watcher) -> bool:
        """Whether a watcher got the recorded projection: the same events, byte for byte, and the run's end."""
        return watcher.outcome == "finished" and tuple(watcher.events) == self.recording.events

    @property
    def succeeded(self) -> bool:
        """Whether all three are equal."""
        return all(self.is_equal(watcher) for watcher in self.watchers)

    async def play(self) -> None:
        """Play to the end.

        Raises:
            DemoError: a worker ended early, or a watcher did not see the end of the run.

        """
        async with (
            EmbeddedRedis() as server,
            self._running_workers(server) as workers,
            Line(server.url, server.directory / "line.sock") as line,
        ):
            try:
                await self._perform(server.url, line)
            except* TimeoutError:
                for worker in workers:
                    worker.check()
                waiting = ", ".join(watcher.name for watcher in self.watchers if watcher.state != "done")
                raise DemoError(f"no end of the run within {_END_TIMEOUT:g} s for: {waiting}") from None

    async def _perform(self, url: str, line: Line) -> None:
        run_id, total = self.recording.run_id, len(self.recording.events)
        async with asyncio.TaskGroup() as group:
            for watcher, address in ((self.steady, url), (self.cut, line.url)):
                ready = asyncio.Event()
                group.create_task(watcher.watch(address, run_id, ready))
                await ready.wait()
            group.create_task(self._cut(line, total))
            group.create_task(self._join_late(url, total))
            self.tell("two watchers wait for the run")
            async with Relay(url) as relay, relay.publisher(run_id, thread_id=self.recording.thread_id) as publisher:
                self.tell("the agent starts")
                for pause, item in zip(self.recording.pauses, self.recording.items, strict=True):
                    await asyncio.sleep(pause / self._speed)
                    await publisher.publish(item)
                    self.published += 1
            self.tell("the agent is done")
            async with asyncio.timeout(_END_TIMEOUT):
                for watcher in self.watchers:
                    await watcher.end()

    async def _cut(self, line: Line, total: int) -> None:
        """Cut the second watcher off in the middle of what it gets; it misses something, however slow all is."""
        await self.cut.has(CUT_AT, total)
        await line.cut()
        self.cut.state = "cut off"
        self.tell("the connection of the second watcher is cut")
        await asyncio.gather(asyncio.sleep(CUT_SECONDS / self._speed), self.steady.has(MENDED_FROM, total))
        self.cut.state = "watching"
        await line.mend()
        self.tell("the second watcher may connect again")

    async def _join_late(self, url: str, total: int) -> None:
        await self.steady.has(LATE_AT, total)
        self.tell("the third watcher joins, late")
        await self.late.watch(url, self.recording.run_id)

    @asynccontextmanager
    async def _running_workers(self, server: EmbeddedRedis) -> AsyncIterator[Sequence[_Worker]]:
        """Run the worker processes; they do not outlive this one."""
        async with AsyncExitStack() as stack:
            workers = [await stack.enter_async_context(_Worker(name, server)) for name in WORKERS]
            for worker in workers:  # all of them are starting by now
                await worker.ready()
                self.workers.append(worker.name)
                self.tell(f"{worker.name} is up, process {worker.process_id}")
            yield workers
            for worker in workers:
                worker.check()


class _Worker:
    """One worker process."""

    def __init__(self, name: str, server: EmbeddedRedis) -> None:
        self.name = name
        self._url = server.url
        self._log = server.directory / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        command = [sys.executable, "-m", "agui_relay.cli", "worker", "--redis", self._url, "--consumer", self.name]
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *ending_with_parent(command),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._started
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_STOP_TIMEOUT):
                await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()

    @property
    def process_id(self) -> int:
        return self._started.pid

    async def ready(self) -> None:
        """Wait for its word that it takes work."""
        assert self._started.stdout is not None
        if not await self._started.stdout.readline():
            await self._started.wait()
            self.check()

    def check(self) -> None:
        if self._started.returncode is not None:
            last_words = self._log.read_text("utf-8", "replace").strip().splitlines()[-1:]
            raise DemoError(f"{self.name} ended with status {self._started.returncode}: {' '.join(last_words)}")

    @property
    def _started(self) -> asyncio.subprocess.Process:
        assert self._process is not None
        return self._process
