"""Decides what one reader of a run is given, what it must read, and when it is at the end.

No I/O, no clock, no task: what happened goes in, what to do comes out. Everything that affects a reader's order of
events lives in this file.

The facts it rests on
  A run's log gives its frames the positions 1, 2, 3, without a hole. A word, the epoch, names one life of the log.
  A channel tells of new frames, in order, but it may lose, double or cut what it tells, and it cannot be asked.
  The log can be asked. Its answer carries the epoch, head and status of the same moment, so it is the authority.
  The display can be asked, too: what the events of the positions 1 to C amount to, for the reader's view; C is the end
  of an event. What is trimmed is covered by it, if there is one.

The reader's place
  `position`   the last frame taken
  `boundary`   the last position with no event half taken: the cursor
  `head`       the last position that is known to exist
  Only the frame `position + 1` is ever taken; anything beyond it, told or known of, is a gap. Behind `head` and not
  reading, it reads the log from the frame after `boundary`, with a fresh assembler: a half-taken event starts over. So
  nothing has to be kept in the hope that a hole fills itself, and what comes through the channel meanwhile, or while
  the consumer is paused, may be dropped.

The display
  It is asked for in two cases, in the place of a read of the log:
      a life begins for a reader that starts with the display   whatever is stored is given, else the empty one at 0
      an answer of the log lacks frames, up to position L       what covers L is given, else L is where it goes on
  Given at C, it puts the reader there: `position` and `boundary` are C, and what was half taken is over. The notice of
  the second case names everything up to C that was not settled, and its cursor is the boundary before: who resumes
  from there comes to the same notice and the display behind it.

The link to the channel
      down     -- back                     --> joining     nothing heard counts: it may be older than what is known
      joining  -- echo of an own heartbeat --> following   announcements count from here on
      any      -- lost, or an echo overdue --> down
  An echo comes in the channel's own order. Its head is therefore what the reader must have: a tail that was lost
  shows here, at the latest.

Answers and time
  Answers may be old when they come. Each question (heartbeat, read) remembers what was known when it was asked, and an
  answer is only held against that: a head below it is a fallback of the server (a failover that lost frames), another
  epoch is a new life, `gone` is the end. Against what was learnt since, an answer proves nothing. A channel's
  message of an unknown epoch proves nothing either; it makes the reader ask.

What is never true
  An event delivered twice in one life; an event skipped without a notice of its exact positions, unless the view
  hides it or the display that the reader began with covers it; a display that does not cover what the notice before it
  names; an end before everything up to the head was delivered; more held than the half-taken events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, Literal, cast

import msgspec

from agui_relay.broker.announcement import (
    FIRST,
    HIDDEN,
    LAST,
    RANKS,
    Announcement,
    Cursor,
    Echo,
    Outcome,
    Report,
    Row,
    Status,
    View,
)
from agui_relay.framing.fragments import FRAGMENT_EVENT_NAME, CustomEventAssembler

Start = Literal["log", "display"]
"""What a reader without a cursor begins with: the oldest frame of the log, or the display and the frames after it."""

READ_BYTES: Final = 1024 * 1024
"""What a read of the log aims at, judged by the frames of the one before."""
_FIRST_READ: Final = 64
_LEAST_READ: Final = 16
_MOST_READ: Final = 256
_OVER: Final = RANKS["finished"]
# Old epochs that are dropped without asking; one that is forgotten costs a read, nothing else.
_PAST_EPOCHS: Final = 8
_BEATS: Final = 8
_FRAGMENT_NAME: Final = FRAGMENT_EVENT_NAME.encode()


class Known(msgspec.Struct, frozen=True, gc=False):
    """What a reader knew when it asked: the life, its head and rank, and the last position it has settled."""

    life: int
    head: int
    rank: int
    told: int


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """Give the consumer one whole event: the JSON `data` that ends at `position`. `cursor` is where to resume."""

    position: int
    data: bytes
    cursor: Cursor


class ReadLog(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Read `count` entries of the log from position `first` on, with the run's state of the same moment.

    `repair` tells that the frames were missed in the channel; false for the first replay and for frames that were too
    large to be announced. The answer goes to `Tracker.rows` together with this very object.
    """

    first: int
    count: int
    repair: bool
    known: Known


