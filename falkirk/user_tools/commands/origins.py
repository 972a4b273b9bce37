"""Origins: finds where a result of an application comes from, from its stamp, the home and the topics.

A result of a live region has the stamp of the input record that caused it, a copy from a held log has its place in that
log, and a result of a batch names its epoch. The search follows these back to the users' topics and files. It reads
only. Spark is needed only to compute an aggregate again (`made_of.py`). Its answers are plain values, which
`falkirk why --json` prints:

    a record   {"record", "missing", "origin"}; `origin` is null for a record of the users
    an origin  {"kind": "live", "copy" or "batch", "unit", "processors", …}
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from falkirk.declare.application import Application
from falkirk.declare.nodes import NEWEST_ROW
from falkirk.errors.conditions.commands import EPOCH_UNKNOWN, RECORD_FOREIGN, TOPIC_NOT_OURS
from falkirk.kafka_client.signing import RejectedHeader, VerifiedHeader
from falkirk.plan.fingerprint import IN_ORDER, WITH_TIMERS
from falkirk.plan.region import RegionLogs
from falkirk.plan.shape import Shape
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.live.at_rest import RegionAtRest
from falkirk.runtime.spark.live.epochs_read import EpochsRead
from falkirk.steps.live.joins import PLACES
from falkirk.theory.delivery import input_records
from falkirk.theory.ids import LogId, Offset, topic_name
from falkirk.user_tools.commands.epoch_origins import EpochOrigins
from falkirk.user_tools.commands.epoch_records import UnknownEpoch
from falkirk.user_tools.commands.made_of import MadeOf
from falkirk.user_tools.commands.made_of_inputs import NotRecomputed
from falkirk.user_tools.commands.made_of_values import Made
from falkirk.user_tools.commands.records import (
    EpochPlace,
    FoundRecord,
    RecordPlace,
    TopicRecords,
    as_text,
    event_time_text,
    key_texts,
)
from falkirk.user_tools.commands.written import Writer, topic_named, writers_of

_Values = dict[str, Any]
#: The numbers of a stamp that name its input record: source, partition, offset.
_OF_INPUT = 3
#: Keyed steps whose results come from all earlier records of their key.
_AGGREGATING = ("agg", "count", "windows", "stateful", WITH_TIMERS, IN_ORDER, NEWEST_ROW)
_JOIN = "timedJoin"
#: Of these, the cause of a result may be a record of another key.
_ENDED_BY_OTHERS = ("windows", WITH_TIMERS)
_NOTES = {"windows": "the times of the window are not compared", WITH_TIMERS: "the key is in the result"}
#: A chain of regions is not longer; a damaged header must not make the search endless.
_DEPTH_MAX = 50


class Origins:
    """The origins of the results of one application.

    Args:
        app: as declared, with the topics of its requests bound to the home.
        limit: at most this many input records of the same key are listed, and of each input of an epoch.
        look: at most this many records of each input are looked at for them.
        made_of: computes aggregates again; None: their records are only found by the columns of their keys.
    """

    def __init__(
        self, app: Application, shape: Shape, place: Storage, records: TopicRecords, *, limit: int, look: int,
        made_of: MadeOf | None = None,
    ) -> None:  # fmt: skip
        self._app, self._place, self._records, self._limit, self._look = app, place, records, limit, look
        self._made_of = made_of
        self._writers = writers_of(app, shape)
        self._checkpoints: dict[str, tuple[Checkpoint, ...]] = {}
        self._shape = shape
        self._clocks = {app.sources[name].topic.log for name in app.clocks}

    @cached_property
    def _epochs(self) -> EpochOrigins:
        return EpochOrigins(self._app, self._shape, self._place, self._records, self._inputs, self._limit, self._look)

    def explain(self, at: RecordPlace | EpochPlace) -> _Values:
        """Return a result, or those of an epoch, with the origin.

        Raises: DefinitionError: `TOPIC_NOT_OURS`; `BATCH_UNKNOWN`, `EPOCH_MISSING`. LogError: `RECORD_DELETED`,
            `RECORD_MISSING`, `RECORD_FOREIGN`, `EPOCH_UNKNOWN`.
        """
        if isinstance(at, EpochPlace):
            return {"record": None, "missing": None, "origin": self._epochs.of_epoch(at)}
        topic = self._topic(at.topic)
        at = RecordPlace(topic=topic, partition=at.partition, offset=at.offset)
        found = self._records.one(at)
        if isinstance(found.writer, UnknownEpoch):
            raise EPOCH_UNKNOWN.error(record=str(at), reason=found.writer.text)
        if isinstance(found.writer, RejectedHeader):
            raise RECORD_FOREIGN.error(record=str(at), reason=found.writer.text)
        return self._records_of([found.at], {found.at: found}, 0, is_first=True)[at]

    def _topic(self, name: LogId) -> LogId:
        """Return a topic that the application writes, by its name or by that of its sink."""
        topic = topic_named(self._app, self._writers, name)
        if topic is not None and topic in self._writers:
            return topic
        outputs = [str(t) for t, writer in self._writers.items() if writer.is_output]
        raise TOPIC_NOT_OURS.error(
            app=self._app.name, topic=str(name), names=", ".join(outputs) or "no topic; its results are elsewhere"
        )

    def _inputs(self, places: Iterable[RecordPlace], depth: int, *, is_first: bool = False) -> list[_Values]:
        """Return records that are inputs, each with its origin. Args: is_first: they caused the result itself."""
        places = list(places)
        explained = self._records_of(places, self._records.get(places), depth, is_first=is_first)
        return [explained[at] for at in places]

    def _records_of(
        self, places: list[RecordPlace], found: Mapping[RecordPlace, FoundRecord | str], depth: int, *, is_first: bool
    ) -> dict[RecordPlace, _Values]:
        """Return records with their origins. The inputs of all of them are read together."""
        causes: dict[RecordPlace, list[RecordPlace]] = {}
        for at in places:
            record = found[at]
            if isinstance(record, FoundRecord) and depth < _DEPTH_MAX:
                causes[at] = self._causes(record)
        below = list(dict.fromkeys(cause for several in causes.values() for cause in several))
        inputs = dict(zip(below, self._inputs(below, depth + 1, is_first=is_first), strict=True)) if below else {}
        return {
            at: self._record(at, found[at], [inputs[cause] for cause in causes.get(at, ())], depth, is_first=is_first)
            for at in places
        }

    def _causes(self, found: FoundRecord) -> list[RecordPlace]:
        """Return the records that a record names as its cause."""
        writer = self._writers.get(found.at.topic)
        if writer is None or isinstance(found.writer, RejectedHeader):
            return []
        if writer.region is not None:
            region = writer.region
            return [
                RecordPlace(topic=region.sources[source], partition=partition, offset=offset)
                for (source, partition), offset in input_records(found.writer.numbers, joins=len(region.joined))
                if source < len(region.sources)
            ]
        if writer.held is not None:
            _, partition, offset, *_ = found.writer.numbers
            return [RecordPlace(topic=writer.held, partition=partition, offset=Offset(offset))]
        return []

    def _record(
        self, at: RecordPlace, found: FoundRecord | str, causes: list[_Values], depth: int, *, is_first: bool
    ) -> _Values:
        if isinstance(found, str):
            where = {"topic": str(at.topic), "partition": at.partition, "offset": at.offset}
            return {"record": where, "missing": found, "origin": None}
        writer, origin = self._writers.get(at.topic), None
        foreign = found.writer.text if writer is not None and isinstance(found.writer, RejectedHeader) else None
        if writer is not None and isinstance(found.writer, VerifiedHeader):
            origin = self._origin(writer, found, found.writer, causes, depth, is_first=is_first)
        return {"record": found.as_json(), "missing": None, "origin": origin} | (
            {"foreign": foreign} if foreign is not None else {}
        )

    def _origin(
        self, writer: Writer, found: FoundRecord, header: VerifiedHeader, causes: list[_Values], depth: int, *,
        is_first: bool,
    ) -> _Values:  # fmt: skip
        if writer.held is not None:
            return {"kind": "copy", "unit": writer.unit, "held": str(writer.held), "inputs": causes}
        if writer.region is not None:
            return self._live(writer.region, writer, found, header, causes, depth, is_first=is_first)
        _, _, epoch, *row = header.numbers
        made: _Values = {"made_of": None, "not_recomputed": ""}
        if is_first and not writer.is_dead_letters and self._made_of is not None:
            assert writer.batch is not None, "a batch writes this topic"
            try:
                of = self._made_of.of_epoch(writer.batch, epoch, found, writer.keys)
                made["made_of"] = self._made(of, depth)
            except NotRecomputed as reason:
                made["not_recomputed"] = str(reason)
        limit = self._limit if is_first and made["made_of"] is None else 0
        return self._epochs.of_result(writer, epoch, row[0] if row else None, found, depth, limit=limit) | made

    # -- live regions -------------------------------------------------------------------------------------------------

    def _live(
        self, region: RegionLogs, writer: Writer, found: FoundRecord, header: VerifiedHeader, causes: list[_Values],
        depth: int, *, is_first: bool,
    ) -> _Values:  # fmt: skip
        """Return the origin of a record of a live region."""
        opened = [r for r in self._place.home.store.incarnations(region.name) if r.incarnation == header.incarnation]
        return {
            "kind": "live",
            "unit": region.name,
            "processors": writer.processors,
            "steps": list(region.steps),
            "dead_letter": writer.is_dead_letters,
            "incarnation": {
                "number": header.incarnation,
                "opened_at_s": opened[0].opened_at_s if opened else None,
            },
            "checkpoint": self._checkpoint(region, self._causes(found)),
            "reads": self._views_read(region, self._causes(found), depth),
            "part": list(header.numbers[_OF_INPUT + PLACES * len(region.joined) :]),
            "inputs": causes,
            **self._behind(region, found, causes, depth, is_wanted=is_first and not writer.is_dead_letters),
        }

    def _behind(
        self, region: RegionLogs, found: FoundRecord, causes: list[_Values], depth: int, *, is_wanted: bool
    ) -> _Values:
        """Return the records behind an aggregate: those that made it, or else the earlier ones of its key."""
        made: _Values = {"made_of": None, "not_recomputed": "", "same_key": None}
        if not is_wanted or region.keyed_step not in (*_AGGREGATING, _JOIN):
            return made
        if self._made_of is not None:
            try:
                of = self._made_of.of(region, found)
                return made | {"made_of": self._made(of, depth, self._newest_before(region, of.records))}
            except NotRecomputed as reason:
                made["not_recomputed"] = str(reason)
        if region.keyed_step == _JOIN:  # the stamp has named its records
            return made
        return made | {"same_key": self._same_key(region, found, causes, depth)}

    def _made(self, made: Made, depth: int, before: _Values | None = None) -> _Values:
        """Return the records that made a result, the newest ones with their origins.

        Args: before: the newest checkpoint that has only a part of them.
        """
        return {
            "columns": list(made.columns), "values": list(made.values),
            "window": None if made.window is None else [event_time_text(us) for us in made.window],
            "count": len(made.records), "rows": made.rows,
            "records": self._inputs(made.records[: self._limit], depth + 1), "before": before,
            "looked_at": made.looked_at, "deleted": made.deleted, "not_looked_at": made.skipped,
            "results": [dict(each) for each in made.results], "agrees": made.agrees, "note": made.note,
        }  # fmt: skip

    def _newest_before(self, region: RegionLogs, made: Sequence[RecordPlace]) -> _Values | None:
        """Return the newest kept checkpoint that has not all of these records, and how many it has; None: none has any.

        Records of a hop that is not read itself are not comparable.
        """
        self._checkpoint(region, [])
        own = [at for at in made if at.topic in region.sources]
        for checkpoint in reversed(self._checkpoints[region.name] if own and len(own) == len(made) else ()):
            has = sum(checkpoint.read.length_of(at.topic, at.partition) > at.offset for at in own)
            if 0 < has < len(own):
                return {"checkpoint": checkpoint.number, "made_at_s": checkpoint.made_at_s, "records": has}
        return None

    def _checkpoint(self, region: RegionLogs, causes: list[RecordPlace]) -> _Values | None:
        """Return the first kept checkpoint that covers these input records; None: none does yet."""
        if region.name not in self._checkpoints:
            self._checkpoints[region.name] = RegionAtRest(region, self._place).checkpoints()
        checkpoints = self._checkpoints[region.name]
        for checkpoint in checkpoints:
            lengths = [checkpoint.read.length_of(c.topic, c.partition) for c in causes]
            if all(length > cause.offset for length, cause in zip(lengths, causes, strict=True)):
                return {
                    "number": checkpoint.number,
                    "made_at_s": checkpoint.made_at_s,
                    "is_oldest": checkpoint is checkpoints[0],
                }
        return None

    def _views_read(self, region: RegionLogs, causes: list[RecordPlace], depth: int) -> list[_Values]:
        """Return the views that a result of a region has looked up, as far as the home has recorded their epochs.

        A region notes each epoch before a record can read it, with the number of the next checkpoint. So the notes
        between the two checkpoints around a result have the epoch that it has read.
        """
        if not region.views:
            return []
        covering, kept = self._checkpoint(region, causes), self._checkpoints[region.name]
        if not kept or (covering is not None and covering["is_oldest"]):
            return []  # the notes of the time before were deleted
        numbers = [checkpoint.number for checkpoint in kept]
        last = None if covering is None else covering["number"]
        first = numbers[-1] if last is None else numbers[numbers.index(last) - 1]
        found = EpochsRead(region.name, self._place.home.store, region.views).between(first, last)
        return [self._epochs.of_views(view, epochs, depth) for view, epochs in sorted(found.items())]

    def _same_key(self, region: RegionLogs, found: FoundRecord, causes: list[_Values], depth: int) -> _Values | None:
        """Return the earlier records of the same key: with the cause, they made the state behind the result."""
        if not causes or causes[0]["missing"] is not None:
            return None
        (at, *_) = self._causes(found)
        nothing: _Values = {"columns": None, "records": [], "looked_at": 0, "has_all": False, "filters": region.filters}
        if region.keyed_step == IN_ORDER:
            return {**nothing, "note": "records of its key come from all partitions, in the order of their times"}
        if any(kind in _ENDED_BY_OTHERS for kind in region.chain[:-1]):
            # A later step may have put another value into the column of the result, so that does not tell the key.
            return {**nothing, "note": "a record of another key may have ended the window before it"}
        if region.keyed_by is None:
            return {**nothing, "note": "its steps compute the key, so its earlier records can't be found without them"}
        source = region.source if at.topic in self._clocks else at.topic
        if self._format(source) not in ("json", "avro") and not set(region.keyed_by) <= self._parts(source).keys():
            return {
                **nothing,
                "note": f"the values of {source} are neither JSON nor Avro, so its earlier records can't be found",
            }
        caused_by = self._records.one(at)
        cause = self._content(caused_by)
        # A record of another key may end a window, or make a timer fire. Then the result alone has the key.
        is_own = region.keyed_step not in _ENDED_BY_OTHERS
        of = cause if is_own or not set(region.keyed_by) <= found.content.keys() else found.content
        if of is cause and region.keyed_step == WITH_TIMERS:
            columns = ", ".join(region.keyed_by)
            return {**nothing, "note": f"a timer may have given it, and the result has no {columns}"}
        wanted = key_texts(of, region.keyed_by)
        if source == at.topic:
            alike, looked, has_all = self._alike(region, at, wanted)
        else:
            alike, looked, has_all = self._alike_until(region, caused_by.record.timestamp_ms, wanted)
        return {
            "columns": list(region.keyed_by),
            "values": [of.get(column) for column in region.keyed_by],
            "records": self._inputs([each.at for each in alike], depth + 1),
            "looked_at": looked,
            "has_all": has_all,
            "filters": region.filters,
            "note": _NOTES.get(region.keyed_step, ""),
        }

    def _parts(self, topic: LogId) -> Mapping[str, str]:
        """Return the columns of a source that are not in its values, with the part of the record that each holds."""
        sources = [s.topic for s in self._app.sources.values() if s.topic.topic == topic]
        return {column: part for source in sources for part, column in source.record_columns.items()}

    def _content(self, found: FoundRecord) -> Mapping[str, Any]:
        """Return the columns of a record, as far as they are known without Spark."""
        parts = {
            "key": as_text(found.record.key), "timestamp": found.record.timestamp_ms,
            "topic": topic_name(found.at.topic), "partition": found.record.partition, "offset": found.record.offset,
        }  # fmt: skip
        return {**found.content, **{c: parts.get(part) for c, part in self._parts(found.at.topic).items()}}

    def _alike_until(
        self, region: RegionLogs, until_ms: int, wanted: tuple[str | None, ...]
    ) -> tuple[list[FoundRecord], int, bool]:
        """Return as `_alike` records of all partitions, written until a time of a clock, which has no place there."""
        ends = self._records.bounds(region.source)[1]
        parts = [
            self._alike(region, RecordPlace(topic=region.source, partition=p, offset=end), wanted, until_ms)
            for p, end in sorted(ends.items())
        ]
        alike = sorted((each for found, _, _ in parts for each in found), key=lambda r: -r.record.timestamp_ms)
        has_all = len(alike) <= self._limit and all(whole for _, _, whole in parts)
        return alike[: self._limit], sum(looked for _, looked, _ in parts), has_all

    def _alike(
        self, region: RegionLogs, at: RecordPlace, wanted: tuple[str | None, ...], until_ms: float = math.inf
    ) -> tuple[list[FoundRecord], int, bool]:
        """Return the newest earlier records of a key, how many were looked at, and whether there are no others.

        Args: until_ms: records with later timestamps are left out.
        """
        store = self._place.home.store
        record = store.region(region.name)
        started = Offset(0) if record is None else record.start_offsets.get(at.topic, {}).get(at.partition, Offset(0))
        begins = self._records.bounds(at.topic)[0].get(at.partition, Offset(0))
        looked, alike = 0, list[FoundRecord]()
        columns = region.keyed_by or ()
        newest_first = self._records.back(at.topic, at.partition, at.offset, started, self._look)
        for looked, each in enumerate(newest_first, 1):
            is_ours = at.topic not in self._writers or isinstance(each.writer, VerifiedHeader)
            is_early = each.record.timestamp_ms <= until_ms
            if is_ours and is_early and not each.is_void and key_texts(self._content(each), columns) == wanted:
                alike.append(each)
            if len(alike) > self._limit:
                return alike[:-1], looked, False
        rest = self._records.back(at.topic, at.partition, Offset(at.offset - looked), started, 1)
        ended = looked < self._look or next(rest, None) is None
        return alike, looked, ended and begins <= started

    def _format(self, topic: LogId) -> str:
        return next((s.topic.format for s in self._app.sources.values() if s.topic.topic == topic), "json")
