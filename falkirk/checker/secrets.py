"""Secrets of the command line: keeps them out of arguments, which every user of a machine can read."""

import os
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from falkirk.errors import DefinitionError
from falkirk.errors.conditions.checker import SECRET_IN_ARGUMENT, SECRET_MISSING_OPTION

#: Settings of librdkafka whose value is or contains a secret.
_SECRET = re.compile(r"password|secret|token|\.pem$|oauthbearer\.config|sasl\.jaas", re.IGNORECASE)


def setting(name: str, value: str) -> str:
    """Return the value of a client's setting: as written, or from the source that ``env:NAME`` or ``file:PATH`` names.

    Raises: DefinitionError: `SECRET_IN_ARGUMENT`; `SECRET_MISSING`: the source has no value.
    """
    kind, colon, place = value.partition(":")
    if not colon or kind not in ("env", "file"):
        if _SECRET.search(name):
            raise _refused(f"--client {name}=…", f"Write --client {name}=env:NAME or {name}=file:PATH.", name)
        return value
    try:
        found = os.environ.get(place, "") if kind == "env" else Path(place).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise _missing(name, value, str(error)) from error
    if not found:
        raise _missing(name, value, "it is empty or not set")
    return found


def refuse_password(place: str) -> None:
    """Refuse the URL of a table with a password. Raises: DefinitionError: `SECRET_IN_ARGUMENT`."""
    url = urlsplit(place.partition("#")[0])
    if "://" in place and (url.password or "password" in parse_qs(url.query)):
        hint = "Remove it, and set PGPASSWORD or write it to ~/.pgpass."
        raise _refused(f"the URL of table {place.partition('#')[2]!r}", hint, "password")


def _refused(what: str, hint: str, name: str) -> DefinitionError:
    return SECRET_IN_ARGUMENT.error(option=name, what=what, advice=hint)


def _missing(name: str, value: str, why: str) -> DefinitionError:
    return SECRET_MISSING_OPTION.error(option=name, value=value, why=why)
