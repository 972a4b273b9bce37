"""Push facts: the facts about each source of requests that the gateway (gateway.py) needs."""

from collections.abc import Sequence

from falkirk.plan.requests import PushSource
from falkirk.recovery.protocol.acceptance import Acceptance
from falkirk.recovery.protocol.recovery import RecoveryProtocol


def push_facts(
    sources: Sequence[PushSource], recovery: RecoveryProtocol | None, acceptance: Acceptance | None
) -> list[dict[str, object]]:
    """Return the facts of each source. Once the host runs, they have the requests whose results are all published
    (`accepted`), and those that are answered (`acknowledged`): for each partition, the end of these."""
    found = {source.name: source.describe() for source in sources}
    if recovery is not None and acceptance is not None and recovery.checkpoints:
        released = {held: recovery.released(held) for held in recovery.layout.held}
        for source in sources:
            topic, partitions = source.topic.log, recovery.layout.sequences(source.topic.log)
            ends = {"accepted": acceptance.accepted(topic, released), "acknowledged": recovery.acknowledged(topic)}
            found[source.name] |= {name: {e.partition: end.length(e) for e in partitions} for name, end in ends.items()}
    return list(found.values())
