"""Makes files and folders on this machine private to their user.

Homes contain decisions, states and tokens; caches contain code that runs. The sockets of Python workers accept
functions and rows without a password, because only their user can open them. So only the user may enter these folders.
A folder of another user is refused, since that user could put anything into it. Files that a sink writes for others get
the permissions of the user's umask.
"""

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from falkirk.errors import MachineError
from falkirk.errors.conditions.platform import FOLDER_NOT_OURS

#: Environment variable for the children of a command: the umask of the user's shell, as three octal digits.
UMASK_VARIABLE = "FALKIRK_UMASK"
_UMASK, _OTHERS, _WRITE_OF_OTHERS = 0o077, 0o077, 0o022
#: Spark accepts no longer path for the folder of the sockets of Python workers.
SOCKET_FOLDER_MAX = 61


@contextlib.contextmanager
def entered() -> Iterator[None]:
    """While a command runs, make the files that it and its children write readable only by its user."""
    former, known = os.umask(_UMASK), os.environ.get(UMASK_VARIABLE)
    os.environ.setdefault(UMASK_VARIABLE, f"{former:03o}")
    try:
        yield
    finally:
        os.umask(former)
        if known is None:
            os.environ.pop(UMASK_VARIABLE, None)


def make(folder: Path, *, readable: bool = False) -> None:
    """Create a folder that only its user may enter. If it exists, check its owner and remove the permissions of others.

    Args: readable: others may read an existing folder: it contains code that runs, but no secrets.
    Raises: MachineError: `FOLDER_NOT_OURS`: another user owns the folder, or root owns it and anyone may write to it.
        OSError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = require_ours(folder)
    too_open = found.st_mode & (_WRITE_OF_OTHERS if readable else _OTHERS)
    if too_open and found.st_uid == os.geteuid():
        folder.chmod(stat.S_IMODE(found.st_mode) & ~too_open)


def require_ours(path: Path) -> os.stat_result:
    """Return the status of a file or folder if only its user and root control its content.

    Raises: MachineError: `FOLDER_NOT_OURS`. OSError: the path does not exist.
    """
    found, user = path.stat(), os.geteuid()
    if found.st_uid == user or (found.st_uid == 0 and not found.st_mode & stat.S_IWOTH):
        return found
    raise FOLDER_NOT_OURS.error(where=path, path=str(path), owner=found.st_uid, user=user)


def make_readable(path: Path) -> None:
    """Give a file, or a folder and its content, the permissions of the shell's umask, so that others can read it."""
    given = os.environ.get(UMASK_VARIABLE, "")
    if not given or set(given) - set("01234567"):
        return
    former = int(given, 8)
    inside = path.rglob("*") if path.is_dir() else ()
    for each in (*inside, path):
        with contextlib.suppress(PermissionError):  # another user created it
            each.chmod((0o777 if each.is_dir() else 0o666) & ~former)


def temporary_folder() -> Path:
    """Return a folder for sockets of Python workers and Spark's temporary files: only this user may enter it.

    Its path is short enough for sockets.

    There is one folder per user, so killed runs do not leave more and more folders.
    """
    for place in (Path(tempfile.gettempdir()), Path("/tmp")):  # not the session's folder, which is deleted at logout
        folder = place / f"falkirk-{os.geteuid()}"
        if not place.is_dir() or len(str(folder)) > SOCKET_FOLDER_MAX:
            continue
        try:
            if not folder.is_symlink():
                make(folder)
                return folder
        except (OSError, MachineError):  # another user created it
            continue
    return Path(tempfile.mkdtemp(prefix="falkirk-", dir="/tmp"))
