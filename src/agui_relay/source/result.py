"""The terminal result of a run as it stands on the wire: which statuses there are and what each must carry."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from agui_relay.source.errors import ItemError

type Count = Annotated[int, Meta(ge=0)]


class Usage(Struct, frozen=True, gc=False):
    """Token totals of a run; None for one that is not known, or that AG-UI cannot carry (above 2**53 - 1)."""

    input_tokens: Count | None = 0
    output_tokens: Count | None = 0
    cache_read_tokens: Count | None = 0
    cache_write_tokens: Count | None = 0
    reasoning_tokens: Count | None = None


class Failure(Struct, frozen=True, gc=False):
    """What a client is told about a failed run. The wire may hold more; that goes into ``rawEvent`` as it is."""

    code: str
    message: str


class WireInterrupt(Struct, frozen=True, gc=False, rename="camel"):
    """One answer a suspended run waits for, in the names of AG-UI."""

    id: str
    reason: str
    subagent_run_id: str | None = None
    message: str | None = None
    tool_call_id: str | None = None
    response_schema: dict[str, Raw] | UnsetType = UNSET
    expires_at: str | None = None
    metadata: dict[str, Raw] | UnsetType = UNSET


class Result(Struct, frozen=True, gc=False):
    """A terminal result. ``output`` is there for a completed run, unless ``result_omitted`` says it had no JSON form.

    ``failure`` is required for a failed run, and at least one of ``interrupts`` for a suspended one.
    """

    status: Literal["completed", "suspended", "cancelled", "failed"]
    output: Raw | UnsetType = UNSET
    result_omitted: bool = False
    usage: Usage | None = None
    failure: Raw | UnsetType = UNSET
    interrupts: list[WireInterrupt] = msgspec.field(default_factory=list)


_results = msgspec.json.Decoder(Result)
_failures = msgspec.json.Decoder(Failure)


def read_result(data: Raw | bytes) -> Result:
    """Return the result in these bytes.

    Raises:
        ItemError: the bytes are not a result; the message says where.

    """
    try:
        result = _results.decode(data)
    except msgspec.MsgspecError as error:
        raise ItemError(f"not a valid terminal result: {error} (within `result`)") from error
    if result.status == "failed":
        read_failure(result)
    if result.status == "suspended" and not result.interrupts:
        raise ItemError("not a valid terminal result: a suspended run needs at least one of `result.interrupts`")
    return result


def read_failure(result: Result) -> Failure:
    """Return code and message of a failed result.

    Raises:
        ItemError: ``result.failure`` is missing, or has no code or message.

    """
    if isinstance(result.failure, UnsetType):
        raise ItemError("not a valid terminal result: a failed run needs `result.failure`")
    try:
        return _failures.decode(result.failure)
    except msgspec.MsgspecError as error:
        raise ItemError(f"not a valid terminal result: {error} (within `result.failure`)") from error
