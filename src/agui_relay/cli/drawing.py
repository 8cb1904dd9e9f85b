"""How the demo looks in a terminal, and how it reads where there is none."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any

import msgspec
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from agui_relay.demo.stage import Stage, Watcher

_FRAMES_PER_SECOND = 12
_TRANSCRIPT_LINES = 12
_NOTES = 6
_STATES = {"waiting": "dim", "watching": "green", "cut off": "bold red", "done": "cyan"}


async def draw(stage: Stage, console: Console) -> None:
    """Play the stage and show it: a live picture in a terminal, otherwise a line for each thing that happens."""
    if not console.is_terminal:
        stage.tell = _write_line
        await stage.play()
        return
    picture = _Picture(stage)
    stage.tell = picture.note
    with Live(picture.render(console), console=console, auto_refresh=False, transient=True) as live:
        playing = asyncio.create_task(stage.play())
        try:
            while not playing.done():
                live.update(picture.render(console), refresh=True)
                await asyncio.wait([playing], timeout=1 / _FRAMES_PER_SECOND)
        finally:
            playing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await playing


def result_table(stage: Stage) -> RenderableType:
    """Return the result: what went through, and what each watcher got of it."""
    expected = len(stage.recording.events)
    table = Table(title_justify="left", caption_justify="left")
    table.title = f"one run: {stage.published} items, {expected} events, {stage.frames} frames"
    table.caption = "equal: all events of the recorded projection, byte for byte"
    table.add_column("watcher")
    table.add_column("")
    for name in ("delivered", "repaired", "reconnects"):
        table.add_column(name, justify="right")
    table.add_column("result")
    for watcher in stage.watchers:
        table.add_row(
            watcher.name,
            watcher.story,
            str(watcher.delivered),
            str(watcher.repaired),
            str(watcher.reconnects),
            "[green]equal[/]" if stage.is_equal(watcher) else "[bold red]not equal[/]",
        )
    return table


def _write_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class _Picture:
    """The live picture: progress of the agent, three transcripts side by side, the last things that happened."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._notes: list[str] = []
        self._transcripts = {watcher.name: _Transcript(watcher) for watcher in stage.watchers}

    def note(self, text: str) -> None:
        self._notes = [*self._notes, text][-_NOTES:]

    def render(self, console: Console) -> RenderableType:
        stage = self._stage
        total = len(stage.recording.items)
        head = Table.grid(padding=(0, 2))
        head.add_row(
            Text("agent", "bold"),
            ProgressBar(total, stage.published, width=max(10, console.width - 50)),
            f"{stage.published} of {total} items",
            Text(", ".join(stage.workers) or "workers are starting", "dim"),
        )
        width = max(20, console.width // 3 - 1)
        panels = [self._panel(watcher, width) for watcher in stage.watchers]
        return Group(head, Columns(panels, padding=(0, 0)), Text("\n".join(self._notes), "dim"))

    def _panel(self, watcher: Watcher, width: int) -> Panel:
        style = _STATES[watcher.state]
        return Panel(
            self._transcripts[watcher.name].render(width - 4),
            title=f"{watcher.name}: [{style}]{watcher.state}[/]",
            subtitle=f"{watcher.delivered} events, {watcher.repaired} repaired",
            border_style=style,
            width=width,
            height=_TRANSCRIPT_LINES + 2,
        )


class _Transcript:
    """What a watcher has seen, as a reader would: grows with its events."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._read = 0
        self._text = Text()

    def render(self, width: int) -> Text:
        for event in self._watcher.events[self._read :]:
            self._add(event)
        self._read = len(self._watcher.events)
        lines = self._text.wrap(_PLAIN, max(10, width))
        return Text("\n").join(lines[-_TRANSCRIPT_LINES:])

    def _add(self, event: bytes) -> None:
        fields: dict[str, Any] = msgspec.json.decode(event)
        style = "magenta" if "subagentRunId" in fields else ""
        match fields["type"]:
            case "TEXT_MESSAGE_CONTENT":
                self._text.append(fields["delta"], style)
            case "REASONING_MESSAGE_CONTENT":
                self._text.append(fields["delta"], "dim italic")
            case "TEXT_MESSAGE_END" | "REASONING_MESSAGE_END":
                self._text.append("\n")
            case "TOOL_CALL_START":
                self._text.append(f"→ {fields['toolCallName']}\n", "yellow")
            case "SUBAGENT_STARTED":
                self._text.append(f"{fields['name']} begins\n", "bold magenta")
            case "CUSTOM" if len(event) > 10_000:
                self._text.append(f"◆ {fields['name']}, {len(event) // 1000} KB\n", "blue")
            case "RUN_FINISHED":
                self._text.append("■ finished", "bold cyan")


_PLAIN = Console(width=200)
