"""A connection that can really be cut: passes bytes to a server until told to drop everything."""

import asyncio
import contextlib
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote, unquote, urlsplit


class Line:
    """A unix socket in front of the server at `url`; `cut` and `mend` it.

    Cut, every connection over it is gone without a word and new ones are refused: what a reader meets when its
    network fails.
    """

    def __init__(self, url: str, path: Path) -> None:
        self._server_url = urlsplit(url)
        self._path = path
        self._listener: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}

    @property
    def url(self) -> str:
        """Where to connect instead."""
        return f"unix://{quote(str(self._path))}?db=0"

    async def __aenter__(self) -> Self:
        await self.mend()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cut()

    async def mend(self) -> None:
        """Accept connections (again)."""
        if self._listener is None:
            self._listener = await asyncio.start_unix_server(self._connect, self._path)

    async def cut(self) -> None:
        """Drop every connection and refuse new ones."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        tasks = list(self._connections)
        for writers in self._connections.values():
            for writer in writers:
                writer.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = [writer]
        try:
            far_reader, far_writer = await self._open()
            self._connections[task].append(far_writer)
            async with asyncio.TaskGroup() as directions:
                directions.create_task(_pass(reader, far_writer))
                directions.create_task(_pass(far_reader, writer))
        except* OSError:
            pass
        finally:
            for each in self._connections.pop(task):
                each.transport.abort()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._server_url.scheme == "unix":
            return await asyncio.open_unix_connection(unquote(self._server_url.path))
        return await asyncio.open_connection(self._server_url.hostname, self._server_url.port)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes one way; the end of one side is the end of the other."""
    with contextlib.suppress(OSError):
        while chunk := await reader.read(65_536):
            writer.write(chunk)
            await writer.drain()
    writer.transport.abort()
