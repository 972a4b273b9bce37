"""Region lanes: the lanes with which a live region writes, and the broker's record of the next incarnation.

Readers of hops and held logs skip late records (kafka_client/void.py), so a region that writes such a log has plain
lanes. A fence would delay each record there by some milliseconds. But people and other programs read its dead letters.
These have separate lanes, which are transactional. A task opens its lane for dead letters at the first one.
"""

from typing import Any

from falkirk.plan.region import Region
from falkirk.runtime.spark import fence, lanes
from falkirk.runtime.spark.context import Context
from falkirk.theory.ids import Incarnation


class RegionLanes:
    """The lanes of one region."""

    def __init__(self, region: Region, context: Context) -> None:
        self._region, self._context = region, context
        self._letters = lanes.of_letters(region.name)
        #: By name of the transactional lanes: the token of the next incarnation.
        self._tokens: dict[str, str] = {}

    def fence(self) -> None:
        """Have the broker refuse former writers. Raises: LogError: as `lanes.fence_for`."""
        region, context = self._region, self._context
        self._tokens.clear()
        for name, is_transactional in (
            (region.name, region.transactional),
            (self._letters, region.transactional_letters),
        ):
            if is_transactional:
                of_sources = (context.topics.facts(each.topic.topic).partitions for each in region.sources)
                count = context.state_partitions if region.stateful else sum(of_sources)
                self._tokens[name] = lanes.fence_for(context, name, count)
            else:
                lanes.fence(context, name)

    def close(self) -> None:
        """Send the records that this JVM still holds, and close its producers; the region's query must not run.

        Blocks while the broker is unreachable, because nothing else would be safe.
        Raises: SparkError: `WRITER_STILL_RUNNING`.
        """
        for name in (self._region.name, self._letters):
            fence.await_end(lambda name=name: lanes.are_used(self._context, name))  # type: ignore[misc]
            lanes.close_lanes(self._context, name)

    def writer(self, incarnation: Incarnation, count: int, options: dict[str, str]) -> Any:
        """Return the JVM's writer of an incarnation. First record its transactional lanes.

        Args: count: the number of tasks. options: of the producers.
        """
        region, context = self._region, self._context
        for name in self._tokens:
            lanes.record(context, name, incarnation, count)
        made = lanes.writer(context, region.name, incarnation, count, options, self._tokens.get(region.name))
        if region.released_to is not None:
            made = made.holding(region.output.topic)
        if (token := self._tokens.get(self._letters)) is None:
            return made
        own = {**options, "kafka.client.id": fence.client_id(context.home.identity, self._letters, incarnation)}
        return made.withLetters(
            region.dead_letter_topic, lanes.writer(context, self._letters, incarnation, count, own, token)
        )
