"""Addresses: parses those that the user declares, and writes hosts as URLs have them."""

import re

from falkirk.errors.conditions.declare import ADDRESS_INVALID, ADDRESS_INVALID_DASHBOARD, ADDRESS_INVALID_METRICS
from falkirk.errors.location import SourceLocation

#: Only this machine can reach it, on any free port.
DEFAULT = "127.0.0.1:0"


def as_address(text: object, where: SourceLocation) -> tuple[str, int]:
    """Return the host and the port of ``"host:port"``.

    Raises: DefinitionError: `ADDRESS_INVALID`.
    """
    found = _parsed(text) if isinstance(text, str) else None
    if found is None:
        raise ADDRESS_INVALID.error(where=where, address=text)
    return found


def as_metrics_address(text: str) -> tuple[str, int]:
    """Return the host and the port of ``"[host:]port"``. Without a host, only this machine can reach it.

    Raises: DefinitionError: `ADDRESS_INVALID`.
    """
    if (found := _parsed_port(text)) is None:
        raise ADDRESS_INVALID_METRICS.error(address=text)
    return found


def as_dashboard_address(text: str) -> tuple[str, int]:
    """Return the same for the dashboard. Raises: DefinitionError: `ADDRESS_INVALID`."""
    if (found := _parsed_port(text)) is None:
        raise ADDRESS_INVALID_DASHBOARD.error(address=text)
    return found


def is_port_or_address(text: str) -> bool:
    """Return whether a text has the form ``"[host:]port"``."""
    return _parsed_port(text) is not None


def host_in_url(host: str) -> str:
    """Return a name or an address as a URL and curl have it: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def _parsed_port(text: str) -> tuple[str, int] | None:
    return _parsed(f"127.0.0.1:{text}" if text.isdigit() else text)


def _parsed(text: str) -> tuple[str, int] | None:
    found = re.fullmatch(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})", text)
    return None if found is None or int(found[2]) > 65_535 else (found[1].strip("[]"), int(found[2]))
