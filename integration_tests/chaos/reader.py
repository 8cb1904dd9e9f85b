"""A reader process: reads every run, and says what it was given. Started again after a kill, it reads the rest anew."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from redis.exceptions import RedisError

from agui_relay import Delivery, Relay, RelayError
from integration_tests.chaos.plan import Plan, digest

FOREVER = 1e6


async def read(relay: Relay, plan: Plan, reader: int, number: int, results: int) -> None:
    """Read one run, from early on or late, in one go or in several; report it as a line of JSON."""
    chance = plan.chance("reader", reader, number, os.getpid())
    await asyncio.sleep(max(0.0, plan.begins(number) + chance.uniform(-2.0, 4.0) - time.time()))
    events: list[bytes] = []
    gaps, last, error = 0, 0, ""
    cursor: str | None = None
    outcome: str | None = None
    while outcome is None:
        leave_after = chance.randrange(1, 3000) if chance.random() < 0.3 else None
        try:
            async with relay.subscribe(plan.run_id(number), after=cursor, wait_for_run=FOREVER) as subscription:
                async for delivery in subscription:
                    if isinstance(delivery, Delivery) and delivery.position > last:
                        last = delivery.position
                        events.append(delivery.data)
                    else:
                        gaps += 1
                    if leave_after is not None and len(events) >= leave_after:
                        break
                cursor, outcome = subscription.cursor, subscription.outcome
        except (RedisError, OSError):
            await asyncio.sleep(0.2)
        except RelayError as failure:
            outcome, error = "error", f"{type(failure).__name__}: {failure}"
    line = {"run": number, "digest": digest(events), "gaps": gaps, "outcome": outcome, "error": error}
    os.write(results, json.dumps(line).encode() + b"\n")


def told(path: Path) -> set[int]:
    """Return the runs that are reported already."""
    return {json.loads(line)["run"] for line in path.read_text().splitlines()}


async def main() -> None:
    url, reader, path, *rest = sys.argv[1:]
    plan = Plan.parse(rest)
    results = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        done = told(Path(path))
        try:
            async with Relay(url) as relay, asyncio.TaskGroup() as group:
                for number in range(plan.runs):
                    if number not in done:
                        group.create_task(read(relay, plan, int(reader), number, results))
            return
        except* (RedisError, OSError) as errors:
            sys.stderr.write(f"reader {reader}: once more: {errors}\n")
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run(main())
