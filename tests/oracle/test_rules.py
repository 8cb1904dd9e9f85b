"""Complete runs pass the rules of an AG-UI client; and the checker that says so agrees with `ag-ui-validate`."""

from __future__ import annotations

import json
from typing import Any

import a13n_stream_protocol as reference
import pytest
from ag_ui_validate import Validator, ValidatorOptions
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from agui_relay.projection.observer import HarnessAguiStreamObserver
from tests.agui_rules import Violation, violations
from tests.oracle.compare import SEED, TOTAL, share
from tests.oracle.streams import Item, streams

pytestmark = pytest.mark.timeout(120 + TOTAL // 10)

QUIET: dict[str, Any] = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}

# Our rules by the names that `ag-ui-validate` has for them.
AS_VALIDATE = {
    "not-started": {"AGUI001"},
    "started-twice": {"AGUI002"},
    "not-terminated": {"AGUI003"},
    "text-continued-unopened": {"AGUI101"},
    "text-ended-unopened": {"AGUI102"},
    "text-open-at-the-end": {"AGUI103"},
    "text-open-twice": {"AGUI106"},
    "call-continued-unopened": {"AGUI201"},
    "call-ended-unopened": {"AGUI202"},
    "call-open-at-the-end": {"AGUI203"},
    "result-before-end": {"AGUI206"},
    "result-without-call": {"AGUI207"},
    "reasoning-continued-unopened": {"AGUI401"},
    "reasoning-open-at-the-end": {"AGUI402"},
    "subagent-open-at-the-end": {"AGUI604"},
    "unknown-parent": {"AGUI605"},
    "owner-changed": {"AGUI606"},
    "after-terminal": {"AGUI004", "AGUI005"},
    "subagent-ended-unopened": {"AGUI602", "AGUI603"},
}
SHARED = set().union(*AS_VALIDATE.values())
# An id used again after its end: a client allows that. It reports it, and does not follow what comes after.
USED_AGAIN = {"AGUI104", "AGUI205", "AGUI601"}
# Takes a tool result with content parts for malformed, which AG-UI 1.0 allows.
FALSE_ALARM = "AGUI504"


def unended(items: list[Item]) -> set[str]:
    """Return the children that the source began and never ended."""
    seen: set[str] = set()
    ended: set[str] = set()
    for item in items:
        payload: Any = getattr(getattr(item, "event", None), "payload", None)
        if isinstance(payload, dict) and payload.get("type") == "inline_delegation" and payload["child_run_id"]:
            (seen if payload["action"] == "started" else ended).add(payload["child_run_id"])
    return seen - ended


def projected(observer: Any, items: list[Item]) -> list[dict[str, Any]]:
    return [event.model_dump(mode="json", by_alias=True) for item in items for event in observer.observe(item)]


def validated(events: list[dict[str, Any]]) -> list[tuple[int, str]]:
    """Return where `ag-ui-validate` objects, and by which rule."""
    validator = Validator(ValidatorOptions(features=[]))
    for event in events:
        validator.feed(json.dumps(event))
    validator.finalize()
    report = validator.report()
    assert not report.internal_errors
    return [(found.event_index, found.rule) for found in report.diagnostics]


@seed(SEED)
@settings(max_examples=share(0.1), **QUIET)
@given(items=streams(rare=False, complete=True))
def test_complete_runs_pass(items: list[Item]) -> None:
    events = projected(HarnessAguiStreamObserver(retain_events=False), items)
    open_children = unended(items)
    assert violations(events, unended=open_children) == []
    # With an unended child its end is missing, and with it the ends of what the child had open.
    tolerated = {FALSE_ALARM, "AGUI604", "AGUI103", "AGUI402"} if open_children else {FALSE_ALARM}
    remarks = {"AGUI105", "AGUI903", "AGUI902", "AGUI305"}
    assert {rule for _, rule in validated(events)} <= tolerated | remarks
    if open_children and events[-1]["type"] == "RUN_FINISHED":
        assert {found.rule for found in violations(events)} >= {"subagent-open-at-the-end"}


