"""Console: prints the epochs of a batch in a terminal.

A terminal can't report its content, so an epoch that a failure interrupted is printed again. Under a coordinator the
lines go to its terminal through a pipe, because the host's output is a log. In the user's process they are printed
directly.
"""

import os
import sys
from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from falkirk.declare.endpoints import Console
from falkirk.errors.conditions.spark import RELEASE_FAILED
from falkirk.errors.spark import SPARK_ERRORS, first_line
from falkirk.platform.terminal import one_line
from falkirk.runtime.spark.epochs.inputs import ROW
from falkirk.runtime.spark.sinks.target import sorted_by_place
from falkirk.runtime.spark.status import CONSOLE
from falkirk.theory.ids import EpochNumber


class ConsoleTarget:
    """A Target that prints, and can't report the epochs that it has printed.

    Args: sink: its name. write: prints a text; by default to the terminal of this process or of the coordinator.
    """

    def __init__(self, to: Console, sink: str, write: Callable[[str], None] | None = None) -> None:
        self._to, self._sink, self._write = to, sink, write or _print

    def visible(self) -> EpochNumber:
        """See Target. Printed epochs bind nobody."""
        return EpochNumber(0)

    def delivered(self) -> None:
        """See Target."""

    def deliver(self, epoch: EpochNumber, rows: DataFrame, *, few: bool = False) -> DataFrame | None:
        """See Target, but an epoch may be printed twice. Raises: SparkError: `RELEASE_FAILED`."""
        try:
            shown = _shown(sorted_by_place(rows, few=few).drop(ROW)).limit(self._to.rows + 1).collect()
            count = len(shown) if len(shown) <= self._to.rows else rows.count()
        except SPARK_ERRORS as error:
            raise RELEASE_FAILED.error(topic=self._sink, reason=first_line(error)) from error
        lines = [f"── {self._sink}, epoch {epoch}: {count:,} row(s)"]
        lines += [
            ", ".join(f"{name}={one_line(str(value))}" for name, value in r.asDict().items())
            for r in shown[: self._to.rows]
        ]
        if count > self._to.rows:
            lines.append(f"… and {count - self._to.rows:,} more")
        self._write("\n".join(lines) + "\n")
        return None


def _shown(rows: DataFrame) -> DataFrame:
    """Return rows with their times as text, because Python has no times after the year 9999."""
    kinds = {f.name: f.dataType.simpleString() for f in rows.schema.fields}
    timed = [name for name, kind in kinds.items() if "timestamp" in kind or "date" in kind]
    return rows.withColumns({name: F.col(f"`{name}`").cast("string") for name in timed}) if timed else rows


def _print(text: str) -> None:
    pipe = os.environ.get(CONSOLE)
    if pipe is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    with os.fdopen(int(pipe), "w", closefd=False, encoding="utf-8") as out:
        out.write(text)
