"""The rights of the application in PostgreSQL (how-to/security.md) are enough, and a missing one gives an error."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import sqlalchemy as sql

import falkirk as fk
from falkirk.errors import StoreError
from falkirk.runtime.spark.sinks.table import TableTarget
from tests.postgres import Postgres
from tests.stores import RECORD, Place, tail


@pytest.fixture
def role(postgres: Postgres, tag: str) -> Iterator[str]:
    """A user that may log in, and has no other right."""
    name = f"shop_{tag}"
    postgres.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{name}'")
    yield name
    postgres.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_the_store_is_used_with_rights_on_its_tables_alone(postgres: Postgres, role: str, tag: str) -> None:
    theirs = Place(where=postgres.url(), identity=tag)
    own = replace(theirs, where=postgres.url(role, role))
    with pytest.raises(StoreError) as error:
        own.open()
    assert error.value.condition == "STORE_UNREADABLE", "making a schema takes CREATE on the database"
    theirs.open().close()
    (schema,) = (str(name) for (name,) in postgres.execute("SELECT nspname FROM pg_namespace") if tag in str(name))
    postgres.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO {role}')
    with pytest.raises(StoreError):
        own.open()
    postgres.execute(f'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "{schema}" TO {role}')
    store = own.open()
    store.create_region("counts", RECORD, {"counts": {0: 3}})
    assert store.open_incarnation("counts", -1) == 1
    store.observe_tail("counts", tail(0, 5))
    store.close()
    again = own.open(must_exist=True)
    assert again.region("counts") == RECORD
    again.close()


def test_a_table_is_written_with_rights_on_it_and_its_marks_alone(postgres: Postgres, role: str, tag: str) -> None:
    table = f"t_{tag}"
    mine = TableTarget(fk.Sql(postgres.patient_url(), table), tag, "mine")
    assert mine.visible() == 0, "the table of marks exists now"
    postgres.execute(f"CREATE TABLE {table} (word varchar PRIMARY KEY, n bigint)")
    target = TableTarget(fk.Sql(postgres.url(role, role), table, key="word"), tag, "sink")
    with pytest.raises(fk.SparkError):
        target.visible()
    postgres.execute(f"GRANT SELECT, INSERT, UPDATE ON falkirk_marks TO {role}")
    postgres.execute(f"GRANT SELECT, INSERT, UPDATE ON {table} TO {role}")
    assert target.visible() == 0
    described = sql.Table(table, sql.MetaData(), sql.Column("word", sql.String), sql.Column("n", sql.BigInteger))
    with target._engine.begin() as db:  # like `deliver`, with rows that Spark has collected
        described.create(db, checkfirst=True)
        target._put(db, described, [{"word": "a", "n": 1}])
        target._put(db, described, [{"word": "a", "n": 2}])
        target._set_mark(db, 0)
    assert target.visible() == 1
    assert postgres.execute(f"SELECT n FROM {table}") == [(2,)]
