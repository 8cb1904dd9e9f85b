"""The driver of a session: starts everybody, does them harm, and holds what came out against the library."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError

from agui_relay import Relay
from agui_relay.broker.keys import RunKeys
from agui_relay.embedded import EmbeddedRedis
from agui_relay.framing.fragments import CustomEventAssembler
from integration_tests.chaos.plan import Digest, Plan, digest
from integration_tests.processes import ENVIRONMENT, Fleet
from integration_tests.proxy import Proxy

WORKERS = 4
PUBLISHERS = 3
CLAIM_IDLE = 1.0
PATIENCE = 30.0
VERIFIED = "verified"
"""The file that names the runs which were held against the library and are deleted."""
"""Seconds after the last fault, and after the last item, until every reader must have ended."""
SETTINGS = {
    "AGUI_RELAY_CLAIM_IDLE": str(CLAIM_IDLE),
    "AGUI_RELAY_SUBSCRIPTION_LEASE": "3",
    "AGUI_RELAY_PUBLISHER_LEASE": "30",
}
# How often each kind of fault, of all faults.
WEIGHTS = {
    "cut": 50,
    "stall": 10,
    "refuse": 3,
    "kill worker": 12,
    "kill publisher": 4,
    "kill reader": 3,
    "stop worker": 8,
    "stop publisher": 3,
    "stop reader": 2,
    "stop server": 2,
    "restart server": 3,
}


@dataclass
class Report:
    """What a session did and found."""

    plan: Plan
    items: int = 0
    events: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    hung: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """Whether nothing was lost, doubled or hung."""
        return not (self.lost or self.doubled or self.hung)

    def table(self) -> str:
        """Return the report as a table."""
        kinds = {"kills": "kill", "stops": "stop", "restarts": "restart", "cuts": "cut", "stalls": "stall"}
        rows: list[tuple[str, object]] = [
            ("seed", self.plan.seed),
            ("seconds", round(self.seconds)),
            ("runs", self.plan.runs),
            ("items", self.items),
            ("events read", self.events),
            *(
                (name, sum(count for fault, count in self.faults.items() if fault.split()[0] == kind))
                for name, kind in kinds.items()
            ),
            ("lost", len(self.lost)),
            ("doubled", len(self.doubled)),
            ("hung", len(self.hung)),
        ]
        lines = [f"{name:<12} {value}" for name, value in rows]
        lines.append(", ".join(f"{fault}: {count}" for fault, count in sorted(self.faults.items())))
        return "\n".join([*lines, *self.lost[:10], *self.doubled[:10], *self.hung[:10]])


class Crew:
    """Processes of one kind that are started again when they were killed, until they have ended by themselves."""

    def __init__(self, kind: str, count: int, command: Callable[[int], Sequence[str]], log: Path) -> None:
        self.kind = kind
        self._command = command
        self._log = log.open("ab")
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * count
        self._tried = [0] * count

    def fill(self) -> None:
        """Start who is missing."""
        for number, process in enumerate(self.processes):
            if process is not None and (process.poll() is None or process.returncode == 0):
                continue
            if process is not None and process.returncode > 0:
                self._tried[number] += 1
                if self._tried[number] > 5:
                    raise RuntimeError(f"{self.kind} {number} fails again and again, see its log")
            self.processes[number] = subprocess.Popen(
                [sys.executable, "-m", f"integration_tests.chaos.{self.kind}", *self._command(number)],
                env={**ENVIRONMENT, **SETTINGS},
                stdout=subprocess.DEVNULL,
                stderr=self._log,
            )

    @property
    def alive(self) -> list[subprocess.Popen[bytes]]:
        """Those who run."""
        return [process for process in self.processes if process is not None and process.poll() is None]

    def close(self) -> None:
        """Kill all that are left."""
        for process in self.alive:
            process.kill()
            process.wait()
        self._log.close()


class Session:
    """One session."""

    def __init__(self, plan: Plan, directory: Path, *, faults_a_second: float) -> None:
        self.plan = plan
        self.report = Report(plan)
        self._directory = directory
        self._pause = 1 / faults_a_second
        self._chance = plan.chance("faults")
        self._stack = AsyncExitStack()
        self._healing: set[asyncio.Task[None]] = set()
        self._last_fault = time.monotonic()
        self._results: dict[int, list[dict[str, Any]]] = {}
        self._verified: set[int] = set()

    async def run(self) -> Report:
        """Run it to its end."""
        began = time.monotonic()
        async with self._stack:
            await self._start()
            harm = asyncio.create_task(self._harm())
            verify = asyncio.create_task(self._verify())
            await self._keep_up(lambda: bool(self._publishers.alive))
            harm.cancel()
            await asyncio.gather(harm, return_exceptions=True)
            if harm.done() and not harm.cancelled() and (error := harm.exception()) is not None:
                raise error
            await asyncio.gather(*self._healing)
            self._proxies_flow()
            deadline = time.monotonic() + PATIENCE
            await self._keep_up(lambda: bool(self._readers.alive) and time.monotonic() < deadline)
            for reader, process in enumerate(self._readers.processes):
                if process is not None and process.poll() is None:
                    done = {line["run"] for line in self._read_results(reader)}
                    self.report.hung += [
                        f"reader {reader} hangs at run {number}"
                        for number in range(self.plan.runs)
                        if number not in done
                    ]
            if not self.report.hung:
                await verify
            verify.cancel()
            await asyncio.gather(verify, return_exceptions=True)
        self.report.seconds = time.monotonic() - began
        return self.report

    async def _start(self) -> None:
        plan, stack = self.plan, self._stack
        self._server = await stack.enter_async_context(
            EmbeddedRedis(
                *("--appendonly", "yes", "--appendfsync", "always", "--maxclients", "5000"),
                port=0,
                directory=self._directory / "redis",
            )
        )
        assert self._server.port is not None
        target = ("127.0.0.1", self._server.port)
        self._proxies = {
            name: await stack.enter_async_context(Proxy(target)) for name in ("workers", "publishers", "readers")
        }
        self._relay = await stack.enter_async_context(Relay(self._server.url))
        self._pool = stack.enter_context(ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")))
        self._fleet = stack.enter_context(
            Fleet(
                self._proxies["workers"].url,
                WORKERS,
                *("--log-level", "warning"),
                environment=SETTINGS,
                log=self._directory / "workers.log",
            )
        )
        self._publishers = Crew(
            "publisher",
            PUBLISHERS,
            lambda share: [
                self._proxies["publishers"].url,
                str(share),
                str(PUBLISHERS),
                str(self._directory / VERIFIED),
                *plan.arguments(),
            ],
            self._directory / "publishers.log",
        )
        self._readers = Crew(
            "reader",
            plan.readers,
            lambda reader: [
                self._proxies["readers"].url,
                str(reader),
                str(self._directory / f"reader-{reader}"),
                *plan.arguments(),
            ],
            self._directory / "readers.log",
        )
        stack.callback(self._publishers.close)
        stack.callback(self._readers.close)

    async def _keep_up(self, going: Callable[[], bool]) -> None:
        """Start again who was killed, as long as it goes."""
        while True:
            self._fleet.fill()
            self._publishers.fill()
            self._readers.fill()
            if not going():
                return
            await asyncio.sleep(0.1)

    # -- harm ---------------------------------------------------------------------------------------------------------

    async def _harm(self) -> None:
        kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
        # Everybody has begun.
        await asyncio.sleep(2)
        while True:
            await asyncio.sleep(self._chance.uniform(0, 2 * self._pause))
            [kind] = self._chance.choices(kinds, weights)
            if await self._do(kind):
                self.report.faults[kind] += 1
                self._last_fault = time.monotonic()

    async def _do(self, kind: str) -> bool:
        chance = self._chance
        match kind.split():
            case ["cut"]:
                proxy = chance.choice(list(self._proxies.values()))
                connections = proxy.connections
                chosen = chance.sample(connections, min(len(connections), chance.choice((1, 1, 2, 5, 100))))
                if chosen:
                    proxy.cut(*chosen)
                return bool(chosen)
            case ["stall"]:
                proxy = chance.choice(list(self._proxies.values()))
                connections = proxy.connections
                chosen = chance.sample(connections, min(len(connections), chance.choice((1, 2, 100))))
                if chosen:
                    proxy.stall(*chosen)
                    self._heal(chance.uniform(0.2, 3.0), lambda: proxy.flow(*chosen))
                return bool(chosen)
            case ["refuse"]:
                proxy = chance.choice(list(self._proxies.values()))
                proxy.refuse()
                proxy.cut()
                self._heal(chance.uniform(0.2, 2.0), proxy.accept)
            case ["kill", who]:
                victim = self._victim(who, chance)
                if victim is None:
                    return False
                victim.kill()
            case ["stop", "server"]:
                pid = self._server.process_id
                os.kill(pid, signal.SIGSTOP)
                await asyncio.sleep(chance.uniform(0.1, 1.5))
                os.kill(pid, signal.SIGCONT)
            case ["stop", who]:
                victim = self._victim(who, chance)
                if victim is None:
                    return False
                victim.send_signal(signal.SIGSTOP)
                self._heal(chance.uniform(0.2, 4 * CLAIM_IDLE), lambda: victim.send_signal(signal.SIGCONT))
            case _:
                if chance.random() < 0.5:
                    await self._server.kill()
                else:
                    await self._server.stop()
                await asyncio.sleep(chance.choice((0.0, 0.0, 1.0)))
                await self._server.start()
        return True

    def _victim(self, who: str, chance: random.Random) -> subprocess.Popen[bytes] | None:
        crew = {
            "worker": [process for process in self._fleet.processes if process.poll() is None],
            "publisher": self._publishers.alive,
            "reader": self._readers.alive,
        }[who]
        return chance.choice(crew) if crew else None

    def _heal(self, seconds: float, heal: Callable[[], object]) -> None:
        async def later() -> None:
            await asyncio.sleep(seconds)
            heal()

        task = asyncio.create_task(later())
        self._healing.add(task)
        task.add_done_callback(self._healing.discard)

    def _proxies_flow(self) -> None:
        for proxy in self._proxies.values():
            proxy.accept()
            proxy.flow()

    # -- what came out ------------------------------------------------------------------------------------------------

    def _read_results(self, reader: int) -> list[dict[str, Any]]:
        path = self._directory / f"reader-{reader}"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    async def _verify(self) -> None:
        """Hold each run against the library once all its readers have ended; then it is deleted."""
        while len(self._verified) < self.plan.runs:
            await asyncio.sleep(0.5)
            results: dict[int, list[dict[str, Any]]] = {}
            for reader in range(self.plan.readers):
                for line in self._read_results(reader):
                    results.setdefault(line["run"], []).append(line)
            for number, lines in results.items():
                # A reader that was killed while it said so may say it twice.
                if number not in self._verified and len(lines) >= self.plan.readers:
                    await self._verify_run(number, lines)
                    self._verified.add(number)

    async def _verify_run(self, number: int, lines: Sequence[dict[str, Any]]) -> None:
        loop, report = asyncio.get_running_loop(), self.report
        wanted = await loop.run_in_executor(self._pool, self.plan.projection, number)
        name = self.plan.run_id(number)
        for line in lines:
            found = Digest(*line["digest"])
            report.events += found.events
            what = f"{name}: a reader had {found} for {wanted}, {line['gaps']} gaps, {line['outcome']} {line['error']}"
            if found.events > wanted.events:
                report.doubled.append(what)
            elif found != wanted or line["outcome"] != "finished" or line["gaps"]:
                report.lost.append(what)
        await self._insist(lambda: self._verify_log(number, wanted))
        # A publisher that is started again must not take it up as a new run.
        with (self._directory / VERIFIED).open("a") as verified:
            verified.write(f"{number}\n")
        await self._insist(lambda: self._relay.delete(self.plan.run_id(number)))

    async def _verify_log(self, number: int, wanted: Digest) -> None:
        report, relay = self.report, self._relay
        name = self.plan.run_id(number)
        keys = RunKeys(relay.settings.namespace, name)
        rows, after = [], "-"
        while page := await relay.client.xrange(keys.frames, after, "+", count=1000):
            rows += page
            after = f"({page[-1][0].decode()}"
        assembler = CustomEventAssembler()
        wholes = [assembler.accept_encoded(row[b"frame"]) for _, row in rows]
        found = digest(whole for whole in wholes if whole is not None)
        dense = [row_id for row_id, _ in rows] == [b"%d-0" % position for position in range(1, len(rows) + 1)]
        info = await relay.run(name)
        if info is None:
            report.lost.append(f"{name}: its keys are gone")
            return
        count = len(self.plan.items(number))
        state = (info.status, info.items, info.lag, info.rejected)
        if found.events > wanted.events or info.items > count:
            report.doubled.append(f"{name}: its log has {found} for {wanted}, of {info.items} items for {count}")
        elif found != wanted or not dense or state != ("finished", count, 0, 0):
            report.lost.append(f"{name}: its log has {found} for {wanted}, dense: {dense}, {state}")
        report.items += count

    async def _insist(self, call: Callable[[], Awaitable[object]]) -> None:
        """Call until the server is there for it."""
        while True:
            try:
                await call()
                return
            except (RedisError, OSError):
                await asyncio.sleep(0.2)


async def run_session(
    *,
    seed: int,
    runs: int,
    minutes: float,
    most_items: int = 5000,
    readers: int = 2,
    faults_a_second: float = 2.0,
    directory: Path | None = None,
) -> Report:
    """Run a session and return its report. What was written stays in `directory`, if one that exists is given."""
    plan = Plan(seed, runs, minutes, most_items, readers, began=time.time())
    if directory is not None:
        return await Session(plan, directory, faults_a_second=faults_a_second).run()
    with tempfile.TemporaryDirectory(prefix="agui-relay-chaos-") as name:
        return await Session(plan, Path(name), faults_a_second=faults_a_second).run()
