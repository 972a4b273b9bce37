"""A table of a database as a target. One transaction writes an epoch and its mark.

Rows that the table can't store, with a null in the key or a NUL in a text, become dead letters.
"""

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sql
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import StringType
from sqlalchemy.dialects import postgresql, sqlite

from falkirk.declare.endpoints import Sql
from falkirk.errors.spark import SPARK_ERRORS
from falkirk.runtime.spark.epochs.inputs import ROW
from falkirk.runtime.spark.rows import JSON_OPTIONS, NOT_WRITTEN
from falkirk.runtime.spark.sinks.target import NESTED, outside_years, release_failed, row_letters, sorted_by_place
from falkirk.theory.ids import EpochNumber

_marks_metadata = sql.MetaData()
_marks = sql.Table(
    "falkirk_marks",
    _marks_metadata,
    sql.Column("application", sql.String, primary_key=True),
    sql.Column("sink", sql.String, primary_key=True),
    sql.Column("epoch", sql.BigInteger, nullable=False),
)
_TYPES: dict[str, Any] = {
    "boolean": sql.Boolean, "tinyint": sql.SmallInteger, "smallint": sql.SmallInteger, "int": sql.Integer,
    "bigint": sql.BigInteger, "float": sql.Float, "double": sql.Float, "date": sql.Date, "timestamp": sql.DateTime,
    "timestamp_ntz": sql.DateTime, "binary": sql.LargeBinary,
}  # fmt: skip
#: Types with fewer values in Python, and so in its database drivers, than in Spark.
_TIMES = ("date", "timestamp", "timestamp_ntz")
#: Timeouts that reveal a server that vanished without closing its connections. The thread that waits for it also
#: watches the whole application.
_PATIENCE = {
    "connect_timeout": 5, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}  # fmt: skip
#: How long `seen` waits for a lock of the table. A release may wait for it without a limit.
LOCKED_S = 5
#: The column with the reason why a row can't be in a table.
_UNFIT = "__falkirk_unfit"
#: The number of rows per statement.
_ROWS_AT_ONCE = 1_000


