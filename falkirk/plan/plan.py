"""The plan of an application: its regions and batches, and how far back a failure may reach."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from falkirk.declare.clock import ClockTopic
from falkirk.plan.batch import Batch
from falkirk.plan.region import Region
from falkirk.plan.requests import PushSource
from falkirk.plan.unit import Unit
from falkirk.spark_setup.spark import SPARE_BATCHES
from falkirk.steps.static_analysis.properties import Properties
from falkirk.theory.history import History

#: A failure may need a checkpoint of a region that is this many of its intervals old. One interval passes between two
#: checkpoints, and a second one because two are kept. The number is doubled for a region that is late.
INTERVALS_LATE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The regions of an application, live ones and batches, each upstream first, and its sources of requests.

    Args: properties: the inferred properties of each processor, by name. spare_checkpoints: see `App`.
        transactional: the broker refuses former writers of topics of users.
    """

    application: str
    regions: tuple[Region, ...]
    batches: tuple[Batch, ...]
    push: tuple[PushSource, ...] = ()
    properties: Mapping[str, Properties]
    state_partitions: int
    spare_checkpoints: int = 0
    transactional: bool = False

    @property
    def units(self) -> tuple[Unit, ...]:
        """The regions and batches, upstream first."""
        return (*self.regions, *self.batches)

    @property
    def clocks(self) -> tuple[ClockTopic, ...]:
        """The topics of the clocks that it reads."""
        read = [source.topic for region in self.regions for source in region.sources]
        read += [each.topic for batch in self.batches for each in batch.inputs if each.topic is not None]
        return tuple({topic.topic: topic for topic in read if isinstance(topic, ClockTopic)}.values())

    def path_to(self, unit: Unit) -> tuple[Unit, ...]:
        """Return the units on which the results of a unit depend, from the sources to the unit itself."""
        writers = {each.writes: each for each in self.units}
        found: dict[str, Unit] = {}

        def visit(each: Unit) -> None:
            for log in each.reads:
                if log in writers and writers[log].name not in found:
                    visit(writers[log])
            found[each.name] = each

        visit(unit)
        return tuple(found.values())

    def awaited_s(self, units: Sequence[Unit]) -> float | None:
        """Return the longest wait for checkpoints of these, one after the other; None: it is not known."""
        each_s = [unit.awaited_s(self.spare_checkpoints) for unit in units]
        known_s = [awaited_s for awaited_s in each_s if awaited_s is not None]
        return sum(known_s) if units and len(known_s) == len(units) else None

    def retained_of(self, region: Region, history: History) -> int:
        """Return how many batches Spark must keep so that a live region can go back to them.

        A failure may need the checkpoint that matches one of the slowest region, which may be late. The files of
        older checkpoints of the history are set aside.
        """
        slowest_s = max(each.slowest_interval_s for each in self.regions)
        return (
            history.batches(region.interval_s)
            + self.spare_checkpoints
            + SPARE_BATCHES
            + INTERVALS_LATE * math.ceil(slowest_s / region.interval_s)
        )

    def awaited_by(self, region: Region) -> tuple[Region, ...]:
        """Return the regions whose checkpoints must cover a held result before it is released, upstream first.

        Each region must have saved the state from which the checkpoint of the next one comes. So in the worst case
        their intervals add up.
        """
        writers = [each for each in self.regions if each.writes in region.reads and each.undetermined is not None]
        paths = map(self.awaited_by, writers)
        return (*max(paths, key=lambda path: sum(each.interval_s for each in path), default=()), region)
