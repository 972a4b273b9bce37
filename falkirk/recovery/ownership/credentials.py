"""Stores in the home the data that clients need: the token and the address for requests."""

import json
import os
import secrets
import shlex
from pathlib import Path

from falkirk.declare.address import host_in_url
from falkirk.errors.conditions.ownership import HOME_UNUSABLE, HOME_UNUSABLE_ADDRESS, HOME_UNUSABLE_DASHBOARD
from falkirk.kafka_client.secret import Secret
from falkirk.platform import private
from falkirk.platform.durable import write_atomically
from falkirk.platform.stored import parse_json

#: A variable in the environment of the coordinator.
TOKEN_VARIABLE = "FALKIRK_HTTP_TOKEN"
_TOKEN_FILE, _ADDRESS_FILE, _DASHBOARD_FILE = "http.token", "http.json", "dashboard.token"


def token_of(home: Path, declared: Secret | None) -> tuple[str, str]:
    """Return the token for clients, and a shell expression for it.

    The declared token comes first, then the environment's.

    Without either, a random token is generated once and stored in the home, where only its user can read it.

    Raises: DefinitionError: `SECRET_MISSING`. HomeError: `HOME_UNUSABLE`.
    """
    if declared is not None:
        return declared.reveal(), "TOKEN"
    if token := os.environ.get(TOKEN_VARIABLE):
        return token, f"${TOKEN_VARIABLE}"
    file = home / _TOKEN_FILE
    try:
        return _kept(file), f"$(cat {shlex.quote(str(file))})"
    except (OSError, ValueError) as error:
        raise HOME_UNUSABLE.error(where=file, reason=error, token_variable=TOKEN_VARIABLE) from error


def new_token() -> str:
    """Return a random token."""
    return secrets.token_urlsafe(32)


def write_dashboard_token(home: Path, token: str) -> Path:
    """Write the token of this process's dashboard in place of a former one; return the file.

    The home is created if necessary. Only its user can read the file.

    Raises: MachineError: `FOLDER_NOT_OURS`. HomeError: `HOME_UNUSABLE`.
    """
    file = home / _DASHBOARD_FILE
    try:
        private.make(home)
        _write_secret(file, token)
    except OSError as error:
        raise HOME_UNUSABLE_DASHBOARD.error(where=file, reason=error) from error
    return file


def _kept(file: Path) -> str:
    """Return the token in a file, which is generated if there is none. Raises: OSError. ValueError: it is no token."""
    if not file.exists():
        _write_secret(file, new_token())
    kept = file.read_text(encoding="ascii").strip()
    if not kept:
        raise ValueError("it is empty")  # an empty token would match a client without a token
    return kept


def _write_secret(file: Path, text: str) -> None:
    """Write a file atomically; from its creation on, only its owner may read it."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(handle, text.encode())
        os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(temporary, file)


def former_port(home: Path) -> int:
    """Return the port of the former run, so that clients find this run at the same port; 0: none is known."""
    try:
        port = parse_json((home / _ADDRESS_FILE).read_text())["port"]
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    return port if isinstance(port, int) and 0 <= port < 1 << 16 else 0


def publish_address(home: Path, host: str, port: int, *, scheme: str = "http") -> str:
    """Record the address for requests in the home and return its URL.

    Raises: HomeError: `HOME_UNUSABLE`.
    """
    url = f"{scheme}://{host_in_url(host)}:{port}"
    try:
        write_atomically(home / _ADDRESS_FILE, json.dumps({"url": url, "port": port}))
    except OSError as error:
        raise HOME_UNUSABLE_ADDRESS.error(where=home / _ADDRESS_FILE, reason=error.strerror) from error
    return url
