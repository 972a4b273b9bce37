"""Promises: what a sink can't have, and why."""

from collections.abc import Sequence

from falkirk.declared import Sink
from falkirk.endpoints import Console, Kafka
from falkirk.errors import DefinitionError, GuaranteeError
from falkirk.plan.columns import require
from falkirk.plan.region import Undetermined
from falkirk.policy import Delivery


def check_key(sink: Sink, columns: Sequence[str]) -> None:
    """See that a sink's key columns are there.

    Raises: DefinitionError: `COLUMN_MISSING`.
    """
    require(
        sink.to.keys, columns, sink.where,
        lambda key: f"sink {sink.name!r} has key {key!r}, which {sink.reads!r} has no column for.",
    )  # fmt: skip


def check_live(sink: Sink) -> None:
    """See that a live processor can write a sink.

    Raises: DefinitionError: `SINK_NEEDS_BATCH`.
    """
    if not isinstance(sink.to, Kafka):
        raise DefinitionError(
            "SINK_NEEDS_BATCH",
            f"sink {sink.name!r} is no topic, and live processors write topics.",
            where=sink.where,
            hint="Read the processor from one under @app.batch() or @app.stream(fk.Eager()), and write that.",
            sink=sink.name,
        )


def check_printed(sink: Sink) -> None:
    """See that nobody is promised of the terminal what it can't keep.

    Raises: GuaranteeError: `PRINTED_AGAIN`.
    """
    if isinstance(sink.to, Console) and sink.delivery is not Delivery.REPEATED:
        raise GuaranteeError(
            "PRINTED_AGAIN",
            f"sink {sink.name!r} is the terminal, which can't be asked what it has shown, so after a failure an epoch "
            f"may be printed again: {sink.delivery} can't be promised.",
            where=sink.where,
            hint='Add delivery="repeated".',
            sink=sink.name,
        )


def check_at_most_once(sink: Sink, *, split: str | None, cause: Undetermined | None) -> None:
    """See that at-most-once can be promised, where it is asked for.

    Args: split: the hop before it that may hold several records that come from one. cause: what makes it tentative.
    Raises: GuaranteeError: `DERIVATIVES_APART`, `UNDETERMINED_OPERATION`.
    """
    if sink.delivery is not Delivery.AT_MOST_ONCE:
        return
    if split is not None:
        raise GuaranteeError(
            "DERIVATIVES_APART",
            f"hop {split} lies between {sink.name!r} and a step that makes several records of one, "
            "so a failure could skip some of them and keep others: at-most-once can't be promised.",
            where=sink.where,
            hint="Key the source by what is grouped, so that no hop is needed, or ask for exactly-once.",
            sink=sink.name,
            hop=split,
        )
    if cause is not None:
        raise GuaranteeError(
            "UNDETERMINED_OPERATION",
            f"{', '.join(cause.operations)} in {cause.processor!r} is not known to give the same result on a "
            f"replay, so at-most-once can't be promised of {sink.name!r}.",
            where=cause.where,
            hint="Compute it upstream and send it as data, or ask for exactly-once, which holds results back "
            'until they are in a checkpoint, or for delivery="repeated".',
            operations=cause.operations,
            processor=cause.processor,
            sink=sink.name,
        )
