"""Faults of the store's database: the writes of a method that returned are kept; after an error, all or none are."""

import contextlib
import socket
import sqlite3
import subprocess
import sys
import threading
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sql

from falkirk.errors import Certainty, StoreError
from falkirk.recovery.decision_store import Store
from tests.postgres import Postgres
from tests.stores import RECORD, Place
from tests.support import outcome, wait_until
from tests.wires import Fate, Wire

# -- stands still ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writes", [False, True])
def test_a_server_that_stands_still_is_away_after_a_while(postgres: Postgres, tag: str, writes: bool) -> None:
    """It accepts connections, and its kernel confirms all data. Before, the coordinator waited without end."""
    store = Store(postgres.url(), identity=tag, timeout_s=1.0)
    store.create_region("before", RECORD, {})

    def ask() -> None:
        if writes:
            store.create_region("after", RECORD, {})
        else:
            store.region("before")

    with ThreadPoolExecutor(1) as caller, postgres.stopped():
        for _ in range(2):  # the second call asks for a new connection
            with pytest.raises(StoreError) as refused:
                caller.submit(ask).result(20)
            assert (refused.value.condition, refused.value.certainty) == ("STORE_AWAY", "definitely")
    assert store.region("before") == RECORD
    wait_until(lambda: outcome(ask) in (None, "STORE_AWAY"), 20, "the store to answer")


# -- killed ------------------------------------------------------------------------------------------------------------


class Writer(threading.Thread):
    """Makes regions in a loop, each with two rows in two tables, and records the outcome of each."""

    def __init__(self, store: Store, name: str) -> None:
        super().__init__(daemon=True)
        self._store, self._prefix = store, name
        self.stopping = threading.Event()
        self.returned: list[str] = []
        self.raised: dict[str, tuple[str, Certainty]] = {}

    def run(self) -> None:
        """Write until the stop."""
        number = 0
        while not self.stopping.wait(0.002):
            number += 1
            name = f"{self._prefix}-{number}"
            try:
                self._store.create_region(name, RECORD, {"counts": {0: number}})
                self.returned.append(name)
            except StoreError as error:
                self.raised[name] = (error.condition, error.certainty)


def test_a_server_killed_under_writers_has_what_returned_and_halves_of_nothing(postgres: Postgres, tag: str) -> None:
    stores = [Store(postgres.url(), identity=tag) for _ in range(2)]
    writers = [Writer(store, f"w{n}") for n, store in enumerate(stores)]
    for writer in writers:
        writer.start()
    for round_ in range(1, 3):
        wait_until(lambda: all(len(w.returned) > 20 * round_ for w in writers), 30, "writes")  # noqa: B023
        postgres.kill()
        wait_until(lambda: all(len(w.raised) >= round_ for w in writers), 30, "errors")  # noqa: B023
        postgres.start()
        before = [len(w.returned) for w in writers]
        wait_until(lambda: all(len(w.returned) > b + 5 for w, b in zip(writers, before, strict=True)), 30, "more")  # noqa: B023
    for writer in writers:
        writer.stopping.set()
        writer.join(30)
    there = set(stores[0].region_names())
    for writer in writers:
        assert set(writer.returned) <= there
        for name, (condition, certainty) in writer.raised.items():
            assert condition == "STORE_AWAY"
            assert certainty == "maybe" or name not in there
    attempted = {name for w in writers for name in (*w.returned, *w.raised)}
    assert there <= attempted
    assert {name for name in attempted if stores[0].tails(name)} == there
    for store in stores:
        store.close()


WRITING = """
import sys
from tests.stores import Place, RECORD
store = Place(where=sys.argv[1], identity=sys.argv[2]).open()
for number in range(1_000_000):
    store.create_region(f"r{number}", RECORD, {"counts": {0: number}})
    print(f"r{number}", flush=True)
"""


