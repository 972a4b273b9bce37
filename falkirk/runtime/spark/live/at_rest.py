"""At rest: reads and changes the durable data of a region that does not run. It needs no Spark.

A region's checkpoints are in Spark's files, and its results are in its outputs. The store relates the two. The commands
use this module alone for an application that does not run.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from falkirk.errors import LogError, SparkError
from falkirk.kafka_client.tail import Tail
from falkirk.plan.region import RegionLogs
from falkirk.recovery.ownership.folder import Home
from falkirk.recovery.protocol.ports import Checkpoint, Health, LogRange
from falkirk.runtime.spark import lanes
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.live.checkpoint import last_committed_batch
from falkirk.runtime.spark.live.checkpoint_files import CheckpointFiles, LocalCheckpoints
from falkirk.runtime.spark.live.epochs_read import EpochsRead, as_positions
from falkirk.runtime.spark.live.shared_checkpoints import SharedCheckpoints
from falkirk.runtime.spark.live.written_checkpoints import WrittenCheckpoints
from falkirk.runtime.spark.outputs import Outputs, newest_serving
from falkirk.theory.delivery import SourcePartition, input_records
from falkirk.theory.frontier import Frontier, OffsetFrontier
from falkirk.theory.ids import BatchId, CheckpointNumber, EpochNumber, LogId, Offset, Positions
from falkirk.theory.times import Natural

log = logging.getLogger("falkirk")

#: No micro-batch: the initial state.
_NOTHING = BatchId(-1)


class RegionAtRest:
    """A region that does not run, as a RegionPort: `start` does nothing.

    Args: on_cluster: as of `checkpoint_files`. Attributes: files: its checkpoints.
    """

    def __init__(self, logs: RegionLogs, place: Storage, *, on_cluster: bool = False) -> None:
        self.logs, self._place, self._store = logs, place, place.home.store
        self._checkpoint = place.home.checkpoint(logs.name)
        self._on_progress: Callable[[], None] = lambda: None
        self._outputs = Outputs(logs, place)
        #: The ends of the outputs, read after the last writer of this region ended; None: a writer may still run.
        self._ends: Positions | None = None
        #: Whether `compare` found its outputs and the home to be of one age; None: it was not asked yet.
        self._compared: bool | None = None
        #: Checkpoints with missing or torn files.
        self.damaged: set[BatchId] = set()
        self._only: tuple[BatchId, ...] = ()
        #: The kept checkpoints for which positions of the outputs were last dropped.
        self._tails_of: tuple[BatchId, ...] = ()
        self.files = checkpoint_files(place.home, logs, on_cluster=on_cluster)
        self._epochs_read = EpochsRead(logs.name, self._store, logs.views)

    def health(self) -> Health:
        """See RegionPort."""
        return Health(runs=False)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """See RegionPort. The newest undamaged checkpoint is always included, older ones while their input exists.

        The initial state is excluded once it was collected, because older results may be deleted too.

        A command may read this while the application runs, and deletes checkpoints. Then it reads again.
        """
        while True:
            before = self.files.places()
            try:
                return self._read_checkpoints()
            except (FileNotFoundError, SparkError):
                self.files.refresh()
                if self.files.places() == before:
                    raise

    def _read_checkpoints(self) -> tuple[Checkpoint, ...]:
        committed = self.files.numbers()
        distrusted = self._store.distrusted(self.logs.name)
        trusted = [n for n in committed if n not in distrusted]
        batches = [n for n in trusted if self._is_whole(n)]
        if trusted and trusted[-1] not in batches and not self._is_there(trusted[-1]):
            # A region without input replaces its newest checkpoint by an equal one.
            raise FileNotFoundError(f"checkpoint {trusted[-1]} of {self.logs.name}")
        read = {n: self._read(n) for n in batches}
        if not batches or self._has_start(committed[0]):
            batches, read = [_NOTHING, *batches], {_NOTHING: self._start_offsets(), **read}
        topics = self.logs.sources if len(batches) > 1 else ()
        oldest = {topic: self._place.oldest(topic) for topic in topics}
        reachable = [
            n for n in batches[:-1]
            if all(read[n][topic].get(p, 0) >= o for topic in topics for p, o in oldest[topic].items())
        ]  # fmt: skip
        return self._points_of({n: read[n] for n in [*reachable, batches[-1]]})

    def _has_start(self, oldest: BatchId) -> bool:
        """Return whether the initial state is kept. In a home of an earlier version, its oldest checkpoint shows it."""
        retained = self._store.retained_from(self.logs.name)
        return oldest == 0 if retained is None else retained < 0

    def _points_of(self, read: dict[BatchId, Positions]) -> tuple[Checkpoint, ...]:
        """Return these checkpoints as the protocol sees them. `read` has the end of the input of each one."""
        tails = self._store.tails(self.logs.name)
        views = {number: self._epochs_read.upto(number) for number in read} if self.logs.views else {}
        return tuple(
            Checkpoint(
                number=CheckpointNumber(number),
                read=OffsetFrontier.before(covered | as_positions(views.get(number, {}), 1)),
                # A view's newest epoch is read again.
                needs=OffsetFrontier.before(covered | as_positions(views[number], 0)) if number in views else None,
                sent=OffsetFrontier.before(
                    {self.logs.output: newest_serving(tails, number).positions.get(self.logs.output, {})}
                ),
                made_at_s=None if number < 0 else self.files.made_at_s(number),
            )
            for number, covered in read.items()
        )

    def note_epochs(self, epochs: Mapping[LogId, EpochNumber]) -> None:
        """Note epochs of its views that its query will read. Raises: StoreError: it must not read them."""
        self._epochs_read.note(BatchId(last_committed_batch(self._checkpoint) + 1), epochs)

    def _is_whole(self, batch: BatchId) -> bool:
        wrong = self.files.damage(batch)
        if wrong is not None and batch not in self.damaged and self._is_there(batch):
            log.warning("%s: checkpoint %d is damaged (%s)", self.logs.name, batch, wrong)
            self.damaged.add(batch)
        return wrong is None

    def _is_there(self, batch: BatchId) -> bool:
        """Return whether nobody has deleted a checkpoint meanwhile."""
        self.files.refresh()
        return batch in self.files.numbers()

    def _start_offsets(self) -> Positions:
        record = self._store.region(self.logs.name)
        return {topic: {} if record is None else record.start_offsets[topic] for topic in self.logs.sources}

    def _read(self, number: BatchId) -> Positions:
        """Return, per partition of each source, the end of the records that a checkpoint covers."""
        if number < 0:
            return self._start_offsets()
        return {topic: self.files.end_offsets(number, topic) for topic in self.logs.sources}

    def _numbered(self, positions: Positions) -> dict[SourcePartition, Offset]:
        """Return positions by the numbers of their sources."""
        return {(n, p): o for n, topic in enumerate(self.logs.sources) for p, o in positions[topic].items()}

    def rewind(self, number: CheckpointNumber) -> None:
        """See RegionPort."""
        self.files.rewind(BatchId(number))
        self._only = self._tails_of = ()

    def keep_only(self, numbers: Sequence[CheckpointNumber]) -> None:
        """See RegionPort."""
        batches = tuple(BatchId(number) for number in numbers)
        if batches != self._only:
            if not self._only or self._only[0] != batches[0]:
                self._store.retain_from(self.logs.name, CheckpointNumber(batches[0]))
            self.files.keep_only(batches)
            self._keep_tails(batches)
            if self.logs.views:
                self._epochs_read.keep_from(batches[0])
            self._only = batches

    def set_aside(self, numbers: Sequence[CheckpointNumber]) -> None:
        """See RegionPort. Spark, which deletes old ones, does not run."""
        self._keep_tails(tuple(BatchId(number) for number in numbers))

    def _keep_tails(self, batches: tuple[BatchId, ...]) -> None:
        """Drop positions of its outputs that these checkpoints don't need. No other copy of the home loses them.

        An older checkpoint that is still there then has an earlier position only, so a rollback to it reads more of
        the output, and finds that it has expired if the topic has deleted that part. No failure needs it.
        """
        if batches != self._tails_of:
            self._store.keep_tails(self.logs.name, batches)
            self._tails_of = batches

    def _uncovered(self, tails: Iterable[Tail], start: Positions) -> int:
        """Count the published results of input from `start` on."""
        covered = self._numbered(start)
        return sum(self._is_beyond(stamp.numbers, covered) for tail in tails for _, stamp in tail.released_set)

    # -- outputs ------------------------------------------------------------------------------------------------------

    def fence(self) -> None:
        """See RegionPort. This process holds the home's lock and has killed former processes (ownership/folder.py)."""
        if self._ends is None:
            self._fence_writers()
            self._ends = self._outputs.settled_ends()

    def compare(self) -> bool:
        """Return whether its outputs were compared with the home. If it is fenced and waits for its start, do it now.

        It may wait for a view for days. If records of its outputs expired, only its start tells what that means.

        Raises: HomeError: `SINK_AHEAD`. LogError, StoreError.
        """
        if self._compared is None and self._ends is not None:
            newest = BatchId(self.checkpoints()[-1].number)
            try:
                tails = [self._kept_tail(name, self._ends, newest) for name in self._outputs.names]
            except LogError as error:
                if error.condition != "SINK_EXPIRED":
                    raise
                self._compared = False
            else:
                self._outputs.refuse_ahead(*tails)
                self._compared = True
        return self.is_compared

    def _kept_tail(self, name: LogId, ends: Positions, newest: BatchId) -> Tail:
        """Return the results that its start needs, and keep them for it. That may take long."""
        self._on_progress()
        return self._outputs.tail(name, ends, newest, keep=True)

    @property
    def is_compared(self) -> bool:
        """Whether `compare` has compared its outputs with the home."""
        return self._compared is True

    def _fence_writers(self) -> None:
        """Have the broker refuse former writers, if they used lanes."""
        for name in (self.logs.name, lanes.of_letters(self.logs.name)):
            lanes.fence(self._place, name)

    def start(self, number: CheckpointNumber) -> None:
        """Do nothing. The next start of the application resumes from this checkpoint."""

    def cuts(self, after: EpochNumber) -> tuple[tuple[EpochNumber, OffsetFrontier], ...]:
        """See RegionPort: a live region counts in offsets."""
        return ()

    def beyond(self, number: CheckpointNumber, upto: Frontier) -> tuple[LogRange, ...]:
        """See RegionPort. Dead letters are included: a rollback cancels the dead letters of cancelled input too."""
        assert isinstance(upto, OffsetFrontier), "a live region counts in offsets"
        assert self._ends is not None, "`fence` must be called before `beyond`"
        batch = BatchId(number)
        covered: dict[SourcePartition, Natural] = {**self._numbered(self._read(batch))}
        # A result does not say which epochs of views it has read. So if any epoch is taken back, all results since the
        # checkpoint are.
        if self._epochs_read.are_within(batch, {view: upto.length_of(view) for view in self.logs.views}):
            covered = {
                (number, p): max(o, upto.length_of(self.logs.sources[number], p)) for (number, p), o in covered.items()
            }
        return tuple(
            (topic, *each)
            for topic in self._outputs.names
            for each in self._outputs.split_tail(
                topic, self._ends, batch, lambda header: self._is_beyond(header.numbers, covered)
            )
        )

    def boundary(self, number: BatchId, ends: Positions) -> Positions:
        """Return, per output partition, the first record caused by input after a checkpoint: the most exact φ."""
        covered, found = self._numbered(self._read(number)), {name: dict(ends[name]) for name in self._outputs.names}
        for topic in self._outputs.names:
            for partition, offset, header in self._outputs.later_records(topic, ends, number):
                if self._is_beyond(header.numbers, covered):
                    found[topic][partition] = min(offset, found[topic][partition])
        return found

    def _is_beyond(self, numbers: tuple[int, ...], covered: Mapping[SourcePartition, Natural]) -> bool:
        """Return whether one of the input records of a stamp is not covered."""
        return any(o >= covered.get(p, 0) for p, o in input_records(numbers, joins=len(self.logs.joined)))


def checkpoint_files(home: Home, logs: RegionLogs, *, on_cluster: bool = False) -> CheckpointFiles:
    """Return the checkpoints of a region, where its home has them.

    Args: on_cluster: its query runs on executors that do not see the folders of the driver's machine.
    """
    folder = home.checkpoint(logs.name)
    if home.is_shared:
        kind = WrittenCheckpoints if on_cluster else SharedCheckpoints
        return kind(
            logs.name, folder, home.data_of(logs.name), home.store, *logs.sources, may_delete=lambda: home.may_delete
        )
    return LocalCheckpoints(folder, *logs.sources)