@seed(SEED)
@settings(max_examples=share(0.1), **QUIET)
@given(items=streams(rare=False, complete=True), data=st.data())
def test_damaged_runs_are_seen_by_both(items: list[Item], data: st.DataObject) -> None:
    events = projected(reference.HarnessAguiStreamObserver(retain_events=False), items)
    standard = [event for event in events if event["type"] != "CUSTOM"]
    at = data.draw(st.integers(1, len(standard) - 1))
    match data.draw(st.sampled_from(["drop", "repeat", "move", "owner", "cut"])):
        case "drop":
            standard.pop(at)
        case "repeat":
            standard.insert(data.draw(st.integers(at, len(standard))), standard[at])
        case "move":
            standard.insert(data.draw(st.integers(1, len(standard) - 1)), standard.pop(at))
        case "owner":
            # It does not look at the owners of reasoning.
            if not standard[at]["type"].startswith("REASONING"):
                standard[at] = {**standard[at], "subagentRunId": "child-other"}
        case _:
            del standard[at:]
    theirs = {rule for _, rule in validated(standard)}
    if theirs & USED_AGAIN:
        return
    ours = violations(standard)
    for found in ours:
        if found.rule in AS_VALIDATE:
            assert AS_VALIDATE[found.rule] & theirs, found
    if not ours:
        assert not theirs & SHARED


def run(*events: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        *events,
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
    ]


def text(step: str, identity: str = "m", **more: Any) -> dict[str, Any]:
    return {"type": f"TEXT_MESSAGE_{step}", "messageId": identity, **more}


def call(step: str, identity: str = "c", **more: Any) -> dict[str, Any]:
    return {"type": f"TOOL_CALL_{step}", "toolCallId": identity, **more}


def child(step: str, identity: str = "s", **more: Any) -> dict[str, Any]:
    return {"type": f"SUBAGENT_{step}", "subagentRunId": identity, **more}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (run(), []),
        (run(text("START"), text("CONTENT"), text("END")), []),
        (run(text("CONTENT")), [(1, "text-continued-unopened")]),
        (run(text("END")), [(1, "text-ended-unopened")]),
        (run(text("START"), text("START"), text("END")), [(2, "text-open-twice")]),
        (run(text("START")), [(2, "text-open-at-the-end")]),
        (run(text("START"), text("END"), text("CONTENT")), [(3, "text-continued-unopened")]),
        (run(call("START"), call("ARGS"), call("END"), call("RESULT")), []),
        (run(call("RESULT")), [(1, "result-without-call")]),
        (run(call("START"), call("RESULT"), call("END")), [(2, "result-before-end")]),
        (run(call("START")), [(2, "call-open-at-the-end")]),
        (run(child("STARTED"), child("FINISHED")), []),
        (run(child("STARTED")), [(2, "subagent-open-at-the-end")]),
        (run(child("FINISHED")), [(1, "subagent-ended-unopened")]),
        (run(child("STARTED"), child("STARTED"), child("ERROR")), [(2, "subagent-started-twice")]),
        (
            run(text("START", subagentRunId="s"), text("END", subagentRunId="s")),
            [(1, "unknown-owner"), (2, "unknown-owner")],
        ),
        (
            run(child("STARTED"), text("START", subagentRunId="s"), text("END"), child("FINISHED")),
            [],
        ),
        (
            run(child("STARTED"), text("START"), text("END", subagentRunId="s"), child("FINISHED")),
            [(3, "owner-changed")],
        ),
        (
            run(child("STARTED"), text("START", subagentRunId="s"), child("FINISHED"), text("END", subagentRunId="s")),
            [(3, "text-open-at-the-end-of-its-subagent")],
        ),
        (
            run(child("STARTED"), call("START"), call("END"), call("RESULT", subagentRunId="s"), child("FINISHED")),
            [(4, "result-of-another-owner")],
        ),
        (run(child("STARTED", parentSubagentRunId="none"), child("FINISHED")), [(1, "unknown-parent")]),
        (run()[1:], [(0, "not-started")]),
        (run()[:1], [(1, "not-terminated")]),
        ([*run(), text("START")], [(2, "after-terminal")]),
        ([*run(), *run()], [(2, "after-terminal"), (3, "after-terminal")]),
        ([run()[0], *run()], [(1, "started-twice")]),
        ([run()[0], {"type": "RUN_FINISHED", "threadId": "t", "runId": "other"}], [(1, "another-run")]),
        ([run()[0], text("START"), {"type": "RUN_ERROR", "message": "broken"}], []),
        ([{"type": "RUN_ERROR", "message": "broken"}], []),
    ],
)
def test_each_rule(events: list[dict[str, Any]], expected: list[tuple[int, str]]) -> None:
    assert [(found.at, found.rule) for found in violations(events)] == expected


def test_a_child_without_end_is_only_excused_by_name() -> None:
    events = run(child("STARTED"), text("START", subagentRunId="s"), child("STARTED", "u"))
    assert violations(events, unended={"s", "u"}) == []
    assert violations(events, unended={"s"}) == [Violation(4, "subagent-open-at-the-end", "u")]
