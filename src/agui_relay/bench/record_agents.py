"""The agents whose runs are recorded: real Harness runs, in which only the models are scripted.

Needs the `harness` extra. What they say and do is the same each time; ids and moments are not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from a13n_harness.builder import AgentDefinition, SubagentDefinition
from a13n_harness.capabilities.subagents import SubagentCapability
from a13n_harness.context import AgentContext
from a13n_harness.spec import AgentSpec
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import DocumentUrl
from pydantic_ai.models.function import DeltaThinkingPart, DeltaToolCall
from pydantic_ai.toolsets import FunctionToolset

from agui_relay.bench.record_texts import Texts
from agui_relay.demo.agent import Chunk, scripted_model

__all__ = ["AGENTS"]

FIELDS = ("tides", "glaciers", "markets", "enzymes", "bridges")
"""What the five children of the research agent look into."""


# The Harness cuts results of plain JSON at 20,000 characters, not those of an application's own classes.
@dataclass(frozen=True)
class File:
    """A file that was read."""

    path: str
    content: str


@dataclass(frozen=True)
class Table:
    """What a query found."""

    rows: list[dict[str, object]]


class Workshop(AbstractCapability[AgentContext]):
    """Tools that answer with texts of the size that is asked for."""

    id = "workshop"

    def __init__(self, seed: str) -> None:
        self._texts = Texts(f"{seed}: results")

    def get_toolset(self) -> FunctionToolset[AgentContext]:
        """Offer the tools."""
        toolset = FunctionToolset[AgentContext]()
        texts = self._texts

        # One after the other: two recordings shall differ in nothing but ids and moments.
        @toolset.tool(sequential=True)
        async def write_file(ctx: RunContext[AgentContext], path: str, content: str) -> str:
            """Write a file."""
            return f"wrote {len(content)} characters to {path}"

        @toolset.tool(sequential=True)
        async def edit_file(ctx: RunContext[AgentContext], path: str, edits: list[dict[str, str]]) -> str:
            """Replace passages of a file."""
            return "\n".join(f"@@ {path} @@\n-{edit['old']}\n+{edit['new']}" for edit in edits)

        @toolset.tool(sequential=True)
        async def read_file(ctx: RunContext[AgentContext], path: str, characters: int) -> File:
            """Read a file."""
            return File(path, texts.code(characters))

        @toolset.tool(sequential=True)
        async def read_log(ctx: RunContext[AgentContext], service: str, characters: int) -> File:
            """Read the log of a service."""
            return File(f"/var/log/{service}.log", texts.log(characters))

        @toolset.tool(sequential=True)
        async def read_report(ctx: RunContext[AgentContext], name: str, characters: int) -> list[str | DocumentUrl]:
            """Read a report, and where it is."""
            return [texts.log(characters), DocumentUrl(f"https://archive.example/{name}.pdf")]

        @toolset.tool(sequential=True)
        async def query(ctx: RunContext[AgentContext], count: int) -> Table:
            """Query the archive."""
            return Table(texts.rows(count))

        @toolset.tool(sequential=True)
        async def search(ctx: RunContext[AgentContext], query: str, count: int = 5) -> list[dict[str, object]]:
            """Search the archive."""
            return texts.rows(count)

        return toolset


class _Script:
    """Writes what a model streams, a turn for each of its requests."""

    def __init__(self, seed: str) -> None:
        self.texts = Texts(f"{seed}: model")
        self._calls = 0
        self._seed = seed

    def think(self, characters: int, index: int = 0) -> Iterator[Chunk]:
        """Reasoning, a word or two a piece, with a signature at its end."""
        for piece in self.texts.cut(self.texts.prose(characters), 3, 12):
            yield {index: DeltaThinkingPart(content=piece)}
        yield {index: DeltaThinkingPart(signature="c2lnbmVkIGJ5IG5vYm9keQ==" * 8)}

    def say(self, characters: int) -> Iterator[Chunk]:
        """Text, a word or two a piece."""
        yield from self.texts.cut(self.texts.prose(characters), 3, 12)

    def call(self, index: int, name: str, arguments: dict[str, object], longest: int = 24) -> Iterator[Chunk]:
        """Call a tool; its arguments come in pieces."""
        self._calls += 1
        call_id = f"call_{self._seed}_{self._calls:04}"
        yield {index: DeltaToolCall(name=name, json_args="", tool_call_id=call_id)}
        for piece in self.texts.cut(json.dumps(arguments, ensure_ascii=False), 4, longest):
            yield {index: DeltaToolCall(json_args=piece)}


def _agent(
    seed: str, turns: Sequence[Sequence[Chunk]], subagents: Sequence[SubagentDefinition] = ()
) -> AgentDefinition[str]:
    return AgentDefinition(
        agent=AgentSpec(name=seed),
        output_type=str,
        definition_id=f"bench-{seed}",
        model=scripted_model(turns),
        capabilities=(Workshop(seed), *((SubagentCapability(),) if subagents else ())),
        subagents=tuple(subagents),
    )


def coding() -> AgentDefinition[str]:
    """Define an agent that reads, writes and edits files: arguments of 50 to 200 KB, results of source text."""
    script = _Script("coding")
    texts = script.texts

    def write(number: int, characters: int) -> Iterator[Chunk]:
        arguments: dict[str, object] = {"path": f"src/module_{number}.py", "content": texts.code(characters)}
        return script.call(1, "write_file", arguments, longest=90)

    edits = [{"old": texts.code(1_500), "new": texts.code(2_000)} for _ in range(14)]
    turns: list[list[Chunk]] = [
        [*script.think(900), *script.call(1, "read_file", {"path": "src/module_0.py", "characters": 40_000})],
        [*script.say(400), *write(1, 50_000)],
        [*script.say(300), *write(2, 120_000)],
        [*script.think(700), *script.call(1, "read_file", {"path": "src/module_3.py", "characters": 70_000})],
        [*script.say(300), *write(3, 170_000)],
        [*script.say(200), *script.call(1, "edit_file", {"path": "src/module_2.py", "edits": edits}, longest=90)],
        [*script.call(0, "read_log", {"service": "tests", "characters": 30_000})],
        [*script.say(2_000)],
    ]
    return _agent("coding", turns)


def research() -> AgentDefinition[str]:
    """Define an agent that asks five subagents at once; they search, think and report."""
    script = _Script("research")
    children = []
    calls: list[Chunk] = []
    for index, field in enumerate(FIELDS):
        child = _Script(field)
        turns: list[list[Chunk]] = [
            [
                *child.think(1_200),
                *child.call(1, "search", {"query": child.texts.sentence(), "count": 8}),
                *child.call(2, "search", {"query": child.texts.sentence(), "count": 5}),
            ],
            [*child.think(700), *child.call(1, "search", {"query": child.texts.sentence(), "count": 20})],
            [*child.say(5_000)],
        ]
        agent = _agent(field, turns)
        children.append(SubagentDefinition(name=field, description=f"Knows about {field}.", agent=agent))
        calls += script.call(index + 1, "delegate", {"subagent": field, "prompt": child.texts.prose(300)})
    return _agent("research", [[*script.think(800), *calls], [*script.say(7_000)]], children)


def chat() -> AgentDefinition[str]:
    """Define an agent that reasons and answers at length, and looks something up between."""
    script = _Script("chat")
    turns: list[list[Chunk]] = []
    for _ in range(5):
        call = script.call(2, "search", {"query": script.texts.sentence(), "count": 3})
        turns.append([*script.think(3_500), *script.say(3_500), *call])
    turns.append([*script.think(3_000), *script.say(8_000)])
    return _agent("chat", turns)


def results() -> AgentDefinition[str]:
    """Define an agent whose tools return 5 MB: logs, a table, a text with a link; two results above one MB."""
    script = _Script("results")
    sizes = (1_300_000, 300_000, 100_000, 600_000, 40_000, 400_000, 250_000)
    turns: list[list[Chunk]] = []
    for number, size in enumerate(sizes):
        call = script.call(1, "read_log", {"service": f"shard-{number}", "characters": size})
        turns.append([*script.say(2_200), *call])
    turns += [
        [*script.say(2_000), *script.call(1, "read_report", {"name": "overview", "characters": 1_100_000})],
        [*script.say(300), *script.call(1, "query", {"count": 2_500})],
        [*script.say(4_000)],
    ]
    return _agent("results", turns)


AGENTS: dict[str, Callable[[], AgentDefinition[str]]] = {
    "coding": coding,
    "research": research,
    "chat": chat,
    "results": results,
}
"""Name of a run -> what defines its agent anew."""
