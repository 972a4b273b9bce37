"""Epoch origins: which input an epoch of a batch has read, back to the users' topics and files."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from falkirk.declare.application import Application
from falkirk.errors import LogError
from falkirk.errors.conditions.commands import BATCH_UNKNOWN, EPOCH_MISSING
from falkirk.plan.batch import STATE_PART
from falkirk.plan.region import BatchLogs
from falkirk.plan.shape import Shape
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.epochs.at_rest import epoch_log_of, rounds_of
from falkirk.runtime.spark.epochs.files import FileLog
from falkirk.runtime.spark.epochs.log import Epoch, EpochLog
from falkirk.theory.ids import LogId, LogKind, Offset
from falkirk.user_tools.commands.records import EpochPlace, FoundRecord, RecordPlace, TopicRecords, key_texts
from falkirk.user_tools.commands.written import Writer, processors_of

_Values = dict[str, Any]
_Key = Mapping[str, Any]
#: So many epochs of another batch are followed, newest first. An epoch rarely reads more than one or two.
EPOCHS_MAX = 5
#: So many files are named.
FILES_MAX = 50


class EpochOrigins:
    """The origins of the results of batches. Args: inputs: returns records that are inputs, with their origins."""

    def __init__(
        self, app: Application, shape: Shape, place: Storage, records: TopicRecords,
        inputs: Callable[[Iterable[RecordPlace], int], list[_Values]], limit: int, look: int,
    ) -> None:  # fmt: skip
        self._app, self._shape, self._place, self._records = app, shape, place, records
        self._inputs, self._limit, self._look = inputs, limit, look
        self._batches = {batch.log: batch for batch in shape.batches}
        self._logs: dict[LogId, EpochLog] = {}
        #: The epochs that are in the answer. Each occurs once, with its inputs.
        self._listed: set[tuple[LogId, int]] = set()

    def of_result(
        self, writer: Writer, number: int, row: int | None, found: FoundRecord, depth: int, *, limit: int
    ) -> _Values:
        """Return the origin of a result in a topic.

        Args: row: its place in its epoch. limit: of records of each input.
        """
        assert writer.batch is not None, "a batch writes this topic"
        content, key = found.content, dict[str, Any]()
        if limit and not writer.is_dead_letters and set(writer.keys) <= set(content):
            key = {name: content[name] for name in writer.keys}
        return {
            **self._of_epoch(writer.batch, number, key, depth, limit=limit),
            "row": row,
            "dead_letter": writer.is_dead_letters,
        }

    def of_epoch(self, at: EpochPlace) -> _Values:
        """Return the origin of the results of an epoch.

        Raises: DefinitionError: `BATCH_UNKNOWN`, `EPOCH_MISSING`: no such epoch was decided yet.
        """
        batch = next((b for b in self._shape.batches if b.name == at.batch), None)
        if batch is None:
            names = ", ".join(b.name for b in self._shape.batches)
            raise BATCH_UNKNOWN.error(batch=at.batch, names=names or "none: it has no batch")
        following = self._log_of(batch).next_number()
        if at.epoch >= following:
            raise EPOCH_MISSING.error(batch=batch.name, epoch=at.epoch, following=following)
        return {**self._of_epoch(batch, at.epoch, {}, 0, limit=self._limit), "row": None, "dead_letter": False}

    def _of_epoch(self, batch: BatchLogs, number: int, key: _Key, depth: int, *, limit: int) -> _Values:
        """Return an epoch with its inputs.

        Args: key: values of columns; records that have them are listed before others. limit: of records of each input.
        """
        described: _Values = {
            "kind": "batch", "unit": batch.name, "processors": processors_of(self._app, self._shape, batch.name),
            "epoch": {"number": number}, "reads": [], "state": None, "rounds": "", "note": "",
        }  # fmt: skip
        epochs = self._log_of(batch)
        epoch = next((e for e in epochs.epochs() if e.number == number), None)
        if epoch is None:
            return {**described, "note": self._why_unknown(batch, epochs, number)}
        described["epoch"] |= {
            "decided_at_s": epoch.decided_at_s, "made_at_s": epoch.made_at_s, "rows": epoch.rows,
            "dead_letters": epoch.dead, "direct": epoch.direct, "slice": epoch.slice,
        }  # fmt: skip
        if (batch.log, number) in self._listed:
            return {**described, "note": "its inputs are listed above"}
        self._listed.add((batch.log, number))
        return {
            **described,
            "reads": list(self._reads(batch, epoch, key, depth, limit)),
            "state": self._state_before(batch, epochs, epoch),
            "rounds": rounds_of(epoch),
        }

    def _why_unknown(self, batch: BatchLogs, epochs: EpochLog, number: int) -> str:
        voided = self._place.home.store.voided_ranges(batch.log)
        if any(v.covers(number) for v in voided):
            return "a rollback made this epoch invalid; its input was cut into later epochs"
        oldest = next((e.number for e in epochs.epochs()), None)
        kept = "" if oldest is None else f"; the oldest that it keeps is {oldest}"
        return (
            f"the home has deleted the record of this epoch{kept}. `history=` of the application decides how many stay"
        )

    def _reads(self, batch: BatchLogs, epoch: Epoch, key: _Key, depth: int, limit: int) -> Iterator[_Values]:
        for log, last in sorted(epoch.last.items()):
            first = epoch.first.get(log, {})
            if log.kind is LogKind.TOPIC:
                yield self._of_topic(log, first, last, key, depth, limit)
            elif log.kind is LogKind.FILES:
                yield self._of_files(log, first.get(0, Offset(0)), last.get(0, Offset(0)), epoch)
            else:
                yield self._of_epochs(log, first.get(0, Offset(0)), last.get(0, Offset(0)), key, depth, limit)
        for view, number in sorted(epoch.views.items()):
            yield self.of_views(view, (number,), depth)

    def of_views(self, view: LogId, epochs: Sequence[int], depth: int) -> _Values:
        """Return that a view was read, with the origin of its epoch. Args: epochs: one of these was read."""
        nested, (number, *others) = list[_Values](), epochs
        if not others and view in self._batches:
            nested = [self._of_epoch(self._batches[view], number, {}, depth + 1, limit=0)]
        return {
            "log": str(view), "kind": "view", "epoch": None if others else number, "epochs": list(epochs),
            "origins": nested,
        }  # fmt: skip

    def _of_topic(
        self, log: LogId, first: Mapping[int, Offset], last: Mapping[int, Offset], key: _Key, depth: int, limit: int
    ) -> _Values:
        """Return the range of a topic that an epoch has read, with some of its records: those with the key, if any."""
        ranges = {p: [first.get(p, Offset(0)), o] for p, o in sorted(last.items()) if first.get(p, Offset(0)) < o}
        described: _Values = {
            "log": str(log), "kind": "topic", "ranges": {str(p): r for p, r in ranges.items()},
            "count": sum(end - begin for begin, end in ranges.values()), "records": [], "alike": {}, "looked_at": 0,
            "note": "",
        }  # fmt: skip
        if not ranges or not limit:
            return described
        any_, alike, looked, wanted = list[RecordPlace](), list[RecordPlace](), 0, key_texts(key, key)
        try:
            part = self._records.forward(
                log, {p: r[0] for p, r in ranges.items()}, {p: r[1] for p, r in ranges.items()}
            )
            for looked, found in enumerate(part, 1):
                if len(any_) < limit and not found.is_void:
                    any_.append(found.at)
                if key and not found.is_void and key_texts(found.content, key) == wanted:
                    alike.append(found.at)
                if looked >= self._look or len(alike) >= limit or (not key and len(any_) >= limit):
                    break
        except LogError as error:
            if error.condition not in ("TOPIC_MISSING", "RANGE_EXPIRED"):
                raise
            described["note"] = "these records were deleted"
        if not looked and not described["note"]:
            described["note"] = "these records were deleted"
        described |= {"looked_at": looked, "alike": dict(key) if alike else {}}
        return {**described, "records": self._inputs(alike or any_, depth + 1)}

    def _of_files(self, log: LogId, first: Offset, last: Offset, epoch: Epoch) -> _Values:
        source = log.partition(":")[2]
        described: _Values = {"log": str(log), "kind": "files", "count": last - first, "files": [], "folder": None}
        if source in self._app.folders:
            files = FileLog(source, self._app.folders[source], self._place.home.store)
            refused = set(epoch.refused.get(log, ()))
            several = [f for f in files.numbered(first, last) if f.number not in refused]
            described |= {
                "files": [f.name for f in several[:FILES_MAX]],
                "folder": str(files.folder),
                "count": len(several),
            }
        return described

    def _of_epochs(self, log: LogId, first: Offset, last: Offset, key: _Key, depth: int, limit: int) -> _Values:
        """Return the epochs of another batch that an epoch has read. Those that a rollback voided are left out."""
        described: _Values = {"log": str(log), "kind": "epochs", "epochs": [first, last], "origins": []}
        if log in self._batches:
            batch = self._batches[log]
            void = self._place.home.store.voided_ranges(log)
            numbers = [n for n in range(first, last) if not any(v.covers(n) for v in void)]
            newest = numbers[-EPOCHS_MAX:]
            described["origins"] = [self._of_epoch(batch, n, key, depth + 1, limit=limit) for n in newest]
        return described

    def _state_before(self, batch: BatchLogs, epochs: EpochLog, epoch: Epoch) -> _Values | None:
        """Return which state an epoch has read; None: the batch has none, or it was the first epoch."""
        record = self._place.home.store.region(batch.name)
        if record is None or record.fingerprint.get(STATE_PART, "none") == "none":
            return None
        before = [e for e in epochs.epochs() if e.number < epoch.number]
        if not before:
            return None
        saved = [e.number for e in before if e.saved]
        return {"after_epoch": before[-1].number, "saved_at_epoch": saved[-1] if saved else None}

    def _log_of(self, batch: BatchLogs) -> EpochLog:
        if batch.log not in self._logs:
            self._logs[batch.log] = epoch_log_of(batch, self._place)
        return self._logs[batch.log]
