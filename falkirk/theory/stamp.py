"""Stamps: each element's place in a total order that the input fixes, the t of exactly-once over determinism.

Source: Delivery, consistency, and determinism, §V: "any monotonic sequence, e.g., offsets in Kafka" will do.
"""

import re
from dataclasses import dataclass

from falkirk.errors import LogError

_NUMBER = "(?:0|[1-9][0-9]{0,18})"
#: Exactly what `encode` writes: `\d` and `int` would also take other scripts' digits and leading zeros.
_TEXT = re.compile(rf"{_NUMBER}(?:\.{_NUMBER}){{2,}}")


@dataclass(frozen=True, slots=True, order=True)
class Stamp:
    """The record of a region's input that caused an element, and which of its derivatives the element is.

    Args: source: which of the region's inputs. partition, offset: the record in it. sub: one index per step
        that makes several records of one, outermost first. Stamps are compared as tuples.
    """

    source: int
    partition: int
    offset: int
    sub: tuple[int, ...] = ()

    def derive(self, index: int) -> "Stamp":
        """Return the stamp of this element's derivative number `index`: siblings sort by it."""
        return Stamp(self.source, self.partition, self.offset, (*self.sub, index))

    def encode(self) -> str:
        """Return the text form that a record carries: numbers joined by dots."""
        return ".".join(map(str, (self.source, self.partition, self.offset, *self.sub)))

    @classmethod
    def decode(cls, text: str) -> "Stamp":
        """Return the stamp of a text form.

        Raises: LogError: `STAMP_MALFORMED`.
        """
        if not _TEXT.fullmatch(text):
            raise LogError("STAMP_MALFORMED", f"{text!r} is not a stamp.", text=text)
        source, partition, offset, *sub = map(int, text.split("."))
        return cls(source, partition, offset, tuple(sub))
