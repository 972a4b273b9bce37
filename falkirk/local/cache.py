"""The cache of this machine: folders that all projects share, each complete or absent.

An entry is filled in a temporary folder and then renamed. A lock lets one process fill it while others wait.
"""

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from falkirk.system import private

_FILLING = ".filling-"


def cache_home() -> Path:
    """Return the folder of Falkirk's cache: FALKIRK_CACHE, or else `falkirk` in the user's cache folder."""
    own = os.environ.get("FALKIRK_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "falkirk"


def filled(place: Path, fill: Callable[[Path], None], *, waiting: str) -> Path:
    """Return a complete entry; fill it first if it is absent.

    Args:
        fill: called with an empty folder, which becomes the entry when the call returns.
        waiting: printed to stderr while another process fills an entry in the same folder.
    Raises: errors of `fill`; the cache is then unchanged. MachineError: `FOLDER_NOT_OURS`: another user controls the
        content of the cache, and so the code that runs.
    """
    private.make(cache_home(), readable=True)
    if place.is_dir():
        private.require_ours(place)
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with _locked(place.parent / ".lock", waiting):
        if place.is_dir():
            return place
        for left_over in place.parent.glob(f"{_FILLING}*"):  # this process holds the lock, so no other process fills it
            shutil.rmtree(left_over, ignore_errors=True)
        building = Path(tempfile.mkdtemp(prefix=_FILLING, dir=place.parent))
        try:
            fill(building)
            building.rename(place)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return place


@contextlib.contextmanager
def _locked(file: Path, waiting: str) -> Iterator[None]:
    with open(file, "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(waiting, file=sys.stderr)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
