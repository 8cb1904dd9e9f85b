"""What the tracker does in each situation that readers were reported to fail in, step by step."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from agui_relay.broker.announcement import FIRST, HIDDEN, LAST, Announcement, Cursor, Echo, Report, Row, Status, View
from agui_relay.broker.tracker import (
    Deliver,
    DeliverDisplay,
    End,
    GapNotice,
    Link,
    Output,
    ReadDisplay,
    ReadLog,
    Reconnect,
    Start,
    Tracker,
    whole_events,
)

WHOLE = FIRST | LAST
LEASE = 15.0


def row(position: int, flags: int = WHOLE) -> Row:
    return Row(position, flags, b'{"n":%d}' % position)


def fragments(first: int, count: int, identity: str = "big") -> list[Row]:
    """One event in `count` frames from position `first` on; its JSON is `event(identity)`."""
    text = event(identity).decode()
    cuts = [len(text) * index // count for index in range(count + 1)]
    rows = []
    for index in range(count):
        value = {"id": identity, "index": index, "count": count, "data": text[cuts[index] : cuts[index + 1]]}
        data = json.dumps({"type": "CUSTOM", "name": "a13n.stream.fragment", "value": value}).encode()
        flags = (FIRST if index == 0 else 0) | (LAST if index == count - 1 else 0)
        rows.append(Row(first + index, flags, data))
    return rows


def event(identity: str) -> bytes:
    return json.dumps({"type": "CUSTOM", "name": identity, "value": "x" * 100}).encode()


def announce(*rows: Row, status: Status = "live", epoch: str = "e1", last: int | None = None) -> Announcement:
    return Announcement(epoch, rows[0].position, rows[-1].position if last is None else last, status, rows)


def positions(outputs: Sequence[Output]) -> list[int]:
    """The positions delivered, when nothing else is asked for."""
    assert all(isinstance(output, Deliver) for output in outputs), outputs
    return [output.position for output in outputs if isinstance(output, Deliver)]


def only_read(outputs: Sequence[Output]) -> ReadLog:
    assert len(outputs) == 1, outputs
    assert isinstance(outputs[0], ReadLog), outputs
    return outputs[0]


def only_read_display(outputs: Sequence[Output]) -> ReadDisplay:
    assert len(outputs) == 1, outputs
    assert isinstance(outputs[0], ReadDisplay), outputs
    return outputs[0]


def shown(position: int, epoch: str = "e1") -> DeliverDisplay:
    """The display that `Reader.display` gives for a position."""
    return DeliverDisplay(position, b'{"up to":%d}' % position, Cursor(epoch, position))


class Reader:
    """A tracker whose heartbeats are answered at once."""

    def __init__(self, *, after: str | None = None, view: View = "full", start: Start = "log") -> None:
        cursor = None if after is None else Cursor.parse(after)
        self.tracker = Tracker(after=cursor, view=view, start=start, lease=LEASE)
        self.nonces = 0

    def beat(self, head: int, status: Status = "live", epoch: str = "e1") -> list[Output]:
        """Send a heartbeat and take its echo."""
        self.nonces += 1
        self.tracker.beat(f"n{self.nonces}")
        return self.tracker.echo(Echo(Report(epoch, head, status), f"n{self.nonces}"))

    def rows(self, read: ReadLog, *rows: Row, head: int, status: Status = "live", epoch: str = "e1") -> list[Output]:
        return self.tracker.rows(read, Report(epoch, head, status), rows)

    def rows_of_trimmed(
        self, read: ReadLog, *rows: Row, head: int, status: Status = "live", stored: int | None = None
    ) -> list[Output]:
        """Answer a read whose rows lack frames, and the read of the display, and the log once more."""
        first, *none = self.rows(read, *rows, head=head, status=status)
        outputs = self.display(only_read_display([first, *none]), stored, head=head, status=status)
        while outputs and isinstance(outputs[-1], ReadLog):
            again = outputs.pop()
            assert isinstance(again, ReadLog)
            left = [row for row in rows if row.position >= again.first]
            outputs += self.rows(again, *left, head=head, status=status)
        return outputs

    def display(
        self, read: ReadDisplay, position: int | None, *, head: int, status: Status = "live", epoch: str = "e1"
    ) -> list[Output]:
        """Answer a read of the display with what is stored up to `position`."""
        data = b"" if position is None else shown(position).data
        return self.tracker.display(read, Report(epoch, head, status), position, data)


def following(position: int) -> Reader:
    """Return a reader that has everything up to `position` and follows the channel."""
    reader = Reader()
    outputs = reader.beat(position)
    if position:
        outputs = reader.rows(only_read(outputs), *map(row, range(1, position + 1)), head=position)
    assert positions(outputs) == list(range(1, position + 1))
    return reader


# -- the beginning -------------------------------------------------------------------------------------------------


def test_what_was_published_before_the_channel_was_subscribed_comes_from_the_log() -> None:
    reader = Reader()
    read = only_read(reader.beat(head=2))
    assert (read.first, read.repair) == (1, False)
    assert positions(reader.rows(read, row(1), row(2), head=2)) == [1, 2]
    assert positions(reader.tracker.announcement(announce(row(3)))) == [3]


def test_the_first_replay_is_no_repair_and_what_comes_later_is() -> None:
    reader = following(2)
    assert reader.tracker.repaired == 0
    read = only_read(reader.beat(head=4))
    assert read.repair
    reader.rows(read, row(3), row(4), head=4)
    assert reader.tracker.repaired == 2


def test_an_announcement_before_the_echo_counts_for_nothing() -> None:
    reader = Reader()
    assert reader.tracker.announcement(announce(row(1))) == []
    assert reader.tracker.link is Link.JOINING
    only_read(reader.beat(head=1))


def test_the_direct_answer_starts_the_replay_before_the_echo() -> None:
    reader = Reader()
    reader.tracker.beat("n")
    read = only_read(reader.tracker.joined("n", Report("e1", 1, "live"), 0.0))
    assert positions(reader.rows(read, row(1), head=1)) == [1]
    assert reader.tracker.announcement(announce(row(2))) == []
    assert reader.tracker.echo(Echo(Report("e1", 1, "live"), "n")) == []
    assert positions(reader.tracker.announcement(announce(row(2)))) == [2]


def test_a_replay_that_races_a_commit_delivers_nothing_twice() -> None:
    reader = Reader()
    read = only_read(reader.beat(head=2))
    # Positions 3 and 4 are committed while the read is on its way: announced and in the answer.
    assert reader.tracker.announcement(announce(row(3), row(4))) == []
    assert positions(reader.rows(read, *map(row, range(1, 5)), head=4)) == [1, 2, 3, 4]
    assert reader.tracker.announcement(announce(row(3), row(4))) == []
    assert positions(reader.tracker.announcement(announce(row(5)))) == [5]


def test_a_commit_that_the_replay_just_missed_is_read_at_once() -> None:
    reader = Reader()
    read = only_read(reader.beat(head=2))
    reader.tracker.announcement(announce(row(3)))
    outputs = reader.rows(read, row(1), row(2), head=2)
    assert positions(outputs[:2]) == [1, 2]
    assert only_read(outputs[2:]).first == 3


def test_a_run_that_does_not_exist_yet_is_waited_for() -> None:
    reader = Reader()
    assert reader.beat(0, "gone", "") == []
    assert (reader.tracker.seen, reader.tracker.cursor) == (False, None)
    # Its first word in the channel is no proof of anything, but a reason to ask.
    read = only_read(reader.tracker.announcement(Announcement("e1", 1, 0, "live")))
    assert reader.rows(read, head=0) == []
    assert reader.tracker.seen
    assert positions(reader.tracker.announcement(announce(row(1)))) == [1]


def test_an_answer_from_before_the_run_was_there_does_not_end_it() -> None:
    reader = Reader()
    reader.beat(0, "gone", "")
    reader.tracker.beat("late")
    read = only_read(reader.tracker.announcement(announce(row(1))))
    assert positions(reader.rows(read, row(1), head=1)) == [1]
    assert reader.tracker.joined("late", Report("", 0, "gone"), 1.0) == []
    assert reader.tracker.echo(Echo(Report("", 0, "gone"), "late")) == []
    assert reader.tracker.outcome is None


# -- cursors -------------------------------------------------------------------------------------------------------


def test_a_cursor_resumes_behind_itself() -> None:
    reader = Reader(after="e1:2")
    assert str(reader.tracker.cursor) == "e1:2"
    read = only_read(reader.beat(head=3))
    assert read.first == 3
    assert positions(reader.rows(read, row(3), head=3)) == [3]
    assert str(reader.tracker.cursor) == "e1:3"


def test_a_cursor_at_the_very_end_of_an_ended_run_ends_at_once() -> None:
    reader = Reader(after="e1:3")
    assert reader.beat(3, "finished") == [End("finished")]


def test_reconnecting_just_after_the_end_gives_the_rest_and_the_end() -> None:
    reader = Reader(after="e1:2")
    read = only_read(reader.beat(3, "failed"))
    outputs = reader.rows(read, row(3), head=3, status="failed")
    assert positions(outputs[:1]) == [3]
    assert outputs[1:] == [End("failed")]


def test_a_cursor_of_another_life_starts_over_and_says_so() -> None:
    reader = Reader(after="old:7")
    outputs = reader.beat(head=2)
    assert outputs[0] == GapNotice(8, 7, restarts=True, cursor="e1:0")
    assert only_read(outputs[1:]).first == 1


def test_a_cursor_at_the_beginning_of_another_life_has_nothing_to_take_back() -> None:
    reader = Reader(after="old:0")
    assert only_read(reader.beat(head=2)).first == 1


def test_a_cursor_beyond_the_head_is_a_fallback_of_the_server() -> None:
    reader = Reader(after="e1:9")
    outputs = reader.beat(head=2)
    assert outputs[0] == GapNotice(3, 9, restarts=True, cursor="e1:0")
    assert only_read(outputs[1:]).first == 1


def test_two_resumes_from_one_cursor_are_alike() -> None:
    given = []
    for _ in range(2):
        reader = Reader(after="e1:1")
        outputs = reader.rows(only_read(reader.beat(3)), *fragments(2, 2), head=3)
        given.append([(output.position, output.data) for output in outputs if isinstance(output, Deliver)])
    assert given[0] == given[1] == [(3, event("big"))]


# -- holes ---------------------------------------------------------------------------------------------------------


def test_a_hole_is_read_from_the_log_at_once() -> None:
    reader = following(2)
    read = only_read(reader.tracker.announcement(announce(row(4))))
    assert (read.first, read.repair) == (3, True)
    assert positions(reader.rows(read, row(3), row(4), head=4)) == [3, 4]


def test_a_jump_of_16000_positions_is_read_in_bounded_pieces() -> None:
    reader = following(2)
    outputs = reader.tracker.announcement(announce(row(16_002)))
    given: list[int] = []
    while outputs:
        read = only_read(outputs)
        assert read.count <= 256
        rows = [row(position) for position in range(read.first, min(read.first + read.count, 16_003))]
        outputs = reader.rows(read, *rows, head=16_002)
        given += [output.position for output in outputs if isinstance(output, Deliver)]
        outputs = [output for output in outputs if not isinstance(output, Deliver)]
    assert given == list(range(3, 16_003))


def test_large_frames_make_small_reads() -> None:
    reader = Reader()
    read = only_read(reader.beat(1000))
    rows = [Row(position, WHOLE, b"x" * 60_000) for position in range(1, read.count + 1)]
    (following_read,) = [o for o in reader.rows(read, *rows, head=1000) if isinstance(o, ReadLog)]
    assert following_read.count * 60_000 <= 1024 * 1024


@pytest.mark.parametrize("first", [1, 3, 4])
def test_doubles_and_old_positions_are_dropped(first: int) -> None:
    reader = following(4)
    assert reader.tracker.announcement(announce(*map(row, range(first, 5)))) == []
    assert reader.tracker.cursor == ("e1", 4)


def test_an_announcement_that_overlaps_gives_its_new_part() -> None:
    reader = following(4)
    assert positions(reader.tracker.announcement(announce(*map(row, range(3, 7))))) == [5, 6]


def test_announcements_in_the_wrong_order_are_healed_without_waiting() -> None:
    reader = following(2)
    read = only_read(reader.tracker.announcement(announce(row(4))))
    assert reader.tracker.announcement(announce(row(3))) == []
    assert positions(reader.rows(read, row(3), row(4), head=4)) == [3, 4]


def test_frames_too_large_to_announce_are_read_and_were_not_missed() -> None:
    reader = following(2)
    read = only_read(reader.tracker.announcement(Announcement("e1", 3, 4, "live", None)))
    assert (read.first, read.repair) == (3, False)
    assert positions(reader.rows(read, row(3), row(4), head=4)) == [3, 4]
    assert reader.tracker.repaired == 0


def test_an_announcement_that_lacks_a_line_is_not_believed() -> None:
    reader = following(2)
    read = only_read(reader.tracker.announcement(announce(row(3), row(5))))
    assert read.first == 3


def test_a_message_that_cannot_be_read_makes_the_reader_ask() -> None:
    reader = following(2)
    read = only_read(reader.tracker.damaged())
    assert positions(reader.rows(read, row(3), head=3)) == [3]


def test_a_lost_tail_shows_at_the_next_echo() -> None:
    reader = following(2)
    read = only_read(reader.beat(head=3))
    assert positions(reader.rows(read, row(3), head=3)) == [3]


def test_the_direct_answer_does_not_make_a_follower_read() -> None:
    reader = following(2)
    reader.tracker.beat("n")
    assert reader.tracker.joined("n", Report("e1", 3, "live"), 0.0) == []
    # Announced before the echo, only slower than the answer.
    assert positions(reader.tracker.announcement(announce(row(3)))) == [3]
    assert reader.tracker.echo(Echo(Report("e1", 3, "live"), "n")) == []


def test_an_echo_of_a_head_that_a_read_has_passed_is_no_fallback() -> None:
    reader = following(2)
    reader.tracker.beat("n")
    echo = Echo(Report("e1", 2, "live"), "n")
    read = only_read(reader.tracker.announcement(Announcement("e1", 3, 3, "live", None)))
    assert positions(reader.rows(read, row(3), row(4), head=4)) == [3, 4]
    assert reader.tracker.echo(echo) == []


# -- the end -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["finished", "suspended", "cancelled", "failed", "abandoned"])
def test_an_outcome_ends_the_reader_behind_the_last_frame(outcome: Status) -> None:
    reader = following(2)
    outputs = reader.tracker.announcement(announce(row(3), status=outcome))
    assert positions(outputs[:1]) == [3]
    assert outputs[1:] == [End(outcome)]  # type: ignore[arg-type]
    assert reader.tracker.outcome == outcome
    assert reader.beat(3, outcome) == []


def test_closing_is_not_the_end() -> None:
    reader = following(2)
    assert positions(reader.tracker.announcement(announce(row(3), status="closing"))) == [3]
    assert reader.tracker.announcement(Announcement("e1", 4, 3, "abandoned")) == [End("abandoned")]


def test_the_end_is_not_reached_before_the_head() -> None:
    reader = following(2)
    read = only_read(reader.tracker.announcement(Announcement("e1", 5, 4, "finished")))
    outputs = reader.rows(read, row(3), row(4), head=4, status="finished")
    assert positions(outputs[:2]) == [3, 4]
    assert outputs[2:] == [End("finished")]


def test_the_lost_message_of_the_end_shows_at_the_next_echo() -> None:
    reader = following(2)
    assert reader.beat(2, "finished") == [End("finished")]


def test_a_run_that_is_gone_is_lost_once_it_was_seen() -> None:
    reader = following(2)
    assert reader.beat(0, "gone", "") == [End("lost")]


def test_a_removed_run_is_lost_when_the_log_agrees() -> None:
    reader = following(2)
    read = only_read(reader.tracker.echo(Echo(Report("", 0, "gone"), "")))
    assert reader.rows(read, head=0, status="gone", epoch="") == [End("lost")]


def test_an_old_word_of_a_removal_does_not_end_the_life_that_followed() -> None:
    reader = following(2)
    read = only_read(reader.tracker.echo(Echo(Report("", 0, "gone"), "")))
    assert reader.rows(read, head=2) == []
    assert reader.tracker.outcome is None


def test_nothing_follows_the_end() -> None:
    reader = following(2)
    reader.beat(2, "finished")
    tracker = reader.tracker
    assert tracker.announcement(announce(row(3))) == []
    assert tracker.echo(Echo(Report("", 0, "gone"), "")) == []
    assert tracker.damaged() == []
    assert tracker.tick(1e9) == []
    tracker.pause()
    assert tracker.resume() == []


# -- lives, fallbacks ----------------------------------------------------------------------------------------------


def test_the_next_life_of_a_run_id_starts_over() -> None:
    reader = following(4)
    read = only_read(reader.tracker.announcement(announce(row(1), epoch="e2")))
    outputs = reader.rows(read, head=1, epoch="e2")
    assert outputs[0] == GapNotice(5, 4, restarts=True, cursor="e2:0")
    outputs = reader.rows(only_read(outputs[1:]), row(1), head=1, epoch="e2")
    assert positions(outputs) == [1]
    assert reader.tracker.cursor == ("e2", 1)


def test_the_rest_of_a_life_that_was_cut_short_is_told() -> None:
    reader = following(4)
    # Position 6 was heard of, and the run begins anew before 5 and 6 could be read.
    read = only_read(reader.tracker.announcement(announce(row(6))))
    outputs = reader.rows(read, head=0, epoch="e2")
    assert outputs == [GapNotice(5, 6, restarts=True, cursor="e2:0")]


def test_a_message_of_a_past_life_is_dropped() -> None:
    reader = following(4)
    outputs = reader.beat(0, epoch="e2")
    assert outputs == [GapNotice(5, 4, restarts=True, cursor="e2:0")]
    assert reader.tracker.announcement(announce(row(5), epoch="e1")) == []
    assert positions(reader.tracker.announcement(announce(row(1), epoch="e2"))) == [1]


def test_a_message_of_a_strange_life_makes_the_reader_ask_and_stay() -> None:
    reader = following(4)
    read = only_read(reader.tracker.announcement(announce(row(1), epoch="strange")))
    assert reader.rows(read, head=4) == []
    assert positions(reader.tracker.announcement(announce(row(5)))) == [5]


def test_an_answer_of_the_life_before_does_not_bring_it_back() -> None:
    reader = following(4)
    reader.tracker.beat("slow")
    read = only_read(reader.tracker.announcement(announce(row(1), epoch="e2")))
    reader.rows(read, head=0, epoch="e2")
    assert reader.tracker.joined("slow", Report("e1", 4, "finished"), 0.0) == []
    assert reader.tracker.echo(Echo(Report("e1", 4, "finished"), "slow")) == []
    assert reader.tracker.cursor == ("e2", 0)


def test_the_end_of_the_life_before_does_not_end_this_one() -> None:
    reader = following(4)
    reader.tracker.beat("slow")
    read = only_read(reader.tracker.announcement(announce(row(1), epoch="e2")))
    reader.rows(read, head=0, epoch="e2")
    assert reader.tracker.joined("slow", Report("", 0, "gone"), 0.0) == []
    assert reader.tracker.echo(Echo(Report("", 0, "gone"), "slow")) == []
    assert reader.tracker.outcome is None


def test_a_head_that_falls_behind_what_was_delivered_starts_over() -> None:
    reader = following(4)
    reader.tracker.lost()
    reader.tracker.back()
    outputs = reader.beat(head=2)
    assert outputs[0] == GapNotice(3, 4, restarts=True, cursor="e1:0")
    outputs = reader.rows(only_read(outputs[1:]), row(1), row(2), head=2)
    assert positions(outputs) == [1, 2]


def test_a_fallback_is_told_once_whoever_tells_it() -> None:
    reader = following(4)
    reader.tracker.beat("slow")
    outputs = reader.beat(head=2)
    assert isinstance(outputs[0], GapNotice)
    assert positions(reader.rows(only_read(outputs[1:]), row(1), row(2), head=2)) == [1, 2]
    assert reader.tracker.joined("slow", Report("e1", 2, "live"), 0.0) == []


def test_a_fallback_that_a_read_has_told_is_not_told_by_a_late_echo() -> None:
    reader = following(4)
    reader.tracker.beat("slow")
    outputs = reader.rows(only_read(reader.tracker.damaged()), head=2)
    assert outputs[0] == GapNotice(3, 4, restarts=True, cursor="e1:0")
    assert positions(reader.rows(only_read(outputs[1:]), row(1), row(2), head=2)) == [1, 2]
    assert reader.tracker.echo(Echo(Report("e1", 2, "live"), "slow")) == []


def test_a_head_that_falls_back_to_what_was_delivered_is_no_loss() -> None:
    reader = following(2)
    # Heard of 4, could not read it, and now the server never had it.
    only_read(reader.tracker.announcement(announce(row(4))))
    reader.tracker.lost()
    reader.tracker.back()
    assert reader.beat(head=2) == []
    assert reader.tracker.announcement(announce(row(3))) == []


def test_an_outcome_that_the_server_has_forgotten_does_not_end_the_reader() -> None:
    reader = following(2)
    read = only_read(reader.tracker.announcement(announce(row(4), status="finished")))
    outputs = reader.rows(read, row(3), head=3, status="live")
    assert positions(outputs[:1]) == [3]
    assert reader.rows(only_read(outputs[1:]), head=3, status="live") == []
    assert reader.tracker.outcome is None


# -- what the log does not hold ------------------------------------------------------------------------------------


def test_a_log_that_begins_above_1_is_told_with_its_exact_range() -> None:
    reader = Reader()
    outputs = reader.rows_of_trimmed(only_read(reader.beat(head=6)), row(5), row(6), head=6)
    assert outputs[0] == GapNotice(1, 4, cursor="e1:4")
    assert positions(outputs[1:]) == [5, 6]


def test_a_range_that_was_trimmed_while_away_is_told_once() -> None:
    reader = following(2)
    read = only_read(reader.beat(head=8))
    outputs = reader.rows_of_trimmed(read, row(6), row(7), row(8), head=8)
    assert outputs[0] == GapNotice(3, 5, cursor="e1:5")
    assert positions(outputs[1:]) == [6, 7, 8]


def test_a_log_without_any_of_it_is_told_and_followed_on() -> None:
    reader = following(2)
    assert reader.rows_of_trimmed(only_read(reader.beat(head=8)), head=8) == [GapNotice(3, 8, cursor="e1:8")]
    assert positions(reader.tracker.announcement(announce(row(9)))) == [9]


def test_an_event_whose_beginning_is_missing_counts_as_missing() -> None:
    reader = Reader()
    rows = [*fragments(1, 4)[2:], row(5)]
    outputs = reader.rows_of_trimmed(only_read(reader.beat(head=5)), *rows, head=5)
    assert outputs[0] == GapNotice(1, 4, cursor="e1:4")
    assert positions(outputs[1:]) == [5]


def test_an_event_that_the_log_holds_damaged_is_told_and_passed() -> None:
    reader = Reader()
    rows = fragments(2, 3)
    rows[1] = Row(3, 0, rows[2].data)
    outputs = reader.rows(only_read(reader.beat(head=5)), row(1), *rows, row(5), head=5)
    assert positions(outputs[:1]) == [1]
    assert outputs[1] == GapNotice(2, 4, cursor="e1:4")
    assert positions(outputs[2:]) == [5]


def test_a_position_that_holds_nothing_usable_is_told_and_passed() -> None:
    reader = Reader()
    rows = [row(1), Row(2, 0, b""), row(3), *fragments(4, 3), row(7)]
    rows[4] = Row(5, 0, b"")
    outputs = reader.rows(only_read(reader.beat(head=9)), *rows, row(8), row(9), head=9)
    assert [(o.first, o.last) for o in outputs if isinstance(o, GapNotice)] == [(2, 2), (4, 6)]
    assert [o.position for o in outputs if isinstance(o, Deliver)] == [1, 3, 7, 8, 9]


def test_an_event_without_an_end_is_told_at_the_end_of_the_run() -> None:
    reader = following(2)
    outputs = reader.tracker.announcement(announce(*fragments(3, 3)[:2], status="failed"))
    assert outputs == [GapNotice(3, 4, cursor="e1:2"), End("failed")]


def test_an_event_above_the_bound_of_the_assembler_is_told() -> None:
    tracker = Tracker(lease=LEASE, assembler_bytes=50)
    tracker.beat("n")
    read = only_read(tracker.echo(Echo(Report("e1", 4, "live"), "n")))
    outputs = tracker.rows(read, Report("e1", 4, "live"), [*fragments(1, 3), row(4)])
    assert outputs[0] == GapNotice(1, 3, cursor="e1:3")
    assert positions(outputs[1:]) == [4]


# -- events in several frames --------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_fragments_make_one_event_however_they_are_announced(cut: int) -> None:
    reader = following(2)
    rows = fragments(3, 4)
    assert reader.tracker.announcement(announce(*rows[:cut])) == []
    assert str(reader.tracker.cursor) == "e1:2"
    outputs = reader.tracker.announcement(announce(*rows[cut:]))
    assert [(o.position, o.data, str(o.cursor)) for o in outputs if isinstance(o, Deliver)] == [
        (6, event("big"), "e1:6")
    ]


def test_a_half_taken_event_starts_over_from_its_first_fragment() -> None:
    reader = following(2)
    rows = fragments(3, 4)
    reader.tracker.announcement(announce(*rows[:2]))
    read = only_read(reader.tracker.announcement(announce(rows[3])))
    assert read.first == 3
    outputs = reader.rows(read, *rows, head=6)
    assert [o.data for o in outputs if isinstance(o, Deliver)] == [event("big")]


def test_a_half_read_event_goes_on_with_the_next_read() -> None:
    reader = Reader()
    rows = fragments(1, 200)
    outputs = reader.beat(200)
    reads = 0
    while outputs and isinstance(outputs[0], ReadLog):
        read = outputs[0]
        outputs = reader.rows(read, *rows[read.first - 1 : read.first - 1 + read.count], head=200)
        reads += 1
    assert [o.data for o in outputs if isinstance(o, Deliver)] == [event("big")]
    assert 1 < reads < 10


def test_a_fragment_that_the_channel_damaged_is_read_again() -> None:
    reader = following(2)
    rows = fragments(3, 3)
    damaged = [rows[0], Row(4, 0, rows[2].data), rows[2]]
    read = only_read(reader.tracker.announcement(announce(*damaged)))
    assert read.first == 3
    outputs = reader.rows(read, *rows, head=5)
    assert [o.data for o in outputs if isinstance(o, Deliver)] == [event("big")]


def test_an_event_in_a_single_fragment_is_one_event() -> None:
    reader = following(2)
    outputs = reader.tracker.announcement(announce(*fragments(3, 1)))
    assert [(o.position, o.data) for o in outputs if isinstance(o, Deliver)] == [(3, event("big"))]


def test_a_whole_event_that_looks_like_a_fragment_is_given_as_it_is() -> None:
    reader = following(2)
    data = fragments(1, 2, "copycat")[0].data
    outputs = reader.tracker.announcement(announce(Row(3, WHOLE, data)))
    assert [o.data for o in outputs if isinstance(o, Deliver)] == [data]


def test_an_event_beside_a_half_taken_one_leaves_the_cursor_before_both() -> None:
    reader = following(2)
    rows = fragments(3, 2)
    outputs = reader.tracker.announcement(announce(rows[0], row(4)))
    assert [(o.position, str(o.cursor)) for o in outputs if isinstance(o, Deliver)] == [(4, "e1:2")]
    # Started over, the event in between is not given again.
    read = only_read(reader.tracker.announcement(announce(row(6))))
    assert read.first == 3
    outputs = reader.rows(read, rows[0], row(4), Row(5, LAST, rows[1].data), row(6), head=6)
    assert [o.position for o in outputs if isinstance(o, Deliver)] == [5, 6]


def test_of_nine_half_taken_events_the_oldest_is_given_up() -> None:
    reader = Reader()
    starts = [Row(n, FIRST, fragments(1, 2, f"id{n}")[0].data) for n in range(1, 10)]
    ends = [Row(8 + n, LAST, fragments(1, 2, f"id{n}")[1].data) for n in range(2, 10)]
    outputs = reader.rows(only_read(reader.beat(17)), *starts, *ends, row(18), head=18)
    assert [o.data for o in outputs if isinstance(o, Deliver)][:-1] == [event(f"id{n}") for n in range(2, 10)]
    assert [(o.first, o.last) for o in outputs if isinstance(o, GapNotice)] == [(1, 1)]


# -- views ---------------------------------------------------------------------------------------------------------


def test_positions_that_a_view_hides_are_covered_and_move_the_cursor() -> None:
    reader = Reader(view="chat")
    reader.beat(0)
    assert positions(reader.tracker.announcement(announce(row(2), row(4), last=6).__replace__(first=1))) == [2, 4]
    assert str(reader.tracker.cursor) == "e1:6"
    assert reader.tracker.announcement(Announcement("e1", 7, 9, "live", ())) == []
    assert str(reader.tracker.cursor) == "e1:9"
    assert positions(reader.tracker.announcement(announce(row(10)))) == [10]


def test_hidden_rows_of_the_log_are_passed_over() -> None:
    reader = Reader(view="chat")
    rows = [row(1, WHOLE | HIDDEN), row(2), row(3, FIRST | HIDDEN), row(4, LAST | HIDDEN)]
    assert positions(reader.rows(only_read(reader.beat(4)), *rows, head=4)) == [2]
    assert str(reader.tracker.cursor) == "e1:4"


def test_the_cursor_does_not_rest_within_a_hidden_event() -> None:
    reader = Reader(view="chat")
    reader.rows(only_read(reader.beat(3)), row(1), row(2, FIRST | HIDDEN), row(3, HIDDEN), head=3)
    assert str(reader.tracker.cursor) == "e1:1"


def test_a_run_that_ends_with_hidden_events_ends() -> None:
    reader = Reader(view="chat")
    reader.beat(0)
    outputs = reader.tracker.announcement(Announcement("e1", 1, 3, "finished", ()))
    assert outputs == [End("finished")]


# -- the link ------------------------------------------------------------------------------------------------------


def test_an_echo_that_does_not_come_means_a_dead_link() -> None:
    reader = following(2)
    tracker = reader.tracker
    tracker.beat("n")
    assert tracker.joined("n", Report("e1", 2, "live"), 100.0) == []
    assert tracker.tick(105.0) == []
    assert tracker.tick(105.1) == [Reconnect()]
    assert tracker.link is Link.DOWN


def test_a_heartbeat_that_did_not_reach_the_server_says_nothing_of_the_link() -> None:
    tracker = following(2).tracker
    tracker.beat("n")
    assert tracker.tick(1000.0) == []


def test_an_idle_channel_stays_as_long_as_echoes_come() -> None:
    reader = following(2)
    for now in range(0, 60, 5):
        reader.tracker.beat(f"t{now}")
        reader.tracker.joined(f"t{now}", Report("e1", 2, "live"), float(now))
        assert reader.tracker.echo(Echo(Report("e1", 2, "live"), f"t{now}")) == []
        assert reader.tracker.tick(now + 4.9) == []


def test_a_link_that_does_not_come_is_asked_for_again() -> None:
    tracker = following(2).tracker
    tracker.beat("n")
    tracker.joined("n", Report("e1", 2, "live"), 0.0)
    assert tracker.tick(6.0) == [Reconnect()]
    assert tracker.tick(10.0) == []
    assert tracker.tick(11.1) == [Reconnect()]
    # The hub takes over: it has seen the loss itself.
    tracker.lost()
    assert tracker.tick(100.0) == []


@pytest.mark.parametrize("times", [1, 2, 3])
def test_every_reconnect_reads_what_was_missed(times: int) -> None:
    reader = following(2)
    for position in range(3, 3 + times):
        reader.tracker.lost()
        assert reader.tracker.announcement(announce(row(position))) == []
        reader.tracker.back()
        assert reader.tracker.announcement(announce(row(position))) == []
        read = only_read(reader.beat(position))
        assert positions(reader.rows(read, row(position), head=position)) == [position]
    assert positions(reader.tracker.announcement(announce(row(3 + times)))) == [3 + times]


def test_a_loss_in_the_middle_of_an_event_starts_it_over() -> None:
    reader = following(2)
    rows = fragments(3, 3)
    reader.tracker.announcement(announce(*rows[:2]))
    reader.tracker.lost()
    reader.tracker.back()
    read = only_read(reader.beat(5))
    assert read.first == 3
    outputs = reader.rows(read, *rows, head=5)
    assert [o.data for o in outputs if isinstance(o, Deliver)] == [event("big")]


def test_a_loss_does_not_stop_a_replay() -> None:
    reader = Reader()
    read = only_read(reader.beat(200))
    reader.tracker.lost()
    outputs = reader.rows(read, *map(row, range(1, read.count + 1)), head=200)
    assert isinstance(outputs[-1], ReadLog)
    assert outputs[-1].first == read.count + 1


def test_an_echo_of_the_connection_before_is_not_taken_for_a_new_one() -> None:
    reader = following(2)
    reader.tracker.beat("old")
    reader.tracker.lost()
    reader.tracker.back()
    assert reader.tracker.echo(Echo(Report("e1", 2, "live"), "old")) == []
    assert reader.tracker.link is Link.JOINING


def test_an_echo_of_somebody_elses_heartbeat_is_dropped() -> None:
    reader = following(2)
    assert reader.tracker.echo(Echo(Report("e1", 99, "finished"), "stranger")) == []
    assert reader.tracker.cursor == ("e1", 2)


# -- a slow consumer -----------------------------------------------------------------------------------------------


def test_a_paused_reader_drops_and_reads_later() -> None:
    reader = following(2)
    reader.tracker.pause()
    assert reader.tracker.announcement(announce(row(3))) == []
    assert reader.beat(head=4) == []
    read = only_read(reader.tracker.resume())
    assert (read.first, read.repair) == (3, True)
    assert positions(reader.rows(read, row(3), row(4), head=4)) == [3, 4]


def test_a_pause_in_which_nothing_came_costs_nothing() -> None:
    reader = following(2)
    reader.tracker.pause()
    assert reader.tracker.resume() == []
    assert positions(reader.tracker.announcement(announce(row(3)))) == [3]


def test_a_pause_lets_go_of_a_half_taken_event() -> None:
    reader = following(2)
    rows = fragments(3, 3)
    reader.tracker.announcement(announce(*rows[:2]))
    reader.tracker.pause()
    read = only_read(reader.tracker.resume())
    assert read.first == 3
    outputs = reader.rows(read, *rows, head=5)
    assert [o.data for o in outputs if isinstance(o, Deliver)] == [event("big")]


def test_a_read_that_is_under_way_when_paused_is_taken_and_not_followed_by_another() -> None:
    reader = Reader()
    read = only_read(reader.beat(200))
    reader.tracker.pause()
    rows = list(map(row, range(1, read.count + 1)))
    assert positions(reader.rows(read, *rows, head=200)) == list(range(1, read.count + 1))
    assert only_read(reader.tracker.resume()).first == read.count + 1


def test_an_answer_that_was_not_asked_for_is_dropped() -> None:
    reader = Reader()
    read = only_read(reader.beat(2))
    assert positions(reader.rows(read, row(1), row(2), head=2)) == [1, 2]
    assert reader.rows(read, row(3), head=3) == []


# -- displays ------------------------------------------------------------------------------------------------------


def test_a_reader_that_starts_with_the_display_goes_on_behind_it() -> None:
    reader = Reader(start="display")
    read = only_read_display(reader.beat(head=7))
    assert (read.first, read.least) == (1, 0)
    outputs = reader.display(read, 5, head=7)
    assert outputs[0] == shown(5)
    log = only_read(outputs[1:])
    assert (log.first, log.repair) == (6, False)
    assert reader.tracker.cursor == Cursor("e1", 5)
    assert positions(reader.rows(log, row(6), row(7), head=7)) == [6, 7]
    assert positions(reader.tracker.announcement(announce(row(8)))) == [8]
    assert reader.tracker.repaired == 0


def test_without_a_stored_display_the_empty_one_comes_first() -> None:
    reader = Reader(start="display")
    outputs = reader.display(only_read_display(reader.beat(head=2)), None, head=2)
    assert outputs[0] == DeliverDisplay(0, b"", Cursor("e1", 0))
    assert positions(reader.rows(only_read(outputs[1:]), row(1), row(2), head=2)) == [1, 2]


def test_a_display_comes_before_what_is_announced_meanwhile() -> None:
    reader = Reader(start="display")
    read = only_read_display(reader.beat(head=0))
    announcement = announce(row(1))
    assert reader.tracker.announcement(announcement, whole_events(announcement)) == []
    outputs = reader.display(read, None, head=0)
    assert outputs[0] == DeliverDisplay(0, b"", Cursor("e1", 0))
    assert positions(reader.rows(only_read(outputs[1:]), row(1), head=1)) == [1]


def test_a_display_comes_once_the_run_that_was_waited_for_is_there() -> None:
    reader = Reader(start="display")
    assert reader.beat(0, "gone", "") == []
    # Whoever was told so reads the log first: it is not known of what life the display would have to be.
    log = only_read(reader.tracker.announcement(announce(row(1))))
    read = only_read_display(reader.rows(log, row(1), head=1))
    outputs = reader.display(read, None, head=1)
    assert outputs[0] == DeliverDisplay(0, b"", Cursor("e1", 0))
    assert positions(reader.rows(only_read(outputs[1:]), row(1), head=1)) == [1]


def test_a_run_without_events_has_its_display_before_its_end() -> None:
    reader = Reader(start="display")
    outputs = reader.display(only_read_display(reader.beat(0, "failed")), None, head=0, status="failed")
    assert outputs == [DeliverDisplay(0, b"", Cursor("e1", 0)), End("failed")]


def test_a_display_of_all_of_an_ended_run_is_all_that_comes() -> None:
    reader = Reader(start="display")
    outputs = reader.display(only_read_display(reader.beat(9, "finished")), 9, head=9, status="finished")
    assert outputs == [shown(9), End("finished")]


def test_a_display_may_cover_more_than_was_known_when_it_was_asked_for() -> None:
    reader = Reader(start="display")
    outputs = reader.display(only_read_display(reader.beat(head=2)), 6, head=6)
    assert outputs == [shown(6)]
    assert reader.tracker.announcement(announce(row(5), row(6))) == []
    assert positions(reader.tracker.announcement(announce(row(7)))) == [7]


def test_a_display_that_covers_more_than_there_is_is_not_believed() -> None:
    reader = Reader(start="display")
    outputs = reader.display(only_read_display(reader.beat(head=2)), 6, head=2)
    assert outputs[0] == DeliverDisplay(0, b"", Cursor("e1", 0))
    assert only_read(outputs[1:]).first == 1


@pytest.mark.parametrize("start", ["log", "display"])
def test_frames_that_were_trimmed_are_told_with_the_display_that_covers_them(start: Start) -> None:
    reader = Reader(after="e1:2", start=start)
    log = only_read(reader.beat(head=8))
    read = only_read_display(reader.rows(log, row(6), row(7), row(8), head=8))
    assert (read.first, read.least) == (3, 5)
    outputs = reader.display(read, 6, head=8)
    # Who resumes from the notice comes to the display again.
    assert outputs[:2] == [GapNotice(3, 6, cursor="e1:2"), shown(6)]
    assert reader.tracker.cursor == Cursor("e1", 6)
    assert positions(reader.rows(only_read(outputs[2:]), row(7), row(8), head=8)) == [7, 8]


def test_a_log_without_any_of_it_is_told_with_the_display() -> None:
    reader = following(2)
    read = only_read_display(reader.rows(only_read(reader.beat(head=8)), head=8))
    assert read.least == 8
    assert reader.display(read, 8, head=8) == [GapNotice(3, 8, cursor="e1:2"), shown(8)]
    assert positions(reader.tracker.announcement(announce(row(9)))) == [9]


@pytest.mark.parametrize("stored", [None, 0, 1, 2, 3, 4])
def test_a_display_that_does_not_cover_a_gap_is_not_given_after_it(stored: int | None) -> None:
    reader = following(2)
    read = only_read_display(reader.rows(only_read(reader.beat(head=8)), row(6), row(7), row(8), head=8))
    (log,) = reader.display(read, stored, head=8)
    assert isinstance(log, ReadLog)
    assert log.first == 6
    outputs = reader.rows(log, row(6), row(7), row(8), head=8)
    assert outputs[0] == GapNotice(3, 5, cursor="e1:5")
    assert positions(outputs[1:]) == [6, 7, 8]


def test_frames_before_a_gap_are_given_first() -> None:
    reader = following(2)
    outputs = reader.rows(only_read(reader.beat(head=8)), row(3), row(6), row(7), head=8)
    assert positions(outputs[:1]) == [3]
    read = only_read_display(outputs[1:])
    assert (read.first, read.least) == (4, 5)
    assert reader.display(read, 8, head=8) == [GapNotice(4, 8, cursor="e1:3"), shown(8)]


def test_a_half_taken_event_goes_into_the_gap() -> None:
    reader = following(2)
    log = only_read(reader.beat(head=9))
    read = only_read_display(reader.rows(log, *fragments(3, 4)[:2], row(8), row(9), head=9))
    assert (read.first, read.least) == (5, 7)
    outputs = reader.display(read, 7, head=9)
    assert outputs[:2] == [GapNotice(3, 7, cursor="e1:2"), shown(7)]
    assert positions(reader.rows(only_read(outputs[2:]), row(8), row(9), head=9)) == [8, 9]


def test_what_was_given_beside_a_half_taken_event_is_not_told_as_missing() -> None:
    reader = following(2)
    rows = fragments(3, 3)
    log = only_read(reader.beat(head=9))
    given, read = reader.rows(log, rows[0], row(4), row(9), head=9)
    assert isinstance(given, Deliver)
    assert isinstance(read, ReadDisplay)
    assert reader.display(read, 8, head=9)[:3] == [
        GapNotice(3, 3, cursor="e1:2"),
        GapNotice(5, 8, cursor="e1:2"),
        shown(8),
    ]


def test_a_gap_behind_a_display_is_told_with_the_next_one() -> None:
    reader = Reader(start="display")
    outputs = reader.display(only_read_display(reader.beat(head=9)), 4, head=9)
    read = only_read_display(reader.rows(only_read(outputs[1:]), row(8), row(9), head=9))
    outputs = reader.display(read, 8, head=9)
    assert outputs[:2] == [GapNotice(5, 8, cursor="e1:4"), shown(8)]
    assert positions(reader.rows(only_read(outputs[2:]), row(9), head=9)) == [9]


# -- displays: resumed ---------------------------------------------------------------------------------------------


def test_a_cursor_that_the_log_still_holds_wins() -> None:
    reader = Reader(after="e1:4", start="display")
    assert only_read(reader.beat(head=6)).first == 5


@pytest.mark.parametrize(
    ("after", "notice"), [("old:7", GapNotice(8, 7, restarts=True, cursor="e1:0")), ("old:0", None)]
)
def test_a_cursor_of_another_life_starts_over_with_the_display(after: str, notice: GapNotice | None) -> None:
    reader = Reader(after=after, start="display")
    outputs = reader.beat(head=6)
    if notice is not None:
        assert outputs.pop(0) == notice
    assert reader.display(only_read_display(outputs), 4, head=6)[0] == shown(4)


def test_a_cursor_beyond_the_head_starts_over_with_the_display() -> None:
    reader = Reader(after="e1:9", start="display")
    outputs = reader.beat(head=6)
    assert outputs[0] == GapNotice(7, 9, restarts=True, cursor="e1:0")
    assert reader.display(only_read_display(outputs[1:]), 4, head=6)[0] == shown(4)


# -- displays: lives, fallbacks, the end -----------------------------------------------------------------------------


def begun(position: int, *, start: Start = "display") -> Reader:
    """Return a reader that has begun with the display up to `position`, and follows."""
    reader = Reader(start=start)
    assert reader.display(only_read_display(reader.beat(position)), position, head=position) == [shown(position)]
    return reader


def test_the_next_life_begins_with_its_display() -> None:
    reader = begun(4)
    log = only_read(reader.tracker.announcement(announce(row(1), epoch="e2")))
    outputs = reader.rows(log, head=3, epoch="e2")
    assert outputs[0] == GapNotice(5, 4, restarts=True, cursor="e2:0")
    outputs = reader.display(only_read_display(outputs[1:]), 2, head=3, epoch="e2")
    assert outputs[0] == shown(2, "e2")
    assert positions(reader.rows(only_read(outputs[1:]), row(3), head=3, epoch="e2")) == [3]


def test_frames_of_the_next_life_do_not_come_before_its_display() -> None:
    reader = begun(0)
    log = only_read(reader.tracker.announcement(announce(row(1), epoch="e2")))
    # The answer begins where the reader stands, in the next life as well.
    read = only_read_display(reader.rows(log, row(1), head=1, epoch="e2"))
    outputs = reader.display(read, None, head=1, epoch="e2")
    assert outputs[0] == DeliverDisplay(0, b"", Cursor("e2", 0))
    assert positions(reader.rows(only_read(outputs[1:]), row(1), head=1, epoch="e2")) == [1]


def test_a_display_of_the_next_life_does_not_fill_a_gap_of_this_one() -> None:
    reader = Reader()
    read = only_read_display(reader.rows(only_read(reader.beat(head=6)), row(5), row(6), head=6))
    outputs = reader.display(read, 7, head=8, epoch="e2")
    assert outputs[0] == GapNotice(1, 6, restarts=True, cursor="e2:0")
    assert only_read(outputs[1:]).first == 1


def test_a_gap_of_this_life_is_none_of_the_next_one() -> None:
    reader = Reader()
    read = only_read_display(reader.rows(only_read(reader.beat(head=6)), row(5), row(6), head=6))
    outputs = reader.display(read, None, head=8, epoch="e2")
    assert only_read(outputs[1:]).first == 1


def test_a_head_that_falls_behind_the_display_starts_over_with_the_display() -> None:
    reader = begun(4)
    reader.tracker.lost()
    reader.tracker.back()
    outputs = reader.beat(head=3)
    assert outputs[0] == GapNotice(4, 4, restarts=True, cursor="e1:0")
    outputs = reader.display(only_read_display(outputs[1:]), 2, head=3)
    assert outputs[0] == shown(2)
    assert positions(reader.rows(only_read(outputs[1:]), row(3), head=3)) == [3]


def test_a_fallback_that_the_display_itself_tells_starts_over() -> None:
    reader = following(4)
    read = only_read_display(reader.rows(only_read(reader.beat(head=8)), row(7), row(8), head=8))
    outputs = reader.display(read, 2, head=3)
    assert outputs[0] == GapNotice(4, 4, restarts=True, cursor="e1:0")
    assert only_read(outputs[1:]).first == 1


def test_a_gap_that_the_server_has_forgotten_is_looked_at_again() -> None:
    reader = following(4)
    read = only_read_display(reader.rows(only_read(reader.beat(head=8)), head=8))
    assert read.least == 8
    # Fallen back, but not behind what was given; 5 may come in another form.
    log = only_read(reader.display(read, None, head=5))
    assert positions(reader.rows(log, row(5), head=5)) == [5]


def test_a_run_that_is_removed_while_its_display_is_read_is_lost() -> None:
    reader = Reader(start="display")
    read = only_read_display(reader.beat(head=2))
    assert reader.display(read, None, head=0, status="gone", epoch="") == [End("lost")]


def test_an_end_heard_of_while_the_display_is_read_waits_for_it() -> None:
    reader = Reader(start="display")
    read = only_read_display(reader.beat(head=2))
    assert reader.tracker.announcement(Announcement("e1", 3, 2, "finished")) == []
    assert reader.display(read, 2, head=2) == [shown(2), End("finished")]


# -- displays: a link that is cut, a consumer that is slow -------------------------------------------------------------


def test_a_loss_does_not_stop_a_display() -> None:
    reader = Reader(start="display")
    read = only_read_display(reader.beat(head=4))
    reader.tracker.lost()
    outputs = reader.display(read, 2, head=4)
    assert outputs[0] == shown(2)
    log = only_read(outputs[1:])
    reader.tracker.back()
    assert reader.beat(head=4) == []
    assert positions(reader.rows(log, row(3), row(4), head=4)) == [3, 4]


def test_a_paused_reader_asks_for_the_display_when_there_is_room() -> None:
    reader = Reader(start="display")
    reader.tracker.pause()
    assert reader.beat(head=4) == []
    outputs = reader.display(only_read_display(reader.tracker.resume()), 4, head=4)
    assert outputs == [shown(4)]


def test_a_display_that_comes_while_paused_is_taken_and_nothing_follows_it() -> None:
    reader = Reader(start="display")
    read = only_read_display(reader.beat(head=6))
    reader.tracker.pause()
    assert reader.display(read, 4, head=6) == [shown(4)]
    assert only_read(reader.tracker.resume()).first == 5


def test_a_gap_found_while_paused_is_found_again() -> None:
    reader = following(2)
    log = only_read(reader.beat(head=8))
    reader.tracker.pause()
    assert reader.rows(log, *fragments(3, 4)[:2], row(7), row(8), head=8) == []
    log = only_read(reader.tracker.resume())
    # By now more is gone.
    assert log.first == 3
    read = only_read_display(reader.rows(log, row(8), head=8))
    assert reader.display(read, 7, head=8)[:2] == [GapNotice(3, 7, cursor="e1:2"), shown(7)]


def test_a_display_that_was_not_asked_for_is_dropped() -> None:
    reader = Reader(start="display")
    read = only_read_display(reader.beat(head=4))
    assert reader.display(read, 4, head=4) == [shown(4)]
    assert reader.display(read, 6, head=6) == []
    assert reader.tracker.cursor == Cursor("e1", 4)


@pytest.mark.parametrize("start", ["log", "display"])
def test_frames_behind_a_display_that_a_read_has_seen_are_no_repair(start: Start) -> None:
    reader = begun(4) if start == "display" else following(4)
    log = only_read(reader.tracker.announcement(Announcement("e1", 5, 8, "live", None)))
    read = only_read_display(reader.rows(log, row(7), row(8), head=8))
    outputs = reader.display(read, 6, head=8)
    reader.rows(only_read(outputs[2:]), row(7), row(8), head=8)
    assert reader.tracker.repaired == 0


# -- many readers of one announcement ------------------------------------------------------------------------------


def test_a_reader_that_is_abreast_takes_what_was_made_for_all() -> None:
    announcement = announce(row(3), row(4))
    whole = whole_events(announcement)
    assert whole is not None
    one, two = following(2), following(2)
    assert one.tracker.announcement(announcement, whole) is whole
    assert two.tracker.announcement(announcement, whole) is whole
    assert (one.tracker.cursor, one.tracker.repaired) == (Cursor("e1", 4), 0)
    assert positions(one.tracker.announcement(announce(row(5)))) == [5]
    assert one.tracker.announcement(announcement, whole) == []


@pytest.mark.parametrize("position", [0, 1, 3, 4, 5])
def test_a_reader_that_stands_elsewhere_goes_its_own_way(position: int) -> None:
    announcement = announce(row(3), row(4))
    reader = following(position)
    outputs = reader.tracker.announcement(announcement, whole_events(announcement))
    if position < 2:
        assert only_read(outputs).first == position + 1
    else:
        assert positions(outputs) == list(range(position + 1, 5))


def test_a_reader_that_is_not_free_goes_its_own_way() -> None:
    announcement = announce(row(3))
    whole = whole_events(announcement)
    paused, reading, down, other = (following(2) for _ in range(4))
    paused.tracker.pause()
    assert paused.tracker.announcement(announcement, whole) == []
    read = only_read(reading.beat(head=3))
    assert reading.tracker.announcement(announcement, whole) == []
    assert positions(reading.rows(read, row(3), head=3)) == [3]
    down.tracker.lost()
    assert down.tracker.announcement(announcement, whole) == []
    foreign = announce(row(3), epoch="e2")
    assert only_read(other.tracker.announcement(foreign, whole_events(foreign))).first == 3


def test_only_whole_events_of_a_live_run_are_made_for_all() -> None:
    assert whole_events(announce(*fragments(1, 2))) is None
    assert whole_events(announce(row(1), status="finished")) is None
    assert whole_events(Announcement("e1", 1, 2, "live", None)) is None
    assert whole_events(Announcement("e1", 1, 2, "live", ())) is None
    assert whole_events(announce(fragments(1, 1)[0])) is None


def test_a_hole_in_an_announcement_is_hidden_in_one_view_and_missing_in_the_other() -> None:
    announcement = announce(row(1), row(3))
    whole = whole_events(announcement)
    chat, full = Reader(view="chat"), Reader()
    for reader in (chat, full):
        assert reader.beat(head=0) == []
    assert chat.tracker.announcement(announcement, whole) is whole
    assert chat.tracker.cursor == Cursor("e1", 3)
    assert only_read(full.tracker.announcement(announcement, whole)).first == 1
