"""Parses the address, declared by the user, at which an application accepts requests."""

import re

from falkirk.errors.conditions.declare import ADDRESS_INVALID
from falkirk.errors.location import SourceLocation

#: Only this machine can reach it, on any free port.
DEFAULT = "127.0.0.1:0"


def as_address(text: object, where: SourceLocation) -> tuple[str, int]:
    """Return the host and the port of ``"host:port"``.

    Raises: DefinitionError: `ADDRESS_INVALID`.
    """
    found = re.fullmatch(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})", text) if isinstance(text, str) else None
    if found is None or int(found[2]) > 65_535:
        raise ADDRESS_INVALID.error(where=where, address=text)
    return found[1].strip("[]"), int(found[2])
