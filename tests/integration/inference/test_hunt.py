"""Pipelines that are inferred deterministic give equal results. They are drawn over all of Spark's functions and forms
of SQL, and run twice and once more in another JVM.

`make hunt MINUTES=60` does the same for an hour. `FALKIRK_SEEDS=1,2,…` chooses other pipelines for this test.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.hunting import elsewhere
from tests.integration.hunting.judge import Hunt, Outcome
from tests.integration.hunting.soak import BLOCK, recorded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Seeds of both modes; each has some 45 pipelines.
SEEDS = [int(seed) for seed in os.environ.get("FALKIRK_SEEDS", "0,1,2,3,10,11,12").split(",")]
#: The blocks of seeds without ANSI mode and with it.
BLOCKS = {False: 0, True: 1}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file with the pipelines that this process has run, for another JVM."""
    return tmp_path_factory.mktemp("hunt") / "record"


@pytest.fixture(scope="module")
def outcomes(spark: "SparkSession", record: Path) -> dict[bool, Outcome]:
    """The outcome of a hunt under each mode of Spark."""
    found = {}
    with record.open("w") as lines:
        for ansi, block in BLOCKS.items():
            hunt = Hunt(spark, ansi=ansi, data=0)
            told = hunt.told(seed for seed in SEEDS if seed // BLOCK % 2 == ansi)
            told += hunt.planned(elsewhere.spoken())
            found[ansi] = hunt.through(told)
            if ansi:  # the other JVM takes as long again
                lines.write(recorded(block, told, found[ansi]))
    return found


@pytest.mark.parametrize("ansi", BLOCKS, ids=["without ANSI", "ANSI"])
def test_what_is_said_to_come_out_the_same_does(outcomes: dict[bool, Outcome], ansi: bool) -> None:
    outcome = outcomes[ansi]
    assert not outcome.finds, "\n".join(map(str, outcome.finds))
    if "FALKIRK_SEEDS" not in os.environ:
        assert outcome.same > outcome.drawn / 2, outcome
        assert outcome.unplanned + outcome.failed.total() < outcome.drawn / 5, outcome


@pytest.mark.usefixtures("outcomes")
def test_another_jvm_comes_to_the_same(record: Path) -> None:
    """The other JVM is started under another language, encoding, time zone and number of cores."""
    again = elsewhere.rerun(record, 300)
    assert again.returncode == 0, again.stdout
