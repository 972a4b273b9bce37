"""Direct: decides which batches write their results straight to their topic, which is then their log.

Each of their results is written once, and is published as soon as it is computed. If an epoch gives the same results in
every computation, nothing has to be recorded before they are published (exactly-once over determinism, THEORY §1). A
retry leaves out the results that an interrupted attempt has published. The user's assertion is not enough here: if it
is wrong, half an epoch would come from one run and half from another.
"""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from falkirk.declare.endpoints import Kafka
from falkirk.declare.policy import Eager
from falkirk.plan.batch import Batch
from falkirk.plan.region import Region
from falkirk.spark_setup.spark import writes_elsewhere


def as_direct(regions: Sequence[Region], batches: Sequence[Batch], session: SparkSession) -> tuple[Batch, ...]:
    """Return the batches of an application; the direct ones are marked.

    No batch is direct if executors run on other machines, because the producers of a failed job can't be flushed there.
    """
    if writes_elsewhere(session):
        return tuple(batches)
    read = {given.log for batch in batches for given in batch.inputs}
    # Tentative results must not be published.
    tentative = {r.output.topic for r in regions if r.undetermined is not None or r.repeated_by is not None}
    found = []
    for batch in batches:  # upstream first
        if not batch.deterministic or any(given.log in tentative for given in batch.inputs):
            tentative.add(batch.log)
        known = batch.log not in tentative and not batch.undetermined and not batch.properties.assertions
        stays = batch.is_stateful or batch.log in read  # other batches read its results from its log
        stays = stays or batch.makes_rows  # another program may make other rows, and the plan would not show it
        # Records of a hop may become void later, and a change of a file is noticed only after the file was read.
        stays = stays or any(given.reads_hop or given.folder is not None for given in batch.inputs)
        to_a_topic = len(batch.sinks) == 1 and isinstance(batch.sinks[0].to, Kafka)
        # A row's content decides its place in the topic, so ordered rows would lose their order.
        is_direct = known and not stays and to_a_topic and batch.is_unordered and isinstance(batch.policy, Eager)
        found.append(replace(batch, is_direct=is_direct))
    return tuple(found)
