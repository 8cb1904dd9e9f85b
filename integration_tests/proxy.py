"""A proxy in front of a server, that cuts, stalls, slows and half-closes connections on command."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import pytest

_CHUNK = 64 * 1024
_NARROW = 8 * 1024


class _Pair:
    """One client's connection and the one to the server behind it."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.open = asyncio.Event()
        self.open.set()
        self.taking = asyncio.Event()
        self.taking.set()
        self.greeted = b""

    def cut(self) -> None:
        """Reset both ends: what is in flight is lost."""
        for writer in (self.client, self.server):
            writer.transport.abort()


class Proxy:
    """Listens on a free port of 127.0.0.1 while its block lasts, and passes everything on to `target`.

    `target` is a unix socket's path or (host, port). Connections are numbered in the order they came; `connections`
    are those still open. `at` is a unix socket to listen on instead; `tls` has the proxy speak TLS with its clients. A
    `narrow` one takes little of what it cannot pass on: what is slow or stalled is so for the client at once.
    """

    def __init__(
        self,
        target: Path | tuple[str, int],
        *,
        at: Path | None = None,
        tls: ssl.SSLContext | None = None,
        narrow: bool = False,
    ) -> None:
        self._target = target
        self._at = at
        self._tls = tls
        self._narrow = narrow
        self._server: asyncio.Server | None = None
        self._pairs: dict[int, _Pair] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting = True
        self._port = 0
        self.accepted = 0
        """Connections that came, from the beginning on."""
        self.passed = 0
        """Bytes that went to clients."""
        self.taken = 0
        """Bytes that went to the server."""
        self.bytes_a_second: float | None = None
        """How fast the line is, each way and for each connection."""
        self.received = 0
        """Bytes that came from the server, also those that are held back."""

    async def __aenter__(self) -> Self:
        listening = socket.socket(socket.AF_INET if self._at is None else socket.AF_UNIX)
        if self._narrow:
            # The connections inherit it.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _NARROW)
        listening.bind(("127.0.0.1", 0) if self._at is None else str(self._at))
        start = asyncio.start_server if self._at is None else asyncio.start_unix_server
        self._server = await start(
            self._serve, sock=listening, ssl=self._tls, limit=_NARROW if self._narrow else _CHUNK
        )
        if self._at is None:
            self._port = listening.getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        if self._at is not None:
            return f"unix://{quote(str(self._at))}?db=0"
        if self._tls is not None:
            return f"rediss://127.0.0.1:{self._port}/0?ssl_cert_reqs=none&ssl_check_hostname=false"
        return f"redis://127.0.0.1:{self._port}/0"

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._port

    @property
    def connections(self) -> list[int]:
        return list(self._pairs)

    @property
    def listening(self) -> list[int]:
        """The open connections whose client has subscribed to a channel."""
        return [number for number, pair in self._pairs.items() if b"SUBSCRIBE" in pair.greeted]

    def cut(self, *numbers: int) -> None:
        """Reset these connections, or all."""
        for pair in self._chosen(numbers):
            pair.cut()

    def half_close(self, *numbers: int) -> None:
        """Tell the clients of these connections, or of all, that nothing more will come; they may still send."""
        for pair in self._chosen(numbers):
            if pair.client.can_write_eof():
                pair.client.write_eof()

    def stall(self, *numbers: int) -> None:
        """Pass nothing more to the clients of these connections, or of all; nothing shows that."""
        for pair in self._chosen(numbers):
            pair.open.clear()

    def clog(self, *numbers: int) -> None:
        """Take nothing more from the clients of these connections, or of all."""
        for pair in self._chosen(numbers):
            pair.taking.clear()

    def flow(self, *numbers: int) -> None:
        """End what `stall` and `clog` have begun."""
        for pair in self._chosen(numbers):
            pair.open.set()
            pair.taking.set()

    def say(self, data: bytes, *numbers: int) -> None:
        """Send the clients of these connections, or of all, what the server has not said."""
        for pair in self._chosen(numbers):
            pair.client.write(data)

    def turn_to(self, target: Path | tuple[str, int]) -> None:
        """Pass new connections on to another server, and reset the old ones."""
        self._target = target
        self.cut()

    def refuse(self) -> None:
        """Reset every new connection from now on."""
        self._accepting = False

    def accept(self) -> None:
        """Take new connections again."""
        self._accepting = True

    def _chosen(self, numbers: tuple[int, ...]) -> list[_Pair]:
        return [pair for number, pair in list(self._pairs.items()) if not numbers or number in numbers]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        number = self.accepted
        self.accepted += 1
        pair: _Pair | None = None
        try:
            if not self._accepting:
                writer.transport.abort()
                return
            if isinstance(self._target, Path):
                server_reader, server_writer = await asyncio.open_unix_connection(self._target)
            else:
                server_reader, server_writer = await asyncio.open_connection(*self._target)
            pair = self._pairs[number] = _Pair(writer, server_writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, server_writer, pair, to_client=False))
                group.create_task(self._pass(server_reader, writer, pair, to_client=True))
        except* OSError:
            pass
        finally:
            self._pairs.pop(number, None)
            self._tasks.discard(task)
            writer.transport.abort()
            if pair is not None:
                pair.server.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: _Pair, *, to_client: bool
    ) -> None:
        while data := await reader.read(_CHUNK):
            if to_client:
                self.received += len(data)
                await pair.open.wait()
                self.passed += len(data)
            else:
                if len(pair.greeted) < 4096:
                    pair.greeted += data[:4096]
                await pair.taking.wait()
                self.taken += len(data)
            writer.write(data)
            await writer.drain()
            if self.bytes_a_second is not None:
                await asyncio.sleep(len(data) / self.bytes_a_second)
        # One side has ended: so does the other, as a reset.
        raise ConnectionResetError


def certified(directory: Path) -> ssl.SSLContext:
    """Return a server's side of TLS, with a certificate that nobody vouches for."""
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("there is no openssl to make a certificate with")
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    command = (
        f"{openssl} req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 2 -keyout {key} -out {certificate}"
    )
    subprocess.run(command.split(), check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context
