"""`agui-relay bench`: measures, draws one table, and writes the figures."""

import asyncio
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from agui_relay.bench import SUITES

_WIDTH = 160
"""Of a table that is not drawn on a terminal."""


def _known(names: list[str] | None) -> list[str]:
    for name in names or ():
        if name not in SUITES:
            raise typer.BadParameter(f"{name!r} is no suite, there are {', '.join(SUITES)}")
    return names or []


def bench(
    suites: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SUITE]...",
            callback=_known,
            help="; ".join(f"{name}: {what}" for name, what in SUITES.items()) + ". All without a name.",
            show_default=False,
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write all figures here.", dir_okay=False)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Little data: tells that it runs, not how fast.")] = False,
    rounds: Annotated[int, typer.Option("--runs", metavar="N", min=1, help="How often each case is measured.")] = 5,
) -> None:
    """Measure each case beside its peer, in turns, on a packaged server; takes about ten minutes.

    Peers that are not installed are named. The status is 0 also when a goal is missed: machines differ.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from agui_relay.bench import report
    from agui_relay.bench.session import Session
    from agui_relay.bench.suites import measure, planned

    if json_file is not None:
        try:
            json_file.open("ab").close()  # now, not after ten minutes
        except OSError as error:
            raise typer.BadParameter(
                f"cannot write {str(json_file)!r}: {error.strerror}", param_hint="--json"
            ) from error
    for name in [name for name in os.environ if name.startswith("AGUI_RELAY_")]:
        # What is measured are the defaults.
        del os.environ[name]
    began = datetime.now(UTC)
    errors = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    # Drawn between two rounds only: a thread that draws would be measured as well.
    with Progress(
        *columns, console=errors, transient=True, auto_refresh=False, disable=not errors.is_terminal
    ) as progress:
        bar = progress.add_task("")

        def tell(text: str) -> None:
            progress.update(bar, description=text, refresh=True)

        session = Session(rounds=1 if quick else rounds, quick=quick, tell=tell)
        plan = planned(suites or [], session)
        progress.update(bar, total=sum(map(len, plan.values())))
        machine = report.machine()
        cases = asyncio.run(measure(plan, session, lambda: progress.advance(bar)))
    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH)
    machine["server"] = session.server
    console.print(report.table(cases, machine, quick=quick))
    for line in report.verdict(cases, quick=quick):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if json_file is not None:
        document = report.document(cases, began=began, machine=machine, rounds=session.rounds, quick=quick)
        json_file.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