class ReadDisplay(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Read the display checkpoint that is stored for the reader's view, with the run's state of the same moment.

    The reader stands before position `first`, and the display is of use from position `least` on. The answer goes to
    `Tracker.display` together with this very object.
    """

    first: int
    least: int
    repair: bool
    known: Known


class DeliverDisplay(msgspec.Struct, frozen=True, gc=False):
    """Give the consumer the display as the events up to `position` have made it, instead of those events.

    It takes the place of whatever was made of earlier deliveries. `data` is the JSON of the snapshot; at position 0,
    where there was no event yet, it is empty. `cursor` is where to resume.
    """

    position: int
    data: bytes
    cursor: Cursor


class Reconnect(msgspec.Struct, frozen=True, gc=False):
    """Renew the link to the channel: it is silent though the server answers."""


class GapNotice(msgspec.Struct, frozen=True, gc=False):
    """The frames `first` to `last` will not come: the log does not hold them any more.

    If a display checkpoint covers them, it follows, and they are all that it covers and was not given.

    With `restarts`, what follows starts over, at position 1 or with a display checkpoint, and what was built from
    earlier deliveries is void: the run has begun another life, or the server has fallen back behind what it had given
    out. `first` to `last` is then what was given out in vain or never came, and may be empty (`last` below `first`).
    Resume after a notice from `cursor`.
    """

    first: int
    last: int
    restarts: bool = False
    cursor: str = ""


class End(msgspec.Struct, frozen=True, gc=False):
    """The reader has everything; nothing follows."""

    outcome: Outcome


Output = Deliver | DeliverDisplay | ReadLog | ReadDisplay | Reconnect | GapNotice | End


class Link(Enum):
    """How far what the channel says can be relied on."""

    DOWN = auto()
    JOINING = auto()
    FOLLOWING = auto()


class _Beat:
    """A heartbeat whose echo has not come; `answered` is when the server had certainly sent it."""

    __slots__ = ("answered", "known")

    def __init__(self, known: Known) -> None:
        self.known = known
        self.answered: float | None = None


class _FragmentValue(msgspec.Struct, gc=False):
    id: str


class _Fragment(msgspec.Struct, gc=False):
    value: _FragmentValue


_decode_fragment = msgspec.json.Decoder(_Fragment).decode


def whole_events(announcement: Announcement) -> tuple[Deliver, ...] | None:
    """Return what a reader that is abreast has to be given of an announcement; None unless all are whole events."""
    if not announcement.rows or RANKS[announcement.status] >= _OVER:
        return None
    if any(row.flags != FIRST | LAST or _FRAGMENT_NAME in row.data for row in announcement.rows):
        return None
    epoch = announcement.epoch
    return tuple(Deliver(row.position, row.data, Cursor(epoch, row.position)) for row in announcement.rows)


class Tracker:
    """One reader's way through a run's frame log.

    `after` is where to resume, `start` what to begin with where that does not say it, `view` the one that the
    subscription has joined with, `lease` its lease in seconds. `assembler_bytes` and `assembler_pending` bound the
    half-taken events. Every input returns what to do, in order; the caller feeds back the answers in the order in which
    they come.
    """

    def __init__(
        self,
        *,
        after: Cursor | None = None,
        view: View = "full",
        start: Start = "log",
        lease: float = 15.0,
        assembler_bytes: int = 64 * 1024 * 1024,
        assembler_pending: int = 8,
    ) -> None:
        self._resume = after
        self._complete = view == "full"
        self._from_display = start == "display"
        self._patience = lease / 3
        self._new_assembler: Callable[[], CustomEventAssembler] = lambda: CustomEventAssembler(
            max_bytes=assembler_bytes, max_pending=assembler_pending
        )
        self._max_open = assembler_pending
        self._out: list[Output] = []

        self._epoch: str | None = None
        # Counts the beginnings: another epoch, or this one once more. 0 is before the run was seen.
        self._life = 0
        self._past: list[str] = []
        self._head = 0
        self._status: Status = "live"
        self._outcome: Outcome | None = None

        self._position = 0
        self._boundary = 0
        self._told = 0
        self._reach = 0
        self._repaired = 0
        # The half-taken events by identity, each with the ranges of positions it has so far.
        self._open: dict[str, list[list[int]]] = {}
        # What was settled beyond the boundary, while another event is half taken.
        self._settled: set[int] = set()
        self._assembler: CustomEventAssembler | None = None
        self._missing: tuple[int, int] | None = None
        # The display is due, before anything else of this life.
        self._begins = False

        self._link = Link.JOINING
        self._beats: dict[str, _Beat] = {}
        # When a new link was asked for that nobody has spoken of since.
        self._asked: float | None = None
        self._reading: ReadLog | ReadDisplay | None = None
        self._count = _FIRST_READ
        self._doubt = False
        self._paused = False
        self._caught_up = False

    @property
    def seen(self) -> bool:
        """Whether the run was ever there."""
        return self._epoch is not None

    @property
    def cursor(self) -> Cursor | None:
        """Where to resume; moves on over what the view hides. None before the run was seen, unless resumed."""
        return self._resume if self._epoch is None else Cursor(self._epoch, self._boundary)

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, once it has."""
        return self._outcome

    @property
    def repaired(self) -> int:
        """Frames that were taken from the log, after the first replay, because the channel had not brought them."""
        return self._repaired

    @property
    def link(self) -> Link:
        """The state of the link to the channel."""
        return self._link

    # -- inputs ---------------------------------------------------------------------------------------------------

    def beat(self, nonce: str) -> None:
        """Tell that a heartbeat with this nonce is about to be sent."""
        self._beats[nonce] = _Beat(self._known())
        if len(self._beats) > _BEATS:
            del self._beats[next(iter(self._beats))]

    def joined(self, nonce: str, report: Report, now: float) -> list[Output]:
        """Take the direct answer to a heartbeat, which may overtake what the channel still holds.

        `now` is in seconds, of the same clock as `tick`'s: from here on the echo can be overdue.
        """
        beat = self._beats.get(nonce)
        if self._outcome is not None or beat is None:
            return []
        beat.answered = now
        # One that follows waits for the echo: before it, a head beyond its position is not yet a lost tail.
        if self._link is not Link.FOLLOWING:
            self._judge(report, beat.known)
        return self._settle()

    def echo(self, echo: Echo) -> list[Output]:
        """Take the answer to a heartbeat that came through the channel."""
        if self._outcome is not None or self._link is Link.DOWN:
            return []
        if not echo.nonce:
            # Nobody asked: the run was removed, unless this is older than what we know.
            self._doubt = self._epoch is not None
            return self._settle()
        beat = self._beats.get(echo.nonce)
        if beat is None:
            return []
        for nonce in list(self._beats):
            del self._beats[nonce]
            if nonce == echo.nonce:
                break
        self._link = Link.FOLLOWING
        self._judge(echo.report, beat.known)
        return self._settle()

    def announcement(self, announcement: Announcement, whole: Sequence[Deliver] | None = None) -> Sequence[Output]:
        """Take an announcement from the channel.

        `whole` is what `whole_events` made of it, for who has many readers: one that is abreast just takes it over,
        and returns this very object.
        """
        if whole is not None and self._is_abreast(announcement, len(whole)):
            self._position = self._boundary = self._told = self._head = announcement.last
            self._reach = max(self._reach, announcement.last)
            return whole
        if self._outcome is not None or self._link is not Link.FOLLOWING:
            return []
        if announcement.epoch != self._epoch:
            self._doubt = self._doubt or announcement.epoch not in self._past
            return self._settle()
        self._note(announcement.last, announcement.status)
        if self._paused or self._reading is not None or announcement.last <= self._position:
            return self._settle()
        rows, continues = announcement.rows, announcement.first <= self._position + 1
        if rows is None:
            return self._settle(repair=not continues)
        if continues and (not self._complete or len(rows) == announcement.last - announcement.first + 1):
            self._follow(rows, announcement.last)
        return self._settle()

    def _is_abreast(self, announcement: Announcement, count: int) -> bool:
        """Whether the announcement goes on where this reader stands, with nothing in between and nothing pending."""
        position = self._position
        return (
            announcement.first == position + 1
            and position == self._boundary == self._told == self._head
            and announcement.epoch == self._epoch
            and announcement.status == self._status
            and self._link is Link.FOLLOWING
            and self._reading is None
            and self._missing is None
            and not (self._begins or self._paused or self._doubt or self._out or self._open or self._settled)
            and (not self._complete or count == announcement.last - position)
        )

    def damaged(self) -> list[Output]:
        """Take note that the channel gave a message that cannot be read: what it said is in the log."""
        if self._outcome is None and self._link is Link.FOLLOWING:
            self._doubt = True
        return self._settle()

    def rows(self, read: ReadLog, report: Report, rows: Sequence[Row]) -> list[Output]:
        """Take the answer to a read: the run's state and the entries, both of one moment.

        An answer to a read that is not the last one asked for is dropped.
        """
        if read is not self._reading or self._outcome is not None:
            return []
        self._reading = None
        self._judge(report, read.known)
        is_of_this = report.epoch == self._epoch and read.first == self._position + 1
        if self._outcome is not None or self._begins or not is_of_this:
            return self._settle()
        lacks = 0
        for row in rows:
            if row.position > self._position + 1:
                lacks = row.position - 1
                break
            if read.repair and row.position > self._reach:
                self._repaired += 1
            if row.position > self._position:
                self._take(row, is_log=True)
        self._head = max(self._head, self._position)
        if not lacks and len(rows) < read.count and self._position < report.head:
            lacks = report.head
        if rows:
            size = sum(len(row.data) for row in rows)
            self._count = max(_LEAST_READ, min(_MOST_READ, READ_BYTES * len(rows) // (size + 1)))
        # While the consumer is behind nothing is asked for; the log will be read from the boundary then, and show it.
        if lacks and not self._paused:
            self._read_display(least=lacks, repair=read.repair)
        return self._settle(repair=read.repair, is_log=True)

    def display(self, read: ReadDisplay, report: Report, position: int | None, data: bytes) -> list[Output]:
        """Take the answer to a read of the display: the run's state, and what is stored, all of one moment.

        `position` is the last one that the snapshot `data` covers, None when none is stored. An answer to a read that
        is not the last one asked for is dropped.
        """
        if read is not self._reading or self._outcome is not None:
            return []
        self._reading = None
        self._judge(report, read.known)
        if self._outcome is not None or read.known.life != self._life or read.first != self._position + 1:
            return self._settle()
        # What covers more than there is does not belong to this log.
        if position is not None and read.least <= position <= report.head:
            self._show(position, data)
        elif self._begins:
            self._show(0, b"")
        elif read.least <= self._head:
            self._skip(read.least)
        return self._settle(repair=read.repair, is_log=True)

    def lost(self) -> None:
        """Take note that the connection of the channel is lost."""
        self._link = Link.DOWN
        self._asked = None
        self._beats.clear()

    def back(self) -> None:
        """Take note that the channel is subscribed again. The next heartbeat must be sent after this."""
        self._link = Link.JOINING
        self._asked = None
        self._beats.clear()

    def tick(self, now: float) -> list[Output]:
        """Take note of the time: no echo for a third of the lease, nor a new link that was asked for: reconnect."""
        since = self._asked
        if self._link is not Link.DOWN:
            since = min((beat.answered for beat in self._beats.values() if beat.answered is not None), default=None)
        if self._outcome is None and since is not None and now - since > self._patience:
            self.lost()
            self._asked = now
            self._out.append(Reconnect())
        return self._settle()

    def pause(self) -> None:
        """Take note that the consumer is behind: until `resume` nothing is asked for, and announcements are dropped."""
        self._paused = True
        if self._reading is None:
            self._restart()

    def resume(self) -> list[Output]:
        """Take note that the consumer has room again."""
        self._paused = False
        return self._settle()

    # -- what is true of the run ----------------------------------------------------------------------------------

    def _known(self) -> Known:
        return Known(self._life, self._head, RANKS[self._status], self._told)

    def _note(self, head: int, status: Status) -> None:
        self._head = max(self._head, head)
        if RANKS[status] > RANKS[self._status]:
            self._status = status

    def _judge(self, report: Report, known: Known) -> None:
        """Hold an answer against what was known when the question was asked."""
        if report.status == "gone":
            # Before the run was seen this means: not yet.
            if known.life and known.life == self._life:
                self._finish("lost")
        elif report.epoch != self._epoch:
            if known.life == self._life:
                self._begin(report)
        elif known.life != self._life:
            self._note(report.head, report.status)
        elif report.head < known.told:
            self._start_over(report)
        elif report.head < known.head or RANKS[report.status] < known.rank:
            # Fallen back, though not behind what was delivered. What was learnt since the question may be of before
            # or after; the log will say.
            self._head, self._status = report.head, report.status
            if self._position > report.head:
                self._restart()
            self._doubt = self._reading is None
        else:
            self._note(report.head, report.status)

    def _begin(self, report: Report) -> None:
        """Go to a life of the run that is not the one read so far."""
        cursor = Cursor(report.epoch, 0)
        if self._epoch is not None:
            self._tell()
            self._past = [*self._past[1 - _PAST_EPOCHS :], self._epoch]
            last = max(self._head, self._told)
            if last:
                self._out.append(GapNotice(self._told + 1, last, restarts=True, cursor=str(cursor)))
        elif self._resume is not None and self._resume.epoch == report.epoch:
            cursor = self._resume
        elif self._resume is not None and self._resume.position:
            position = self._resume.position
            self._out.append(GapNotice(position + 1, position, restarts=True, cursor=str(cursor)))
        self._epoch, self._head, self._status = report.epoch, report.head, report.status
        self._place(cursor.position, begins=cursor is not self._resume)
        if report.head < cursor.position:
            self._start_over(report)

    def _start_over(self, report: Report) -> None:
        """Go back to the beginning of this life: the server does not know what was delivered."""
        self._tell()
        cursor = Cursor(report.epoch, 0)
        self._out.append(GapNotice(report.head + 1, self._told, restarts=True, cursor=str(cursor)))
        self._head, self._status = report.head, report.status
        self._place(0, begins=True)

    def _place(self, position: int, *, begins: bool) -> None:
        self._life += 1
        self._begins = begins and self._from_display
        self._boundary = self._told = self._reach = position
        self._settled.clear()
        self._missing = None
        self._reading = None
        self._restart()

    def _finish(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._reading = None
        for ranges in self._open.values():
            self._lose(ranges)
        self._tell()
        self._open.clear()
        self._assembler = None
        self._out.append(End(outcome))

    # -- what to do next ------------------------------------------------------------------------------------------

    def _settle(self, *, repair: bool = True, is_log: bool = False) -> list[Output]:
        """Decide what the reader's place asks for, and hand over what there is to do."""
        if self._outcome is None and self._reading is None:
            if self._begins:
                if not self._paused:
                    self._read_display(least=0, repair=repair)
            elif self._position < self._head or self._doubt:
                if not self._paused:
                    self._read(repair=repair, is_log=is_log)
            elif self._epoch is not None:
                self._caught_up = True
                self._tell()
                if RANKS[self._status] >= _OVER:
                    self._finish(cast("Outcome", self._status))
        out, self._out = self._out, []
        return out

    def _read(self, *, repair: bool, is_log: bool) -> None:
        # The log goes on where it was; whatever else was taken last, a half-taken event starts over.
        if not is_log:
            self._restart()
        self._doubt = False
        self._reading = ReadLog(self._position + 1, self._count, repair and self._caught_up, self._known())
        self._out.append(self._reading)

    def _read_display(self, *, least: int, repair: bool) -> None:
        self._doubt = False
        self._reading = ReadDisplay(self._position + 1, least, repair, self._known())
        self._out.append(self._reading)

    def _restart(self) -> None:
        self._position = self._boundary
        self._open.clear()
        self._assembler = None

    # -- taking frames --------------------------------------------------------------------------------------------

    def _follow(self, rows: Sequence[Row], last: int) -> None:
        """Take an announcement that continues the position; what it leaves out is hidden."""
        for row in rows:
            if row.position <= self._position:
                continue
            if row.position > self._position + 1:
                self._pass(row.position - 1)
            if not self._take(row, is_log=False):
                return
        if self._position < last:
            self._pass(last)

    def _take(self, row: Row, *, is_log: bool) -> bool:
        """Take the frame behind `position`. False: the channel gave one that cannot be, and the log must be asked."""
        position, flags, data = row
        self._reach = max(self._reach, position)
        if flags & FIRST:
            self._tell()
        if flags & HIDDEN:
            self._position = position
            if flags & LAST and not self._open:
                self._set_boundary()
            return True
        if flags & FIRST and flags & LAST:
            self._position = position
            self._deliver(self._alone(data) if _FRAGMENT_NAME in data else data)
            return True
        identity, event = self._join(position, flags, data, is_log=is_log)
        if identity is not None and event is not None:
            del self._open[identity]
            self._position = position
            self._deliver(event)
        elif identity is not None:
            self._position = position
        elif is_log:
            self._position = position
            self._lose([[position, position]])
            if not self._open:
                self._set_boundary()
        else:
            self._restart()
            return False
        return True

    def _alone(self, data: bytes) -> bytes:
        """Return the event of a frame that has no other; one that just fits into a frame may be a single fragment."""
        return self._new_assembler().accept_encoded(data) or data

    def _join(self, position: int, flags: int, data: bytes, *, is_log: bool) -> tuple[str | None, bytes | None]:
        """Add a fragment to its event; (identity, the event when it is whole), (None, None) if it does not fit."""
        try:
            identity = _decode_fragment(data).value.id
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            if is_log and len(self._open) == 1:
                # All frames of an event are adjacent: this was one of it.
                self._give_up(next(iter(self._open)))
                self._assembler = None
            return None, None
        if flags & FIRST:
            is_full = len(self._open) >= self._max_open
            if identity in self._open or is_full:
                if not is_log:
                    return None, None
                self._give_up(identity if identity in self._open else next(iter(self._open)))
                if not self._open:
                    self._set_boundary()
            self._open[identity] = []
        elif identity not in self._open:
            return None, None
        if self._assembler is None:
            self._assembler = self._new_assembler()
        event = self._assembler.accept_encoded(data)
        # A gap at a first fragment is of an event given up to make room; were it this one, its next would show it.
        is_refused = self._assembler.gap and not flags & FIRST
        self._assembler.gap = False
        if is_refused or (event is None) == bool(flags & LAST):
            # Only this event is lost; what else is half taken goes on.
            if is_log:
                self._give_up(identity)
            return None, None
        ranges = self._open[identity]
        if ranges and ranges[-1][1] + 1 == position:
            ranges[-1][1] = position
        else:
            ranges.append([position, position])
        return identity, event

    def _give_up(self, identity: str) -> None:
        self._lose(self._open.pop(identity))

    def _deliver(self, data: bytes) -> None:
        is_new = self._position not in self._settled
        if self._open:
            self._settled.add(self._position)
            self._told = max(self._told, self._position)
        else:
            self._set_boundary()
        if is_new:
            assert self._epoch is not None
            self._out.append(Deliver(self._position, data, Cursor(self._epoch, self._boundary)))

    def _pass(self, position: int) -> None:
        """Move on over frames that the view hides."""
        self._position = position
        if not self._open:
            self._set_boundary()

    def _skip(self, position: int) -> None:
        """Move on over frames that the log does not hold any more."""
        for ranges in self._open.values():
            self._lose(ranges)
        self._open.clear()
        self._assembler = None
        self._lose([[self._position + 1, position]])
        self._position = position
        self._set_boundary()

    def _show(self, position: int, data: bytes) -> None:
        """Go to where a display stands, and give it; what it covers will not come."""
        self._open.clear()
        self._assembler = None
        if not self._begins:
            self._lose([[self._boundary + 1, position]])
            self._tell()
        self._begins = False
        self._position = position
        self._set_boundary()
        self._reach = max(self._reach, position)
        self._head = max(self._head, position)
        assert self._epoch is not None
        self._out.append(DeliverDisplay(position, data, Cursor(self._epoch, position)))

    def _set_boundary(self) -> None:
        self._boundary = self._position
        self._told = max(self._told, self._position)
        if self._settled:
            self._settled.clear()

    def _lose(self, ranges: list[list[int]]) -> None:
        """Note frames that will not come, each once; neighbours are told together."""
        for first, last in ranges:
            start = first
            for stop in [*sorted(position for position in self._settled if first <= position <= last), last + 1]:
                if start < stop:
                    self._miss(start, stop - 1)
                start = stop + 1
            if self._open:
                self._settled.update(range(first, last + 1))
                self._told = max(self._told, last)

    def _miss(self, first: int, last: int) -> None:
        if self._missing is not None and self._missing[1] + 1 == first:
            self._missing = (self._missing[0], last)
        else:
            self._tell()
            self._missing = (first, last)

    def _tell(self) -> None:
        if self._missing is not None:
            first, last = self._missing
            self._missing = None
            assert self._epoch is not None
            self._out.append(GapNotice(first, last, cursor=str(Cursor(self._epoch, self._boundary))))
