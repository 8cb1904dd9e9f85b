"""Becomes the server, after arranging that the server does not outlive the process that asked for it.

Run as a file (``python -I -S launcher.py MODE PARENT COMMAND...``), so it may import the standard library only. The
arranging has to be done between fork and exec; here that is ordinary code in an ordinary process, where a `preexec_fn`
would run in a half-copied, possibly threaded interpreter.

MODE is how the end of the parent is noticed:

- ``signal``: the kernel sends SIGTERM (Linux). It does so when the *thread* that started this process ends.
- ``pipe``: a small watchdog process waits for the end of a pipe (standard input) whose writing end the parent holds.
"""

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel send SIGTERM when the parent ends; exit when it has ended already."""
    import ctypes  # only this mode needs it, and it is half of the start-up time

    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        sys.exit(f"prctl(PR_SET_PDEATHSIG) failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit("the parent ended before the server could start")


def watch_pipe() -> None:
    """Fork a watchdog that ends this process when standard input reaches its end."""
    server = os.getpid()
    if os.fork() != 0:
        return
    # The terminal's signals and the log file belong to the server, not to the watchdog.
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    os.read(0, 1)
    if os.getppid() == server:  # otherwise it has ended, and its id may belong to somebody else by now
        os.kill(server, signal.SIGTERM)
    os._exit(0)


def main(arguments: list[str]) -> None:
    """Arrange the end, then become the command."""
    mode, parent, *command = arguments
    if mode == "signal":
        die_with_parent(int(parent))
    else:
        watch_pipe()
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
