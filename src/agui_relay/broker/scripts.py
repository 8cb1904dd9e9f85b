"""The Lua scripts as typed Python functions: what goes in, what each reply word means."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.resources import files
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol

from redis.exceptions import NoScriptError, RedisError

from agui_relay.broker.announcement import VIEWS, View, entry_fields
from agui_relay.broker.keys import GROUP, PartitionKeys, RunKeys
from agui_relay.broker.pipe import Argument, Pipe

Reply = Any


class RedisClient(Protocol):
    """What the scripts need of `redis.asyncio.Redis` or `redis.asyncio.RedisCluster`; replies must be bytes."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command."""

    def pipeline(self, transaction: Any = ...) -> Any:
        """Return a pipeline."""


class Script:
    """The text of one script; those of a run begin with the prelude they share."""

    def __init__(self, name: str, *parts: str) -> None:
        folder = files("agui_relay.broker") / "scripts"
        text = "".join(folder.joinpath(f"{part}.lua").read_text("utf-8") for part in parts)
        self.name = name
        self.text = text.encode()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest()


OPEN: Final = Script("open", "prelude", "open")
APPEND: Final = Script("append", "prelude", "append")
FETCH: Final = Script("fetch", "prelude", "fetch")
COMMIT: Final = Script("commit", "prelude", "frame_log", "commit")
UNCOVERED: Final = Script("uncovered", "prelude", "frame_log", "uncovered")
CHECKPOINT: Final = Script("checkpoint", "prelude", "frame_log", "checkpoint")
ABANDON: Final = Script("abandon", "prelude", "abandon")
JOIN: Final = Script("join", "prelude", "join")
MEND: Final = Script("mend", "prelude", "mend")
DELETE: Final = Script("delete", "prelude", "delete")
READ: Final = Script("read", "prelude", "read")
DISPLAY: Final = Script("display", "prelude", "display")
FORGET: Final = Script("forget", "forget")

_LONG: Final = (UNCOVERED, CHECKPOINT, DISPLAY)
"""Those that carry a whole display, one way or the other."""


class Opened(NamedTuple):
    """Reply of `open`. `word` is opened, resumed, busy, ended or thread."""

    word: str
    epoch: str = ""
    last: int = 0
    status: str = "live"
    thread_id: str = ""


class Appended(NamedTuple):
    """Reply of `append`. `word` is ok, full, hole, ended, fenced or gone."""

    word: str
    last: int = 0
    stored: int = 0
    status: str = ""


class Fetched(NamedTuple):
    """Reply of `fetch`. `word` is items, idle, lost or gone."""

    word: str
    epoch: str = ""
    cursor: int = 0
    position: int = 0
    version: str = ""
    continuation: bytes = b""
    thread_id: str = ""
    claims: int = 0
    items: Sequence[bytes] = ()


class Committed(NamedTuple):
    """Reply of `commit`. `word` is ok, stale or gone; `views` are those that it told of its frames.

    `due` is above 0 when the run needs its next display checkpoint, and 2 when it should wait for that.
    """

    word: str
    position: int = 0
    left: int = 0
    status: str = ""
    views: tuple[View, ...] = ()
    due: int = 0
    items: Sequence[bytes] = ()


class Uncovered(NamedTuple):
    """Reply of `uncovered`. `word` is due, well, stale or gone.

    `covered` and `head` are positions, `tail` the bytes of the frames between, `log` those of all frames kept. `stored`
    is the display checkpoint by view; empty when none is stored for the position that is covered.
    """

    word: str
    covered: int = 0
    head: int = 0
    tail: int = 0
    log: int = 0
    stored: Mapping[View, bytes] = {}


class Joined(NamedTuple):
    """Reply of `join`. `status` is gone when there is no such run; `oldest` is 0 when the log is empty."""

    epoch: str
    head: int
    status: str
    oldest: int


class Log(NamedTuple):
    """A part of a run's log, and the run's state at the same moment; `status` is gone when there is no such run."""

    epoch: str
    head: int
    status: str
    entries: Sequence[Any]


class Display(NamedTuple):
    """The display checkpoint of a run for one view, and the run's state at the same moment.

    `position` is the last one that `snapshot` covers; None, and no bytes, when nothing is stored. `tail` counts the
    bytes of the frames behind it.
    """

    epoch: str
    head: int
    status: str
    position: int | None
    snapshot: bytes
    tail: int


class AppendItem(NamedTuple):
    """One item on its way into `append`; `outcome` is empty unless it is the run's terminal item."""

    source_run_id: str
    sequence: int
    outcome: str
    data: bytes


class FetchCall(NamedTuple):
    """Arguments of one `fetch`."""

    keys: RunKeys
    entry: bytes
    cached: str
    most_items: int
    most_bytes: int
    claimed: bool = False


