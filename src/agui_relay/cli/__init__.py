"""Decides how the `agui-relay` command begins: it ends well also when Ctrl-C comes while the rest of it is loaded."""

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status; without `arguments`, those of the process."""
    try:
        # Takes long enough for a Ctrl-C.
        from agui_relay.cli.application import run

        return run(arguments)
    except KeyboardInterrupt:
        return 130
