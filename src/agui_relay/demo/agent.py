"""The demo's agent: a real Harness run, in which only the model is scripted.

Needs the `harness` extra. What it produces was recorded by `agui_relay.demo.record`; playing needs the recording only.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from a13n_harness.builder import AgentDefinition, HarnessBuilder, SubagentDefinition
from a13n_harness.capabilities.subagents import SubagentCapability
from a13n_harness.context import AgentContext
from a13n_harness.events import HarnessStreamEvent
from a13n_harness.spec import AgentSpec
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import CapabilityEvent, ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.toolsets import FunctionToolset

type Chunk = str | Mapping[int, DeltaThinkingPart | DeltaToolCall] | Exception
"""What a scripted model streams next: text, a piece of reasoning or of a tool call by part index, or its failure."""

QUESTION = "Can the Ostara, 9.8 m of draught, come in on tonight's tide?"

REASONING = (
    "The draught is 9.8 m. I need the height of tonight's tide and the depth of the channel, "
    "the lower of the two decides. Then somebody should plan the approach."
)
PILOT = (
    "Take the **southern leads** from buoy 7, 6 knots over the bar at 23:10, slack water at 23:25. "
    "Two tugs from the breakwater; berth port side to."
)
ANSWER = (
    "Yes. High water is at **23:25** with 3.1 m over chart datum; the shallowest sounding on the leads is 8.4 m, "
    "so there are 11.5 m of water and **1.7 m** under the keel.\n\n"
    "- 22:40 pilot boards at buoy 7\n"
    "- 23:10 over the bar at 6 knots\n"
    "- 23:40 made fast, port side to (Kai Süd, 第三泊位)\n\n"
    "Below half past eleven the margin shrinks quickly: if she is late, wait for the morning tide. ⚓"
)
SOUNDINGS = 4_200  # about 240 KB as JSON: the CUSTOM event travels in fragments


@dataclass(kw_only=True)
class ChartSurveyed(CapabilityEvent, namespace="harbour", name="chart"):
    """Every sounding of the approach: far more than one frame holds."""

    port: str
    soundings: list[dict[str, float | str]] = field(default_factory=list)


class Harbour(AbstractCapability[AgentContext]):
    """The two tools of the demo. One of them publishes a large event of its own."""

    id = "harbour"

    def get_toolset(self) -> FunctionToolset[AgentContext]:
        """Offer the tools."""
        toolset = FunctionToolset[AgentContext]()

        # One after the other: two recordings shall differ in nothing but ids and moments.
        @toolset.tool(sequential=True)
        async def tide_table(ctx: RunContext[AgentContext], port: str, date: str) -> dict[str, object]:
            """Look up high and low water of a day, in metres over chart datum."""
            return {"port": port, "date": date, "low": ["17:05", 0.6], "high": ["23:25", 3.1]}

        @toolset.tool(sequential=True)
        async def survey_chart(ctx: RunContext[AgentContext], port: str) -> str:
            """Read the latest soundings of the approach."""
            await ctx.emit(ChartSurveyed(port=port, soundings=soundings(SOUNDINGS)))
            return f"{SOUNDINGS} soundings, shallowest 8.4 m, on the southern leads"

        return toolset


def soundings(count: int) -> list[dict[str, float | str]]:
    """Give depths along the approach, the same each time."""
    return [
        {
            "lat": round(53.86 + 0.0003 * (number // 70), 4),
            "lon": round(8.68 + 0.0004 * (number % 70), 4),
            "depth": round(11.2 + 2.8 * math.sin(number / 19) * math.cos(number / 131), 2),
            "bed": ("sand", "Schlick", "мел", "岩")[number * number % 4],
        }
        for number in range(count)
    ]


def scripted_model(turns: Sequence[Sequence[Chunk]], *, pace: float = 0.0) -> FunctionModel:
    """Make a model that streams one turn for each request of a run, a chunk every `pace` seconds."""

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for chunk in turns[sum(isinstance(message, ModelResponse) for message in messages)]:
            if isinstance(chunk, Exception):
                raise chunk
            await asyncio.sleep(pace)
            yield chunk

    return FunctionModel(stream_function=stream, model_name="scripted")


def words(text: str) -> list[str]:
    """Cut a text into chunks of one word, as a model streams it."""
    return text.replace(" ", " \0").split("\0")


def tool_call(index: int, name: str, arguments: str, call_id: str) -> list[Chunk]:
    """Make a tool call whose arguments come in two pieces."""
    half = len(arguments) // 2
    return [
        {index: DeltaToolCall(name=name, json_args=arguments[:half], tool_call_id=call_id)},
        {index: DeltaToolCall(json_args=arguments[half:])},
    ]


def reasoning(index: int, text: str, *, signature: str | None = None) -> list[Chunk]:
    """Make reasoning, word by word; the signature comes with the last one."""
    chunks: list[Chunk] = [{index: DeltaThinkingPart(content=word)} for word in words(text)]
    if signature is not None:
        chunks.append({index: DeltaThinkingPart(signature=signature)})
    return chunks


def demo_agent(*, pace: float) -> AgentDefinition[str]:
    """Define the agent: text, reasoning, two tool calls, a large event of a capability, a subagent, and an answer."""
    pilot = AgentDefinition(
        agent=AgentSpec(name="pilot"),
        output_type=str,
        definition_id="demo-pilot",
        model=scripted_model([words(PILOT)], pace=pace),
    )
    turns: list[Sequence[Chunk]] = [
        [
            *reasoning(0, REASONING, signature="c2lnbmVkIGJ5IG5vYm9keQ=="),
            *tool_call(1, "tide_table", '{"port":"Cuxhaven","date":"2026-11-29"}', "call-tide"),
            *tool_call(2, "survey_chart", '{"port":"Cuxhaven"}', "call-chart"),
        ],
        [
            *words("The depth is enough at high water. I ask the pilot for the approach."),
            *tool_call(1, "delegate", '{"subagent":"pilot","prompt":"Plan the approach at 23:25."}', "call-pilot"),
        ],
        words(ANSWER),
    ]
    return AgentDefinition(
        agent=AgentSpec(name="harbour-master"),
        output_type=str,
        definition_id="demo-harbour-master",
        model=scripted_model(turns, pace=pace),
        capabilities=(Harbour(), SubagentCapability()),
        subagents=(SubagentDefinition(name="pilot", description="Plans the approach of a ship.", agent=pilot),),
    )


async def live_items(agent: AgentDefinition[str], question: str = QUESTION) -> AsyncIterator[HarnessStreamEvent[str]]:
    """Run the agent and yield its items as they come."""
    async with HarnessBuilder().build(agent).stream(question) as stream:
        async for item in stream:
            yield item