def test_a_process_killed_while_it_writes_has_what_returned_and_halves_of_nothing(place: Place) -> None:
    writing = subprocess.Popen(
        [sys.executable, "-c", WRITING, place.where, place.identity],
        stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert writing.stdout is not None
    returned = [writing.stdout.readline().strip() for _ in range(30)]
    writing.kill()
    returned += [line.strip() for line in writing.stdout if line.endswith("\n")]
    writing.wait()
    store = place.open(must_exist=True)
    there = set(store.region_names())
    assert set(returned) <= there
    assert len(there) <= len(returned) + 1
    assert {name for n in range(len(there) + 2) if store.tails(name := f"r{n}")} == there
    assert store.open_incarnation("r0", -1) == 1  # the killed process does not block it
    store.close()


# -- interrupted
# -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "fate", "certainty", "there"),
    [
        (b"INSERT INTO", "lost", "definitely", False),  # the wire breaks before the write,
        (b"INSERT INTO", "answered", "definitely", False),  # after the write but before the commit,
        (b"COMMIT\0", "lost", "maybe", False),  # before the commit arrives,
        (b"COMMIT\0", "answered", "maybe", True),  # and after it: the store can't distinguish the last two
    ],
)
def test_a_wire_that_breaks_says_what_may_have_happened(
    wire: tuple[Wire, str], postgres: Postgres, tag: str, message: bytes, fate: Fate, certainty: str, there: bool
) -> None:
    broken, url = wire
    store, witness = Store(url, identity=tag), Store(postgres.url(), identity=tag)
    store.record_decision("epoch", "w", 0, "before")
    broken.break_at(message, fate)
    with pytest.raises(StoreError) as caught:
        store.record_decision("epoch", "w", 1, "decided")
    assert broken.broke
    assert (caught.value.condition, caught.value.certainty) == ("STORE_AWAY", certainty)
    assert (witness.decision("epoch", "w", 1) is not None) == there
    store.record_decision("epoch", "w", 1, "decided")  # the same store can continue, and a repetition does no harm
    assert [d.content for d in witness.decisions("epoch", "w")] == ["before", "decided"]
    store.close()
    witness.close()


def test_reading_never_fails_maybe(wire: tuple[Wire, str], tag: str) -> None:
    broken, url = wire
    store = Store(url, identity=tag)
    broken.break_at(b"COMMIT\0", "lost")
    with contextlib.suppress(StoreError):
        store.decisions("epoch", "w")
    broken.break_at(b"SELECT", "lost")
    with pytest.raises(StoreError) as caught:
        store.decisions("epoch", "w")
    assert (caught.value.condition, caught.value.certainty) == ("STORE_AWAY", "definitely")
    store.close()


# -- away --------------------------------------------------------------------------------------------------------------


def away_urls(postgres: Postgres, folder: Path) -> dict[str, str]:
    """Return URLs at which no store can be reached, one for each reason."""
    secret = "s3cret&x@/"
    plain = postgres.url().partition("@")[2]
    return {
        "no server": postgres.url(password=secret).replace(plain, f"/postgres?host={folder}"),
        "no port": f"postgresql://falkirk:s3cret%26x%40%2F@127.0.0.1:{closed_port()}/postgres",
        "wrong password": postgres.url(password=secret),
        "wrong password, as an option": f"postgresql://{plain}&user=falkirk&password=s3cret%26x%40%2F",
        "no such database": postgres.url().replace("/postgres?", "/shop?"),
        "no such user": postgres.url(user="somebody", password=secret),
    }


def closed_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    "why",
    ["no server", "no port", "wrong password", "wrong password, as an option", "no such database", "no such user"],
)
def test_a_database_that_is_away_is_named_without_a_password(postgres: Postgres, tmp_path: Path, why: str) -> None:
    with pytest.raises(StoreError) as caught:
        Store(away_urls(postgres, tmp_path)[why], identity="deadbeef", timeout_s=2)
    assert (caught.value.condition, caught.value.certainty) == ("STORE_AWAY", "definitely")
    text = "".join(traceback.format_exception(caught.value)) + repr(caught.value.parameters)
    assert not [secret for secret in ("s3cret", postgres.password) if secret in text]


