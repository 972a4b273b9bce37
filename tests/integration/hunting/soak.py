"""Runs the hunt for some minutes, `make hunt MINUTES=…`, or for the pipelines of one seed, `make hunt SEED=…`.

The last quarter of the minutes is another JVM's, see `elsewhere`. It runs the same pipelines as the first one, and must
give the same results.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.integration.hunting import elsewhere
from tests.integration.hunting.judge import Hunt, Outcome, Told, divided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The number of seeds that run together, with the same settings and the same midnight between the two runs.
BLOCK = 10
#: The first seed, which is far greater than those of the tests.
FIRST = 1_000_000


def seeds_of(block: int) -> range:
    """Return the seeds of a block."""
    return range(block * BLOCK, (block + 1) * BLOCK)


def settings_of(block: int) -> tuple[bool, int]:
    """Return under which settings a block is hunted through: whether in ANSI mode, and with which rows."""
    return block % 2 == 1, block // 2 % 4


class Hunts:
    """The hunts of one Spark application, by the settings of a block of seeds."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark
        self._known: dict[tuple[bool, int], Hunt] = {}

    def of(self, block: int) -> Hunt:
        """Return the hunt for a block."""
        settings = settings_of(block)
        if settings not in self._known:
            self._known[settings] = Hunt(self._spark, ansi=settings[0], data=settings[1])
        return self._known[settings]


def soak(minutes: float) -> int:
    """Hunt for this time; return the exit code."""
    began, total = time.monotonic(), Outcome()
    first = (FIRST + int(time.time()) % 1_000_000 * 100) // BLOCK
    print(f"from seed {first * BLOCK}", flush=True)
    with tempfile.TemporaryDirectory() as folder, Path(folder, "record").open("a") as record:
        spark, block = elsewhere.spark(elsewhere.HERE), first
        hunts = Hunts(spark)
        while time.monotonic() < began + 45 * minutes:
            hunt = hunts.of(block)
            told = hunt.told(seeds_of(block))
            if block < first + 2:
                told += hunt.planned(elsewhere.spoken())
            outcome = hunt.through(told)
            print(*outcome.finds, sep="\n", end="\n" * bool(outcome.finds))
            total.add(outcome)
            print(f"seeds {first * BLOCK} to {seeds_of(block)[-1]}: {total}", flush=True)
            record.write(recorded(block, told, outcome))
            record.flush()
            block += 1
        spark.stop()
        _ended(spark)
        print("not said to be the same, by:", *[f"{n} {c}," for n, c in total.held_by.most_common(40)])
        again = elsewhere.started(Path(record.name), 15 * minutes)
        print(again.communicate()[0])
    return int(bool(total.finds) or bool(again.returncode))


def recorded(block: int, told: list[Told], outcome: Outcome) -> str:
    """Return the results of a block, for another JVM."""
    (ansi, data), (batch, live) = settings_of(block), divided(told)
    return elsewhere.line(ansi=ansi, data=data, zone=outcome.zone, batch=batch, live=live, results=outcome.results)


def replay(seed: int) -> int:
    """Hunt through the pipelines of a seed and print them; return the exit code."""
    hunt = Hunts(elsewhere.spark(elsewhere.HERE)).of(seed // BLOCK)
    told = hunt.told([seed])
    outcome = hunt.through(told)
    for one in told:
        batch = "not planned" if one.batch is None else ", ".join(sorted(one.batch)) or "the same"
        print(f"{one.pipeline.number} {one.pipeline.kind.value}: {one.pipeline}\n    [{batch}]")
        if outcome.results.get(one.pipeline, "").startswith("!"):
            print(f"    {outcome.results[one.pipeline]}")
    print(*outcome.finds, outcome, sep="\n")
    return int(bool(outcome.finds))


def _ended(spark: "SparkSession") -> None:
    gateway = spark.sparkContext._gateway
    if gateway is not None:
        gateway.proc.stdin.close()  # the JVM ends with it
        gateway.proc.wait(60)


def main(arguments: list[str]) -> int:
    """Run the hunt that the arguments ask for; return the exit code."""
    match arguments:
        case ["seed", seed]:
            return replay(int(seed))
        case _:
            return soak(float(arguments[0]) if arguments else 10.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
