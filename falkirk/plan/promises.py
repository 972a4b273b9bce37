"""Promises: checks whether an output can have the delivery that it asks for."""

from collections.abc import Sequence

from falkirk.analysis.columns import require
from falkirk.declare.endpoints import Kafka
from falkirk.declare.parts import Output
from falkirk.declare.policy import Delivery
from falkirk.errors import DefinitionError, GuaranteeError
from falkirk.plan.reasons import Undetermined


def check_key(sink: Output, columns: Sequence[str]) -> None:
    """Check that a sink's key columns exist.

    Raises: DefinitionError: `COLUMN_MISSING`.
    """
    require(
        sink.to.keys, columns, sink.where,
        lambda key: f"sink {sink.name!r} has key {key!r}, but {sink.reads!r} has no such column.",
    )  # fmt: skip


def check_live(sink: Output) -> None:
    """Check that a live processor can write a sink.

    Raises: DefinitionError: `SINK_NEEDS_BATCH`.
    """
    if not isinstance(sink.to, Kafka):
        raise DefinitionError(
            "SINK_NEEDS_BATCH",
            f"sink {sink.name!r} is not a topic, and a live processor writes only topics.",
            where=sink.where,
            hint="Add a processor under @app.batch() or @app.stream(fk.Eager()) that reads this one, and write that.",
            sink=sink.name,
        )


def check_printed(sink: Output) -> None:
    """Refuse a promise that a terminal can't keep.

    Raises: GuaranteeError: `PRINTED_AGAIN`.
    """
    if not sink.to.remembers and sink.delivery is not Delivery.REPEATED:
        raise GuaranteeError(
            "PRINTED_AGAIN",
            f"sink {sink.name!r} is the terminal. An epoch may be printed again after a failure, so it can't be "
            f"{sink.delivery}.",
            where=sink.where,
            hint='Add delivery="repeated".',
            sink=sink.name,
        )


def check_at_most_once(sink: Output, *, split: str | None, cause: Undetermined | None) -> None:
    """Check that a sink with at-most-once can have this promise.

    Args: split: the hop before it that may hold several records made from one. cause: the cause that makes it
        tentative.
    Raises: GuaranteeError: `DERIVATIVES_APART`, `UNDETERMINED_OPERATION`.
    """
    if sink.delivery is not Delivery.AT_MOST_ONCE:
        return
    if split is not None:
        raise GuaranteeError(
            "DERIVATIVES_APART",
            f"hop {split} is between sink {sink.name!r} and a step that makes several records of one. A failure could "
            "skip some of them, so the sink can't be at-most-once.",
            where=sink.where,
            hint="Key the source by the grouping column, so that no hop is needed, or use exactly-once.",
            sink=sink.name,
            hop=split,
        )
    if cause is not None:
        raise GuaranteeError(
            "UNDETERMINED_OPERATION",
            f"{', '.join(cause.operations)} in {cause.processor!r} may differ on replay, so sink {sink.name!r} can't "
            "be at-most-once.",
            where=cause.where,
            hint="Compute the value upstream and send it as data, or use exactly-once, which publishes results after a "
            'checkpoint, or delivery="repeated".',
            operations=cause.operations,
            processor=cause.processor,
            sink=sink.name,
        )