class TableTarget:
    """A table of a database.

    Args: application: the identity of the home. sink: its name.
    """

    def __init__(self, to: Sql, application: str, sink: str) -> None:
        url = to.url.replace("postgresql://", "postgresql+psycopg://", 1)
        self._to, self._application, self._sink = to, application, sink
        made = sql.make_url(url)
        patience = {k: v for k, v in _PATIENCE.items() if k not in made.query} if url.startswith("postgresql") else {}
        self._engine = sql.create_engine(made, pool_pre_ping=True, connect_args=patience)

    def visible(self) -> EpochNumber:
        """See Target. A locked table counts as unreachable.

        A server may get the commit of an epoch after the connection was lost. Until then its transaction holds the
        mark. So this waits for it, too: otherwise a rollback could cancel an epoch that appears in the table later.
        """
        with self._reaching(), self._engine.begin() as db:
            is_server = db.dialect.name == "postgresql"
            if is_server:
                db.execute(sql.text(f"SET LOCAL lock_timeout = '{LOCKED_S}s'"))
            _marks_metadata.create_all(db)
            if is_server:
                self._hold_mark(db)
            return EpochNumber(self._mark(db) + 1)

    def delivered(self) -> EpochNumber:
        """See Target. The mark also covers epochs without rows."""
        return self.visible()

    @property
    def _mine(self) -> sql.ColumnElement[bool]:
        return (_marks.c.application == self._application) & (_marks.c.sink == self._sink)

    def _mark(self, db: sql.Connection) -> EpochNumber:
        known = db.execute(sql.select(_marks.c.epoch).where(self._mine)).scalar()
        return EpochNumber(-1 if known is None else int(known))

    def deliver(self, epoch: EpochNumber, rows: DataFrame, *, few: bool = False) -> DataFrame | None:
        """See Target: the epoch and its mark are one transaction. Raises: SparkError: `RELEASE_FAILED`."""
        columns = [c for c in rows.columns if c != ROW]
        with self._reaching(), self._engine.begin() as db:
            _marks_metadata.create_all(db)
            if db.dialect.name == "postgresql":
                db.execute(sql.text("SET LOCAL synchronous_commit = on"))  # committed epochs are not released again
            # Writes first, so that a second process that does the same waits here until this one has finished.
            self._hold_mark(db)
            unfit = self._unfit(rows, db.dialect.name)
            if self._mark(db) >= epoch:
                refused = rows.where(unfit.isNotNull())
                return None if refused.isEmpty() else row_letters(refused, unfit, self._to.table, epoch)
            table = self._table(rows)
            table.create(db, checkfirst=True)
            taken: list[dict[str, Any]] = []
            is_any_unfit = False
            fitting = [F.when(unfit.isNull(), _plain(rows, c)).alias(c) for c in columns]
            plain = rows.select(*fitting, ROW, unfit.alias(_UNFIT))
            for row in _collected(plain, few=few):
                if row[_UNFIT] is not None:
                    is_any_unfit = True
                    continue
                taken.append({c: row[c] for c in columns})
                if len(taken) >= _ROWS_AT_ONCE:
                    self._put(db, table, taken)
                    taken = []
            self._put(db, table, taken)
            self._set_mark(db, epoch)
        return row_letters(rows.where(unfit.isNotNull()), unfit, self._to.table, epoch) if is_any_unfit else None

    def _unfit(self, rows: DataFrame, dialect: str) -> Column:
        """Return why a row can't be in the table, or null."""
        reason = F.lit(None).cast("string")
        for key in self._to.keys:
            said = F.lit(f"{NOT_WRITTEN}column {key} is null, and the table's key")
            reason = F.coalesce(reason, F.when(F.col(f"`{key}`").isNull(), said))
        for time in (f.name for f in rows.schema.fields if f.dataType.simpleString() in _TIMES):
            said = F.lit(f"{NOT_WRITTEN}column {time} is not between the years 1 and 9999")
            reason = F.coalesce(reason, F.when(outside_years(time), said))
        texts = [f.name for f in rows.schema.fields if isinstance(f.dataType, StringType)]
        for text in texts if dialect == "postgresql" else ():
            said = F.lit(f"{NOT_WRITTEN}PostgreSQL takes no NUL character, and one is in column {text}")
            reason = F.coalesce(reason, F.when(F.col(f"`{text}`").contains("\0"), said))
        return reason

    def _hold_mark(self, db: sql.Connection) -> None:
        """Wait for a transaction that delivers an epoch, and keep others waiting until this one ends."""
        if db.execute(_marks.update().where(self._mine).values(epoch=_marks.c.epoch)).rowcount == 0:
            db.execute(_marks.insert().values(application=self._application, sink=self._sink, epoch=-1))

    def _set_mark(self, db: sql.Connection, epoch: EpochNumber) -> None:
        db.execute(_marks.update().where(self._mine).values(epoch=epoch))  # a new row would not be held by others

    def _table(self, rows: DataFrame) -> sql.Table:
        columns = [
            sql.Column(
                field.name, _TYPES.get(field.dataType.simpleString(), sql.Text), primary_key=field.name in self._to.keys
            )
            for field in rows.schema.fields
            if field.name != ROW
        ]
        return sql.Table(self._to.table, sql.MetaData(), *columns)

    def _put(self, db: sql.Connection, table: sql.Table, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        if not self._to.keys:
            db.execute(table.insert(), rows)
            return
        rows = list({tuple(r[k] for k in self._to.keys): r for r in rows}.values())  # the last row of a key counts
        insert = (postgresql if db.dialect.name == "postgresql" else sqlite).insert(table)
        others = {c: insert.excluded[c] for c in rows[0] if c not in self._to.keys}
        insert = (
            insert.on_conflict_do_update(index_elements=list(self._to.keys), set_=others)
            if others else insert.on_conflict_do_nothing(index_elements=list(self._to.keys))
        )  # fmt: skip
        db.execute(insert, rows)

    def _reaching(self) -> "_Reaching":
        return _Reaching(self._to.table)


class _Reaching:
    """Turns an error of the database or of Spark into one after which the release is retried."""

    def __init__(self, table: str) -> None:
        self._table = table

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (sql.exc.SQLAlchemyError, *SPARK_ERRORS)):
            raise release_failed(self._table, error) from error


def _collected(rows: DataFrame, *, few: bool) -> Iterable[Row]:
    """Return rows in the order of their places. If they are many, they are read in parts."""
    ordered = sorted_by_place(rows, few=few)
    return ordered.collect() if few else ordered.toLocalIterator()


def _plain(rows: DataFrame, name: str) -> Column:
    """Return a column as a database stores it: nested values as JSON, and decimals as text."""
    kind = rows.schema[name].dataType.simpleString()
    column = F.col(f"`{name}`")
    if kind == "timestamp":
        return column.cast("timestamp_ntz").alias(name)  # otherwise Python would convert it to this machine's time zone
    if kind.startswith(NESTED):
        return F.to_json(column, JSON_OPTIONS).alias(name)
    return column if kind in _TYPES else column.cast("string").alias(name)
