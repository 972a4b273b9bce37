"""Measurements: measures, for regions with a recovery objective, how long restarts take and how fast input is replayed.

A region chooses its interval from these numbers at its next start (falkirk/plan/objective.py). The home's store keeps
them. Measured are
  * the restart: from the death of the former host until the region reads its first record. Without records that
    waited, a start is not measured. If nobody knows of a death, it begins with the process;
  * the replay: the records that waited at the start, and the time in which they were read. On a cluster, no process
    sees how far the executors have read within a batch, so restart and replay stay guesses there;
  * the input: the records that arrive between two checkpoints;
  * the checkpoints: the time by which they are further apart than the chosen interval.

A time in which the machine stood still, or in which somebody set its clock, is left out.

Positions are seen at each poll, so times are exact to half a second, and a replay that is shorter than two seconds only
shows a least rate. Offsets count as records, including those that end transactions.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from falkirk.runtime.spark.context import Context
from falkirk.runtime.spark.figures import read_ends
from falkirk.runtime.spark.live.opening import Opening
from falkirk.runtime.spark.live.region import LiveRegion
from falkirk.runtime.supervision.settings import SILENT_S
from falkirk.theory.delivery import SourcePartition
from falkirk.theory.ids import BatchId, Offset
from falkirk.theory.objective import Measurements

log = logging.getLogger("falkirk")

#: A replay of at least this time has a rate; a shorter one has only a least rate.
MEASURABLE_S = 2.0
#: A region has caught up if at most this part of the records that waited is left, or two offsets of each partition: no
#: reader sees the end of a transaction.
_REST, _REST_OFFSETS = 0.05, 2
#: The input of a shorter time says nothing about its rate.
_INPUT_S = 1.0
#: Nobody looks from the death until the host polls. A longer restart counts as one in which the machine stood still.
#: The log says so, because it may have been a slow one.
RESTART_MAX_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The start of a host.

    Args: began_s: when the former host died or, if that is not known, when this process started; None: restarts are not
        measured. standby: it was a standby. keeps_standby: the coordinator keeps one for the next death.
    """

    began_s: float | None = None
    standby: bool = False
    keeps_standby: bool = False


#: Nothing is known about the start.
UNKNOWN = Launch()


class StartMeasurement:
    """Measures one start of a region.

    Args: start: the positions from which it resumed. ends: those at which its input ended then. now_s: the present
        time. began_s: as of `Launch`.
    """

    def __init__(
        self, start: Mapping[SourcePartition, Offset], ends: Mapping[SourcePartition, Offset], now_s: float,
        began_s: float | None,
    ) -> None:  # fmt: skip
        self._start, self._ends, self._began_s = start, ends, began_s
        self._waited = sum(max(0, end - start.get(place, 0)) for place, end in ends.items())
        self._read, self._read_at_s, self._unread_at_s = 0, now_s, now_s
        #: The time from the death until the first record was read. None: it was not measured.
        self.restart_s: float | None = None
        #: The same time if it is too long, or negative, and so counts as a fault of the clock.
        self.ignored_s: float | None = None
        self.is_done = self._waited == 0

    def update(self, positions: Mapping[SourcePartition, Offset], now_s: float) -> None:
        """Take in how far the region has read. Args: positions: as of `reached`."""
        if self.is_done:
            return
        read = 0
        for place, end in self._ends.items():
            first = self._start.get(place, Offset(0))
            read += max(0, min(positions.get(place, first), end) - first)
        if read == 0:
            self._unread_at_s = now_s
            return
        if self._read == 0 and self._began_s is not None:
            restart_s = now_s - self._began_s
            if 0 <= restart_s <= RESTART_MAX_S:
                self.restart_s = restart_s
            else:
                self.ignored_s = restart_s
        if read > self._read:
            self._read, self._read_at_s = read, now_s
        self.is_done = self._waited - read <= max(_REST * self._waited, _REST_OFFSETS * len(self._ends))

    def added_to(self, known: Measurements, *, standby: bool) -> Measurements:
        """Return the measurements of a home together with this one. Args: standby: as of `Launch`."""
        took_s = self._read_at_s - self._unread_at_s
        if self.restart_s is not None:
            known = known.with_restart(self.restart_s, standby=standby)
        if self._read == 0 or took_s <= 0:
            return known
        if took_s < MEASURABLE_S:
            return known.with_at_least(self._read / took_s)
        return known.with_replay(self._read, took_s)


