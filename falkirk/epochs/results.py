"""Results: what an epoch comes to is computed, and is then in a folder of its log, or straight in its topic."""

import re
from collections.abc import Callable

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from falkirk.cut import SLICE
from falkirk.epochs.computed import Computed
from falkirk.epochs.inputs import ROW, Bad, dead_letters, read_folders
from falkirk.epochs.log import EpochLog
from falkirk.epochs.observed import observed
from falkirk.plan.batch import Batch

#: Operators that may leave a part of their input unread.
_PARTIAL = re.compile(r"\b(GlobalLimit|LocalLimit|Tail|Offset)\b")
#: Dead letters have places of their own by where they come from.
_PLACES = 55


class Results:
    """Of one batch. Both of its methods return how many rows there are, and how many dead letters."""

    def __init__(self, session: SparkSession, batch: Batch, epochs: EpochLog) -> None:
        self._session, self._batch, self._epochs = session, batch, epochs

    def write(self, name: str, computed: Computed) -> tuple[int, int]:
        """Write the results of an epoch into a folder."""
        folder, counted = self._epochs.path(name), Observation()
        placed = computed.result.withColumn(ROW, F.monotonically_increasing_id())
        writer = placed.observe(counted, F.count("*").alias("rows")).write
        (writer.partitionBy(SLICE) if self._batch.sorts is not None else writer).parquet(str(folder))
        rows = observed(counted)
        dead = self._write_dead(name, self._refused(computed))
        if rows is None:
            return read_folders(self._session, [folder], self._batch.schema).count(), dead
        return int(rows["rows"]), dead

    def send(
        self, name: str, computed: Computed, deliver: Callable[[DataFrame], DataFrame | None]
    ) -> tuple[int, int]:  # fmt: skip
        """Have the results of an epoch delivered; what can't be goes into a folder, to be dead letters.

        Args: deliver: returns what is too large.
        """
        counted = Observation()
        too_large = deliver(computed.result.observe(counted, F.count("*").alias("rows")))
        refused = self._refused(computed)
        dead = self._write_dead(name, refused if too_large is None else [*refused, too_large.drop(ROW)])
        rows = observed(counted)
        return computed.result.count() if rows is None else int(rows["rows"]), dead

    def _refused(self, computed: Computed) -> list[DataFrame]:
        """Return what is to be dead letters, of what has run."""
        plans = [*computed.ran, computed.plan]
        unfit = [dead_letters(self._batch.name, bad) for bad in computed.bad if _count(bad, plans) != 0]
        return [*unfit, *computed.letters]

    def _write_dead(self, name: str, refused: list[DataFrame]) -> int:
        dead = 0
        for i, letters in enumerate(refused):
            target = str(self._epochs.dead(name, i))
            place = F.monotonically_increasing_id() + F.lit(i << _PLACES)  # unique over all that can be refused
            letters.withColumn(ROW, place).write.parquet(target)
            dead += self._session.read.parquet(target).count()
        return dead


def _count(bad: Bad, plans: list[str]) -> int | None:
    """Return how many records did not fit, by what was observed while the epoch ran; None: not known."""
    reading = [plan for plan in plans if f"CollectMetrics {_name(bad.counted)}," in plan]
    if not reading or any(map(_PARTIAL.search, reading)):
        return None  # the function did not read it, or perhaps not all of it
    found = observed(bad.counted)
    return None if found is None else int(found["bad"])


def _name(observation: Observation) -> str:
    return str(observation._jo.name())  # type: ignore[union-attr]  # it was used
