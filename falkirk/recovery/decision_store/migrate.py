"""Migrations: converts the tables of each version into those of the next one, all in one transaction.

The statements are text, and final. A statement that a released Falkirk has run on a user's store is never edited; new
statements are only added. A new store runs all of them too, so there is one way to a version. In both databases,
transactions include data definition, so a crash between any two statements leaves the store unchanged.
"""

from functools import cache

import sqlalchemy as sql

from falkirk.errors.conditions.decision_store import STORE_VERSION
from falkirk.recovery.decision_store.engine import Database
from falkirk.recovery.decision_store.tables import SCHEMA_VERSION, meta, metadata

_VERSION_1 = (
    "CREATE TABLE meta (name VARCHAR NOT NULL, value VARCHAR, PRIMARY KEY (name))",
    """CREATE TABLE regions (
        region VARCHAR NOT NULL, fingerprint VARCHAR NOT NULL, start_offsets VARCHAR NOT NULL,
        partitions VARCHAR NOT NULL, PRIMARY KEY (region))""",
    """CREATE TABLE incarnations (
        region VARCHAR NOT NULL, incarnation BIGINT NOT NULL, opened_at_s FLOAT NOT NULL,
        restored_batch BIGINT NOT NULL, fence VARCHAR, replayed_from VARCHAR, suppressible BIGINT NOT NULL,
        unsafe BOOLEAN NOT NULL, ended VARCHAR, PRIMARY KEY (region, incarnation))""",
    """CREATE TABLE tail_positions (
        region VARCHAR NOT NULL, valid_from_commit BIGINT NOT NULL, incarnation BIGINT NOT NULL,
        positions VARCHAR NOT NULL, PRIMARY KEY (region, valid_from_commit))""",
    """CREATE TABLE skipped_input (
        region VARCHAR NOT NULL, "partition" BIGINT NOT NULL, first BIGINT NOT NULL, last_exclusive BIGINT NOT NULL,
        PRIMARY KEY (region, "partition", first))""",
    """CREATE TABLE voided (
        topic VARCHAR NOT NULL, "partition" BIGINT NOT NULL, "offset" BIGINT NOT NULL,
        PRIMARY KEY (topic, "partition", "offset"))""",
    "INSERT INTO meta (name, value) VALUES ('schema', '1')",
)
_VERSION_2 = (
    """CREATE TABLE voided_ranges (
        topic VARCHAR NOT NULL, "partition" BIGINT NOT NULL, first BIGINT NOT NULL, last_exclusive BIGINT NOT NULL,
        recovery BIGINT, PRIMARY KEY (topic, "partition", first, last_exclusive))""",
    """INSERT INTO voided_ranges (topic, "partition", first, last_exclusive)
        SELECT topic, "partition", "offset", "offset" + 1 FROM voided""",
    "DROP TABLE voided",
    """CREATE TABLE checkpoints (
        processor VARCHAR NOT NULL, point BIGINT NOT NULL, made_at_s FLOAT NOT NULL, metadata VARCHAR NOT NULL,
        PRIMARY KEY (processor, point))""",
    """CREATE TABLE decisions (
        kind VARCHAR NOT NULL, name VARCHAR NOT NULL, number BIGINT NOT NULL, content VARCHAR NOT NULL,
        made_at_s FLOAT NOT NULL, PRIMARY KEY (kind, name, number))""",
    """CREATE TABLE recoveries (
        recovery BIGINT NOT NULL, reason VARCHAR NOT NULL, decided VARCHAR NOT NULL, state VARCHAR NOT NULL,
        begun_at_s FLOAT NOT NULL, ended_at_s FLOAT, PRIMARY KEY (recovery))""",
    """CREATE TABLE watermarks (
        processor VARCHAR NOT NULL, kind VARCHAR NOT NULL, frontier VARCHAR NOT NULL, at_s FLOAT NOT NULL,
        PRIMARY KEY (processor, kind))""",
    """CREATE TABLE releases (
        sink VARCHAR NOT NULL, topic VARCHAR NOT NULL, "partition" BIGINT NOT NULL, released_exclusive BIGINT NOT NULL,
        PRIMARY KEY (sink, topic, "partition"))""",
    """CREATE TABLE requests (
        request BIGINT NOT NULL, kind VARCHAR NOT NULL, arguments VARCHAR NOT NULL, made_at_s FLOAT NOT NULL,
        state VARCHAR NOT NULL, answer VARCHAR, PRIMARY KEY (request))""",
    "UPDATE meta SET value = '2' WHERE name = 'schema'",
)
_VERSION_3 = (
    "CREATE TABLE retained (processor VARCHAR NOT NULL, point BIGINT NOT NULL, PRIMARY KEY (processor))",
    "INSERT INTO retained (processor, point) SELECT processor, CAST(frontier AS BIGINT) FROM watermarks",
    "DROP TABLE watermarks",
    "ALTER TABLE requests RENAME TO requests_2",
    """CREATE TABLE requests (
        request BIGINT NOT NULL, kind VARCHAR NOT NULL, arguments VARCHAR NOT NULL, state VARCHAR NOT NULL,
        answer VARCHAR, PRIMARY KEY (request))""",
    """INSERT INTO requests (request, kind, arguments, state, answer)
        SELECT request, kind, arguments, state, answer FROM requests_2""",
    "DROP TABLE requests_2",
    "UPDATE meta SET value = '3' WHERE name = 'schema'",
)
_VERSION_4 = (
    "ALTER TABLE incarnations DROP COLUMN replayed_from",
    "ALTER TABLE incarnations DROP COLUMN suppressible",
    "ALTER TABLE voided_ranges DROP COLUMN recovery",
    "UPDATE meta SET value = '4' WHERE name = 'schema'",
)
_VERSION_5 = (
    "ALTER TABLE checkpoints RENAME COLUMN point TO number",
    "ALTER TABLE retained RENAME COLUMN point TO number",
    "UPDATE meta SET value = '5' WHERE name = 'schema'",
)
#: The statements that turn version n into version n + 1, for n = 0 (no tables), 1, …
MIGRATIONS = (_VERSION_1, _VERSION_2, _VERSION_3, _VERSION_4, _VERSION_5)


