"""Instances of the formal model that several tests use."""

from collections.abc import Hashable

from formal.definitions import Judge
from formal.elements import COUNT, UPPER, Operation, concatenation
from formal.mechanisms import Mechanism
from formal.system import Instance

Waves = tuple[tuple[Hashable, ...], ...]

CONCATENATION = concatenation(window=2)
#: The paper's example. Elements with the same wall time race.
TABLE_II: Waves = (("a", "c"), ("b", "d"), ("e",))
RACE: Waves = (("a", "b", "c"),)
#: The columns of docs/formal.md.
EXAMPLES: dict[str, tuple[Operation, Waves]] = {
    "concatenation": (CONCATENATION, TABLE_II),
    "count": (COUNT, RACE),
    "upper": (UPPER, RACE),
}


def judged(mechanism: Mechanism, operation: Operation = CONCATENATION, waves: Waves = TABLE_II, **more: int) -> Judge:
    """Return the judge of a mechanism on an operation."""
    return Judge(Instance(system=mechanism(operation), waves=waves, **more))
