"""Slots: how many tasks the live regions of a plan need to run at once.

Real-time Mode takes a core slot for every source and shuffle task when a batch starts, and fails if they are not free.
"""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from falkirk.declare.application import Application
from falkirk.declare.policy import Lazy
from falkirk.errors.conditions.plan import SLOTS_MISSING
from falkirk.kafka_client.topics import Topics
from falkirk.plan.plan import Plan
from falkirk.plan.region import Region
from falkirk.spark_setup.exposure import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Slots for Falkirk's own jobs, such as reading a long tail.
SPARE_SLOTS = 2
#: A cluster has no slots until its executors have registered, which takes seconds.
EXECUTORS_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionSlots:
    """Slots that one region takes: a task per source partition and, if it is keyed, one per state partition."""

    region: str
    source: int
    state: int

    @property
    def total(self) -> int:
        """All slots of the region."""
        return self.source + self.state


def region_slots(region: Region, source_partitions: int, state_partitions: int) -> RegionSlots:
    """Return the slots of one region."""
    queries = 2 if region.twins else 1
    state = state_partitions if region.stateful else 0
    return RegionSlots(region=region.name, source=queries * source_partitions, state=queries * state)


def slots_needed(plan: Plan, topics: Topics) -> tuple[RegionSlots, ...]:
    """Return the slots of each region. The broker is asked for the partitions of its input."""
    return tuple(
        region_slots(
            region, sum(topics.facts(each.topic.topic).partitions for each in region.sources), plan.state_partitions
        )
        for region in plan.regions
    )


def slots_to_have(app: Application, topics: Topics) -> int:
    """Return enough local slots for any plan of an application. Slots cost nothing there.

    Each processor and each sink may be a region, with a hop before it. Raises: LogError.
    """
    named = [source.topic.topic for source in app.sources.values()]
    counts = sorted((topics.facts(topic).partitions for topic in named if topics.exists(topic)), reverse=True)
    # A join reads all of its streams, and a list all of its topics.
    longest = max((2, *map(len, app.lists.values()), *(len(each.reads) for each in app.processors.values())))
    widest = (sum(counts[:longest]) or 2) + len(app.clocks)
    queries = 2 if any(isinstance(each.policy, Lazy) and each.policy.twins for each in app.processors.values()) else 1
    return queries * (len(app.processors) + len(app.sinks)) * (widest + 2 * app.state_partitions) + SPARE_SLOTS


def check_slots(needed: tuple[RegionSlots, ...], session: "SparkSession") -> int:
    """Return the slots of the session. On a cluster, wait a while until its executors have registered.

    Raises: SparkError: `SLOTS_MISSING`: the plan needs more.
    """
    total, context = sum(n.total for n in needed), session.sparkContext
    deadline = time.monotonic() + (0.0 if is_local(context.master or "") else EXECUTORS_S)
    while (available := context.defaultParallelism) < total and time.monotonic() < deadline:
        time.sleep(0.2)
    if total > available:
        raise SLOTS_MISSING.error(needed=total, available=available, total=total + SPARE_SLOTS)
    return available
