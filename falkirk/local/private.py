"""Private: what Falkirk keeps on this machine is for its user alone.

Homes hold decisions, states and tokens; caches hold what is run; over the sockets of Python workers functions and rows
come without a password, since whoever may open them is taken for their user. So folders are entered by their user
alone, and one that belongs to somebody else is not used: its owner could put into it what he likes. What a sink writes
for others has the rights that the user's shell gives.
"""

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from falkirk.errors import MachineError

#: In the environment of what a command starts: the umask of the shell, as three octal digits.
UMASK_VARIABLE = "FALKIRK_UMASK"
_UMASK, _OTHERS, _WRITE_OF_OTHERS = 0o077, 0o077, 0o022
#: Spark takes no longer path of a folder for the sockets of Python workers.
SOCKET_FOLDER_MAX = 61


@contextlib.contextmanager
def entered() -> Iterator[None]:
    """While a command runs, make whatever it and its children write readable for its user alone."""
    former, known = os.umask(_UMASK), os.environ.get(UMASK_VARIABLE)
    os.environ.setdefault(UMASK_VARIABLE, f"{former:03o}")
    try:
        yield
    finally:
        os.umask(former)
        if known is None:
            os.environ.pop(UMASK_VARIABLE, None)


def make(folder: Path, *, readable: bool = False) -> None:
    """Make a folder that its user alone may enter, or see that one is such; take rights of others away.

    Args: readable: others may read one that is there: it holds nothing secret, but what is in it is run.
    Raises: MachineError: `FOLDER_NOT_OURS`: it is another user's, or root's and anybody may write to it. OSError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = require_ours(folder)
    too_open = found.st_mode & (_WRITE_OF_OTHERS if readable else _OTHERS)
    if too_open and found.st_uid == os.geteuid():
        folder.chmod(stat.S_IMODE(found.st_mode) & ~too_open)


def require_ours(path: Path) -> os.stat_result:
    """Return what a file or folder is, if nobody but its user, and root, decides what it holds.

    Raises: MachineError: `FOLDER_NOT_OURS`. OSError: it is not there.
    """
    found, user = path.stat(), os.geteuid()
    if found.st_uid == user or (found.st_uid == 0 and not found.st_mode & stat.S_IWOTH):
        return found
    raise MachineError(
        "FOLDER_NOT_OURS",
        f"{path} belongs to user {found.st_uid}, and this is user {user}: what it holds could be anybody's.",
        where=path,
        hint="Run as its owner, give it to this user (chown -R), or name another place.",
        path=str(path),
        owner=found.st_uid,
        user=user,
    )


def publish(path: Path) -> None:
    """Give a file, or a folder with all in it, the rights that the umask of the user's shell says: others read it."""
    told = os.environ.get(UMASK_VARIABLE, "")
    if not told or set(told) - set("01234567"):
        return
    former = int(told, 8)
    inside = path.rglob("*") if path.is_dir() else ()
    for each in (*inside, path):
        with contextlib.suppress(PermissionError):  # of another user, who has made it
            each.chmod((0o777 if each.is_dir() else 0o666) & ~former)


def socket_folder() -> Path:
    """Return a folder for the sockets of Python workers: this user's own, and with a short path.

    One per user, so that runs that are killed leave no folders behind.
    """
    for place in (Path(tempfile.gettempdir()), Path("/tmp")):  # not the session's: it goes when the user logs out
        folder = place / f"falkirk-{os.geteuid()}"
        if not place.is_dir() or len(str(folder)) > SOCKET_FOLDER_MAX:
            continue
        try:
            if not folder.is_symlink():
                make(folder)
                return folder
        except (OSError, MachineError):  # somebody else has made it
            continue
    return Path(tempfile.mkdtemp(prefix="falkirk-", dir="/tmp"))
