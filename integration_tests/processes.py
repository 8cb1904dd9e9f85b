"""Workers as processes of their own, to be killed, stopped and counted."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

# Plugins of pydantic that are there for other packages' sake more than double the time of a start.
ENVIRONMENT = {**os.environ, "PYDANTIC_DISABLE_PLUGINS": "__all__"}


class Fleet:
    """Worker processes on one server. Whatever is left at the end of the block is killed."""

    def __init__(
        self,
        url: str,
        count: int,
        *options: str,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        """`options` are given to every worker; what they write to stderr goes to the end of `log`, if there is one."""
        self._url = url
        self._count = count
        self._options = options
        self._environment = {**ENVIRONMENT, **(environment or {})}
        self._log = None if log is None else log.open("ab")
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self.fill()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.kill()
            # A stopped process dies only once it goes on.
            process.send_signal(signal.SIGCONT)
        for process in self.processes:
            process.communicate()
        if self._log is not None:
            self._log.close()

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Start one worker more; does not wait until it is ready."""
        process = subprocess.Popen(
            [sys.executable, "-m", "agui_relay.cli", "worker", "--redis", self._url, *self._options, *options],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self.processes.append(process)
        return process

    def fill(self) -> None:
        """Start workers until there are as many as there should be."""
        for process in [process for process in self.processes if process.poll() is not None]:
            process.communicate()
            self.processes.remove(process)
        while len(self.processes) < self._count:
            self.start()

    def kill_one(self, chance: random.Random) -> None:
        """End one worker without a chance to say anything."""
        chance.choice([process for process in self.processes if process.poll() is None]).kill()


def wait_until_ready(process: subprocess.Popen[bytes]) -> None:
    """Return when the worker has said that it is ready."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert b"ready" in line, line
