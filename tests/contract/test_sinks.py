"""Contract of sinks: Falkirk's own and the documented one keep it, and those with a planted fault do not."""

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from falkirk.errors import SparkError
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.epochs.inputs import ROW
from falkirk.spark_setup.broker import Broker
from falkirk.testing import check_sink
from tests.contract.sinks import ids, keep_contract
from tests.integration.live import Wire
from tests.integration.targets import Place, documented, epoch, place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JsonLines: Any = documented().JsonLines


@pytest.fixture
def place_of(spark: "SparkSession", broker: Broker, home: Path, tag: str) -> Iterator[Callable[..., Place]]:
    """Make a place of a kind, to which epochs can be released."""
    with open_home(home, "sinks") as opened:
        connection = Connection.of(broker.bootstrap)
        context = Context(session=spark, connection=connection, home=opened, state_partitions=2)
        yield partial(place, context=context, wire=Wire(bootstrap=broker.bootstrap, tag=tag), url="")


@pytest.mark.parametrize("kind", ["own", "sqlite", "json", "delta", "iceberg", "topic", "epochs"])
def test_a_sink_keeps_its_contract(
    kind: str, place_of: Callable[..., Place], spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_contract(place_of(kind), spark, monkeypatch)


def test_the_documented_sink_gets_rows_in_order(place_of: Callable[..., Place], spark: "SparkSession") -> None:
    """Many of them, and few of them that one task has."""
    out = place_of("own")
    for number, few in enumerate((False, True)):
        out.make().deliver(number, epoch(spark, number).repartition(3), few=few)
    assert out.read() == ids(0, 1)


class Forgetful(JsonLines):  # type: ignore[misc]
    """A sink that remembers its epochs only while its process lives."""

    upto = 0

    def delivered(self) -> int:
        return self.upto

    def deliver(self, epoch: int, rows: "DataFrame") -> None:
        super().deliver(epoch, rows)
        self.upto = epoch + 1


class Noting(JsonLines):  # type: ignore[misc]
    """A sink that notes its number of epochs in a file. One of these calls is wrong.

    Args: early: it is noted before the rows are there. appends: an earlier try's rows stay.
        by_row: it writes rows while it reads them.
    """

    def __init__(self, folder: str, *, early: bool = False, appends: bool = False, by_row: bool = False) -> None:
        super().__init__(folder)
        self.early, self.appends, self.by_row = early, appends, by_row

    def delivered(self) -> int:
        note = self.folder / "upto"
        return int(note.read_text()) if note.exists() else 0

    def deliver(self, epoch: int, rows: "DataFrame") -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.early:
            (self.folder / "upto").write_text(str(epoch + 1))
        if self.appends:
            with (self.folder / "all.jsonl").open("a") as file:
                read = rows.toLocalIterator() if self.by_row else rows.collect()
                file.writelines(json.dumps({"id": row.id}) + "\n" for row in read)
        else:
            super().deliver(epoch, rows)
        (self.folder / "upto.part").write_text(str(epoch + 1))
        os.replace(self.folder / "upto.part", self.folder / "upto")


class Counting(JsonLines):  # type: ignore[misc]
    """A sink that counts its epochs, although a number may be missing."""

    def delivered(self) -> int:
        return len(list(self.folder.glob("*.jsonl")))


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        (Forgetful, "says which epochs it has"),
        (partial(Noting, early=True), "says which epochs it has"),
        (partial(Noting, appends=True), "nothing of an epoch that was cut off shows"),
        (Counting, r"delivered\(\) returns 3 instead of 4"),
    ],
    ids=["forgets", "notes too early", "appends", "counts"],
)
def test_a_sink_with_a_fault_does_not_keep_it(
    bad: Callable[[str], Any], fault: str, place_of: Callable[..., Place], spark: "SparkSession",
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with pytest.raises((AssertionError, SparkError), match=fault):
        keep_contract(place_of("own", sink=bad), spark, monkeypatch)


@pytest.mark.parametrize(
    ("sink", "fault"),
    [
        (JsonLines, None),
        (Forgetful, r"delivered\(\) of a new object returns 0 instead of 1"),
        (partial(Noting, appends=True, by_row=True), r"of epoch 1 that failed, \d+ rows are there instead of 20"),
    ],
    ids=["keeps it", "forgets", "appends"],
)
def test_what_users_have_for_their_tests(
    sink: Callable[[str], Any], fault: str | None, spark: "SparkSession", tmp_path: Path
) -> None:
    def count() -> int:
        return sum(len(file.read_text().splitlines()) for file in tmp_path.glob("*.jsonl"))

    rows = epoch(spark, 0).drop(ROW)
    if fault is None:
        check_sink(lambda: sink(str(tmp_path)), count, rows)
        return
    with pytest.raises((AssertionError, SparkError), match=fault):
        check_sink(lambda: sink(str(tmp_path)), count, rows)
