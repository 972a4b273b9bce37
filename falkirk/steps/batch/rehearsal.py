"""Rehearsal: a call on empty DataFrames, which shows the planner the states and refusals of operators."""

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from falkirk.steps.batch.call import Call, EpochContext
from falkirk.steps.batch.loop_files import LoopFiles
from falkirk.steps.dataframes.casts import as_kept
from falkirk.steps.static_analysis.determinism import InBatch


class Rehearsal(Call):
    """A call on empty DataFrames.

    Attributes: computed: the DataFrames that are computed once, or that determine them. steps: plans that determine the
        result, and that no call computes.
    """

    def __init__(self, session: SparkSession, epoch: EpochContext) -> None:
        super().__init__(epoch)
        self._session = session
        self.computed: list[DataFrame] = []
        self.steps: list[InBatch] = []

    def before(self, slot: str, schema: StructType) -> DataFrame:
        """See Call."""
        return self._session.createDataFrame([], as_kept(schema))

    def noted(self, slot: str) -> str | None:
        """See Call."""
        return None

    def files(self, slot: str) -> LoopFiles | None:
        """See Call."""
        return None

    def once(self, rows: DataFrame) -> DataFrame:
        """See Call."""
        return rows

    def determined_by(self, steps: Iterable[InBatch]) -> None:
        """See Call."""
        self.steps += steps

    def split(
        self, rows: DataFrame, kinds: Mapping[str, StructType], *, determined_by: DataFrame | None = None
    ) -> dict[str, DataFrame]:
        """See Call."""
        self.computed.append(rows if determined_by is None else determined_by)
        return {kind: self._session.createDataFrame([], as_kept(schema)) for kind, schema in kinds.items()}
