"""Unreadable files: finds the files that make an epoch of a batch fail, so that the epoch can leave them out.

A writer of a folder can put a file there that no job can read to its end. Examples are a CSV file whose first line
names other columns, a damaged Parquet or compressed file, or a line that does not fit into memory. To read every file
twice would cost too much. So only when an epoch fails, each of its files is read alone. All columns are read, because
the result must not depend on the reader. A file that fails twice in a row, while Spark works otherwise, is refused.
The store records the refusal before the epoch is computed without the file, and a complete epoch records which files
it has not read. So a replay reads the same files.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from pyspark.sql import DataFrame, SparkSession

from falkirk.errors.conditions.spark import INPUT_CHANGED_UNREADABLE
from falkirk.errors.spark import SPARK_ERRORS, innermost_line
from falkirk.plan.batch import Batch, BatchInput
from falkirk.platform.disk import is_full
from falkirk.runtime.spark.epochs.files import FileLog, RefusedFile
from falkirk.runtime.spark.epochs.log import Epoch
from falkirk.runtime.spark.epochs.pipes import ended_pipes
from falkirk.steps.batch.call import LETTER_SCHEMA
from falkirk.steps.sources.files import file_rows
from falkirk.theory.ids import LogId, Offset

#: The time between the two attempts to read a file, in which a temporary fault may pass.
ATTEMPT_PAUSE_S = 1.0
WhyUnreadable = Callable[[BatchInput, Offset], str | None]
"""Returns why a file of an input can't be read to its end; None if it can, or if the file is not the cause."""
Refused = Mapping[LogId, Mapping[Offset, RefusedFile]]
"""Refused files by log and number."""


class BatchFiles:
    """The files that one batch reads.

    Args: files: of all sources, by log. why_unreadable: reads a file; None: with Spark. pause_s: between two attempts.
    """

    def __init__(
        self, session: SparkSession, batch: Batch, files: Mapping[LogId, FileLog],
        *, why_unreadable: WhyUnreadable | None = None, pause_s: float = ATTEMPT_PAUSE_S,
    ) -> None:  # fmt: skip
        self._session, self._name, self._files = session, batch.name, files
        self._why_unreadable, self._pause_s = why_unreadable or self._tried_by_spark, pause_s
        self._inputs = [given for given in batch.inputs if given.folder is not None]
        #: The files that this process has already read alone to their end. They are not read again this way.
        self._readable: set[tuple[LogId, Offset]] = set()

    def report(self) -> str:
        """Return the skipped and refused files with the reasons; an empty text if there are none."""
        return "; ".join(filter(None, (self._files[given.log].report() for given in self._inputs)))

    def refused(self, epoch: Epoch) -> Refused:
        """Return the files that an epoch leaves out: as recorded if it is complete, else those in the store."""
        found = {}
        for given in self._inputs:
            first, last = _range(epoch, given)
            out = epoch.refused.get(given.log, ()) if epoch.is_complete else range(first, last)
            found[given.log] = {n: file for n, file in self._files[given.log].refused().items() if n in out}
        return found

    def letters(self, refused: Refused) -> list[DataFrame]:
        """Return the dead letters of the files that an epoch leaves out."""
        rows = [
            (file.name, _letter(self._name, log, number, file.reason))
            for log, files in sorted(refused.items())
            for number, file in sorted(files.items())
        ]
        return [self._session.createDataFrame(rows, LETTER_SCHEMA)] if rows else []

    def check(self, epoch: Epoch, refused: Mapping[LogId, Sequence[Offset]]) -> None:
        """Check that the files that were read have not changed, so that a replay reads the same. Raises: LogError."""
        for given in self._inputs:
            out = refused.get(given.log, ())
            self._files[given.log].paths(*_range(epoch, given), without=out, reader=self._name)

    def ended_pipes(self, epoch: Epoch) -> AbstractContextManager[None]:
        """End the waiting of tasks for pipes that have replaced files of an epoch, until the end of the block."""
        return ended_pipes([p for given in self._inputs for p in self._files[given.log].places(*_range(epoch, given))])

    def unreadable(self, epoch: Epoch, stopping: threading.Event) -> dict[tuple[LogId, Offset], str]:
        """Read each file of an epoch alone; return the files that failed twice in a row, with the reasons.

        Args: stopping: if it is set, no file is returned.
        Returns: the reasons by log and number.
        Raises: LogError: a file was changed or removed. A Spark error: Spark can't read any file.
        """
        suspects = [(given, n) for given, n in self._read_by(epoch) if (given.log, n) not in self._readable]
        if not (once := self._failing(suspects)) or stopping.wait(self._pause_s):
            return {}
        twice = self._failing([(given, n) for given, n in suspects if (given.log, n) in once])
        return {} if stopping.is_set() else twice

    def _failing(self, suspects: Sequence[tuple[BatchInput, Offset]]) -> dict[tuple[LogId, Offset], str]:
        reasons = {(given.log, number): self._why_unreadable(given, number) for given, number in suspects}
        self._readable |= {place for place, reason in reasons.items() if reason is None}
        return {place: reason for place, reason in reasons.items() if reason is not None}

    def refuse(self, unreadable: Mapping[tuple[LogId, Offset], str]) -> None:
        """Record that incomplete epochs leave out these files from now on. Raises: StoreError."""
        for (log, number), reason in sorted(unreadable.items()):
            self._files[log].refuse(number, reason)

    def refuse_changed(self, epoch: Epoch) -> None:
        """Check that the files of a complete epoch can still be read. Its results depend on them, so none is refused.

        Raises: LogError: `INPUT_CHANGED`: one can't be read any more. Others as `unreadable`.
        """
        for given, number in self._read_by(epoch):
            reason = self._why_unreadable(given, number)
            if reason is None:
                continue
            (path,) = self._files[given.log].paths(number, Offset(number + 1), reader=self._name)
            raise INPUT_CHANGED_UNREADABLE.error(
                where=path, source=given.name, file=path.name, number=number, reason=reason, name=self._name
            )

    def _read_by(self, epoch: Epoch) -> Iterator[tuple[BatchInput, Offset]]:
        refused = self.refused(epoch)
        for given in self._inputs:
            yield from ((given, Offset(n)) for n in range(*_range(epoch, given)) if n not in refused[given.log])

    def _tried_by_spark(self, given: BatchInput, number: Offset) -> str | None:
        """See `WhyUnreadable`."""
        assert given.folder is not None
        files = self._files[given.log]
        paths = files.paths(number, Offset(number + 1), reader=self._name)
        try:
            _read_all(file_rows(self._session, given.folder, paths).data)
            return None
        except SPARK_ERRORS as error:
            if is_full(error):
                raise
            reason = innermost_line(error)
        # If the file is unchanged, the reason, which may quote it, is about the file.
        files.paths(number, Offset(number + 1), reader=self._name)
        _read_all(self._session.range(1).toDF("n"))  # this fails if Spark can't read anything
        return reason


def _read_all(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _range(epoch: Epoch, given: BatchInput) -> tuple[Offset, Offset]:
    return epoch.first[given.log][0], epoch.last[given.log][0]


def _letter(region: str, log: LogId, number: Offset, reason: str) -> str:
    told = {"reason": f"the file is left out: {reason}", "region": region, "topic": log, "partition": 0}
    return json.dumps({**told, "offset": number, "value": None})
