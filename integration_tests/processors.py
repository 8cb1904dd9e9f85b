"""Processors of workers in tests: those that stop or end the worker's own process at a certain item."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

from redis import Redis

from agui_relay.broker.keys import RunKeys
from agui_relay.source import HarnessItem

MARK = "AGUI_TEST_MARK"
"""The environment variable with the path of a file that is made at the first such item, so that it stays the only."""
WORD = "halt here"


def halt(item: HarnessItem, event: Any) -> Any:
    """Stop this process (SIGSTOP) at the first event that says `WORD`, of all processes with the same mark."""
    if getattr(event, "delta", "") == WORD:
        try:
            Path(os.environ[MARK]).touch(exist_ok=False)
        except FileExistsError:
            return event
        Path(os.environ[MARK]).write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
    return event


def die(item: HarnessItem, event: Any) -> Any:
    """End this process without a word at every event that says `WORD`."""
    if getattr(event, "delta", "") == WORD:
        with Path(os.environ[MARK]).open("a") as file:
            file.write("x")
        os._exit(1)
    return event


def die_when_the_run_has_ended(item: HarnessItem, event: Any) -> Any:
    """End this process without a word as soon as the run's last item is committed."""
    if event.type == "RUN_FINISHED":
        threading.Thread(target=_die_with, args=(RunKeys("agui", item.run_id),), daemon=True).start()
    return event


def _die_with(keys: RunKeys) -> None:
    client = Redis.from_url(os.environ["AGUI_RELAY_REDIS_URL"])
    while client.hget(keys.state, "status") != b"finished":
        pass
    os._exit(1)
