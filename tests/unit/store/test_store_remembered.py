"""The store answers a repeated question from memory, and notices each commit: its own, another thread's and another
process's."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from falkirk.recovery.decision_store import Store
from falkirk.recovery.decision_store.part import Part
from falkirk.recovery.decision_store.sqlite import SqliteDatabase
from falkirk.theory.offsets import PartitionRange
from tests.postgres import Postgres
from tests.stores import Place, void_range

OTHER_PROCESS = """
import sys
from pathlib import Path
from falkirk.recovery.decision_store import Store
store = Store(Path(sys.argv[1]))
store.record_decision("cut", "b", 7, {"at": 7})
store.close()
"""


@pytest.fixture
def other(place: Place, store: Store) -> Iterator[Store]:
    """A second visitor of the same store, with separate connections."""
    opened = place.open()
    yield opened
    opened.close()


def seen(store: Store) -> tuple[object, ...]:
    """Return the answers to all questions that are remembered."""
    return (
        [d.number for d in store.decisions("cut", "b")], store.newest_decision("cut", "b"),
        store.decision("cut", "b", 0), store.decisions_of("cut"),
        [(c.number, c.metadata) for c in store.checkpoints("b")], store.voided_ranges("t"),
    )  # fmt: skip


def work(writer: Store, number: int) -> None:
    writer.record_decision("cut", "b", number, {"at": number})
    writer.add_checkpoint("b", number, {"rows": number})
    void_range(writer, "t", 0, 10 * number, 10 * number + 1)


def assert_all_seen(store: Store, count: int) -> None:
    decisions, newest, first, of_kind, checkpoints, void = seen(store)
    assert decisions == list(range(count))
    assert newest is not None and newest.number == count - 1  # type: ignore[attr-defined]  # noqa: PT018
    assert first is not None and first.content == {"at": 0}  # type: ignore[attr-defined]  # noqa: PT018
    assert of_kind == {"b": {"at": 0}}
    assert checkpoints == [(n, {"rows": n}) for n in range(count)]
    assert void == tuple(PartitionRange(partition=0, first=10 * n, last_exclusive=10 * n + 1) for n in range(count))


def test_each_commit_of_anybody_is_seen_at_once(store: Store, other: Store) -> None:
    seen(store), seen(other)
    for number in range(20):
        work((store, other)[number % 2], number)
        assert_all_seen(store, number + 1)
        assert_all_seen(other, number + 1)


def test_a_commit_of_another_thread_is_seen_at_once(store: Store) -> None:
    with ThreadPoolExecutor(1) as thread:
        for number in range(20):
            thread.submit(work, store, number).result()
            assert_all_seen(store, number + 1)


def test_a_commit_of_another_process_is_seen_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "decisions.db")
    assert store.newest_decision("cut", "b") is None
    subprocess.run([sys.executable, "-c", OTHER_PROCESS, str(tmp_path / "decisions.db")], check=True)
    newest = store.newest_decision("cut", "b")
    assert newest is not None
    assert newest.number == 7
    store.close()


def test_without_asking_the_database_the_commit_of_another_is_not_seen(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(store._database), "version", lambda _: 1)
    seen(store)
    work(other, 0)
    with pytest.raises(AssertionError):
        assert_all_seen(store, 1)


def test_a_question_is_asked_once_and_its_answer_may_be_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "decisions.db")
    work(store, 0)
    assert_all_seen(store, 1)

    def refuse(_: Part) -> None:
        raise AssertionError("the database is asked again")

    monkeypatch.setattr(Part, "_reading", refuse)
    (known,) = store.checkpoints("b")
    assert isinstance(known.metadata, dict)
    known.metadata["rows"] = 99  # each caller has a separate value
    assert_all_seen(store, 1)
    monkeypatch.setattr(SqliteDatabase, "version", lambda _: None)  # as a database that can't tell
    with pytest.raises(AssertionError, match="asked again"):
        store.checkpoints("b")
    store.close()


def test_postgresql_is_asked_without_a_transaction_unless_earlier_writers_are_waited_for(
    postgres: Postgres, tag: str
) -> None:
    """A read takes two messages instead of four. It sees what was committed before, as with READ COMMITTED."""
    with closing(Store(postgres.patient_url(), identity=tag)) as store:
        database = store._database

        def state(*, writes: bool) -> str:
            with database.transaction(writes=writes) as db:
                db.exec_driver_sql("SELECT 1")
                raw: Any = db.connection.driver_connection
                return str(raw.info.transaction_status.name)

        assert (state(writes=False), state(writes=True), state(writes=False)) == ("IDLE", "INTRANS", "IDLE")
        database.note_uncertain()
        assert (state(writes=False), state(writes=False)) == ("INTRANS", "IDLE")
