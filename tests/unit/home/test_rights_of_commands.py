"""The rights in docs/how-to/security.md of the commands in PostgreSQL: they are enough, and each of them is needed.

Each command visits an application at rest (without Spark), on a real broker, as a role that has these rights alone.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from falkirk.errors import HomeError, StoreError
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.ownership.folder import Home, attach_home, open_home
from falkirk.runtime.spark import settling
from falkirk.runtime.spark.context import Storage
from falkirk.spark_setup.broker import Broker
from falkirk.theory.ids import CheckpointNumber, EpochNumber
from falkirk.user_tools.commands.history.application import recorded_shape
from falkirk.user_tools.commands.kept_state import batch_states
from falkirk.user_tools.commands.origins import Origins
from falkirk.user_tools.commands.records import EpochPlace, TopicRecords
from tests.cluster.past import Past
from tests.integration.live import Wire
from tests.integration.outside.test_redrive import Stage
from tests.postgres import Postgres


@dataclass(frozen=True, kw_only=True)
class Visitor:
    """A role in PostgreSQL that uses the store of a home."""

    postgres: Postgres
    role: str
    home: Path
    schema: str

    def may(self, *operations: str) -> None:
        """Give the role these rights on the tables of the store, and take all others."""
        self.postgres.execute(
            f'REVOKE ALL ON ALL TABLES IN SCHEMA "{self.schema}" FROM {self.role};'
            f'GRANT USAGE ON SCHEMA "{self.schema}" TO {self.role}'
        )
        if operations:
            self.postgres.execute(
                f'GRANT {", ".join(operations)} ON ALL TABLES IN SCHEMA "{self.schema}" TO {self.role}'
            )

    def attached(self) -> Home:
        """Open the home as a command that only reads."""
        return attach_home(self.home, "again", self.postgres.url(self.role, self.role))

    def visiting(self) -> Home:
        """Open the home as a command that changes it."""
        return open_home(self.home, "again", self.postgres.url(self.role, self.role), visits=True)

    def needs(self, do: Callable[[], object], *operations: str) -> None:
        """Check that something works with these rights, and without each of them is refused."""
        for missing in operations:
            self.may(*(each for each in operations if each != missing))
            with pytest.raises(StoreError):
                do()
        self.may(*operations)
        do()


@pytest.fixture
def past(broker: Broker, postgres: Postgres, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch) -> Past:
    """An application at rest with its store in PostgreSQL. The visitor opens its home again."""
    monkeypatch.setattr(settling, "SETTLE_S", 0.02)
    with open_home(home, "again", postgres.url()) as opened:
        return Past(Wire(bootstrap=broker.bootstrap, tag=tag), opened)


@pytest.fixture
def visitor(postgres: Postgres, past: Past, home: Path, tag: str) -> Iterator[Visitor]:
    """A role that may use the schema of that store, and has no other right."""
    role, schema = f"visitor_{tag}", f"falkirk_{past.home.identity}"
    postgres.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'")
    postgres.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO {role}')
    yield Visitor(postgres=postgres, role=role, home=home, schema=schema)
    postgres.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_commands(visitor: Visitor, past: Past, home: Path) -> None:
    """One test for all of them, since making the application at rest takes longer than a command."""
    connection = Connection.of(past.wire.bootstrap)
    stage = Stage(Wire(bootstrap=past.wire.bootstrap, tag=f"{past.wire.tag}-again"), past.home)

    def look(held: Home, *, runs: bool) -> None:
        past.home = held
        visit = past.visit(connection, runs=runs)
        visit.past_cuts()
        visit.preview({"held": CheckpointNumber(1)})
        visit.history()

    def history() -> None:
        with visitor.attached() as held:
            look(held, runs=True)

    def history_at_rest() -> None:
        with visitor.visiting() as held:
            look(held, runs=False)

    def peek_and_why() -> None:
        with visitor.attached() as held:
            place = Storage(home=held, connection=connection)
            records = TopicRecords(place)
            assert len(records.last(past.counts, 2)) == 2
            origins = Origins(past.app, recorded_shape(home), place, records, limit=5, look=5)
            assert origins.explain(EpochPlace(batch="batch", epoch=EpochNumber(1)))["origin"]

    def state() -> None:
        with visitor.attached() as held:
            (batch,) = recorded_shape(home).batches
            with pytest.raises(HomeError) as error:
                batch_states(batch, held, (), 5)
            assert error.value.condition == "STATE_MISSING", "the store was read"

    def disown() -> None:
        with visitor.visiting() as held:
            Storage(home=held, connection=connection).disown(past.counts)

    def redrive() -> None:
        with visitor.visiting() as held:
            stage.home = held
            stage.bury("left", 0, stage.put(0, b"no JSON"), value="no JSON")
            assert stage.again()["sent"] >= 1

    def collect() -> None:
        with visitor.visiting() as held:
            past.home = held
            visit = past.visit(connection)
            visit.garbage()
            visit.recovery.collect()

    def go_back() -> None:
        with visitor.visiting() as held:
            past.home = held
            past.visit(connection).roll_back({"plain": CheckpointNumber(1), "held": CheckpointNumber(1)}, force=True)

    for reads in (history, history_at_rest, peek_and_why, state):
        visitor.needs(reads, "SELECT")
    visitor.needs(disown, "SELECT", "INSERT")
    visitor.needs(collect, "SELECT", "INSERT", "DELETE")
    visitor.needs(go_back, "SELECT", "INSERT", "UPDATE")
    visitor.needs(redrive, "SELECT", "INSERT")