class RegionMeasurements:
    """Measures one region of a host. Args: launch: the start of the host."""

    def __init__(self, live: LiveRegion, context: Context, launch: Launch) -> None:
        self._live, self._context, self._launch = live, context, launch
        self._opening: Opening | None = None
        self._start: StartMeasurement | None = None
        self._last = BatchId(-1)
        #: When input was counted last, and how many records it had had. None: it is not counted yet.
        self._counted: tuple[float, int] | None = None
        self._looked_at_s = 0.0
        #: When the last checkpoint of this opening was made.
        self._made_at_s: float | None = None

    def update(self, opening: Opening, last: BatchId) -> None:
        """Measure once. Call it at each poll, after `observe`. Args: last: the last checkpoint.

        Raises: LogError, StoreError.
        """
        if not self._live.region.has_objective:
            return
        now_s = self._context.clock.time()
        if opening is not self._opening:
            self._begin(opening, now_s)
            self._opening, self._last = opening, opening.restored_batch
        elif not 0 <= now_s - self._looked_at_s <= SILENT_S:  # it looks more often, so the machine stood still
            self._start = self._counted = self._made_at_s = None
            self._last = last
        self._looked_at_s = now_s
        start = self._start
        if start is not None:
            start.update(read_ends(self._context, self._live.region.name), now_s)
        if start is not None and (start.is_done or last > self._last):
            self._start = None
            if start.ignored_s is not None:
                log.warning(
                    "%s: its restart took %.0f s by the clock. Times from 0 to %.0f s are measured for recover_within.",
                    self._live.region.name, start.ignored_s, RESTART_MAX_S,
                )  # fmt: skip
            self._update(lambda known: start.added_to(known, standby=self._launch.standby))
        if last > self._last:
            self._take_in(last, now_s)

    def _begin(self, opening: Opening, now_s: float) -> None:
        ends = self._ends()
        numbered = {(number, p): o for number, offsets in enumerate(opening.start.values()) for p, o in offsets.items()}
        began_s = self._launch.began_s if self._opening is None else None  # a region that restarts alone is no death
        self._start = StartMeasurement(numbered, ends, now_s, began_s)
        # A hop gets the input of the outage at once, when the region before it catches up.
        self._counted = None if self._live.region.reads_hop else (now_s, sum(ends.values()))
        self._made_at_s = None

    def _take_in(self, last: BatchId, now_s: float) -> None:
        """Take in the interval between the last two checkpoints."""
        per_s = longer_s = None
        count = sum(self._ends().values())
        if self._counted is not None and now_s - self._counted[0] >= _INPUT_S:
            per_s = max(0, count - self._counted[1]) / (now_s - self._counted[0])
        made_at_s = now_s - (self._live.checkpoint_age_s() or 0.0)
        if self._made_at_s is not None:
            apart_s = (made_at_s - self._made_at_s) / (last - self._last)
            longer_s = max(0.0, apart_s - self._live.region.interval_s)
        self._counted, self._made_at_s, self._last = (now_s, count), made_at_s, last
        if per_s is not None or longer_s is not None:
            self._update(lambda known: known.with_interval(per_s, longer_s, now_s))

    def _ends(self) -> dict[SourcePartition, Offset]:
        topics = [source.topic.topic for source in self._live.region.sources]
        return {
            (number, p): o for number, topic in enumerate(topics)
            for p, o in self._context.topics.end_positions(topic).items()
        }  # fmt: skip

    def _update(self, change: Callable[[Measurements], Measurements]) -> None:
        store, name = self._context.home.store, self._live.region.name
        known = store.measurements(name)
        if (found := change(known)) != known:
            store.record_measurements(name, found)
