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
from typing import IO

from falkirk.errors.conditions.spark_setup import CACHE_NOT_WRITTEN
from falkirk.platform import private

_FILLING = ".filling-"


def cache_home() -> Path:
    """Return the folder of Falkirk's cache: FALKIRK_CACHE, or else `falkirk` in the user's cache folder."""
    own = os.environ.get("FALKIRK_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "falkirk"


def filled(
    place: Path, fill: Callable[[Path], None], *, waiting: str, sound: Callable[[Path], bool] = Path.is_dir
) -> Path:
    """Return a complete entry; fill it first if it is absent or damaged.

    Args:
        fill: called with an empty folder, which becomes the entry when the call returns.
        waiting: printed to stderr while another process fills an entry in the same folder.
        sound: whether an existing entry is undamaged. A damaged one is replaced; a JVM that has opened its files keeps
            them.
    Raises: errors of `fill`; the cache is then unchanged. MachineError: `CACHE_NOT_WRITTEN`: the folder can't be
        created or written. `FOLDER_NOT_OURS`: another user controls the content of the cache, and so the code that
        runs.
    """
    with writing_to(cache_home()):
        private.make(cache_home(), readable=True)
    if place.is_dir():
        private.require_ours(place)
        if sound(place):
            return place
    with writing_to(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = open(place.parent / ".lock", "w")  # noqa: SIM115
    with lock:
        _lock(lock, waiting)
        if place.is_dir() and sound(place):
            return place
        for left_over in place.parent.glob(f"{_FILLING}*"):  # this process holds the lock, so no other process fills it
            shutil.rmtree(left_over, ignore_errors=True)
        with writing_to(place.parent):
            building = Path(tempfile.mkdtemp(prefix=_FILLING, dir=place.parent))
        try:
            fill(building)
            if place.is_dir():
                place.rename(building.with_name(f"{building.name}-damaged"))
            building.rename(place)
        finally:
            shutil.rmtree(building, ignore_errors=True)
            shutil.rmtree(building.with_name(f"{building.name}-damaged"), ignore_errors=True)
    return place


@contextlib.contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Name the folder in the error if it can't be created or written.

    Raises: MachineError: `CACHE_NOT_WRITTEN`.
    """
    try:
        yield
    except OSError as error:
        raise CACHE_NOT_WRITTEN.error(where=folder, path=str(folder), reason=error.strerror or error) from error


def _lock(handle: IO[str], waiting: str) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(waiting, file=sys.stderr)
        fcntl.flock(handle, fcntl.LOCK_EX)
