"""A table whose server gets the commit of an epoch after the connection was lost."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sql

import falkirk as fk
from falkirk.errors import SparkError
from falkirk.runtime.spark.sinks import table as module
from falkirk.runtime.spark.sinks.table import TableTarget
from tests.postgres import Postgres
from tests.support import wait_until
from tests.wires import Wire

WAITS = "SELECT 1 FROM pg_locks WHERE NOT granted"


def mark_late(target: TableTarget, wire: Wire, epoch: int) -> None:
    """Deliver an epoch, without its rows, whose commit is on its way when the connection breaks."""

    def deliver() -> None:
        with target._engine.begin() as db:
            target._hold_mark(db)
            target._set_mark(db, epoch)
            wire.break_at(b"COMMIT\0", "late")

    with pytest.raises(sql.exc.OperationalError):
        deliver()


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_what_may_be_visible_waits_for_a_late_commit(
    wire: tuple[Wire, str], postgres: Postgres, tag: str, monkeypatch: pytest.MonkeyPatch, first: bool, holds: bool
) -> None:
    """Without the wait, a rollback would cancel an epoch that appears in the table later."""
    late, url = wire
    target, witness = (TableTarget(fk.Sql(each, "rows"), tag, "s") for each in (url, postgres.url()))
    assert target.visible() == 0
    if not first:
        with target._engine.begin() as db:
            target._hold_mark(db)
            target._set_mark(db, 4)
    mark_late(target, late, 5)
    if not holds:
        monkeypatch.setattr(TableTarget, "_hold_mark", lambda self, db: None)
    with ThreadPoolExecutor(1) as pool, witness._engine.connect() as db:
        asked = pool.submit(target.visible)
        wait_until(lambda: asked.done() or db.exec_driver_sql(WAITS).first(), 60, "the question")
        late.deliver()
        assert asked.result(60) == (6 if holds else 0 if first else 5)
        wait_until(lambda: witness.visible() == 6, 60, "the late commit")
    for each in (target, witness):
        each._engine.dispose()


def test_a_commit_that_stays_away_counts_as_an_unreachable_table(
    wire: tuple[Wire, str], tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then all results count as visible."""
    monkeypatch.setattr(module, "LOCKED_S", 1)
    late, url = wire
    target = TableTarget(fk.Sql(url, "rows"), tag, "s")
    assert target.visible() == 0
    mark_late(target, late, 5)
    with pytest.raises(SparkError) as away:
        target.visible()
    assert away.value.condition == "RELEASE_FAILED"
    target._engine.dispose()
