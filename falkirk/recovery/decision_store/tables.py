"""Tables: the tables of the present version, for queries. migrate.py makes them, in SQLite and in PostgreSQL.

Structured values are JSON in text columns, times are seconds since 1970, and every count has 64 bits, as
Kafka's offsets do. A PostgreSQL store has these tables in a schema of the application.
"""

import sqlalchemy as sql

#: Version of the tables below. An older store is migrated, a newer one refused.
SCHEMA_VERSION = 5

metadata = sql.MetaData()


def _text(name: str, *, key: bool = False, optional: bool = False) -> "sql.Column[str]":
    return sql.Column(name, sql.String, primary_key=key, nullable=optional)


def _number(name: str, *, key: bool = False, optional: bool = False) -> "sql.Column[int]":
    return sql.Column(name, sql.BigInteger, primary_key=key, nullable=optional, autoincrement=False)


def _time(name: str, *, optional: bool = False) -> "sql.Column[float]":
    return sql.Column(name, sql.Float, nullable=optional)


meta = sql.Table("meta", metadata, _text("name", key=True), _text("value", optional=True))

regions = sql.Table(
    "regions",
    metadata,
    _text("region", key=True),
    _text("fingerprint"),
    _text("start_offsets"),
    _text("partitions"),
)
incarnations = sql.Table(
    "incarnations",
    metadata,
    _text("region", key=True),
    _number("incarnation", key=True),
    _time("opened_at_s"),
    _number("restored_batch"),
    _text("fence", optional=True),
    sql.Column("unsafe", sql.Boolean, nullable=False),
    _text("ended", optional=True),
)
tails = sql.Table(
    "tail_positions",
    metadata,
    _text("region", key=True),
    _number("valid_from_commit", key=True),
    _number("incarnation"),
    _text("positions"),
)
skips = sql.Table(
    "skipped_input",
    metadata,
    _text("region", key=True),
    _number("partition", key=True),
    _number("first", key=True),
    _number("last_exclusive"),
)
voids = sql.Table(
    "voided_ranges",
    metadata,
    _text("topic", key=True),
    _number("partition", key=True),
    _number("first", key=True),
    _number("last_exclusive", key=True),
)
checkpoints = sql.Table(
    "checkpoints",
    metadata,
    _text("processor", key=True),
    _number("number", key=True),
    _time("made_at_s"),
    _text("metadata"),
)
decisions = sql.Table(
    "decisions",
    metadata,
    _text("kind", key=True),
    _text("name", key=True),
    _number("number", key=True),
    _text("content"),
    _time("made_at_s"),
)
recoveries = sql.Table(
    "recoveries",
    metadata,
    _number("recovery", key=True),
    _text("reason"),
    _text("decided"),
    _text("state"),
    _time("begun_at_s"),
    _time("ended_at_s", optional=True),
)
retained = sql.Table(
    "retained",
    metadata,
    _text("processor", key=True),
    _number("number"),
)
releases = sql.Table(
    "releases",
    metadata,
    _text("sink", key=True),
    _text("topic", key=True),
    _number("partition", key=True),
    _number("released_exclusive"),
)
requests = sql.Table(
    "requests",
    metadata,
    _number("request", key=True),
    _text("kind"),
    _text("arguments"),
    _text("state"),
    _text("answer", optional=True),
)
