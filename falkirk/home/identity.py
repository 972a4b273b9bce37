"""Identity: the file of a home that names its application and tells the home from all others. It is created once."""

import contextlib
import errno
import json
import os
import re
import secrets
from pathlib import Path

from falkirk.errors.conditions.home import (
    HOME_DAMAGED_IDENTITY,
    HOME_DAMAGED_NO_IDENTITY,
    HOME_OF_ANOTHER,
    HOME_STORE_CHANGED,
    HOME_VERSION,
)
from falkirk.system.durable import sync_folder
from falkirk.system.stored import parse_json

FORMAT = 1
IDENTITY_FILE = "falkirk.json"
#: The errors of a file system without links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)


def identify(path: Path, application: str, store: str | None) -> str:
    """Return the identity of a home. If the home is new, create it; processes that do so together get the same one.

    Args: store: as of `open_home`.
    Raises: HomeError: `HOME_DAMAGED`, `HOME_VERSION`, `HOME_OF_ANOTHER`, `HOME_STORE_CHANGED`. OSError.
    """
    file = path / IDENTITY_FILE
    if not file.exists():
        if (path / "decisions.db").exists() and not file.exists():  # another process may have made both meanwhile
            raise HOME_DAMAGED_NO_IDENTITY.error(where=path)
        content = {
            "format": FORMAT,
            "application": application,
            "identity": secrets.token_hex(4),
            "store": "file" if store is None else "database",
        }
        _create(file, json.dumps(content, indent=1))
    try:
        content = parse_json(file.read_text())
        found, identity, version = content["application"], str(content["identity"]), content["format"]
        if not re.fullmatch("[0-9a-f]{8}", identity):
            raise ValueError("identity")
    except (ValueError, KeyError, TypeError) as error:
        raise HOME_DAMAGED_IDENTITY.error(where=file) from error
    if version != FORMAT:
        raise HOME_VERSION.error(where=path, found=version, known=FORMAT)
    if found != application:
        raise HOME_OF_ANOTHER.error(where=path, found=found, expected=application)
    kind = content.get("store", "file")
    if kind != ("file" if store is None else "database"):
        raise HOME_STORE_CHANGED.error(where=path, found=kind, named="no database" if store is None else "a database")
    return identity


def identity_of(path: Path) -> str:
    """Return the identity of a home that exists, without opening it. Raises: OSError, ValueError, KeyError."""
    return str(parse_json((path / IDENTITY_FILE).read_text())["identity"])


def _create(file: Path, text: str) -> None:
    """Create a file with its whole content, unless another process has created it: all processes see the same one."""
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        _write(temporary, text)
        os.link(temporary, file)
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with contextlib.suppress(FileExistsError):
            _write(file, text)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(file.parent)


def _write(file: Path, text: str) -> None:
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(handle, "w", encoding="utf-8") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(handle)
