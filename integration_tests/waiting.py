"""Wait for what another task, process or server will bring about, until a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


async def eventually(condition: Callable[[], Awaitable[object]], *, within: float = 10.0) -> None:
    """Return once `condition` holds; TimeoutError when it does not within as many seconds."""
    async with asyncio.timeout(within):
        while not await condition():  # noqa: ASYNC110 - the condition lives outside of this process
            await asyncio.sleep(0.01)
