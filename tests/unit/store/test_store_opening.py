"""Opening a store: an older one is migrated, whole or not at all; a newer or torn one is refused, never replaced."""

import ast
import json
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sql

import falkirk.recovery.decision_store
from falkirk.errors import StoreError
from falkirk.recovery.decision_store import SCHEMA_VERSION, Request, Store
from falkirk.recovery.decision_store.migrate import MIGRATIONS
from falkirk.recovery.decision_store.tables import metadata
from falkirk.theory.ids import EpochNumber
from falkirk.theory.offsets import PartitionRange
from tests.store_crash import GONE, count_steps
from tests.stores import RECORD, Place, contents, fill, read


def refused(place: Place | Path, **options: bool) -> StoreError:
    """Return the error with which opening a store fails."""
    with pytest.raises(StoreError) as caught:
        (Store(place, **options) if isinstance(place, Path) else place.open(**options)).close()
    assert caught.value.certainty == "definitely"
    return caught.value


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a store in a file."""
    return tmp_path / "decisions.db"


# -- versions ----------------------------------------------------------------------------------------------------------


def see_version_1(store: Store) -> None:
    """Check every row of the literal store of version 1."""
    assert store.region_names() == ("counts",)
    assert store.region("counts") == RECORD
    assert [(t.valid_from_commit, t.incarnation, t.positions) for t in store.tails("counts")] == [
        (-1, 0, {"counts": {0: 3}}),
        (7, 2, {"counts": {0: 2**63 - 1, 11: 4}}),
    ]
    assert [tuple(row) for row in store.incarnations("counts")] == [
        ("counts", 1, 1795000000.25, -1, None, False, None),
        ("counts", 2, 1795000001.5, 6, '{"counts": {"0": 9}}', True, "a producer error"),
    ]
    assert store.is_unsafe_since("counts", 2)
    assert not store.is_unsafe_since("counts", 3)
    assert store.skipped_input("counts") == ((0, 10, 20), (1, 9000000000, 9000000005))
    assert [(v.partition, v.first, v.last_exclusive) for v in store.voided_ranges("hop")] == [
        (0, 3, 5),
        (0, 6, 7),
        (1, 9000000000, 9000000001),
    ]
    assert store.voided_ranges("other") == (PartitionRange(partition=0, first=0, last_exclusive=1),)


def test_version_1_is_migrated_with_all_its_rows(place: Place) -> None:
    place.make_version_1()
    for _ in range(2):
        store = place.open()
        see_version_1(store)
        store.close()
    store = place.open(must_exist=True)
    assert store.open_incarnation("counts", 7) == 3
    fill(store, 2)
    assert len(store.checkpoints("rank")) == 2
    store.close()
    assert place.execute("SELECT value FROM meta WHERE name = 'schema'") == [(str(SCHEMA_VERSION),)]


def test_version_2_keeps_what_is_retained_and_its_requests(place: Place) -> None:
    place.make_version_1()
    place.execute(";".join(MIGRATIONS[1]))
    place.execute("INSERT INTO watermarks VALUES ('counts', 'retained', '9000000000', 1.5)")
    place.execute(
        "INSERT INTO requests VALUES (1, 'stop', '{\"now\": true}', 1.5, 'done', '\"yes\"'),"
        " (2, 'stop', '{}', 2.5, 'open', NULL)"
    )
    store = place.open()
    assert (store.retained_from("counts"), store.retained_from("rank")) == (9_000_000_000, None)
    assert store.request(1) == Request(request=1, kind="stop", arguments={"now": True}, state="done", answer="yes")
    assert store.take_request("stop") == Request(request=2, kind="stop", arguments={}, state="taken", answer=None)
    store.close()


def test_version_4_keeps_the_numbers_of_its_checkpoints(place: Place) -> None:
    place.make_version_1()
    place.execute(";".join(statement for version in MIGRATIONS[1:4] for statement in version))
    place.execute("INSERT INTO checkpoints VALUES ('rank', 9000000000, 1.5, '{\"rows\": 3}'), ('rank', 2, 0.5, '{}')")
    place.execute("INSERT INTO retained VALUES ('rank', 9000000000)")
    store = place.open()
    assert [(c.number, c.made_at_s, c.metadata) for c in store.checkpoints("rank", 3)] == [
        (9_000_000_000, 1.5, {"rows": 3})
    ]
    assert store.retained_from("rank") == 9_000_000_000
    store.add_checkpoint("rank", EpochNumber(3), {})
    assert [c.number for c in store.checkpoints("rank")] == [2, 3, 9_000_000_000]
    store.close()


def test_a_new_store_and_a_migrated_one_have_the_tables_that_the_methods_use(place: Place) -> None:
    older = place.another("older")
    older.make_version_1()
    for each in (place, older):
        each.open().close()
    new, migrated = place.columns(), older.columns()
    kinds = {"INTEGER": "BIGINT"}  # in SQLite they are the same

    def alike(tables: dict[str, dict[str, tuple[str, bool, bool]]]) -> dict[str, dict[str, tuple[str, bool, bool]]]:
        return {t: {c: (kinds.get(k, k), n, p) for c, (k, n, p) in cs.items()} for t, cs in tables.items()}

    assert alike(new) == alike(migrated)
    wanted = {t.name: {c.name: (bool(c.nullable), c.primary_key) for c in t.columns} for t in metadata.sorted_tables}
    assert {t: {c: (n, p) for c, (_, n, p) in cs.items()} for t, cs in new.items()} == wanted
    numbers = {
        (t.name, c.name) for t in metadata.sorted_tables for c in t.columns if isinstance(c.type, sql.BigInteger)
    }
    assert {(t, c) for t, cs in new.items() for c, (kind, _, _) in cs.items() if kind == "BIGINT"} == numbers


@pytest.mark.parametrize("version", ["0", str(SCHEMA_VERSION + 1), "one"])
def test_another_version_is_refused_and_left_as_it_is(place: Place, version: str) -> None:
    place.open().close()
    place.execute(f"UPDATE meta SET value = '{version}'")
    before = place.columns()
    error = refused(place)
    assert error.condition == "STORE_VERSION"
    assert (error.parameters["found"], error.parameters["expected"]) == (version, str(SCHEMA_VERSION))
    assert place.columns() == before


def test_a_store_without_a_version_is_refused(place: Place) -> None:
    place.open().close()
    place.execute("DELETE FROM meta")
    assert refused(place).condition == "STORE_UNREADABLE"


# -- crashes -----------------------------------------------------------------------------------------------------------


def crash_at_each_step(place: Place, *, older: bool) -> list[Place]:
    """Open a store in processes that end before their 1st, 2nd, … step (a new one: every third); return the stores."""
    whole = place.another("whole")
    if older:
        whole.make_version_1()
    steps = count_steps(whole)
    points = range(1, steps + 1) if older else range(steps, 0, -3)
    left = [place.another(f"at{k}") for k in points]
    for each in left if older else ():
        each.make_version_1()
    task = json.dumps([[each.where, each.identity, k] for k, each in zip(points, left, strict=True)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.store_crash"],
        input=task, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [GONE] * len(left)
    assert steps > 15
    return left


def test_a_migration_that_is_killed_at_any_step_has_happened_or_not(place: Place) -> None:
    found = set()
    for left in crash_at_each_step(place, older=True):
        found.add(place_version(left))
        store = left.open(must_exist=True)
        see_version_1(store)
        store.close()
    assert found == {"1"}  # the last step is the commit


def place_version(place: Place) -> str:
    """Return the version of a store, without opening the store."""
    return str(place.execute("SELECT value FROM meta WHERE name = 'schema'")[0][0])


def test_a_store_whose_making_was_killed_at_any_step_is_made_anew(place: Place) -> None:
    for left in crash_at_each_step(place, older=False):
        store = left.open()
        assert store.open_incarnation("counts", -1) == 1
        store.close()
    if place.is_file:
        assert not list(Path(place.where).parent.glob(".*"))


# -- torn stores -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["incarnations", "meta", "recoveries", "voided_ranges"])
def test_a_missing_table_or_column_is_refused(place: Place, table: str) -> None:
    place.open().close()
    place.execute(f"DROP TABLE {table}")
    assert refused(place).condition == "STORE_UNREADABLE"
    lacking = place.another("column")
    lacking.open().close()
    column = [c.name for c in metadata.tables[table].columns][-1]
    if not metadata.tables[table].columns[column].primary_key:
        lacking.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        assert refused(lacking).condition == "STORE_UNREADABLE"


def test_a_table_that_goes_while_the_store_is_open_is_named(store: Store, place: Place) -> None:
    place.execute("DROP TABLE voided_ranges")
    with pytest.raises(StoreError) as caught:
        store.voided_ranges("t")
    assert caught.value.condition == "STORE_UNREADABLE"


@pytest.mark.parametrize("table", ["regions", "skipped_input", "voided"])
def test_a_table_missing_in_version_1_is_refused(place: Place, table: str) -> None:
    place.make_version_1()
    place.execute(f"DROP TABLE {table}")
    before = place.columns()
    assert refused(place).condition == "STORE_UNREADABLE"
    assert place.columns() == before


def test_a_damaged_value_is_named(store: Store, place: Place) -> None:
    store.create_region("counts", RECORD, {"counts": {0: 3}})
    for text in ("", "{", "[1]", '{"t": 3}', '{"t": {"x": 1}}'):
        place.execute(f"UPDATE tail_positions SET positions = '{text}'")
        with pytest.raises(StoreError) as caught:
            store.tails("counts")
        assert caught.value.condition == "STORE_UNREADABLE", text


def test_where_a_store_must_be_none_is_made(place: Place) -> None:
    error = refused(place, must_exist=True)
    assert error.condition == "STORE_UNREADABLE"
    place.open().close()
    place.open(must_exist=True).close()


def test_a_schema_without_tables_is_no_new_store(place: Place) -> None:
    if place.is_file:
        Path(place.where).touch()
    else:
        place.execute(f"CREATE SCHEMA falkirk_{place.identity}")
    assert refused(place).condition == "STORE_UNREADABLE"


def make_file(path: Path, count: int = 15) -> dict[str, object]:
    """Make a store in a file of several pages; return its contents."""
    store = Store(path)
    fill(store, count)
    everything = contents(store)
    store.close()
    assert not path.with_name("decisions.db-wal").exists()
    return everything


def test_a_file_cut_anywhere_is_refused(path: Path) -> None:
    make_file(path)
    content = path.read_bytes()
    assert len(content) > 15 * 4096
    sizes = {0, 1, 15, 16, 99, 100, 101, 4095, 4096, 4097, len(content) // 2, len(content) - 4096, len(content) - 1}
    for size in sorted(sizes):
        path.write_bytes(content[:size])
        assert refused(path).condition == "STORE_UNREADABLE", size
        assert path.stat().st_size == size


def test_bytes_damaged_anywhere_are_named_or_hit_nothing(path: Path) -> None:
    everything = make_file(path)
    content = path.read_bytes()
    dice = random.Random(4)
    outcomes = {"intact": 0, "refused": 0}
    for _ in range(30):
        at, size = dice.randrange(len(content)), dice.choice([100, 512, 4096])
        damaged = bytearray(content)
        damaged[at : at + size] = dice.randbytes(len(damaged[at : at + size]))
        path.write_bytes(damaged)
        try:
            assert read(path) == everything
            outcomes["intact"] += 1
        except StoreError as error:
            outcomes["refused"] += error.condition == "STORE_UNREADABLE"
        for left_over in path.parent.glob("decisions.db-*"):
            left_over.unlink()
    assert sum(outcomes.values()) == 30
    assert outcomes["refused"] > 10


def test_a_damaged_text_that_sqlite_quotes_is_named(path: Path) -> None:
    make_file(path, 1)
    content = path.read_bytes()
    assert content.count(b"CREATE TABLE meta (") == 1
    path.write_bytes(content.replace(b"CREATE TABLE meta (", b"CREATE TABLE meta \xc1"))
    assert refused(path).condition == "STORE_UNREADABLE"


def test_what_is_no_database_is_named(path: Path) -> None:
    path.write_bytes(b"this is no database\n" * 500)
    error = refused(path)
    assert error.condition == "STORE_UNREADABLE"
    assert error.where == path


def test_a_database_of_something_else_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE other (x)")
    db.close()
    assert refused(path).condition == "STORE_UNREADABLE"


def test_a_write_ahead_log_without_its_file_is_no_beginning(path: Path) -> None:
    store = Store(path)
    fill(store, 3)
    path.unlink()
    assert path.with_name("decisions.db-wal").stat().st_size > 0
    assert refused(path).condition == "STORE_UNREADABLE"
    assert not path.exists()
    store.close()


def test_where_no_file_can_be_is_named(tmp_path: Path) -> None:
    assert refused(tmp_path / "missing" / "decisions.db").condition == "STORE_UNREADABLE"
    (tmp_path / "folder.db").mkdir()
    assert refused(tmp_path / "folder.db").condition == "STORE_UNREADABLE"


def test_a_path_may_have_any_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a?b#c%41 ü&mode=memory"
    folder.mkdir()
    everything = make_file(folder / "decisions.db", 1)
    assert read(folder / "decisions.db") == everything
    monkeypatch.chdir(folder)
    assert read(Path("decisions.db")) == everything


# -- places ------------------------------------------------------------------------------------------------------------


def test_a_path_and_its_url_are_the_same_store(path: Path) -> None:
    everything = make_file(path, 1)
    for place in (path, str(path), f"sqlite:///{path}"):
        store = Store(place, must_exist=True)
        assert contents(store) == everything
        store.close()


SECRET = "p4ss-word"


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://falkirk:{SECRET}@db/shop",
        f"postgresql+asyncpg://falkirk:{SECRET}@db/shop",
        f"postgresql://falkirk:x:{SECRET}@db:{SECRET}/shop",
        f"postgresql://falkirk:x@{SECRET}@db/shop",
        f"postgresql://falkirk:x@y/{SECRET}@db/shop",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:x?mode=memory&uri=true",
        "://",
    ],
)
def test_a_url_that_is_none_of_ours_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        Store(url, identity="deadbeef")
    assert caught.value.condition == "STORE_URL_INVALID"
    assert SECRET not in repr(caught.value)
    assert caught.value.__cause__ is None


def test_a_missing_driver_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)  # `import` then fails as if it were not installed
    with pytest.raises(StoreError) as caught:
        Store(f"postgresql://falkirk:{SECRET}@db/shop", identity="deadbeef")
    assert caught.value.condition == "STORE_DRIVER_MISSING"
    assert caught.value.parameters["command"] == "pip install 'falkirk[postgres]'"
    assert SECRET not in str(caught.value)


def test_no_pickle_anywhere() -> None:
    folder = Path(falkirk.recovery.decision_store.__file__).parent
    names = set()
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names |= {node.attr} if isinstance(node, ast.Attribute) else set()
            names |= {node.id} if isinstance(node, ast.Name) else set()
            names |= {a.name for a in node.names} if isinstance(node, ast.Import | ast.ImportFrom) else set()
    assert not [n for n in names if "pickle" in n.lower() or n in {"marshal", "shelve", "eval", "exec"}]
    kinds = {type(column.type) for table in metadata.sorted_tables for column in table.columns}
    assert kinds == {sql.String, sql.BigInteger, sql.Float, sql.Boolean}