def open_store(database: Database, *, must_exist: bool) -> None:
    """Make, migrate or refuse the store in this database.

    Args: must_exist: refuse to make a new one.
    Raises: StoreError: `STORE_VERSION` (written by a newer Falkirk), `STORE_UNREADABLE` (torn), `STORE_AWAY`.
    """
    database.make(lambda db: _migrate(database, db, 0), must_exist=must_exist)
    with database.transaction(writes=False) as db:
        database.check(db)
        present = _version(database, db)
        if present == SCHEMA_VERSION:
            _see_tables(db)
    if present != SCHEMA_VERSION:
        with database.transaction(writes=True) as db:
            _migrate(database, db, _version(database, db))  # another process may have migrated it since


def _version(database: Database, connection: sql.Connection) -> int:
    found = connection.execute(sql.select(meta.c.value).where(meta.c.name == "schema")).scalar()
    if found is None:
        raise database.unreadable("it has no version")
    if found not in map(str, range(1, SCHEMA_VERSION + 1)):
        raise STORE_VERSION.error(where=database.where, found=found, expected=str(SCHEMA_VERSION))
    return int(found)


def _migrate(database: Database, connection: sql.Connection, present: int) -> None:
    database.prepare_migration(connection)
    for statements in MIGRATIONS[present:]:
        for statement in statements:
            connection.exec_driver_sql(statement)
    _see_tables(connection)


def _see_tables(connection: sql.Connection) -> None:
    """Fail if a table or a column is missing, because a lost table must not be mistaken for an empty one."""
    schemas = connection.get_execution_options().get("schema_translate_map", {})
    connection.exec_driver_sql(_all_columns(schemas.get(None))).all()


@cache
def _all_columns(schema: str | None) -> str:
    """Return a query that reads each column and no row. SQLAlchemy took three quarters of an opening to write it.

    Each column has its table's name before it: SQLite takes another unknown name in quotes for a text.
    """
    place = f'"{schema}".' if schema else ""
    columns = {table.name: ", ".join(f'now."{column.name}"' for column in table.c) for table in metadata.sorted_tables}
    return " UNION ALL ".join(
        f'SELECT 1 FROM (SELECT {names} FROM {place}"{table}" AS now LIMIT 0) AS empty'
        for table, names in columns.items()
    )
