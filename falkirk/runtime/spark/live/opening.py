"""Opening: where an incarnation of a live region began."""

from dataclasses import dataclass

from falkirk.runtime.spark.rows import IncarnationConstants
from falkirk.theory.ids import BatchId, Incarnation, Positions
from falkirk.theory.offsets import PartitionRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The result of the first two steps: the start of an incarnation, and the results that its barrier drops.

    Args: start: the input from which it resumed.
    """

    incarnation: Incarnation
    restored_batch: BatchId
    release: IncarnationConstants
    released: int
    skips: tuple[PartitionRange, ...]
    start: Positions
