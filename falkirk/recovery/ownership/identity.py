"""Identity: the file of a home that names its application and tells the home from all others. It is created once."""

import contextlib
import errno
import json
import os
import re
import secrets
from pathlib import Path

from falkirk.errors.conditions.ownership import (
    HOME_DAMAGED_IDENTITY,
    HOME_DAMAGED_NO_IDENTITY,
    HOME_OF_ANOTHER,
    HOME_STORE_CHANGED,
    HOME_STORE_CHANGED_DATA,
    HOME_STORE_CHANGED_DATABASE,
    HOME_VERSION,
)
from falkirk.platform.data import DataPath
from falkirk.platform.durable import sync_folder
from falkirk.platform.stored import parse_json

FORMAT = 1
IDENTITY_FILE = "falkirk.json"
#: The errors of a file system without links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)


def identify(path: Path, application: str, store: str | None, data: DataPath | None = None) -> str:
    """Return the identity of a home. If the home is new, create it; processes that do so together get the same one.

    Args: store: as of `open_home`. data: the place of its data, if it is in an object store.
    Raises: HomeError: `HOME_DAMAGED`, `HOME_VERSION`, `HOME_OF_ANOTHER`, `HOME_STORE_CHANGED`. OSError. StoreError: the
        object store or its database does not answer.
    """
    file = path / IDENTITY_FILE
    if not file.exists():
        if (path / "decisions.db").exists() and not file.exists():  # another process may have made both meanwhile
            raise HOME_DAMAGED_NO_IDENTITY.error(where=path)
        content = {
            "format": FORMAT,
            "application": application,
            "identity": secrets.token_hex(4) if data is None else _shared_identity(data, application, str(store)),
            "store": "file" if store is None else "database",
        } | ({} if data is None else {"data": str(data)})
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
    if content.get("data") != (None if data is None else str(data)):
        found, named = content.get("data", "it"), "none" if data is None else data
        raise HOME_STORE_CHANGED_DATA.error(where=path, found=found, named=named)
    return identity


def _shared_identity(data: DataPath, application: str, store: str) -> str:
    """Return the identity of a home in an object store. Its database decides; a file beside the data names it.

    With another database, the home would begin again, and delete the data of the first one as garbage.
    """
    from falkirk.recovery.decision_store.homes import known_home  # without such a home, nothing needs the database here

    found, identity = known_home(store, str(data), application, secrets.token_hex(4))
    if found != application:
        raise HOME_OF_ANOTHER.error(where=data, found=found, expected=application)
    file = data / IDENTITY_FILE
    try:
        named = parse_json(file.read_text())["identity"]
    except FileNotFoundError:
        file.write_text(json.dumps({"format": FORMAT, "application": application, "identity": identity}, indent=1))
    except (ValueError, KeyError, TypeError) as error:
        raise HOME_DAMAGED_IDENTITY.error(where=file) from error
    else:
        if named != identity:
            raise HOME_STORE_CHANGED_DATABASE.error(where=data, found=named, expected=identity)
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
