"""Parses the address, declared by the user, at which an application accepts requests."""

import re

from falkirk.errors import DefinitionError
from falkirk.errors.location import SourceLocation

#: Only this machine can reach it, on any free port.
DEFAULT = "127.0.0.1:0"


def as_address(text: object, where: SourceLocation) -> tuple[str, int]:
    """Return the host and the port of ``"host:port"``.

    Raises: DefinitionError: `ADDRESS_INVALID`.
    """
    found = re.fullmatch(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})", text) if isinstance(text, str) else None
    if found is None or int(found[2]) > 65_535:
        raise DefinitionError(
            "ADDRESS_INVALID",
            f"http={text!r} is not an address of the form host:port.",
            where=where,
            hint='Write "127.0.0.1:8088", or port 0 for any free port.',
            address=text,
        )
    return found[1].strip("[]"), int(found[2])
