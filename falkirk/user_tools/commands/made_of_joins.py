"""Made of, joins: computes a result of a live join again, from the records that its stamp names.

The stamp of such a result has a place for each side. So the records are known, and the models of the joins
(`due_timed.py`) show whether they give the result, and why a side has none.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from falkirk.checker.timed import Place
from falkirk.declare.joins import TimedJoin
from falkirk.declare.nodes import Step, steps_of, steps_since
from falkirk.plan.region import Region
from falkirk.runtime.spark.rows import JSON_OPTIONS
from falkirk.steps.dataframes.names import STAMP
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.stamped import is_good
from falkirk.user_tools.commands.due import RegionEvaluation
from falkirk.user_tools.commands.due_timed import RegionRows
from falkirk.user_tools.commands.made_of_inputs import NotRecomputed, RegionInputs
from falkirk.user_tools.commands.made_of_values import Made, same_values
from falkirk.user_tools.commands.records import FoundRecord, key_texts

_VALUE, _NAMES = "__falkirk_value", ("source", "partition", "offset")


@dataclass(frozen=True, kw_only=True)
class JoinedResult:
    """A result whose last step with a state is a join."""

    region: Region
    keyed: Step
    found: FoundRecord
    inputs: RegionInputs
    evaluation: RegionEvaluation

    def made(self) -> Made:
        """Return the records of both sides. Raises: NotRecomputed. DefinitionError: as `RegionEvaluation.after`."""
        due = self.evaluation.after(self.keyed, self.region)
        topics = self.evaluation.topics
        causes = self.inputs.causes(topics)
        if None in causes:
            raise NotRecomputed("a record that caused it is not there any more")
        wanted = [cause for cause in causes if cause is not None]
        of_cause = [(set(_records(stamp)), value) for stamp, value in self._results(due, wanted[0])]
        results = [value for records, value in of_cause if records == {each[:3] for each in wanted}]
        agrees: bool | None = any(same_values(value, self.found.content) for value in results)
        if not agrees and (self.region.output.format != "json" or self.region.varying):
            agrees = None if results else False
        unread, names = self.inputs.unread, tuple(self._join.on if isinstance(self._join.on, tuple) else ())
        names = tuple(name for name in names if name in self.found.content)
        return Made(
            columns=names, values=tuple(self.found.content[name] for name in names), window=None, rows=len(wanted),
            records=tuple(self.inputs.at(cause, topics).at for cause in wanted), looked_at=self.inputs.looked_at,
            deleted=unread.deleted, skipped=unread.skipped, results=tuple(results or [v for _, v in of_cause]),
            agrees=agrees, note="; ".join(self._missing(wanted)),
        )  # fmt: skip

    @property
    def _join(self) -> TimedJoin:
        join: TimedJoin = self.keyed.arguments[1]
        return join

    def _results(self, due: RegionRows, cause: Place) -> Iterator[tuple[Any, Mapping[str, Any]]]:
        """Yield the results of the record that a stamp begins with, each with its own stamp."""
        data = due.frame.data
        data = data if due.maybe is None else data.unionByName(due.maybe.data)
        for name, number in zip(_NAMES, cause, strict=False):
            data = data.where(F.col(f"{STAMP}.{name}") == F.lit(number))
        frame = replace(due.frame, data=data.where(is_good()))
        for step in steps_since(self.keyed, self.region.node):
            frame = frames.apply(replace(frame, is_run=True), step)
        value = F.to_json(F.struct(*[F.col(f"`{name}`") for name in frame.columns]), JSON_OPTIONS).alias(_VALUE)
        for row in frame.data.where(is_good()).select(STAMP, value).collect():
            yield row[STAMP], json.loads(row[_VALUE])

    def _missing(self, wanted: Sequence[Place]) -> Iterator[str]:
        """Yield why a side has no record."""
        join, has = self._join, len(wanted)
        if has > len(self.region.joined):
            return
        number = sum(step.operation == self.keyed.operation for step in steps_of(self.keyed.parent))
        sides = (
            self.evaluation.after(self.keyed.parent, self.region).frame.data,
            self.evaluation.after(self.keyed.arguments[0].node, self.region, self.region.joined[number]).frame.data,
        )
        is_right = self.inputs.source_of_result > 0
        name, other = join.names[0 if is_right else 1], sides[0 if is_right else 1]
        what = f"{name} has no version for it" if join.as_of else f"{name} has no record that fits it"
        alike = self._with_key(other)
        if alike is None:
            yield what
        elif not alike:
            yield f"{what}: none of its records that were read has the key"
        else:
            why = "each is later, too old or late" if join.as_of else "none has a time that fits, or it was late"
            yield f"{what}: {alike:,} of its records have the key, and {why}"

    def _with_key(self, side: DataFrame) -> int | None:
        """Return how many rows of a side have the key of the result; None: the join has no columns for it."""
        names = self._join.on if isinstance(self._join.on, tuple) else ()
        if not names or not {*names} <= self.found.content.keys():
            return None
        rows = side.where(is_good()).select(*[F.col(f"`{name}`").cast("string").alias(name) for name in names])
        for name, text in zip(names, key_texts(self.found.content, names), strict=True):
            rows = rows.where(F.col(f"`{name}`") == F.lit(text))
        return rows.count()


def _records(stamp: Any) -> Iterator[Place]:
    """Yield the places of the records in a stamp of a join."""
    if stamp is None:
        return
    if "rows" not in stamp.asDict():
        yield tuple(int(stamp[name]) for name in _NAMES)
        return
    for side in (stamp["rows"]["left"], stamp["rows"]["right"]):
        yield from _records(side)
