"""Published: where results go, and in which form, as text. A home records it and compares it at each start.

A result that was released is known by its place: its topic, partition and stamp, or its database and epoch. Under
another key, format or address a replay puts it somewhere else, and it is there twice or not at all.
"""

from hashlib import sha256

import sqlalchemy as sql
from pyspark.sql import functions as F

from falkirk.analysis.formula import formulas
from falkirk.declare.endpoints import Endpoint, Sql
from falkirk.errors import DefinitionError
from falkirk.frames.stamped import Frame, key_column

#: Options in the URL of a database that say which database it is. Others say how it is reached, or by whom.
_WHICH_DATABASE = frozenset({"host", "hostaddr", "port", "dbname", "service", "options"})
_PORTS = {"postgresql": 5432}


def form(to: Endpoint) -> str:
    """Return in which form results are written; of a table also the digest of the address of its database.

    Raises: DefinitionError: `DATABASE_UNKNOWN`.
    """
    return f"rows of database {_database(to)}, {to.written_as}" if isinstance(to, Sql) else to.written_as


def partitioned_by(frame: Frame, keys: tuple[object, ...], began: dict[int, str]) -> str:
    """Return what decides the channel of each of a live region's results: the expressions of its keys.

    Args: keys: of its sink or hop. began: the names of the columns that the region reads, by Catalyst's identity.
    """
    columns = frozenset(frame.columns)  # a name may hold a dot
    named = [F.col(f"`{key}`") if isinstance(key, str) and key in columns else key_column(key) for key in keys]
    keyed = frame.data.select(*[key.alias(f"key{i}") for i, key in enumerate(named)]) if keys else frame.data
    output, grouping = formulas(keyed, began)
    parts = [f"groups {', '.join(grouping[:-1])}"] if grouping else []  # the last one is ours, of bad records
    return "; ".join([*parts, *(f"key {formula}" for formula in (output.values() if keys else ()))]) or "the source"


def _database(to: Sql) -> str:
    """Return a digest of the address of a database, without user, password and what else only a connection needs."""
    try:
        url = sql.make_url(to.url)
    except (sql.exc.ArgumentError, ValueError):
        raise DefinitionError(
            "DATABASE_UNKNOWN",
            f"the URL of table {to.table!r} can't be read.",
            where=to.where,
            hint="Write postgresql://user:password@host/database, with the special characters of a password as %xx.",
            table=to.table,
        ) from None  # the cause may quote the URL, and so its password
    kind = url.get_backend_name()
    which = sorted((name, value) for name, value in url.query.items() if name in _WHICH_DATABASE)
    return _digest(repr((kind, (url.host or "").lower(), url.port or _PORTS.get(kind), url.database, which)))


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]
