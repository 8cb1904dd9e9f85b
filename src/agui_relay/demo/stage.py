"""Plays a run through a real server, two worker processes and three watchers, and judges what each of them got.

Draws nothing: whoever shows it reads the attributes while it plays, and is told what happens through `tell`.
"""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from agui_relay import Delivery, Relay
from agui_relay.broker.subscription import Subscription
from agui_relay.demo.line import Line
from agui_relay.demo.recording import Recording
from agui_relay.embedded import EmbeddedRedis, ending_with_parent

WORKERS = ("worker-1", "worker-2")
CUT_AT, CUT_SECONDS = 0.30, 1.2  # share of the items, and how long the line stays cut
LATE_AT = 0.60
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
                if not isinstance(delivery, Delivery):
                    raise DemoError(f"the {self.name} watcher lost frames {delivery.first} to {delivery.last}")
                self.events.append(delivery.data)
                self.last_cursor = delivery.cursor
            self.outcome = subscription.outcome
        self.state = "done"


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
        self.cut = Watcher("cut", f"cut off for {CUT_SECONDS} s")
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
        with tempfile.TemporaryDirectory(prefix="agui-relay-") as directory:
            async with (
                EmbeddedRedis() as server,
                Line(server.url, Path(directory) / "line.sock") as line,
                self._running_workers(server.url, Path(directory)),
            ):
                await self._perform(server.url, line)

    async def _perform(self, url: str, line: Line) -> None:
        run_id = self.recording.run_id
        try:
            async with asyncio.TaskGroup() as watching:
                for watcher, address in ((self.steady, url), (self.cut, line.url)):
                    ready = asyncio.Event()
                    watching.create_task(watcher.watch(address, run_id, ready))
                    await ready.wait()
                self.tell("two watchers wait for the run")
                async with (
                    Relay(url) as relay,
                    relay.publisher(run_id, thread_id=self.recording.thread_id) as publisher,
                ):
                    self.tell("the agent starts")
                    count = len(self.recording.items)
                    for number, (pause, item) in enumerate(
                        zip(self.recording.pauses, self.recording.items, strict=True)
                    ):
                        if number == int(count * CUT_AT):
                            watching.create_task(self._cut(line))
                        if number == int(count * LATE_AT):
                            watching.create_task(self.late.watch(url, run_id))
                            self.tell("the third watcher joins, late")
                        await asyncio.sleep(pause / self._speed)
                        await publisher.publish(item)
                        self.published += 1
                self.tell("the agent is done")
                watching.create_task(self._wait_for_the_end())
        except* TimeoutError:
            waiting = ", ".join(watcher.name for watcher in self.watchers if watcher.state != "done")
            raise DemoError(f"no end of the run within {_END_TIMEOUT:g} s for: {waiting}") from None

    async def _wait_for_the_end(self) -> None:
        async with asyncio.timeout(_END_TIMEOUT):
            while any(watcher.state != "done" for watcher in self.watchers):  # noqa: ASYNC110 - only a guard
                await asyncio.sleep(0.05)

    async def _cut(self, line: Line) -> None:
        await line.cut()
        self.cut.state = "cut off"
        self.tell("the connection of the second watcher is cut")
        await asyncio.sleep(CUT_SECONDS / self._speed)
        await line.mend()
        self.tell("the second watcher may connect again")
        if self.cut.state == "cut off":
            self.cut.state = "watching"

    @asynccontextmanager
    async def _running_workers(self, url: str, directory: Path) -> AsyncIterator[None]:
        """Run the worker processes; they do not outlive this one."""
        async with AsyncExitStack() as stack:
            workers = [await stack.enter_async_context(_Worker(name, url, directory)) for name in WORKERS]
            for worker in workers:  # all of them are starting by now
                await worker.ready()
                self.workers.append(worker.name)
                self.tell(f"{worker.name} is up, process {worker.process_id}")
            yield
            for worker in workers:
                worker.check()


class _Worker:
    """One worker process."""

    def __init__(self, name: str, url: str, directory: Path) -> None:
        self.name = name
        self._url = url
        self._log = directory / f"{name}.log"
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
