"""Promises: checks whether an output can have the delivery that it asks for."""

from collections.abc import Sequence

from falkirk.declare.endpoints import Kafka
from falkirk.declare.parts import DeclaredSink
from falkirk.declare.policy import Delivery
from falkirk.errors.conditions.plan import DERIVATIVES_APART, PRINTED_AGAIN, SINK_NEEDS_BATCH, UNDETERMINED_OPERATION
from falkirk.plan.reasons import Undetermined
from falkirk.steps.static_analysis.columns import require_columns


def check_sink_key(sink: DeclaredSink, columns: Sequence[str]) -> None:
    """Check that a sink's key columns exist.

    Raises: DefinitionError: `COLUMN_MISSING`.
    """
    require_columns(
        sink.to.keys, columns, sink.where,
        lambda key: f"sink {sink.name!r} has key {key!r}, but {sink.reads!r} has no such column.",
    )  # fmt: skip


def check_live_sink(sink: DeclaredSink) -> None:
    """Check that a live processor can write a sink.

    Raises: DefinitionError: `SINK_NEEDS_BATCH`.
    """
    if not isinstance(sink.to, Kafka):
        raise SINK_NEEDS_BATCH.error(where=sink.where, sink=sink.name)


def check_printed(sink: DeclaredSink) -> None:
    """Refuse a promise that a terminal can't keep.

    Raises: GuaranteeError: `PRINTED_AGAIN`.
    """
    if not sink.to.remembers and sink.delivery is not Delivery.REPEATED:
        raise PRINTED_AGAIN.error(where=sink.where, sink=sink.name, delivery=sink.delivery)


def check_at_most_once(sink: DeclaredSink, *, split: str | None, cause: Undetermined | None) -> None:
    """Check that a sink with at-most-once can have this promise.

    Args: split: the hop before it that may hold several records made from one. cause: the cause that makes it
        tentative.
    Raises: GuaranteeError: `DERIVATIVES_APART`, `UNDETERMINED_OPERATION`.
    """
    if sink.delivery is not Delivery.AT_MOST_ONCE:
        return
    if split is not None:
        raise DERIVATIVES_APART.error(where=sink.where, sink=sink.name, hop=split)
    if cause is not None:
        raise UNDETERMINED_OPERATION.error(
            where=cause.where,
            operations=cause.operations,
            processor=cause.processor,
            sink=sink.name,
        )
