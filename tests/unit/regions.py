"""Planned regions without Spark."""

from falkirk.declare.endpoints import Kafka
from falkirk.declare.nodes import SourceNode
from falkirk.declare.policy import Delivery, Policy
from falkirk.errors.location import SourceLocation
from falkirk.plan.reasons import Undetermined
from falkirk.plan.region import Region
from falkirk.theory.ids import LogId

WHERE = SourceLocation(file="shop.py", line=7, text="")


def region_under(name: str, policy: Policy, *, waits: bool = False) -> Region:
    """A region of one processor, as it is before its interval is chosen. Args: waits: its results wait for a
    checkpoint."""
    source = SourceNode(name="events", topic=Kafka("events", schema="word STRING"))
    cause = Undetermined(operations=("Uuid",), processor=name, where=WHERE) if waits else None
    return Region(
        name=name, processors=(name,), source=source, reads_hop=False, node=source, output=Kafka("out"), hop=None,
        released_to=None, record_bytes=1, deterministic=not waits, undetermined=cause, varying=(), assertions=(),
        delivery=Delivery.EXACTLY_ONCE, interval_s=policy.interval_s, stateful=True, where=WHERE,
        dead_letter_topic=LogId("dead"), fingerprint={}, policy=policy,
    )  # fmt: skip
