"""Pipelines that are inferred deterministic give equal results. They are random, over all of Spark's functions and
forms of SQL. Each runs twice, and a third time in another JVM.

`make hunt MINUTES=60` does the same for an hour. `FALKIRK_SEEDS=1,2,…` chooses other pipelines for this test, and both
modes of Spark; the planted faults of test_hunt_faults.py are found without ANSI mode.
"""

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.hunting import elsewhere
from tests.integration.hunting.judge import Hunt, Outcome, Told
from tests.integration.hunting.program_of_epochs import program
from tests.integration.hunting.soak import BLOCK, recorded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Seeds; each has some 45 pipelines. The mode belongs to the seed.
SEEDS = [int(seed) for seed in os.environ.get("FALKIRK_SEEDS", "10").split(",")]
#: Every second pipeline of the seed runs, unless seeds are chosen.
EACH = 1 if "FALKIRK_SEEDS" in os.environ else 2
#: The blocks of seeds without ANSI mode, which are a soak, and with it.
BLOCKS = {False: 0, True: 1} if "FALKIRK_SEEDS" in os.environ else {True: 1}


class Hunts:
    """The hunts under both modes of Spark, and the other JVM, which runs one of them again.

    The first runs of a hunt end some seconds before another day begins. In that time, the pipelines of the other mode
    are planned, and the other JVM starts.
    """

    def __init__(self, spark: "SparkSession", record: Path) -> None:
        self.outcomes: dict[bool, Outcome] = {}
        self._spark, self._record = spark, record
        self._hunts: dict[bool, tuple[Hunt, list[Told]]] = {}
        for ansi in BLOCKS:
            hunt, told = self._planned(ansi)
            self.outcomes[ansi] = hunt.through(told, self._start_other_jvm if ansi else self._plan_other)

    def _planned(self, ansi: bool) -> tuple[Hunt, list[Told]]:
        if ansi not in self._hunts:
            hunt = Hunt(self._spark, ansi=ansi, data=0)
            told = hunt.told([seed for seed in SEEDS if seed // BLOCK % 2 == ansi], each=EACH)
            self._hunts[ansi] = hunt, told + hunt.planned(elsewhere.spoken())
        return self._hunts[ansi]

    def _plan_other(self, _: Outcome) -> None:
        self._planned(True)

    def _start_other_jvm(self, first: Outcome) -> None:
        self._record.write_text(recorded(BLOCKS[True], self._planned(True)[1], first))
        self.again = elsewhere.started(self._record, 300)

    @cached_property
    def printed_elsewhere(self) -> str:
        """Wait until the other JVM has ended; return what its process has printed."""
        return self.again.communicate()[0]


@pytest.fixture(scope="module")
def hunts(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hunts]:
    hunts = Hunts(spark, tmp_path_factory.mktemp("hunt") / "record")
    yield hunts
    with hunts.again:
        hunts.again.kill()


@pytest.mark.parametrize("ansi", BLOCKS, ids=lambda ansi: "ANSI" if ansi else "without ANSI")
def test_what_is_said_to_come_out_the_same_does(hunts: Hunts, ansi: bool) -> None:
    outcome = hunts.outcomes[ansi]
    assert not outcome.finds, "\n".join(map(str, outcome.finds))
    if "FALKIRK_SEEDS" not in os.environ:
        assert outcome.same > outcome.drawn / 2, outcome
        assert outcome.unplanned + outcome.failed.total() < outcome.drawn / 5, outcome


def test_another_jvm_comes_to_the_same(hunts: Hunts) -> None:
    """The other JVM is started under another language, encoding, time zone and number of cores."""
    printed = hunts.printed_elsewhere
    assert hunts.again.returncode == 0, printed


def test_a_program_is_the_same_in_another_process(hunts: Hunts, spark: "SparkSession") -> None:
    """Otherwise an epoch that goes straight to its topic, and was interrupted, would never be completed."""
    (found,) = (line for line in hunts.printed_elsewhere.splitlines() if line.startswith(elsewhere.PROGRAM))
    assert found.removeprefix(elsewhere.PROGRAM) == program(spark, "n + 1") != program(spark, "n + 2")