def test_a_user_without_rights_is_told_so(postgres: Postgres, tag: str) -> None:
    postgres.execute(f"CREATE USER plain_{tag} PASSWORD 'x'")
    with pytest.raises(StoreError) as caught:
        Store(postgres.url(user=f"plain_{tag}", password="x"), identity=tag)
    assert (caught.value.condition, caught.value.certainty) == ("STORE_UNREADABLE", "definitely")
    assert "CREATE" in caught.value.hint


def test_a_writer_that_does_not_finish_makes_the_store_away_and_not_damaged(place: Place) -> None:
    holder, waiter = place.open(), place.open(timeout_s=1.0)
    with holder._writing():
        for act in (lambda: waiter.post_request("stop", None), lambda: waiter.open_recovery("x", {})):
            with pytest.raises(StoreError) as caught:
                act()
            assert (caught.value.condition, caught.value.certainty) == ("STORE_AWAY", "definitely")
        assert waiter.request(1) is None  # readers are not blocked
    assert waiter.post_request("stop", None) == 1
    holder.close()
    waiter.close()


def test_a_writer_that_hangs_loses_its_turn(postgres: Postgres, tag: str) -> None:
    # The first one makes the tables, which takes longer on a busy machine.
    other, hanging = (Store(postgres.url(), identity=tag, timeout_s=seconds) for seconds in (20, 0.5))

    def hang() -> None:
        with hanging._writing() as db:
            waiting.append(pool.submit(other.post_request, "stop", None))
            wait_until(waiting[0].done, 10, "the other to get its turn")
            db.exec_driver_sql("SELECT 1")

    waiting: list[Future[int]] = []
    with ThreadPoolExecutor(1) as pool, pytest.raises(StoreError) as caught:
        hang()
    assert waiting[0].result() == 1
    assert (caught.value.condition, caught.value.certainty) == ("STORE_AWAY", "definitely")
    hanging.close()
    other.close()


@pytest.mark.parametrize("setting", ["off", "on", "local", "remote_apply"])
def test_a_commit_is_in_the_servers_log_whatever_its_default(postgres: Postgres, tag: str, setting: str) -> None:
    store = Store(postgres.url(options=f"-c synchronous_commit={setting}"), identity=tag)
    with store._writing() as db:
        used = db.exec_driver_sql("SHOW synchronous_commit").scalar()
    assert used == ("on" if setting == "off" else setting)
    store.close()


def test_a_server_that_only_reads_is_away(postgres: Postgres, tag: str) -> None:
    with pytest.raises(StoreError) as caught:
        Store(postgres.url(options="-c default_transaction_read_only=on"), identity=tag)
    assert (caught.value.condition, caught.value.certainty) == ("STORE_AWAY", "definitely")


def test_a_full_disk_is_no_lost_decision(tmp_path: Path) -> None:
    store = Store(tmp_path / "decisions.db")
    store.record_decision("epoch", "w", 0, "kept")

    def fill_disk(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA max_page_count = 40")

    sql.event.listen(store._database.engine, "connect", fill_disk)
    store._database.engine.dispose()
    written = [0]

    def write() -> None:
        while written[-1] < 1000:
            store.record_decision("epoch", "w", written[-1] + 1, "x" * 1000)
            written.append(written[-1] + 1)

    with pytest.raises(StoreError) as caught:
        write()
    assert caught.value.condition == "STORE_AWAY", "the caller waits and retries"
    store.close()
    again = Store(tmp_path / "decisions.db", must_exist=True)
    assert [d.number for d in again.decisions("epoch", "w")] == written
    assert len(written) > 5
    again.close()
