"""Shipped modules: the archive with Falkirk's Python modules, which Spark brings to the executors of a cluster.

Spark's own Python workers get the code of Falkirk with each function, by value. A worker of a live region is a program,
so it needs modules. Executors may not have Falkirk installed, or another version of it: so the driver's version comes
with the application.
"""

import hashlib
import os
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from falkirk.platform import private

_PACKAGE = Path(__file__).parents[1]
#: The module that Python runs when it gets the archive as a program.
_MAIN = "steps/live/on_executor.py"
#: The oldest time that a zip file can store. Equal modules make an equal archive.
_NO_TIME = (1980, 1, 1, 0, 0, 0)
_DIGITS = 16


def python_version() -> str:
    """Return the version that the Python of executors must have, too: pickled functions differ between versions."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def shipped_files(session: Any) -> list[str]:
    """Return the names of files that executors have: Falkirk's archive, and the user's archives of Python modules.

    Spark brings a file that is added while tasks run to those that begin later.
    """
    context, own = session.sparkContext, archive()
    if not any(address.rpartition("/")[2] == own.name for address in context.listFiles):
        context.addFile(str(own))
    return [own.name, *reversed(context._python_includes)]  # as Spark's own workers search them


def archive() -> Path:
    """Return the archive, whose name has the digest of its content."""
    modules = {path.relative_to(_PACKAGE).as_posix(): path.read_bytes() for path in sorted(_PACKAGE.rglob("*.py"))}
    files = {**{f"{_PACKAGE.name}/{name}": content for name, content in modules.items()}, "__main__.py": modules[_MAIN]}
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    place = private.temporary_folder() / f"falkirk-{digest.hexdigest()[:_DIGITS]}.zip"
    if not place.exists():
        handle, made = tempfile.mkstemp(dir=place.parent)
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", compresslevel=1) as packed:
            for name, content in files.items():
                packed.writestr(zipfile.ZipInfo(name, _NO_TIME), content, zipfile.ZIP_DEFLATED)
        Path(made).replace(place)
    return place
