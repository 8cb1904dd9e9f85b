"""What the command says of the cases: one table, the goals that do not hold, and the same as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from agui_relay.bench.measure import Case, Figure
from agui_relay.bench.peers import versions

type Cases = Mapping[str, Sequence[Case]]


def machine() -> dict[str, Any]:
    """Return what the figures depend on: processor, system, versions, and how busy the machine is now."""
    return {
        "processor": _processor(),
        "processors": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "platform": platform.platform(),
        "python": platform.python_version(),
        "server": None,
        "packages": versions(),
    }


def document(cases: Cases, *, began: datetime, machine: Mapping[str, Any], rounds: int, quick: bool) -> dict[str, Any]:
    """Return everything that was measured, as JSON takes it; of a `quick` run without goals."""
    return {
        "began": began.astimezone(UTC).isoformat(timespec="seconds"),
        "rounds": rounds,
        "quick": quick,
        "machine": dict(machine),
        "cases": [
            {"suite": suite, **_row(case)} for suite, rows in cases.items() for case in _judged(rows, quick=quick)
        ],
    }


def table(cases: Cases, machine: Mapping[str, Any], *, quick: bool) -> Table:
    """Return the table; of a `quick` run without goals, which its figures say nothing about."""
    load = machine["load"][0]
    title = f"{machine['processor']}, {machine['processors']} processors, load {load:g}; Python {machine['python']}"
    if machine["server"]:
        title += f"; {machine['server']}"
    shown = Table(title=title)
    for heading in ("case", "ours", "peer", "ratio", "spread", "goal", "holds"):
        shown.add_column(heading, justify="left" if heading in ("case", "peer") else "right")
    for suite, rows in cases.items():
        shown.add_section()
        for case in _judged(rows, quick=quick):
            # Names and reasons may have brackets, which are no markup.
            shown.add_row(*map(escape, (f"{suite}: {case.name}", *_cells(case))))
    return shown


def verdict(cases: Cases, *, quick: bool) -> list[str]:
    """Return the notes of cases, and lines that say which goals are missed and what could not be measured.

    After a `quick` run nothing is said of goals.
    """
    rows = [(f"{suite}: {case.name}", case) for suite, some in cases.items() for case in some]
    lines = [f"{name}: {case.note}" for name, case in rows if case.note]
    if quick:
        return [*lines, "So little data says that it runs, not how fast.", *_missing(cases)]
    judged = [case.holds for _, case in rows if case.holds is not None]
    lines.append(f"{judged.count(True)} of {len(judged)} goals hold.")
    lines += [
        f"missed: {name}: {case.ratio:.3g}, the goal is {case.goal.direction} {case.goal.bound:g}"
        for name, case in rows
        if case.goal is not None and case.ratio is not None and not case.holds
    ]
    return lines + _missing(cases)


def _judged(rows: Sequence[Case], *, quick: bool) -> Sequence[Case]:
    return [case._replace(goal=None) for case in rows] if quick else rows


def _missing(cases: Cases) -> list[str]:
    return sorted({f"not measured: {case.missing}" for rows in cases.values() for case in rows if case.missing})


def _cells(case: Case) -> tuple[str, ...]:
    ratios, goal = case.ratios, case.goal
    return (
        "" if case.ours is None else f"{_figure(case.ours.median)} {case.unit}",
        f"{case.peer_name} {_figure(case.peer.median)}" if case.peer is not None else case.missing or case.peer_name,
        "" if ratios is None else f"{ratios.median:.2f}",
        "" if ratios is None or len(ratios.rounds) < 2 else f"±{ratios.spread / 2:.0%}",
        "" if goal is None else f"{'≥' if goal.direction == 'at least' else '≤'} {goal.bound:g}",
        {None: "", True: "yes", False: "no"}[case.holds],
    )


def _row(case: Case) -> dict[str, Any]:
    return {
        "case": case.name,
        "unit": case.unit,
        "ours": _side(case.ours),
        "peer": {"name": case.peer_name, "missing": case.missing or None, **(_side(case.peer) or {})},
        "ratio": case.ratio,
        "ratio_spread": None if case.ratios is None else case.ratios.spread,
        "goal": None if case.goal is None else case.goal._asdict(),
        "holds": case.holds,
        "note": case.note,
    }


def _side(figure: Figure | None) -> dict[str, Any] | None:
    if figure is None:
        return None
    return {"median": figure.median, "spread": figure.spread, "rounds": figure.rounds}


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _processor() -> str:
    """Return the model of the processor, as well as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
