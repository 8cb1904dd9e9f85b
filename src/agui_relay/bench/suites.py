"""Runs suites, one step after the other, on a server of their own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from redis.asyncio import Redis

from agui_relay.bench import (
    SUITES,
    fanout,
    fold,
    growth,
    latency,
    memory,
    observe,
    projection,
    publish,
    replay,
    worker,
)
from agui_relay.bench.measure import Case
from agui_relay.bench.session import Session, Step, Suite
from agui_relay.embedded import EmbeddedRedis, EmbeddedRedisError

_STEPS: dict[str, Suite] = {
    "projection": projection.steps,
    "observe": observe.steps,
    "fold": fold.steps,
    "worker": worker.steps,
    "publish": publish.steps,
    "latency": latency.steps,
    "fanout": fanout.steps,
    "growth": growth.steps,
    "memory": memory.steps,
    "replay": replay.steps,
}
_WITHOUT_SERVER = {"projection", "observe", "fold", "replay"}


def planned(names: Sequence[str], session: Session) -> dict[str, Sequence[Step]]:
    """Return the steps of the suites that are named, of all without a name; KeyError for one that does not exist."""
    return {name: _STEPS[name](session) for name in names or SUITES}


async def measure(
    plan: dict[str, Sequence[Step]], session: Session, done: Callable[[], None] = lambda: None
) -> dict[str, list[Case]]:
    """Measure all steps and return the cases of each suite; `done` is called after each step.

    Without the packaged server each suite that needs one gives a single row that says so.
    """
    logger = logging.getLogger("agui_relay")
    level = logger.level
    # What a worker says of runs that come and go belongs to nobody here.
    logger.setLevel(logging.ERROR)
    try:
        return {name: await _suite(name, steps, session, done) for name, steps in plan.items()}
    finally:
        logger.setLevel(level)


async def _suite(name: str, steps: Sequence[Step], session: Session, done: Callable[[], None]) -> list[Case]:
    cases: list[Case] = []
    async with AsyncExitStack() as stack:
        if name not in _WITHOUT_SERVER:
            try:
                session.url = (await stack.enter_async_context(EmbeddedRedis())).url
                session.server = await _version(session.url)
            except EmbeddedRedisError as error:
                for _ in steps:
                    done()
                return [Case("all cases", "", None, missing=str(error))]
        for step in steps:
            session.tell(f"{name}: {step.name}")
            cases += await step.measure(session)
            done()
    return cases


async def _version(url: str) -> str:
    async with Redis.from_url(url) as client:
        info = await client.info("server")
    return f"{info.get('server_name', 'redis')} {info.get('valkey_version', info['redis_version'])}"
