"""Made of, epochs: finds the records that made a result of a batch, by computing its epochs again.

An epoch with a state is computed after the epochs before it: from the first one, or from the oldest saved state whose
later records are there and within the limit. A row of another batch leads to the records of its epoch. At last the
epoch is computed from the records of the result alone, and compared.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from falkirk.errors import LogError
from falkirk.plan.batch import Batch
from falkirk.plan.region import BatchLogs
from falkirk.runtime.spark.context import Context, Storage
from falkirk.runtime.spark.epochs.at_rest import epoch_log_of
from falkirk.runtime.spark.epochs.files import FileLog
from falkirk.runtime.spark.epochs.inputs import ROW, read_folders
from falkirk.runtime.spark.epochs.jobs import Shared
from falkirk.runtime.spark.epochs.log import DECISION, Epoch, EpochLog
from falkirk.runtime.spark.record import compare
from falkirk.runtime.spark.rows import JSON_OPTIONS
from falkirk.steps.batch.in_epoch import BatchState
from falkirk.steps.dataframes.names import ORIGINS
from falkirk.theory.ids import LogId, Offset
from falkirk.user_tools.commands.made_of_inputs import NotRecomputed
from falkirk.user_tools.commands.made_of_values import Made, same_values
from falkirk.user_tools.commands.planned import PlannedRegions
from falkirk.user_tools.commands.records import FoundRecord, RecordPlace, key_texts
from falkirk.user_tools.commands.traced_epochs import SAVED_STATE, OriginPlace, TracedJobs, marked_state

_TEXT = "__falkirk_text"


@dataclass(kw_only=True)
class _Places:
    """Places of rows. Attributes: rows: one for each row. state: the epoch whose saved state has other rows."""

    rows: list[OriginPlace] = field(default_factory=list)
    state: int | None = None


class MadeOfEpochs:
    """Computes epochs of one application again.

    Args: planned: the application. look: at most this many records are read for one result.
    """

    def __init__(self, planned: PlannedRegions, place: Storage, look: int) -> None:
        self._planned, self._look, self._store = planned, look, place.home.store
        session, app = planned.session, planned.app
        self._context = Context(
            session=session, connection=place.connection, home=place.home, state_partitions=app.state_partitions
        )  # fmt: skip
        batches = planned.plan.batches
        self._batches: dict[LogId, Batch] = {batch.log: batch for batch in batches}
        self._logs: dict[LogId, EpochLog] = {b.log: epoch_log_of(b.logs(), place) for b in batches}
        self._names = {given.name: given for batch in batches for given in batch.inputs}
        self._looked_at = 0

    def of(self, logs: BatchLogs, number: int, found: FoundRecord, keys: tuple[str, ...]) -> Made:
        """Return the records that made a result of an epoch. Args: keys: the columns of its sink's key.

        Raises: NotRecomputed. LogError, HomeError, SPARK_ERRORS.
        """
        batch = self._batches.get(logs.log)
        if batch is None:
            raise NotRecomputed(f"{logs.name} is not a batch in this file")
        self._looked_at, whole = 0, _Chain(self, batch, number)
        rows = whole.results()
        text, note = _chosen(rows, found, keys)
        (mine,) = rows.where(F.col(_TEXT) == text).select(ORIGINS).limit(1).collect()
        places = _parted(mine[ORIGINS])
        records = _Records()
        self._follow(places.rows, records)
        if any(slot.startswith("watermark") for slot in batch.slots):
            # Records of other keys move the time. The results of windows have been computed from these records alone.
            results = [json.loads(text)]
        else:
            alone = _Chain(self, batch, number, start=whole.start, only=_by_input(places.rows)).results()
            results = [json.loads(row[_TEXT]) for row in alone.select(_TEXT).limit(self._look).collect()]
        notes = [note, *records.notes(places.state)]
        of = found.content
        values = tuple(of.get(name) for name in keys)
        if {*keys} <= of.keys():
            results = [row for row in results if key_texts(row, keys) == key_texts(of, keys)]
        return Made(
            columns=keys, values=values, window=None, rows=records.rows,
            records=tuple(sorted(records.places, key=lambda at: (-at.offset, at.topic, at.partition))),
            looked_at=self._looked_at, deleted=0, skipped=0, results=tuple(results),
            agrees=any(same_values(row, of) for row in results), note="; ".join(filter(None, notes)),
        )  # fmt: skip

    # -- the rows of other batches ------------------------------------------------------------------------------------

    def _follow(self, places: Iterable[OriginPlace], records: "_Records") -> None:
        """Add the records behind rows of inputs, also behind those that are results of other batches."""
        behind: dict[tuple[LogId, int], list[int]] = {}
        for name, partition, offset, row in places:
            given = self._names[name]
            if given.topic is not None:
                records.add(RecordPlace(topic=given.log, partition=partition, offset=Offset(offset)))
            elif given.folder is not None:
                records.of_files += 1
            else:
                behind.setdefault((given.log, offset), []).append(row)
        for (log, number), wanted in sorted(behind.items()):
            batch, epoch = self._batches[log], self.epoch(log, number)
            there = self._logs[log].results_if_there(epoch)
            if there is None:
                raise NotRecomputed(f"epoch {number} of {batch.name}, which it has read, was deleted")
            session = self._context.session
            schema = StructType([*batch.schema.fields, StructField(ROW, LongType())])
            results = read_folders(session, [there], schema).where(F.col(ROW).isin(wanted))
            texts = {row[_TEXT] for row in _with_text(results, batch).select(_TEXT).collect()}
            rows = _Chain(self, batch, number).results().where(F.col(_TEXT).isin(sorted(texts)))
            found = rows.select(_TEXT, ORIGINS).collect()
            if {row[_TEXT] for row in found} != texts:
                raise NotRecomputed(f"epoch {number} of {batch.name}, computed again, has other results")
            for text in sorted(texts):
                of = _parted(next(row[ORIGINS] for row in found if row[_TEXT] == text))
                records.state = records.state or (None if of.state is None else (batch.name, of.state))
                self._follow(of.rows, records)

    # -- for chains ---------------------------------------------------------------------------------------------------

    def jobs(self, batch: Batch) -> TracedJobs:
        """Return the jobs of a batch. Raises: NotRecomputed. HomeError: `APPLICATION_CHANGED`."""
        record = self._store.region(batch.name)
        if record is not None:
            compare(batch, record, {})
        if batch.undetermined:
            raise NotRecomputed(f"{', '.join(batch.undetermined)} may differ each time")
        if batch.iteration is not None:
            raise NotRecomputed("it has a loop")
        folders = {i.log: (i.name, i.folder) for b in self._batches.values() for i in b.inputs if i.folder is not None}
        files = {log: FileLog(name, declared, self._store) for log, (name, declared) in folders.items()}
        shared = Shared(logs=self._logs, files=files, on_complete=lambda name: None)
        return TracedJobs(batch, self._context, shared, None)

    def epoch(self, log: LogId, number: int) -> Epoch:
        """Return an epoch. Raises: NotRecomputed: the home has deleted it."""
        found = next((e for e in self._logs[log].epochs() if e.number == number), None)
        if found is None:
            raise NotRecomputed(f"epoch {number} of {self._batches[log].name} was deleted")
        return found

    def before(self, batch: Batch, number: int) -> list[Epoch]:
        """Return the epochs before an epoch, newest first."""
        return [e for e in reversed(self._logs[batch.log].epochs()) if e.number < number]

    def has_first(self, batch: Batch) -> bool:
        """Return whether the home has the first epoch of a batch."""
        decided = self._store.decisions(DECISION, batch.name)
        return bool(decided) and decided[0].number == 0

    def count(self, batch: Batch, epoch: Epoch) -> int:
        """Return how many records of topics an epoch has read."""
        topics = [given.log for given in batch.inputs if given.topic is not None]
        return sum(end - epoch.first.get(log, {}).get(p, 0) for log in topics for p, end in epoch.last[log].items())

    def note(self, number: int) -> None:
        """Count records that are read."""
        self._looked_at += number

    @property
    def look(self) -> int:
        """At most this many records are read."""
        return self._look


class _Chain:
    """The epochs that are computed for the results of one. Attributes: start: the first of them."""

    def __init__(
        self, of: MadeOfEpochs, batch: Batch, number: int, *, start: int | None = None,
        only: Mapping[str, Collection[OriginPlace]] | None = None,
    ) -> None:  # fmt: skip
        self._of, self._batch, self._jobs = of, batch, of.jobs(batch)
        last = of.epoch(batch.log, number)
        self._epochs = [last]
        self._saved: Epoch | None = None
        if batch.is_stateful:
            self._begin(of.before(batch, number), start)
        self._jobs.only = only or {}
        self.start = self._epochs[0].number
        if only is None:
            of.note(sum(of.count(batch, each) for each in self._epochs))

    def _begin(self, before: list[Epoch], start: int | None) -> None:
        """Find the first epoch to compute."""
        chosen: tuple[list[Epoch], Epoch | None] | None = None
        epochs = self._epochs
        looked = self._of.count(self._batch, epochs[0])
        # The buffers of a saved window have no places.
        may_be_saved = not any(slot.startswith("windows") for slot in self._batch.slots)
        for each in before:
            if may_be_saved and each.saved and each.state is not None and start in (None, epochs[0].number):
                chosen = (epochs, each)
            looked += self._of.count(self._batch, each)
            if looked > self._of.look or not self._is_there(each):
                break
            epochs = [each, *epochs]
        else:
            if self._of.has_first(self._batch) and start in (None, epochs[0].number):
                chosen = (epochs, None)
        if chosen is None:
            raise NotRecomputed("the state before it was deleted")
        self._epochs, self._saved = chosen

    def _is_there(self, epoch: Epoch) -> bool:
        try:
            self._jobs.refuse_expired(epoch)
        except LogError:
            return False
        return True

    def results(self) -> DataFrame:
        """Return the results of the last epoch, with `ORIGINS` and their text. Raises: as `next_state`."""
        state: BatchState = {}
        if self._saved is not None:
            epochs = self._jobs.epochs
            epochs.state(self._saved)
            read = self._jobs.states.read(str(self._saved.state), is_result=self._saved.state == self._saved.folder)
            state = marked_state(read, self._saved.number)
        result: DataFrame | None = None
        for each in self._epochs:
            self._jobs.refuse_expired(each)
            result, state = self._jobs.next_state(each, state)
        assert result is not None, "the last epoch at least"
        return _with_text(result, self._batch)


@dataclass(kw_only=True)
class _Records:
    """Records of topics. Attributes: rows: how many rows of them count. of_files: how many rows of files."""

    places: dict[RecordPlace, None] = field(default_factory=dict)
    rows: int = 0
    of_files: int = 0
    state: tuple[str, int] | None = None

    def add(self, at: RecordPlace) -> None:
        self.places[at] = None
        self.rows += 1

    def notes(self, state: int | None) -> list[str]:
        """Return what else is part of the result. Args: state: the epoch whose saved state is."""
        found = [] if state is None else [f"and of the state after epoch {state}"]
        found += [] if self.state is None else [f"and of the state of {self.state[0]} after epoch {self.state[1]}"]
        return found + ([f"and of {self.of_files:,} rows of files"] if self.of_files else [])


def _with_text(rows: DataFrame, batch: Batch) -> DataFrame:
    columns = [F.col(f"`{name}`") for name in batch.schema.names]
    return rows.withColumn(_TEXT, F.to_json(F.struct(*columns), JSON_OPTIONS))


def _chosen(rows: DataFrame, found: FoundRecord, keys: tuple[str, ...]) -> tuple[str, str]:
    """Return the text of the row that is the result, or else of the only one with its key; and a note."""
    equal = rows.where(F.col(_TEXT) == F.lit(found.text)).count()
    if equal:
        return str(found.text), "" if equal == 1 else f"{equal:,} rows of the epoch are equal; these are of one"
    alike = list[str]()
    for row in rows.select(_TEXT).toLocalIterator():
        value = json.loads(row[_TEXT])
        if same_values(value, found.content):
            return str(row[_TEXT]), ""
        if keys and {*keys} <= found.content.keys() and key_texts(value, keys) == key_texts(found.content, keys):
            alike.append(str(row[_TEXT]))
    if len(alike) != 1:
        raise NotRecomputed("the epoch, computed again, has no such row")
    return alike[0], ""


def _parted(places: Iterable[Any]) -> _Places:
    found = _Places()
    for each in places:
        name, partition, offset, row = each
        if name == SAVED_STATE:
            found.state = int(offset)
        else:
            found.rows.append((str(name), int(partition), int(offset), int(row)))
    return found


def _by_input(places: Iterable[OriginPlace]) -> dict[str, set[OriginPlace]]:
    found: dict[str, set[OriginPlace]] = {}
    for each in places:
        found.setdefault(each[0], set()).add(each)
    return found
