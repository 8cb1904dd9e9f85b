"""What the parts of the command are, and how each of them may fail.

A failure is one line on standard error: status 2 when the command was given wrongly, 1 otherwise. Ctrl-C gives 130, a
reader that closes our standard output is none.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from redis.exceptions import RedisError

from agui_relay.broker.errors import RelayError
from agui_relay.cli import bench, demo, publish, runs, tail, worker

app = typer.Typer(
    name="agui-relay",
    help="Carries agent runs from where they happen to everyone who watches.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from agui_relay import __version__

        sys.stdout.write(f"agui-relay {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    pass


app.command("demo")(demo.demo)
app.command("worker")(worker.worker)
app.command("publish")(publish.publish)
app.command("tail")(tail.tail)
app.command("runs")(runs.runs)
app.command("rejected")(runs.rejected)
app.command("delete")(runs.delete)
app.command("bench")(bench.bench)


def run(arguments: Sequence[str] | None) -> int:
    """Run the command and return its exit status."""
    # Closed, they are None, and their numbers would go to the next socket.
    sys.stdout = sys.stdout or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    try:
        status = app(args=arguments, prog_name="agui-relay", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        return _left_alone()
    except SystemExit as end:
        # What Typer makes of a broken pipe.
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        return _left_alone()
    except typer.Abort:
        return 130
    except Exception as error:
        return _report(error)
    return status if isinstance(status, int) else 0


# Errors whose text was written to be read; of any other the type says more.
_TELLING = (RelayError, RedisError, OSError, ValueError, RuntimeError)


def _left_alone() -> int:
    """End well after the reader of our output has left; the interpreter flushes it once more."""
    sys.stdout = sys.__stdout__ or sys.stdout
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _bad_environment(error: ValidationError) -> str:
    """Say which variables are wrong: of all settings, a command takes from elsewhere only what it checks itself."""
    return "; ".join(
        f"bad value of AGUI_RELAY_{'_'.join(map(str, one['loc'])).upper()}: got {one['input']!r:.100},"
        f" {one['msg'][:1].lower()}{one['msg'][1:]}"
        for one in error.errors()
    )


def _report(error: BaseException) -> int:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    # The errors of usage know how to say what was wrong, and their status.
    say = getattr(error, "format_message", None)
    if callable(say):
        message = say()
    elif isinstance(error, ValidationError) and error.title == "RelaySettings":
        sys.stderr.write(f"agui-relay: {_bad_environment(error)}\n")
        return 2
    elif isinstance(error, _TELLING) and str(error):
        message = str(error)
    else:
        message = f"{type(error).__name__}: {error}"
    if not message.strip():
        return 2  # help was shown
    sys.stderr.write(f"agui-relay: {' '.join(message.split())}\n")
    return int(getattr(error, "exit_code", 1))
