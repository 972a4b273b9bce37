"""Judges the outputs of batches: compares the epochs that the home has recorded, computed again, with each place."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from falkirk.checker import (
    Due,
    EpochsVerdict,
    Forgotten,
    Judged,
    Values,
    compare_compacted,
    compare_latest,
    compare_rows,
)
from falkirk.declare.application import Application
from falkirk.declare.endpoints import EpochTopic
from falkirk.declare.parts import DeclaredSink
from falkirk.errors import HomeError
from falkirk.errors.conditions.checker import ROWS_CHANGED
from falkirk.errors.conditions.commands import NOT_CHECKABLE
from falkirk.errors.spark import SPARK_ERRORS
from falkirk.kafka_client.connection import Connection
from falkirk.plan.batch import Batch
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from falkirk.plan.schemas import with_schemas
from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.epochs.log import DECISION, Epoch
from falkirk.runtime.spark.record import compare
from falkirk.theory.ids import EpochNumber
from falkirk.user_tools.commands.judge_places import (
    LogPlace,
    OutputPlace,
    due_rows,
    epoch_rows,
    epoch_topic_place,
    output_place,
    refused_rows,
)
from falkirk.user_tools.commands.recomputed import Recomputation, RecomputedBatch, read_kept
from falkirk.user_tools.commands.running import home_of

_AGAIN, _LOGGED, _COUNTED = "computed again", "compared with the log", "counted"
_COMPACTED = "judged as far as compaction permits"
_REPLACED = "compaction may have deleted each row that a later one of its key replaced, also a repeated one"
#: How each epoch can be judged.
How = Mapping[EpochNumber, str]
#: The errors of a read whose results are deleted meanwhile.
_READ_ERRORS = (HomeError, *SPARK_ERRORS)


class BatchJudge:
    """Judges the batches of an application that has run in a home. Made by `batch_judge`."""

    def __init__(self, plan: Plan, context: Context, folder: Path) -> None:
        self._context, self._plan = context, plan
        self._recomputation = Recomputation(self._plan, context, folder)
        self._done: dict[str, RecomputedBatch] = {}
        #: For each batch, the results that were published when its recomputation began.
        self._before: dict[str, tuple[int, int]] = {}

    @property
    def logs(self) -> tuple[Batch, ...]:
        """The batches from whose logs other batches read."""
        read = {given.log for batch in self._plan.batches for given in batch.inputs}
        return tuple(batch for batch in self._plan.batches if batch.log in read)

    def batch_of(self, sink: DeclaredSink) -> Batch | None:
        """Return the batch whose results a sink gets, or None if that is a live region."""
        return next((b for b in self._plan.batches if sink.name in {s.name for s in b.sinks}), None)

    def judge_sink(self, batch: Batch, sink: DeclaredSink) -> EpochsVerdict:
        """Return the verdict on the place of a sink.

        Raises: DefinitionError: `NOT_CHECKABLE`. HomeError: `APPLICATION_CHANGED`, `STATE_DAMAGED`. LogError.
        """
        place = self._place(batch, sink)
        if isinstance(place, str):
            raise NOT_CHECKABLE.error(where=sink.where, sink=sink.name, reason=place)
        found = self._recomputed(batch)
        before = self._before[batch.name]
        open_ = [e.number for e in found.log.epochs() if e.may_be_out and not e.is_complete]
        if open_:
            reason = f"epoch {open_[0]} was interrupted while it was published. Start the application, and let it end"
            raise NOT_CHECKABLE.error(where=sink.where, sink=sink.name, reason=reason)
        refused = refused_rows(self._context.connection, batch, sink)
        # A rollback with `--force` voids epochs that were published. One that began just now leaves them due.
        still_due = {e.number for e in found.epochs}
        void = found.log.real.void_rows(EpochNumber(before[0]))
        invalid = {number: rows for number, rows in void.items() if number not in still_due}
        how, rows = read_kept(
            lambda: self._how(found),
            lambda how: self._rows(found, place, [n for n, text in how.items() if text != _COUNTED]),
            _READ_ERRORS,
        )
        due = [
            _due(e, rows[e.number], waits=e.number >= before[0], refused=refused[e.number]) for e in found.epochs
        ]  # fmt: skip
        forgotten, verdicts = self._forgotten(found), list(_judged(found, how, before[0]))
        if forgotten is not None:
            old = sum(count for epoch, count in refused.items() if epoch < forgotten.below)
            known = None if forgotten.rows is None else forgotten.rows - old
            verdicts.insert(0, _of_forgotten(forgotten))
            forgotten = Forgotten(below=forgotten.below, rows=known)
        if invalid:
            verdicts.append(Judged(how="not judged: a rollback made them invalid", epochs=tuple(sorted(invalid))))
        if place.is_compacted:
            verdicts.append(Judged(how=_COMPACTED, epochs=tuple(how), reason=_REPLACED))
            compared = compare_compacted(due, place.found(), place.keys, forgotten, invalid=invalid)
        elif place.keys:
            compared = compare_latest(due, place.found(), place.keys, forgotten, invalid=invalid)
        else:
            compared = compare_rows(due, place.found(), forgotten, invalid=invalid)
        if self._released(batch) != before:
            raise ROWS_CHANGED.error(changed=f"batch {batch.name!r} has published an epoch")
        return EpochsVerdict(place=place.name, judged=tuple(verdicts), compared=compared)

    def _place(self, batch: Batch, sink: DeclaredSink) -> OutputPlace | str:
        if isinstance(sink.to, EpochTopic):
            return epoch_topic_place(sink.to, sink.name, batch, self._context)
        return output_place(sink.to, batch, self._context.session, self._context.connection)

    def judge_log(self, batch: Batch) -> EpochsVerdict:
        """Return the verdict on the log of a batch, as far as its results are kept. Raises: as `judge_sink`."""
        found = self._recomputed(batch)
        log = found.log.real

        def how_kept() -> How:
            return {
                e.number: _AGAIN if e.number in found.results else _COUNTED for e in found.epochs if log.is_there(e)
            }

        def verdict(how: How) -> EpochsVerdict:
            kept = [e for e in found.epochs if e.number in how]
            place = LogPlace(batch, self._context.session, {e.number: log.results(e) for e in kept})
            rows = self._rows(found, place, [n for n, text in how.items() if text == _AGAIN])
            compared = compare_rows([_due(e, rows[e.number]) for e in kept], place.found())
            end = EpochNumber(max(how, default=-1) + 1)
            return EpochsVerdict(place=place.name, judged=tuple(_judged(found, how, end)), compared=compared)

        return read_kept(how_kept, verdict, _READ_ERRORS)[1]

    def _recomputed(self, batch: Batch) -> RecomputedBatch:
        """Return a batch, computed again after all batches that it reads."""
        if batch.name not in self._done:
            path = {unit.name for unit in self._plan.path_to(batch)} - self._done.keys()
            for each in self._plan.batches:
                if each.name in path:
                    record = self._context.home.store.region(each.name)
                    if record is not None:
                        compare(each, record, {})
                    self._before[each.name] = self._released(each)
                    self._done[each.name] = self._recomputation.of(each)
        return self._done[batch.name]

    def _released(self, batch: Batch) -> tuple[int, int]:
        """Return the epoch, exclusive, up to which all are published, and the end of the log."""
        store = self._context.home.store
        known = [r.released_exclusive for r in store.releases(batch.released_to) if r.topic == batch.log]
        newest = store.newest_decision(DECISION, batch.name)
        return max(known, default=0), -1 if newest is None else newest.number

    def _how(self, found: RecomputedBatch) -> How:
        """Return for each epoch how it can be judged."""
        log = found.log.real
        return {
            e.number: _AGAIN if e.number in found.results else _LOGGED if log.is_there(e) else _COUNTED
            for e in found.epochs
        }

    def _rows(
        self, found: RecomputedBatch, place: OutputPlace, numbers: list[EpochNumber]
    ) -> dict[int, list[Values] | None]:
        log, wanted = found.log.real, [e for e in found.epochs if e.number in numbers]
        folders = {e.number: found.results.get(e.number) or log.results(e) for e in wanted}
        rows = due_rows(epoch_rows(self._context.session, found.batch, folders), place) if folders else {}
        return {e.number: rows.get(e.number, []) if e.number in folders else None for e in found.epochs}

    def _forgotten(self, found: RecomputedBatch) -> Forgotten | None:
        known = found.log.forgotten
        if not known.below:
            return None
        is_sum = known.first == 0 and known.below == found.log.known_from
        return Forgotten(below=found.log.known_from, rows=known.rows if is_sum else None)


def _due(epoch: Epoch, rows: list[Values] | None, *, waits: bool = False, refused: int = 0) -> Due:
    count = epoch.rows if rows is None else len(rows)
    return Due(epoch=epoch.number, count=count, rows=rows, waits=waits, refused=refused)


def _judged(found: RecomputedBatch, how: How, released: int) -> Iterator[Judged]:
    """Yield the epochs by the way in which they were judged, and why not better."""
    groups: dict[tuple[str, str, bool], list[int]] = {}
    for number, text in how.items():
        reason = "" if text == _AGAIN else f"not computed again, because {found.reasons[number]}"
        groups.setdefault((text, reason, number >= released), []).append(number)
    for (text, reason, waits), numbers in groups.items():
        not_yet = "not released yet; " if waits else ""
        yield Judged(how=f"{not_yet}{text}", epochs=tuple(numbers), reason=reason, open=waits)


def _of_forgotten(forgotten: Forgotten) -> Judged:
    how = "not judged" if forgotten.rows is None else "only counted, all together"
    return Judged(how=how, epochs=tuple(range(forgotten.below)), reason="the home has deleted their records")


@contextmanager
def batch_judge(
    app: Application, home: Path | None, connection: Connection, session: SparkSession, plan: Plan | None = None
) -> Iterator[BatchJudge]:
    """Yield the judge of an application's batches.

    Args: plan: the application's in this home; None: make one. Raises: HomeError: `NEVER_RAN`, and as `open_home`.
    """
    with home_of(app, home) as (held, _), tempfile.TemporaryDirectory(prefix="falkirk-verify-") as folder:
        context = Context(
            session=session, connection=connection, home=held, state_partitions=app.state_partitions
        )  # fmt: skip
        if plan is None:
            plan = plan_application(with_schemas(app, held.path), session, held.identity)
        yield BatchJudge(plan, context, Path(folder))
