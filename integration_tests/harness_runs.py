"""Scripted runs of the real Harness, each with something that projection must get right."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any

from a13n_harness.builder import AgentDefinition, HarnessBuilder, SubagentDefinition
from a13n_harness.capabilities.subagents import SubagentCapability
from a13n_harness.context import AgentContext
from a13n_harness.events import HarnessEvent, HarnessStreamEvent
from a13n_harness.execution import HarnessRunStream
from a13n_harness.spec import AgentSpec
from pydantic_ai import ModelRetry, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import BinaryContent, CapabilityEvent, PartDeltaEvent, ToolReturn
from pydantic_ai.toolsets import FunctionToolset

from agui_relay.demo.agent import Chunk, demo_agent, live_items, reasoning, scripted_model, tool_call, words

type HarnessRun = Callable[[], AsyncIterator[HarnessStreamEvent[str]]]

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
)


@dataclass(kw_only=True)
class Measured(CapabilityEvent, namespace="workshop", name="measured"):
    values: list[Any] = field(default_factory=list)
    note: str = ""


class Workshop(AbstractCapability[AgentContext]):
    """Tools for every way a call can end."""

    id = "workshop"

    def get_toolset(self) -> FunctionToolset[AgentContext]:
        toolset = FunctionToolset[AgentContext](max_retries=2)

        @toolset.tool
        async def measure(ctx: RunContext[AgentContext], what: str, count: int = 3) -> dict[str, object]:
            await ctx.emit(Measured(values=list(range(count)), note=f"{what} gemessen, 測定"))
            return {"what": what, "values": list(range(count)), "unit": "µm"}

        @toolset.tool
        async def describe(ctx: RunContext[AgentContext], what: str) -> str:
            return f"{what}:\n\t“quoted” \\ and \u2028 separated"

        @toolset.tool
        async def photograph(ctx: RunContext[AgentContext], what: str) -> ToolReturn:
            return ToolReturn(return_value=[f"a picture of {what}", BinaryContent(data=PIXEL, media_type="image/png")])

        @toolset.tool
        async def ask_again(ctx: RunContext[AgentContext], what: str) -> str:
            if what == "wrong":
                raise ModelRetry("there is nothing of that name")
            return f"{what} is fine"

        @toolset.tool
        async def break_down(ctx: RunContext[AgentContext], what: str) -> str:
            raise ToolFailed(f"{what} broke: Gerät nicht bereit")

        return toolset


def run(turns: Sequence[Sequence[Chunk]], *, subagents: Sequence[SubagentDefinition] = ()) -> HarnessRun:
    agent = AgentDefinition(
        agent=AgentSpec(name="worker"),
        output_type=str,
        definition_id="worker",
        model=scripted_model(turns),
        capabilities=(Workshop(), *((SubagentCapability(),) if subagents else ())),
        subagents=tuple(subagents),
    )
    return lambda: live_items(agent, "Go on.")


def subagent(name: str, turns: Sequence[Sequence[Chunk]], **options: Any) -> SubagentDefinition:
    return SubagentDefinition(
        name=name,
        description=f"The {name}.",
        agent=AgentDefinition(
            agent=AgentSpec(name=name),
            output_type=str,
            definition_id=name,
            model=scripted_model(turns),
            capabilities=(Workshop(),),
        ),
        **options,
    )


def interrupted(turns: Sequence[Sequence[Chunk]], interrupt: Callable[[HarnessRunStream[str]], object]) -> HarnessRun:
    """Make a run to which something happens from outside after its first word."""

    async def items() -> AsyncIterator[HarnessStreamEvent[str]]:
        agent = AgentDefinition(
            agent=AgentSpec(name="worker"),
            output_type=str,
            definition_id="worker",
            model=scripted_model(turns, pace=0.001),
            capabilities=(Workshop(),),
        )
        is_first = True
        async with HarnessBuilder().build(agent).stream("Go on.") as stream:
            async for item in stream:
                yield item
                if is_first and isinstance(item, HarnessEvent) and isinstance(item.event, PartDeltaEvent):
                    is_first = False
                    outcome = interrupt(stream)
                    if isawaitable(outcome):
                        await outcome

    return items


def delegate(index: int, name: str, call_id: str) -> list[Chunk]:
    return tool_call(index, "delegate", f'{{"subagent":"{name}","prompt":"Do your part."}}', call_id)


RUNS: dict[str, HarnessRun] = {
    "plain text": run([words("One plain answer, naïve façade, 漢字 and 🦊, word by word.")]),
    "one chunk of text": run([["Everything at once.\n\nWith a paragraph."]]),
    "reasoning and two tools": run(
        [
            [
                *reasoning(0, "First I measure, then I describe.", signature="sig-1"),
                *tool_call(1, "measure", '{"what":"the bolt","count":4}', "call-1"),
                *tool_call(2, "describe", '{"what":"the nut"}', "call-2"),
            ],
            [*reasoning(0, "Both are known."), *words("The bolt fits the nut.")],
        ]
    ),
    "text before a tool": run(
        [
            [*words("Let me see."), *tool_call(1, "describe", '{"what":"the lathe"}', "call-1")],
            words("It is a lathe."),
        ]
    ),
    "a failing tool": run(
        [tool_call(0, "break_down", '{"what":"the press"}', "call-1"), words("The press does not work today.")]
    ),
    "a retried tool": run(
        [
            tool_call(0, "ask_again", '{"what":"wrong"}', "call-1"),
            tool_call(0, "ask_again", '{"what":"right"}', "call-2"),
            words("The second try was fine."),
        ]
    ),
    "a tool that does not exist": run([tool_call(0, "levitate", '{"height":1}', "call-1"), words("So be it.")]),
    "a tool that returns an image": run(
        [tool_call(0, "photograph", '{"what":"the gear"}', "call-1"), words("There it is.")]
    ),
    "an inline child": run(
        [delegate(0, "turner", "call-1"), words("The turner is done.")],
        subagents=[
            subagent(
                "turner",
                [
                    [*reasoning(0, "A shaft."), *tool_call(1, "measure", '{"what":"the shaft"}', "child-1")],
                    words("The shaft is turned."),
                ],
            )
        ],
    ),
    "two children at once": run(
        [[*delegate(0, "turner", "call-1"), *delegate(1, "miller", "call-2")], words("Both are done.")],
        subagents=[
            subagent("turner", [words("I turned, slowly and with care.")]),
            subagent(
                "miller",
                [
                    [*words("First I measure."), *tool_call(1, "measure", '{"what":"it"}', "child-1")],
                    words("I milled."),
                ],
            ),
        ],
    ),
    "a child that fails": run(
        [delegate(0, "turner", "call-1"), words("Without the turner, then.")],
        subagents=[subagent("turner", [[*words("I begin and"), RuntimeError("the tool broke")]])],
    ),
    "a run that is cancelled": interrupted([words("This goes on and on and on.")], HarnessRunStream.cancel),
    "a run that is steered": interrupted(
        [
            [*words("I measure."), *tool_call(1, "measure", '{"what":"the bolt"}', "call-1")],
            words("The nut as well, then."),
        ],
        lambda stream: stream.steer("The nut as well, please."),
    ),
    "a run that fails": run([[*words("I begin and"), RuntimeError("the model went away")]]),
    "a run that fails at once": run([[RuntimeError("no model")]]),
    "a large event": run(
        [tool_call(0, "measure", '{"what":"everything","count":40000}', "call-1"), words("All measured.")]
    ),
    "the demo": lambda: live_items(demo_agent(pace=0.0)),
}
"""Name -> a function that starts the run and yields its live items."""
