"""A publisher process: publishes its share of the runs. Started again, it takes them up, and repeats some."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from redis.exceptions import RedisError

from agui_relay import Relay, RelayError
from integration_tests.chaos.plan import Plan

REPEATED = 10


def is_named(path: Path, number: int) -> bool:
    """Tell whether a file names a run."""
    return path.exists() and str(number) in path.read_text().splitlines()


async def publish(relay: Relay, plan: Plan, number: int, verified: Path) -> None:
    """Publish one run, from where it stands; the last items that are stored once more."""
    await asyncio.sleep(max(0.0, plan.begins(number) - time.time()))
    if is_named(verified, number):
        return
    run = plan.items(number)
    together, pause = plan.pace(number, len(run))
    run_id = plan.run_id(number)
    while True:
        try:
            async with relay.publisher(run_id, thread_id=run[0].thread_id, token=f"token-{number}") as publisher:
                if publisher.stored == len(run):
                    return
                for place, item in enumerate(run[max(0, publisher.stored - REPEATED) :]):
                    await publisher.publish(item)
                    if place % together == 0:
                        await asyncio.sleep(pause)
            return
        except (RedisError, OSError) as error:
            sys.stderr.write(f"{run_id}: once more: {error}\n")
            await asyncio.sleep(0.2)
        except RelayError as error:
            # It should not come to this; the readers will tell what became of the run.
            sys.stderr.write(f"{run_id}: FAILED: {type(error).__name__}: {error}\n")
            return


async def main() -> None:
    url, share, shares, verified, *rest = sys.argv[1:]
    plan = Plan.parse(rest)
    while True:
        try:
            async with Relay(url) as relay, asyncio.TaskGroup() as group:
                for number in range(int(share), plan.runs, int(shares)):
                    group.create_task(publish(relay, plan, number, Path(verified)))
            return
        except (RedisError, OSError) as error:
            sys.stderr.write(f"publisher {share}: once more: {error}\n")
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run(main())