type Frame = tuple[bytes, bytes]
"""One frame, and what the log says beside it: a digit of flags, the event's type, `:` and a CUSTOM's name."""


class Rejected(NamedTuple):
    """One item that could not be projected."""

    ordinal: int
    error: str
    item: bytes


class CommitCall(NamedTuple):
    """Arguments of one `commit`."""

    keys: RunKeys
    entry: bytes
    epoch: str
    cursor: int
    new_cursor: int
    consumed: int
    turn_over: bool
    next_items: int
    next_bytes: int
    version: str
    continuation: bytes | None
    frames: Sequence[Frame]
    rejected: Sequence[Rejected]
    announced: Sequence[tuple[str, bytes]]


class CommitLimits(NamedTuple):
    """What a commit keeps: `kept_ms` of an ended run's keys, the rest in bytes (see `RelaySettings`)."""

    kept_ms: int
    fanout_bytes: int
    log_bytes: int
    item_bytes: int
    tail_bytes: int


class Scripts:
    """Calls the scripts through one client; `cluster` says that it is one of a Redis Cluster.

    Those that carry every item go through `pipe`, if there is one, and through `bulk` what may be long, such as a page
    of the log or a display: it may take its time on a slow line, where redis-py has one time for whole answers, and
    holds up nothing that is short. To their callers a lost connection is nothing new; the client repeats a call a few
    times before it gives up.

    A server that was restarted has forgotten them: just those calls that answered NOSCRIPT are repeated, with the text
    of the script (one that was not found had no effect). To load it first would leave time to forget it again.
    """

    def __init__(
        self, client: RedisClient, *, cluster: bool = False, pipe: Pipe | None = None, bulk: Pipe | None = None
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._pipe = pipe
        self._bulk = bulk
        self._publish = "SPUBLISH" if cluster else "PUBLISH"

    async def _call(self, script: Script, keys: RunKeys, *arguments: Argument) -> Reply:
        return await self._evaluate(script, self._command(script, keys, arguments))

    async def _evaluate(self, script: Script, command: Sequence[Argument]) -> Reply:
        pipe = self._pipe if script is APPEND else self._bulk if script in _LONG else None
        return await self._evaluate_over(self._client.execute_command if pipe is None else pipe.call, script, command)

    async def _evaluate_over(
        self, call: Callable[..., Awaitable[Reply]], script: Script, command: Sequence[Argument]
    ) -> Reply:
        try:
            return await call(*command)
        except NoScriptError:
            # To the server that misses it, whichever that is by now.
            return await call(*_with_text(script, command))

    async def _call_many(self, script: Script, calls: Sequence[tuple[RunKeys, Sequence[Argument]]]) -> list[Reply]:
        """Call one script for many runs in one round trip; an exception stands where a call failed."""
        if self._pipe is None and (self._cluster or len(calls) == 1):
            # redis-py's cluster client cannot pipeline EVALSHA.
            return await asyncio.gather(
                *(self._call(script, keys, *arguments) for keys, arguments in calls), return_exceptions=True
            )
        replies = await self._pipeline([self._command(script, keys, arguments) for keys, arguments in calls])
        unknown = [index for index, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:
            again = await self._pipeline(
                [_with_text(script, self._command(script, *calls[index])) for index in unknown]
            )
            for index, reply in zip(unknown, again, strict=True):
                replies[index] = reply
        return replies

    async def _pipeline(self, commands: Sequence[Sequence[Argument]]) -> list[Reply]:
        if self._pipe is not None:
            return await self._pipe.call_many(commands)
        async with self._client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            replies: list[Reply] = await pipeline.execute(raise_on_error=False)
            return replies

    def _command(self, script: Script, keys: RunKeys, arguments: Sequence[Argument]) -> list[Argument]:
        names = keys.all
        return [
            "EVALSHA",
            script.sha,
            len(names),
            *names,
            keys.run_id,
            keys.channel_prefix,
            self._publish,
            *arguments,
        ]

    async def open(
        self, keys: RunKeys, *, token: str, epoch: str, thread_id: str, lease_ms: int, kept_ms: int
    ) -> Opened:
        """Create the run, or take it up again with its token."""
        word, *rest = await self._call(OPEN, keys, token, epoch, thread_id, lease_ms, kept_ms)
        match word:
            case b"opened":
                return Opened("opened", rest[0].decode(), thread_id=thread_id)
            case b"resumed":
                return Opened("resumed", rest[0].decode(), rest[1], rest[2].decode(), rest[3].decode())
            case b"thread":
                return Opened("thread", thread_id=rest[0].decode())
            case _:
                return Opened(word.decode(), status=rest[0].decode())

    async def append(
        self,
        keys: RunKeys,
        *,
        token: str,
        known: int,
        lease_ms: int,
        kept_ms: int,
        unread_bytes: int,
        thread_id: str,
        items: Sequence[AppendItem],
        epoch: str = "",
    ) -> Appended:
        """Store items; without items, renew the publisher's lease. `epoch` is the life they are for, '' for any."""
        # One argument for what is said of all items: redis-py takes longer for each argument than the server does.
        lines = "\n".join(
            f"{sequence} {outcome or '-'} {source_run_id}" for source_run_id, sequence, outcome, _ in items
        )
        word, *rest = await self._call(
            APPEND,
            keys,
            token,
            known,
            lease_ms,
            kept_ms,
            unread_bytes,
            thread_id,
            epoch,
            lines,
            *[item.data for item in items],
        )
        match word:
            case b"ok":
                return Appended("ok", rest[0], rest[1])
            case b"hole":
                return Appended("hole", rest[0])
            case b"ended" | b"fenced":
                return Appended(word.decode(), status=rest[0].decode())
            case _:
                return Appended(word.decode())

    async def renew(self, keys: RunKeys, *, token: str, lease_ms: int, kept_ms: int, epoch: str) -> None:
        """Renew the publisher's lease past the pipe, where it would come behind an append that takes long."""
        command = self._command(APPEND, keys, (token, 0, lease_ms, kept_ms, 0, "", epoch, ""))
        await self._evaluate_over(self._client.execute_command, APPEND, command)

    async def fetch_many(self, calls: Sequence[FetchCall]) -> list[Fetched | BaseException]:
        """Fetch the next items of many runs; an exception stands where a call failed."""
        replies = await self._call_many(
            FETCH,
            [
                (call.keys, (call.entry, call.cached, call.most_items, call.most_bytes, int(call.claimed)))
                for call in calls
            ],
        )
        return [reply if isinstance(reply, BaseException) else _fetched(reply) for reply in replies]

    async def commit_many(self, calls: Sequence[CommitCall], limits: CommitLimits) -> list[Committed | BaseException]:
        """Commit many runs; an exception stands where a call failed."""
        replies = await self._call_many(COMMIT, [(call.keys, _commit_arguments(call, limits)) for call in calls])
        return [reply if isinstance(reply, BaseException) else _committed(reply) for reply in replies]

    async def uncovered(self, keys: RunKeys, *, epoch: str, log_bytes: int, tail_bytes: int) -> Uncovered:
        """Return what a run's next display checkpoint is made of, if one is due."""
        word, *rest = await self._call(UNCOVERED, keys, epoch, log_bytes, tail_bytes)
        if word != b"due":
            return Uncovered(word.decode())
        covered, head, tail, log, position, full, chat = rest
        stored: dict[View, bytes] = {"full": full, "chat": chat} if position == b"%d" % covered else {}
        return Uncovered("due", covered, head, tail, log, stored)

    async def read_frames(self, keys: RunKeys, *, first: int, last: int, most: int) -> Sequence[Any]:
        """Return up to `most` entries of a run's log, their fields by name, from position `first` to `last`."""
        call = self._client.execute_command if self._bulk is None else self._bulk.call
        entries = await call("XRANGE", keys.frames, f"{first}-0", f"{last}-0", "COUNT", most)
        return [(entry, entry_fields(raw)) for entry, raw in entries]

    async def checkpoint(
        self,
        keys: RunKeys,
        *,
        epoch: str,
        covered: int,
        log_bytes: int,
        position: int | None = None,
        folded: int = 0,
        shown: int = 0,
        snapshots: Mapping[View, bytes] | None = None,
    ) -> str:
        """Store the display checkpoint of a position and trim the log behind it; return ok, stale or gone.

        `covered` is the position of the one that it goes on from, `folded` the bytes of the frames between, `shown`
        those of the snapshots before they were packed. Without a position the run's display is given up: from then on
        its log is trimmed as it stands.
        """
        new = snapshots or {}
        reply = await self._call(
            CHECKPOINT,
            keys,
            epoch,
            covered,
            "none" if position is None else position,
            folded,
            log_bytes,
            shown,
            new.get("full", b""),
            new.get("chat", b""),
        )
        word: str = reply[0].decode()
        return word

    async def abandon(self, keys: RunKeys, *, token: str, kept_ms: int, epoch: str = "") -> str:
        """End a run without a terminal item; return abandoned, live, ended, fenced or gone."""
        reply = await self._call(ABANDON, keys, token, kept_ms, epoch)
        word: str = reply[0].decode()
        return word

    async def mend(self, keys: RunKeys, *, lease_ms: int, given_back: bytes = b"") -> str:
        """Queue a run that waits for a worker in vain; return queued, well or gone."""
        reply = await self._call(MEND, keys, given_back, lease_ms)
        word: str = reply[0].decode()
        return word

    async def join(
        self, keys: RunKeys, *, view: str, subscription_id: str, lease_ms: int, kept_ms: int, nonce: str
    ) -> Joined:
        """Give or renew the lease of a subscription; the echo in its channel carries `nonce`."""
        epoch, head, status, oldest = await self._call(JOIN, keys, view, subscription_id, lease_ms, kept_ms, nonce)
        return Joined(epoch.decode(), head, status.decode(), oldest)

    async def read_log(self, keys: RunKeys, *, first: int, most: int) -> Log:
        """Read up to `most` frames from position `first` on, with the state that they belong to."""
        if self._bulk is None:
            # redis-py starts a thread for every command of a cluster's transaction.
            epoch, position, status, entries = await self._call(READ, keys, first, most)
            return Log(epoch.decode(), position, status.decode(), entries)
        # A fifth of the script's work for the server.
        replies = await self._bulk.call_many(
            [
                ("MULTI",),
                ("HMGET", keys.state, "epoch", "position", "status"),
                ("XRANGE", keys.frames, f"{first}-0", "+", "COUNT", most),
                ("EXEC",),
            ]
        )
        for reply in replies:
            if isinstance(reply, BaseException):
                raise reply
        (epoch, position, status), entries = replies[-1]
        if epoch is None:
            return Log("", 0, "gone", ())
        return Log(epoch.decode(), int(position), status.decode(), entries)

    async def read_display(self, keys: RunKeys, *, view: str) -> Display:
        """Read the display checkpoint of a view, with the state that it belongs to."""
        epoch, head, status, position, snapshot, tail = await self._call(DISPLAY, keys, view)
        return Display(epoch.decode(), head, status.decode(), None if position < 0 else position, snapshot, tail)

    async def leave(self, keys: RunKeys, *, view: str, subscription_id: str) -> None:
        """End the lease of a subscription."""
        await self._client.execute_command("ZREM", keys.subs, f"{view}:{subscription_id}")

    async def delete(self, keys: RunKeys) -> bool:
        """Remove a run; return whether there was one."""
        reply = await self._call(DELETE, keys)
        return bool(reply[0] == b"deleted")

    async def forget(self, keys: PartitionKeys, *, consumer: str) -> bool:
        """Delete a consumer of the partition's ready stream unless something is pending for it."""
        reply = await self._evaluate(FORGET, ["EVALSHA", FORGET.sha, 1, keys.ready, GROUP, consumer])
        return bool(reply[0] == b"forgotten")


async def ensure_group(client: RedisClient, keys: PartitionKeys) -> bool:
    """Create the consumer group of a ready stream at its beginning; return whether it was missing.

    At id 0, not `$`: what waits in the stream must be read.
    """
    try:
        await client.execute_command("XGROUP CREATE", keys.ready, GROUP, "0", "MKSTREAM")
    except RedisError as error:
        if "BUSYGROUP" in str(error):
            return False
        raise
    return True


def _with_text(script: Script, command: Sequence[Argument]) -> list[Argument]:
    return ["EVAL", script.text, *command[2:]]


def _fetched(reply: Reply) -> Fetched:
    if reply[0] != b"items":
        return Fetched(reply[0].decode())
    _, epoch, cursor, position, version, continuation, thread_id, claims, *items = reply
    return Fetched(
        "items",
        epoch.decode(),
        cursor,
        position,
        version.decode(),
        continuation,
        thread_id.decode(),
        claims,
        items,
    )


def inline(fields: Mapping[bytes, bytes]) -> Fetched | None:
    """Return what a ready entry carries of its run, if it carries anything; it may be out of date."""
    items = fields.get(b"items")
    if items is None:
        return None
    return Fetched(
        "items",
        fields[b"epoch"].decode(),
        int(fields[b"cursor"]),
        int(fields[b"position"]),
        fields[b"version"].decode(),
        thread_id=fields[b"thread"].decode(),
        items=items.split(b"\n"),
    )


def _committed(reply: Reply) -> Committed:
    if reply[0] != b"ok":
        return Committed(reply[0].decode())
    _, position, left, status, views, due, *items = reply
    told = tuple(view for view in VIEWS if view.encode() in views.split())
    return Committed("ok", position, left, status.decode(), told, due, items)


def _commit_arguments(call: CommitCall, limits: CommitLimits) -> list[Argument]:
    arguments: list[Argument] = [
        call.entry,
        call.epoch,
        call.cursor,
        call.new_cursor,
        call.consumed,
        int(call.turn_over),
        *limits,
        call.next_items,
        call.next_bytes,
        "" if call.continuation is None else call.version,
        call.continuation or b"",
        len(call.frames),
        len(call.rejected),
        len(call.announced),
    ]
    for group in (call.frames, call.rejected, call.announced):
        arguments.extend(chain.from_iterable(group))
    return arguments
