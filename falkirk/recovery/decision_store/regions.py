"""Regions: the decisions that belong to Spark's checkpoints: incarnations and their fences, positions from which an
output's tail may be read, marks, and input that is skipped."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict

import sqlalchemy as sql

from falkirk.recovery.decision_store.part import Part
from falkirk.recovery.decision_store.tables import decisions, incarnations, regions, skips, tails
from falkirk.recovery.decision_store.values import (
    CountedLetters,
    Marked,
    RegionRecord,
    TailRecord,
    dump,
    dump_counted_letters,
    dump_marks,
    dump_positions,
    load,
    load_counted_letters,
    load_marks,
    load_measurements,
    load_positions,
    printable,
)
from falkirk.theory.ids import BatchId, CheckpointNumber, Incarnation, Offset, Positions
from falkirk.theory.objective import Measurements
from falkirk.theory.offsets import PartitionRange

#: The kind of decision that says that a checkpoint is damaged.
_DAMAGED = "damaged"
#: The kind of decision with the numbers that were measured about a region.
_MEASURED = "measured"
#: The kind of decision with the number of dead letters that a region has written.
_LETTERS = "letters"
#: The kind of decision that records the results that a region had sent at each checkpoint.
_MARKS = "marks"


def _distrust(region: str) -> sql.ColumnElement[bool]:
    return (decisions.c.kind == _DAMAGED) & (decisions.c.name == region)


class RegionStore(Part):
    """The part of the store with the records of live regions and of batches."""

    def region(self, name: str) -> RegionRecord | None:
        """Return the record of a region, or None if it never ran."""
        with self._reading() as db:
            row = db.execute(sql.select(regions).where(regions.c.region == name)).one_or_none()
            if row is None:
                return None
            return RegionRecord(
                fingerprint=load(row.fingerprint),
                start_offsets=load_positions(row.start_offsets),
                partitions=load(row.partitions),
            )

    def region_names(self) -> tuple[str, ...]:
        """Return the regions that have ever run in this home."""
        with self._reading() as db:
            return tuple(sorted(db.execute(sql.select(regions.c.region)).scalars()))

    def create_region(self, name: str, record: RegionRecord, tail: Positions) -> None:
        """Record a region before its first start, with the output positions that precede everything it writes.

        Raises: StoreError: `DECISION_CONTRADICTED`: it is recorded already.
        """
        with self._writing() as db:
            db.execute(
                regions.insert().values(
                    region=name,
                    fingerprint=dump(record.fingerprint),
                    start_offsets=dump_positions(record.start_offsets),
                    partitions=dump(record.partitions),
                )
            )
            db.execute(
                tails.insert().values(region=name, valid_from_commit=-1, incarnation=0, positions=dump_positions(tail))
            )

    def grow_region(self, name: str, record: RegionRecord) -> None:
        """Record that a region reads further logs from now on, in place of its former record. One write, so that no
        start sees a log without its first position.
        """
        grown = {
            "fingerprint": dump(record.fingerprint), "start_offsets": dump_positions(record.start_offsets),
            "partitions": dump(record.partitions),
        }  # fmt: skip
        with self._writing() as db:
            db.execute(regions.update().where(regions.c.region == name).values(**grown))

    def open_incarnation(self, region: str, restored: CheckpointNumber) -> Incarnation:
        """Record a new incarnation of a region, before anything of it runs; return its number, from 1."""
        with self._writing() as db:
            last = db.execute(
                sql.select(sql.func.max(incarnations.c.incarnation)).where(incarnations.c.region == region)
            ).scalar()
            number = Incarnation(int(last or 0) + 1)
            db.execute(
                incarnations.insert().values(
                    region=region,
                    incarnation=number,
                    opened_at_s=self._clock(),
                    restored_batch=restored,
                    unsafe=False,
                )
            )
        return number

    def record_fence(self, region: str, incarnation: Incarnation, *, fence: Positions) -> None:
        """Record the ends of the outputs when an incarnation began: only later records are its own."""
        with self._writing() as db:
            db.execute(
                incarnations.update()
                .where(incarnations.c.region == region, incarnations.c.incarnation == incarnation)
                .values(fence=dump_positions(fence))
            )

    def end_incarnation(self, region: str, incarnation: Incarnation, *, ended: str, unsafe: bool) -> None:
        """Record why an incarnation ended, and whether its producer reported an error (then its tail is unsafe)."""
        with self._writing() as db:
            db.execute(
                incarnations.update()
                .where(incarnations.c.region == region, incarnations.c.incarnation == incarnation)
                .values(ended=printable(ended), unsafe=unsafe)
            )

    def is_unsafe_since(self, region: str, incarnation: Incarnation) -> bool:
        """Return whether this incarnation or a later one of the region ended with a producer error."""
        with self._reading() as db:
            found = sql.select(incarnations.c.incarnation).where(
                incarnations.c.region == region, incarnations.c.incarnation >= incarnation, incarnations.c.unsafe
            )
            return db.execute(found.limit(1)).first() is not None

    def incarnations(self, region: str) -> tuple[sql.Row[tuple[object, ...]], ...]:
        """Return all incarnations of a region, oldest first."""
        with self._reading() as db:
            query = sql.select(incarnations).where(incarnations.c.region == region)
            return tuple(db.execute(query.order_by(incarnations.c.incarnation)).all())

    def observe_tail(self, region: str, record: TailRecord) -> None:
        """Record output positions; a later observation for the same commit replaces the earlier one."""
        match = (tails.c.region == region) & (tails.c.valid_from_commit == record.valid_from_commit)
        with self._writing() as db:
            db.execute(tails.delete().where(match))
            db.execute(
                tails.insert().values(
                    region=region,
                    valid_from_commit=record.valid_from_commit,
                    incarnation=record.incarnation,
                    positions=dump_positions(record.positions),
                )
            )

    def forget_tails_after(self, region: str, restored_batch: BatchId) -> None:
        """Drop the positions that no longer hold once an incarnation resumes from this batch.

        Its replay may end batches earlier than they ended before, and then a later position would overlook some
        outputs.
        """
        with self._writing() as db:
            db.execute(tails.delete().where(tails.c.region == region, tails.c.valid_from_commit > restored_batch))

    def keep_tails(self, region: str, batches: Sequence[BatchId]) -> None:
        """Drop the positions that no restore to these batches, or to one after the last, needs. The position before the
        first start stays."""
        mine = tails.c.region == region
        with self._writing() as db:
            known = sorted(db.execute(sql.select(tails.c.valid_from_commit).where(mine)).scalars())
            serving = {known[i - 1] for batch in batches if (i := bisect_right(known, batch))}
            dropped = [n for n in known if 0 <= n < max(serving, default=0) and n not in serving]
            for n in dropped:
                db.execute(tails.delete().where(mine, tails.c.valid_from_commit == n))

    def distrust(self, region: str, batch: BatchId, reason: str) -> None:
        """Record that the checkpoint of a batch is damaged: no region resumes from it. A repetition changes nothing."""
        with self._writing() as db:
            if db.execute(sql.select(decisions.c.number).where(_distrust(region), decisions.c.number == batch)).first():
                return
            made = {"content": dump({"reason": printable(reason)}), "made_at_s": self._clock()}
            db.execute(decisions.insert().values(kind=_DAMAGED, name=region, number=batch, **made))

    def distrusted(self, region: str) -> frozenset[BatchId]:
        """Return the batches whose checkpoints are recorded as damaged."""
        with self._reading() as db:
            return frozenset(db.execute(sql.select(decisions.c.number).where(_distrust(region))).scalars())

    def forget_distrust_after(self, region: str, restored_batch: BatchId) -> None:
        """Forget which later checkpoints are damaged: they were dropped, and others will get their numbers."""
        with self._writing() as db:
            db.execute(decisions.delete().where(_distrust(region), decisions.c.number > restored_batch))

    def record_marks(self, region: str, marks: Sequence[Marked]) -> None:
        """Record the results that a region had sent at each checkpoint, in place of the former record."""
        mine = (decisions.c.kind == _MARKS) & (decisions.c.name == region)
        with self._writing() as db:
            db.execute(decisions.delete().where(mine))
            made = {"content": dump_marks(marks), "made_at_s": self._clock()}
            db.execute(decisions.insert().values(kind=_MARKS, name=region, number=0, **made))

    def marks(self, region: str) -> tuple[Marked, ...]:
        """Return what `record_marks` has recorded."""
        query = sql.select(decisions.c.content).where(decisions.c.kind == _MARKS, decisions.c.name == region)
        with self._reading() as db:
            text = db.execute(query).scalar()
            return () if text is None else load_marks(text)

    def record_measurements(self, region: str, found: Measurements) -> None:
        """Record the numbers that were measured about a region, in place of the former ones."""
        mine = (decisions.c.kind == _MEASURED) & (decisions.c.name == region)
        with self._writing() as db:
            db.execute(decisions.delete().where(mine))
            made = {"content": dump(asdict(found)), "made_at_s": self._clock()}
            db.execute(decisions.insert().values(kind=_MEASURED, name=region, number=0, **made))

    def measurements(self, region: str) -> Measurements:
        """Return what `record_measurements` has recorded; without a record, no number is known."""
        query = sql.select(decisions.c.content).where(decisions.c.kind == _MEASURED, decisions.c.name == region)
        with self._reading() as db:
            text = db.execute(query).scalar()
            return Measurements() if text is None else load_measurements(text)

    def record_counted_letters(self, region: str, counted: CountedLetters) -> None:
        """Record how many dead letters a region has written, in place of the former record."""
        mine = (decisions.c.kind == _LETTERS) & (decisions.c.name == region)
        with self._writing() as db:
            db.execute(decisions.delete().where(mine))
            made = {"content": dump_counted_letters(counted), "made_at_s": self._clock()}
            db.execute(decisions.insert().values(kind=_LETTERS, name=region, number=0, **made))

    def counted_letters(self, region: str) -> CountedLetters | None:
        """Return what `record_counted_letters` has recorded, or None."""
        query = sql.select(decisions.c.content).where(decisions.c.kind == _LETTERS, decisions.c.name == region)
        with self._reading() as db:
            text = db.execute(query).scalar()
            return None if text is None else load_counted_letters(text)

    def tails(self, region: str) -> tuple[TailRecord, ...]:
        """Return the recorded output positions of a region, oldest first."""
        with self._reading() as db:
            query = sql.select(tails).where(tails.c.region == region).order_by(tails.c.valid_from_commit)
            return tuple(
                TailRecord(
                    valid_from_commit=row.valid_from_commit,
                    incarnation=row.incarnation,
                    positions=load_positions(row.positions),
                )
                for row in db.execute(query)
            )

    def skip_input(self, region: str, ranges: tuple[PartitionRange, ...]) -> None:
        """Record input that is not processed at all.

        A range that begins where a recorded one does extends it: a run that was killed before it released anything
        finds the same input waiting.
        """
        with self._writing() as db:
            for partition, first, last in ranges:
                same = (skips.c.region == region) & (skips.c.partition == partition) & (skips.c.first == first)
                known = db.execute(sql.select(skips.c.last_exclusive).where(same)).scalar()
                if known is None:
                    db.execute(
                        skips.insert().values(region=region, partition=partition, first=first, last_exclusive=last)
                    )
                elif known < last:
                    db.execute(skips.update().where(same).values(last_exclusive=last))

    def skipped_input(self, region: str) -> tuple[PartitionRange, ...]:
        """Return the input ranges that a region skips."""
        with self._reading() as db:
            query = sql.select(skips.c.partition, skips.c.first, skips.c.last_exclusive)
            rows = db.execute(query.where(skips.c.region == region).order_by(skips.c.partition, skips.c.first))
            return tuple(PartitionRange(int(r[0]), Offset(r[1]), Offset(r[2])) for r in rows)
