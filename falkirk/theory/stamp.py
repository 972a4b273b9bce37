"""Stamps: each element's place in a total order that the input fixes, the t of exactly-once over determinism.

Source: Delivery, consistency, and determinism, §V: "any monotonic sequence, e.g., offsets in Kafka" is sufficient.
"""

from dataclasses import dataclass

from falkirk.theory.ids import Offset


@dataclass(frozen=True, slots=True, order=True)
class Stamp:
    """The record of a region's input that caused an element, and the number of the derivative.

    Args: source: the number of the region's input. partition, offset: the place of the record in it. sub: one index per
        step that makes several records from one, outermost first. Stamps are compared as tuples.
    """

    source: int
    partition: int
    offset: Offset
    sub: tuple[int, ...] = ()

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers that `encode` writes."""
        return (self.source, self.partition, self.offset, *self.sub)

    def encode(self) -> str:
        """Return the text form that a record carries: numbers joined by dots."""
        return ".".join(map(str, self.numbers))
