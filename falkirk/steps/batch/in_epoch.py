"""In epoch: a call for a real epoch, whose operators find the state of the former epoch in files."""

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from falkirk.platform.data import DataPath
from falkirk.steps.batch.call import Call, EpochContext
from falkirk.steps.batch.loop_files import LoopFiles, LoopFolders
from falkirk.steps.batch.python import KIND
from falkirk.steps.dataframes.casts import cast
from falkirk.steps.dataframes.plans import plan_text

BatchState = Mapping[str, DataFrame | str]
"""The state from one epoch to the next, by slot: rows, or a text."""


class StatefulCall(Call):
    """A call whose operators find the state of the former epoch. Args: state: the former epoch's."""

    def __init__(
        self, epoch: EpochContext, session: SparkSession, state: BatchState, marks: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(epoch, marks)
        self._session, self._state = session, state

    def before(self, slot: str, schema: StructType) -> DataFrame:
        """See Call."""
        found = self._state.get(slot)
        return found if isinstance(found, DataFrame) else empty(self._session, schema)

    def noted(self, slot: str) -> str | None:
        """See Call."""
        found = self._state.get(slot)
        return found if isinstance(found, str) else None


class InEpoch(StatefulCall):
    """A call for one epoch.

    Attributes: ran: the analysed plans of rows that were computed once, as text.
    Args: scratch: returns a new folder for rows that are computed once. files: those
        that notes name.
    """

    def __init__(
        self, epoch: EpochContext, session: SparkSession, state: BatchState, scratch: Callable[[], DataPath],
        marks: Mapping[str, int] | None = None, files: LoopFolders | None = None,
    ) -> None:  # fmt: skip
        super().__init__(epoch, session, state, marks)
        self._scratch, self._files = scratch, files
        self._written: list[DataPath] = []
        self.ran: list[str] = []
        self._held: list[DataFrame] = []
        #: DataFrames without rows, so that no job need find that out.
        self._nothing: list[DataFrame] = []

    def files(self, slot: str) -> LoopFiles | None:
        """See Call."""
        assert self._files is not None, "the caller of an iteration gives the folders of its files"
        return self._files.of(slot)

    def once(self, rows: DataFrame) -> DataFrame:
        """See Call."""
        self._held.append(rows.persist())
        return self._held[-1]

    def split(
        self, rows: DataFrame, kinds: Mapping[str, StructType], *, determined_by: DataFrame | None = None
    ) -> dict[str, DataFrame]:
        """See Call. This runs the job. Otherwise two readers could compute it twice, with different results."""
        folder = self._scratch()
        self._written.append(folder)
        self.ran.append(plan_text(rows))
        folder.write(rows.write.partitionBy(KIND))
        found = {}
        for kind, schema in kinds.items():
            part = folder / f"{KIND}={kind}"
            whole = StructType([StructField(kind, schema)])
            there = bool(part.arrow()[1])
            read = self._session.read.schema(whole).parquet(*part.rows()) if there else empty(self._session, whole)
            found[kind] = read.select(f"{kind}.*")
            if not there:
                self._nothing.append(found[kind])
        return found

    def reject(self, letters: DataFrame) -> None:
        """See Call."""
        if not any(letters is each for each in self._nothing):
            super().reject(letters)

    @property
    def is_plain(self) -> bool:
        """Whether the call has done nothing besides returning a result."""
        return not any((
            self.kept, self.notes, self.reported, self.letters, self.ran, self._written, self._held, self._nothing,
        ))  # fmt: skip

    def clean(self) -> None:
        """Delete the temporary rows of this call. Call it when nothing reads them any more."""
        for rows in self._held:
            rows.unpersist()
        for folder in self._written:
            folder.remove()


def empty(session: SparkSession, schema: StructType) -> DataFrame:
    """Return a DataFrame without rows, which needs no tasks."""
    nothing = session.range(0, 0, 1, 1)
    return nothing.select(*[cast(F.lit(None), f.dataType).alias(f.name) for f in schema.fields])
