"""Where a server has its socket, log and temporary data, and how what dead processes left there is found and removed.

Each directory has a locked file, for as long as the process lives that made it. Unlike a process id, a lock is never
another's, and holds across containers that share the directory of temporary files.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_PREFIX = "agui-relay-"
_CLAIM = "claim"
# sockaddr_un holds 108 bytes on Linux, 104 on macOS, one of them the final zero.
_SOCKET_PATH_BYTES = 103


def new_home() -> tuple[Path, BinaryIO]:
    """Make a directory with a path short enough for a socket, and remove those of dead processes beside it.

    It is ours until the file is closed; remove it before.
    """
    home = Path(tempfile.mkdtemp(prefix=_PREFIX))
    if len(os.fsencode(home / "redis.sock")) > _SOCKET_PATH_BYTES:
        home.rmdir()
        home = Path(tempfile.mkdtemp(prefix=_PREFIX, dir="/tmp"))
    claim = (home / "unclaimed").open("wb")
    with suppress(OSError):  # a file system without locks: then nobody removes it for us
        fcntl.flock(claim, fcntl.LOCK_EX)
        # It gets its name when it is locked: what has the name and is not locked is abandoned.
        (home / "unclaimed").rename(home / _CLAIM)
    _remove_abandoned(home.parent)
    return home, claim


def _remove_abandoned(parent: Path) -> None:
    for home in parent.glob(f"{_PREFIX}*"):
        try:
            # Others may write to the directory of temporary files: nothing but a plain directory of ours is touched.
            if home.is_symlink() or home.stat().st_uid != os.getuid():
                continue
            with open(os.open(home / _CLAIM, os.O_RDONLY | os.O_NOFOLLOW), "rb") as claim:  # noqa: PTH123
                fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(home, ignore_errors=True)
        except OSError:
            continue  # in use, without a claim, or gone by now
