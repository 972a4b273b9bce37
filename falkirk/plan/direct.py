"""Direct: which batches write their results straight to their topic, which is then their log: each result is written
once, and is out as soon as it is computed.

Where an epoch comes out the same whenever it is computed nothing has to be recorded before it leaves (exactly-once over
determinism, THEORY §1): what was there when an epoch was cut off is left out of the next try. A user's word for that is
not enough here: where it is wrong, half an epoch would be of one run and half of another.
"""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from falkirk.declare.endpoints import Kafka
from falkirk.declare.policy import Eager
from falkirk.local.spark import writes_elsewhere
from falkirk.plan.batch import Batch
from falkirk.plan.region import Region


def told_direct(regions: Sequence[Region], batches: Sequence[Batch], session: SparkSession) -> tuple[Batch, ...]:
    """Return the batches of an application, with those that are direct so marked.

    None is where executors run elsewhere: what a job that has failed leaves in their producers can't be flushed.
    """
    if writes_elsewhere(session):
        return tuple(batches)
    read = {given.log for batch in batches for given in batch.inputs}
    # Of what may be taken back nothing can be outside.
    tentative = {r.output.topic for r in regions if r.undetermined is not None or r.repeated_by is not None}
    found = []
    for batch in batches:  # upstream first
        if not batch.deterministic or any(given.log in tentative for given in batch.inputs):
            tentative.add(batch.log)
        known = batch.log not in tentative and not batch.undetermined and not batch.properties.words
        stays = batch.is_stateful or batch.log in read  # or its results are read where its log is
        stays = stays or batch.makes_rows  # another program may make others, which its plan would not show
        # What of a hop is void may be found out later, and that a file was changed when it has been read.
        stays = stays or any(given.reads_hop or given.folder is not None for given in batch.inputs)
        to_a_topic = len(batch.sinks) == 1 and isinstance(batch.sinks[0].to, Kafka)
        # A row's place there is by what it says: rows that are in an order would leave it.
        is_direct = known and not stays and to_a_topic and batch.is_unordered and isinstance(batch.policy, Eager)
        found.append(replace(batch, is_direct=is_direct))
    return tuple(found)
