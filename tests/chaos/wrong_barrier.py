"""A planted fault: a barrier that compares the greatest stamps of channels, where it has to compare sets."""

from dataclasses import replace

from falkirk.runtime.spark.outputs import Outputs
from falkirk.runtime.spark.rows import Barrier


def compare_greatest_stamps() -> None:
    """Plant the fault in this process."""
    right_barrier = Outputs.barrier

    def wrong_barrier(self: Outputs, *arguments: object) -> Barrier:
        found = right_barrier(self, *arguments)  # type: ignore[arg-type]
        return replace(found, unsafe_main=None, unsafe_dead=None)

    Outputs.barrier = wrong_barrier  # type: ignore[method-assign,assignment]
