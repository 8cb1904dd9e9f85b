"""The tracker against a hostile world: whatever the channel and the server do, each event once and in order.

A world is a fixed list of frames that a server commits bit by bit, a channel that drops, doubles, reorders, cuts and
strips what it is given, and answers that come late. Frames are trimmed, behind a display that covers them or not; the
reader may leave and resume. After a random history the faults stop, and the reader must come to the end with every
event of the log, or with a display that covers it, or with notices of exactly the positions that the log does not hold.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agui_relay.broker.announcement import (
    FIRST,
    HIDDEN,
    LAST,
    Announcement,
    Cursor,
    Echo,
    Report,
    Row,
    Status,
    View,
    decode_message,
    encode_announcement,
    encode_body,
)
from agui_relay.broker.tracker import (
    Deliver,
    DeliverDisplay,
    End,
    GapNotice,
    Output,
    ReadDisplay,
    ReadLog,
    Reconnect,
    Start,
    Tracker,
    whole_events,
)

EXAMPLES = int(os.environ.get("AGUI_RELAY_TEST_EXAMPLES", "500"))
LEASE = 15.0


class LogEvent(NamedTuple):
    """One event of a log: its JSON, the positions of its frames, whether it is hidden in `chat`."""

    data: bytes
    positions: tuple[int, ...]
    hidden: bool


class Life:
    """One life of a run: all frames that it will ever have."""

    def __init__(self, epoch: str, shapes: Sequence[tuple[int, bool, int]]) -> None:
        """Make an event of each (frames, hidden, how many frames of it come before the next event may begin)."""
        self.epoch = epoch
        self.frames: list[tuple[int, bytes]] = []
        positions: list[list[int]] = []
        texts: list[bytes] = []
        # Fragments that are still to be written, of up to eight events at a time.
        pending: deque[tuple[int, deque[tuple[int, bytes]]]] = deque()

        def write(turn: tuple[int, deque[tuple[int, bytes]]]) -> None:
            number, frames = turn
            self.frames.append(frames.popleft())
            positions[number].append(len(self.frames))
            if frames:
                pending.append(turn)

        for number, (count, hidden, ahead) in enumerate(shapes):
            while len(pending) >= 8:
                write(pending.popleft())
            text = json.dumps({"type": "CUSTOM", "name": f"{epoch}.{number}", "value": "é\n" * count}).encode()
            texts.append(text)
            positions.append([])
            pending.append((number, deque(_frames(f"{epoch}:{number}", text, count, HIDDEN if hidden else 0))))
            pending.rotate(1)
            for _ in range(ahead):
                if pending:
                    write(pending.popleft())
        while pending:
            write(pending.popleft())
        self.events = [
            LogEvent(text, tuple(where), hidden)
            for text, where, (_, hidden, _) in zip(texts, positions, shapes, strict=True)
        ]

    def is_safe(self, position: int) -> bool:
        """Whether no event is half written at this position."""
        return all(e.positions[-1] <= position or e.positions[0] > position for e in self.events)


def _frames(identity: str, text: bytes, count: int, flags: int) -> list[tuple[int, bytes]]:
    if count == 1:
        return [(FIRST | LAST | flags, text)]
    characters = text.decode()
    size = -(-len(characters) // count)
    pieces = [characters[size * index : size * (index + 1)] for index in range(count)]
    frames = []
    for index, piece in enumerate(pieces):
        value = {"id": identity, "index": index, "count": count, "data": piece}
        data = json.dumps({"type": "CUSTOM", "name": "a13n.stream.fragment", "value": value}).encode()
        frames.append((flags | (FIRST if index == 0 else 0) | (LAST if index == count - 1 else 0), data))
    return frames


def display(epoch: str, position: int, view: View) -> bytes:
    return f"{epoch} {view}: 1 to {position}".encode()


class Server:
    """What Redis holds of the run."""

    def __init__(self, lives: Sequence[Life]) -> None:
        self.lives = lives
        self.number = -1
        self.head = 0
        self.oldest = 1
        self.covered: int | None = None
        self.status: Status = "live"
        self.finished: set[str] = set()
        self.trimmed: dict[str, set[int]] = {}
        # What a replica may still have: head, oldest frame, what the display covered.
        self.past: list[tuple[int, int, int | None]] = []

    @property
    def life(self) -> Life:
        return self.lives[self.number]

    @property
    def report(self) -> Report:
        return Report(self.life.epoch, self.head, self.status) if self.number >= 0 else Report("", 0, "gone")

    def read(self, first: int, count: int, view: View) -> list[Row]:
        if self.number < 0:
            return []
        rows = []
        for position in range(max(first, self.oldest), self.head + 1)[:count]:
            flags, data = self.life.frames[position - 1]
            rows.append(Row(position, flags if view == "chat" else flags & ~HIDDEN, data))
        return rows

    def display(self, view: View) -> tuple[int | None, bytes]:
        if self.number < 0 or self.covered is None:
            return None, b""
        return self.covered, display(self.life.epoch, self.covered, view)

    def announce(self, first: int, last: int, view: View) -> bytes:
        shown = [row for row in self.read(first, last - first + 1, view) if not row.flags & HIDDEN]
        return encode_announcement(self.life.epoch, first, last, self.status, encode_body(shown))


class World:
    """The server, the channel with its faults, and one reader."""

    def __init__(
        self, lives: Sequence[Life], view: View, resume: Cursor | None, *, start: Start = "log", stores: str = "never"
    ) -> None:
        self.server = Server(lives)
        self.view: View = view
        self.start: Start = start
        self.stores = stores
        self.resume = resume
        self.tracker = Tracker(view=view, lease=LEASE, after=resume, start=start)
        self.channel: deque[bytes | Echo] = deque()
        self.reads: deque[Callable[[], Sequence[Output]]] = deque()
        self.asked: deque[ReadLog | ReadDisplay] = deque()
        self.replies: deque[tuple[str, Report]] = deque()
        self.now = 0.0
        self.beats = 0
        self.subscribed = True
        self.joined = False
        self.outcome: str | None = None
        self.delivered: list[Deliver] = []
        self.notices: list[GapNotice] = []
        # Up to where nothing is wanted: it was known, or the display that all began with covers it.
        self.floor = 0 if resume is None else resume.position
        # What was given since the reader began, or began again.
        self.given: list[Output] = []
        # Positions that were told to be missing and are covered by the display that followed.
        self.covered: set[int] = set()
        self.handed = resume
        self.lives = 0

    # -- what the tracker says ------------------------------------------------------------------------------------

    def do(self, outputs: Sequence[Output]) -> None:
        assert self.outcome is None or not outputs, "nothing follows the end"
        for output in outputs:
            assert self.outcome is None, "nothing follows the end"
            match output:
                case Deliver():
                    self.delivered.append(output)
                    self.given.append(output)
                    self.handed = output.cursor
                case DeliverDisplay():
                    self.show(output)
                    self.given.append(output)
                    self.handed = output.cursor
                case GapNotice():
                    if output.restarts:
                        self.delivered.clear()
                        self.notices.clear()
                        self.given.clear()
                        self.floor = 0
                        self.lives += 1
                    else:
                        assert output.first <= output.last
                        self.notices.append(output)
                        self.given.append(output)
                    self.handed = Cursor.parse(output.cursor)
                case ReadLog() | ReadDisplay():
                    self.asked.append(output)
                case Reconnect():
                    self.cut()
                case End(outcome):
                    self.outcome = outcome

    def show(self, shown: DeliverDisplay) -> None:
        """Take a display: the right one, behind all that was given, and the first of all or after a notice."""
        epoch, position = shown.cursor
        assert position == shown.position
        assert shown.data == (display(epoch, position, self.view) if position else b"")
        assert next(life for life in self.server.lives if life.epoch == epoch).is_safe(position)
        assert all(delivery.position <= position for delivery in self.delivered)
        # Of a life in which nothing happened there is nothing to be taken back.
        if all(isinstance(item, DeliverDisplay) and not item.position for item in self.given):
            assert self.start == "display"
            self.floor = position
            return
        last = self.given[-1]
        assert isinstance(last, GapNotice)
        assert last.last == position
        for notice in reversed(self.given):
            if not isinstance(notice, GapNotice):
                break
            assert Cursor.parse(notice.cursor).position < notice.first
            self.covered.update(range(notice.first, notice.last + 1))

    # -- what happens ---------------------------------------------------------------------------------------------

    def commit(self, count: int) -> None:
        server = self.server
        if server.number < 0 or server.status == "finished":
            return
        self.remember()
        first, last = server.head + 1, min(server.head + 1 + count, len(server.life.frames))
        if self.view == "chat":
            # A commit holds whole items; only so is what it hides whole as well.
            while not server.life.is_safe(last):
                last += 1
        server.head = last
        if last == len(server.life.frames) and count % 2:
            server.status = "finished"
            server.finished.add(server.life.epoch)
        if last >= first or server.status == "finished":
            self.publish(server.announce(first, last, self.view))

    def publish(self, message: bytes | Echo) -> None:
        if self.subscribed and self.joined:
            self.channel.append(message)

    def beat(self) -> None:
        self.beats += 1
        nonce = f"n{self.beats}"
        self.tracker.beat(nonce)
        self.joined = True
        report = self.server.report
        self.replies.append((nonce, report))
        self.publish(Echo(report, nonce))

    def reply(self) -> None:
        if self.replies:
            self.do(self.tracker.joined(*self.replies.popleft(), self.now))

    def ask(self) -> None:
        """Let the server answer the oldest read that it was not asked yet."""
        if self.asked:
            read, server, tracker = self.asked.popleft(), self.server, self.tracker
            if isinstance(read, ReadLog):
                rows = server.read(read.first, read.count, self.view)
                self.reads.append(partial(tracker.rows, read, server.report, rows))
            else:
                self.reads.append(partial(tracker.display, read, server.report, *server.display(self.view)))

    def answer(self) -> None:
        if self.reads:
            self.do(self.reads.popleft()())

    def hear(self, fault: int) -> None:
        """Take the next message of the channel, after something has happened to it."""
        if not self.channel:
            return
        message = self.channel.popleft()
        is_echo = isinstance(message, Echo)
        if fault == 1:
            return
        if fault == 2 and not is_echo:
            self.give(message)
        elif fault == 3 and self.channel and not is_echo and not isinstance(self.channel[0], Echo):
            self.give(self.channel.popleft())
        elif fault == 4 and isinstance(message, bytes):
            message = message.partition(b"\n")[0]
        elif fault == 5 and isinstance(message, bytes):
            for part in self.halves(message):
                self.give(part)
            return
        elif fault == 6 and not is_echo:
            self.do(self.tracker.damaged())
            return
        self.give(message)

    def hear_all(self) -> None:
        while self.channel:
            self.hear(0)

    def halves(self, message: bytes) -> list[bytes]:
        whole = decode_message(message)
        assert isinstance(whole, Announcement)
        if whole.last <= whole.first or self.view == "chat":
            return [message]
        middle = (whole.first + whole.last) // 2
        rows = whole.rows or ()
        return [
            encode_announcement(
                whole.epoch,
                first,
                last,
                whole.status if last == whole.last else "live",
                encode_body([row for row in rows if first <= row.position <= last]),
            )
            for first, last in ((whole.first, middle), (middle + 1, whole.last))
        ]

    def give(self, message: bytes | Echo) -> None:
        if isinstance(message, Echo):
            self.do(self.tracker.echo(message))
            return
        decoded = decode_message(message)
        assert isinstance(decoded, Announcement)
        # As one of many readers does it, or on its own.
        self.do(self.tracker.announcement(decoded, whole_events(decoded) if self.beats % 2 else None))

    def cut(self) -> None:
        """Lose the connection with all that is in it."""
        self.subscribed = False
        self.channel.clear()
        self.tracker.lost()

    def back(self) -> None:
        if not self.subscribed:
            self.subscribed = True
            self.tracker.back()

    def remember(self) -> None:
        server = self.server
        server.past.append((server.head, server.oldest, server.covered))

    def trim(self, amount: int) -> None:
        """Drop the oldest frames; only those that a display covers, stored in the same step, if the world is so."""
        server = self.server
        if server.number < 0:
            return
        self.remember()
        last = server.head
        if self.stores == "always" or (self.stores == "mixed" and amount % 2):
            covers = min(server.head, (server.covered or 0) + 2 * amount + 1)
            while covers > (server.covered or 0) and not server.life.is_safe(covers):
                covers -= 1
            if covers:
                server.covered = covers
            last = covers
        oldest = max(server.oldest, min(server.oldest + amount, last + 1))
        while oldest > server.oldest and not server.life.is_safe(oldest - 1):
            oldest -= 1
        server.trimmed.setdefault(server.life.epoch, set()).update(range(server.oldest, oldest))
        server.oldest = oldest

    def begin(self) -> None:
        """Begin the next life of the run."""
        server = self.server
        if server.number + 1 < len(server.lives):
            server.number += 1
            server.head, server.oldest, server.covered, server.status = 0, 1, None, "live"
            server.past.clear()
            self.publish(encode_announcement(server.life.epoch, 1, 0, "live"))

    def fall_back(self, amount: int) -> None:
        """Fail over to a replica that lacks the last steps; connections break with it."""
        server = self.server
        if server.number >= 0 and server.past:
            del server.past[len(server.past) - min(amount, len(server.past) - 1) :]
            server.head, server.oldest, server.covered = server.past.pop()
            server.status = "live"
            self.cut()
            self.joined = False

    def leave(self) -> None:
        """Let another reader resume where the consumer of this one is: what comes after that may come again."""
        place = self.handed
        position = 0 if place is None else place.position
        self.delivered = [delivery for delivery in self.delivered if delivery.position <= position]
        self.notices = [notice for notice in self.notices if notice.last <= position]
        self.given.clear()
        self.resume, self.lives = place, 0
        self.tracker = Tracker(view=self.view, lease=LEASE, after=place, start=self.start)
        for waiting in (self.channel, self.asked, self.reads, self.replies):
            waiting.clear()
        self.subscribed, self.joined = True, False

    def wait(self, amount: int) -> None:
        self.now += amount
        self.do(self.tracker.tick(self.now))

    def step(self, choice: int) -> None:
        """Let one thing happen, chosen by a byte."""
        if self.outcome is not None:
            return
        amount, choice = divmod(choice, 32)
        actions: list[Callable[[], None]] = [
            *[lambda: self.commit(amount)] * 5,
            *[lambda: self.hear(0)] * 4,
            *[lambda: self.hear(amount)] * 4,
            *[self.ask] * 3,
            *[self.answer] * 3,
            *[self.beat] * 2,
            *[self.reply] * 2,
            self.cut,
            *[self.back] * 2,
            lambda: self.wait(amount),
            lambda: self.trim(amount),
            self.begin if amount == 7 else self.beat,
            lambda: self.fall_back(amount),
            lambda: self.tracker.pause(),
            self.leave if amount == 6 else self.hear_all,
            lambda: self.do(self.tracker.resume()),
        ]
        actions[choice % len(actions)]()

    def calm(self) -> None:
        """Let the faults stop and the run end."""
        while self.server.number + 1 < len(self.server.lives):
            self.begin()
        while self.server.status != "finished":
            self.commit(1000001)
        for _ in range(100):
            if self.outcome is not None:
                return
            self.back()
            self.do(self.tracker.resume())
            self.beat()
            while self.outcome is None and (self.channel or self.asked or self.reads or self.replies):
                self.ask()
                self.answer()
                self.reply()
                self.hear(0)
            if self.outcome is None:
                self.wait(6)
        pytest.fail("the reader did not come to the end")


@st.composite
def shapes(draw: st.DrawFn, adjacent: bool) -> list[tuple[int, bool, int]]:
    event = st.tuples(
        st.sampled_from([1, 1, 1, 2, 3, 5]), st.booleans(), st.just(5) if adjacent else st.sampled_from([0, 0, 1, 2])
    )
    return draw(st.lists(event, min_size=4, max_size=40))


def check(world: World) -> None:
    """Hold what the reader was given against the log of the life that it ended in."""
    server = world.server
    assert world.outcome == "finished"
    end = world.tracker.cursor
    assert end is not None
    life = next(life for life in server.lives if life.epoch == end.epoch)
    assert life is server.life or life.epoch in server.finished
    assert end.position == len(life.frames)
    resumed = world.resume is not None and world.resume.epoch == life.epoch and world.lives == 0
    if world.start == "display" and not resumed:
        assert isinstance(world.given[0], DeliverDisplay), "the display is the first of all"
    wanted = {
        event.positions[-1]: event
        for event in life.events
        if not (event.hidden and world.view == "chat") and event.positions[-1] > world.floor
    }
    told = [position for notice in world.notices for position in range(notice.first, notice.last + 1)]
    assert len(told) == len(set(told)), "no position is told as missing twice"
    positions = [delivery.position for delivery in world.delivered]
    assert positions == sorted(set(positions)), "each event once, in order"
    for delivery in world.delivered:
        assert delivery.data == wanted[delivery.position].data
        assert delivery.cursor.epoch == life.epoch
        assert life.is_safe(delivery.cursor.position)
        assert delivery.cursor.position <= delivery.position
    trimmed = server.trimmed.get(life.epoch, set())
    assert set(told) <= trimmed | world.covered, "only what the log does not hold, or a display covers, is missing"
    for position, event in wanted.items():
        if position not in positions:
            assert set(event.positions) <= set(told), "what was not delivered is told as missing"
    given_positions = {p for position in positions for p in wanted[position].positions}
    assert not given_positions & set(told), "what was delivered is not told as missing"


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    logs=st.booleans().flatmap(lambda adjacent: st.lists(shapes(adjacent), min_size=1, max_size=3)),
    view=st.sampled_from(["full", "chat"]),
    steps=st.binary(min_size=60, max_size=400),
    resume=st.none() | st.tuples(st.integers(0, 2), st.integers(0, 8)),
    begun=st.booleans(),
    start=st.sampled_from(["log", "display"]),
    stores=st.sampled_from(["never", "always", "mixed"]),
)
def test_each_event_once_and_in_order(
    logs: list[list[tuple[int, bool, int]]],
    view: View,
    steps: bytes,
    resume: tuple[int, int] | None,
    begun: bool,
    start: Start,
    stores: str,
) -> None:
    if view == "chat":
        logs = [[(count, hidden, 5) for count, hidden, _ in log] for log in logs]
    lives = [Life(f"e{number}", log) for number, log in enumerate(logs)]
    cursor = None
    if resume is not None:
        life = lives[resume[0] % len(lives)]
        position = min(resume[1], len(life.frames))
        while not life.is_safe(position):
            position -= 1
        cursor = Cursor(life.epoch, position)
    world = World(lives, view, cursor, start=start, stores=stores)
    if begun:
        world.begin()
        world.beat()
    for choice in steps:
        world.step(choice)
    world.calm()
    check(world)
