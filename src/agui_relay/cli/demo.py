"""`agui-relay demo`: plays the recorded run and judges it."""

import asyncio
import logging
import sys
from typing import Annotated

import typer

from agui_relay.cli.options import a_number


def demo(
    speed: Annotated[
        float,
        typer.Option(metavar="FACTOR", min=0.1, max=100.0, callback=a_number, help="How fast the agent is."),
    ] = 1.0,
) -> None:
    """Carry one agent run through a real Redis to three watchers, of whom one is cut off and one comes late.

    The status is 0 when all three end with the recorded projection of the run, byte for byte; otherwise 1.
    """
    from rich.console import Console

    from agui_relay import RelaySettings
    from agui_relay.cli.drawing import draw, result_table
    from agui_relay.demo.recording import load_recording
    from agui_relay.demo.stage import Stage

    RelaySettings()  # says what is wrong with them, before a worker does
    # What the relay logs about the cut connection is part of the show, and shown as such.
    logging.getLogger("agui_relay").addHandler(logging.NullHandler())
    console = Console()
    stage = Stage(load_recording(), speed=speed)
    asyncio.run(draw(stage, console))
    console.print(result_table(stage))
    if not stage.succeeded:
        sys.stderr.write("agui-relay: the watchers did not end equal\n")
        raise typer.Exit(1)
