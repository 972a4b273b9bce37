"""Places of homes: a folder of this machine, or an address elsewhere with the decisions in PostgreSQL."""

import re
from pathlib import Path

from falkirk.errors.conditions.object_home import HOME_NEEDS_DATABASE, HOME_PLACE_INVALID
from falkirk.errors.location import SourceLocation

#: The addresses of buckets and of HDFS, with a path in each. Spark takes some characters for patterns, such as `*`.
_S3 = r"s3a://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9!_.'()-]+)+"
_HDFS = r"hdfs://[A-Za-z0-9][A-Za-z0-9.-]*(:\d{1,5})?(/[A-Za-z0-9_.-]+)+"
_DATABASES = ("postgres://", "postgresql://", "postgresql+psycopg://")


def home_place(
    home: str | Path | None, application: str, store: str | None, where: SourceLocation
) -> tuple[Path, str | None]:
    """Return the folder for the files of this machine, and the address of the data if they are elsewhere.

    Raises: DefinitionError: `HOME_PLACE_INVALID`, `HOME_NEEDS_DATABASE`.
    """
    folder = Path(".falkirk") / application
    if home is None:
        return folder, None
    if not isinstance(home, str) or "://" not in home:
        return Path(home), None
    address = home.rstrip("/")
    if not re.fullmatch(f"{_S3}|{_HDFS}", address) or {".", ".."} & set(address.split("/")):
        raise HOME_PLACE_INVALID.error(where=where, home=home)
    if store is None or not store.startswith(_DATABASES):
        raise HOME_NEEDS_DATABASE.error(where=where, home=address)
    return folder, address


def local_home(home: str | Path) -> Path:
    """Return the folder that an option names. Raises: DefinitionError: `HOME_PLACE_INVALID`: it is no folder."""
    if re.match(r"[a-z0-9]+:/", str(home)):
        raise HOME_PLACE_INVALID.error(home=str(home))
    return Path(home)
