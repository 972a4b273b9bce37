"""Published: describes as text where results go, and in which form. A home records it and compares it at each start.

A released result is identified by its place: its topic, partition and stamp, or its database and epoch. With another
key, format or address, a replay would put it into another place, so it would be there twice or not at all.
"""

from hashlib import sha256

import sqlalchemy as sql
from pyspark.sql import functions as F

from falkirk.declare.endpoints import Endpoint, EpochTopic, Sql
from falkirk.errors.conditions.plan import DATABASE_UNKNOWN_URL
from falkirk.steps.live.stamped import Frame, key_column
from falkirk.steps.static_analysis.formula import formulas

#: The options in a database's URL that identify the database. Other options are about the connection or the user.
_WHICH_DATABASE = frozenset({"host", "hostaddr", "port", "dbname", "service", "options"})
_PORTS = {"postgresql": 5432}


def form(to: Endpoint) -> str:
    """Return the form of written results: format and schema, key, and the digest of a database's address.

    Raises: DefinitionError: `DATABASE_UNKNOWN`.
    """
    return f"rows of database {_database(to)}, {to.written_as}" if isinstance(to, Sql) else to.written_as


def place(to: Endpoint) -> str:
    """Return the place of results, as a home records it. The addresses of a Kafka cluster may change."""
    return to.record.address if isinstance(to, EpochTopic) else to.address


def partitioned_by(frame: Frame, keys: tuple[object, ...], began: dict[int, str]) -> str:
    """Return the expressions that decide the channel of each result of a live region: its keys.

    Args: keys: the keys of its sink or hop. began: the names of the columns that the region reads, by Catalyst's
        identity.
    """
    columns = frozenset(frame.columns)  # a name may hold a dot
    named = [F.col(f"`{key}`") if isinstance(key, str) and key in columns else key_column(key) for key in keys]
    keyed = frame.data.select(*[key.alias(f"key{i}") for i, key in enumerate(named)]) if keys else frame.data
    output, grouping = formulas(keyed, began)
    parts = [f"groups {', '.join(grouping[:-1])}"] if grouping else []  # the last one is ours, of bad records
    return "; ".join([*parts, *(f"key {formula}" for formula in (output.values() if keys else ()))]) or "the source"


def _database(to: Sql) -> str:
    """Return a digest of the address of a database, without user, password and other options of the connection."""
    try:
        url = sql.make_url(to.url)
    except (sql.exc.ArgumentError, ValueError):
        raise DATABASE_UNKNOWN_URL.error(
            where=to.where, table=to.table
        ) from None  # the cause may quote the URL, and so its password
    kind = url.get_backend_name()
    which = sorted((name, value) for name, value in url.query.items() if name in _WHICH_DATABASE)
    return _digest(repr((kind, (url.host or "").lower(), url.port or _PORTS.get(kind), url.database, which)))


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]
