"""Records of the simulated world, and the results that a stage computes from them."""

import hashlib
from dataclasses import dataclass

from falkirk.recovery.protocol.layout import Stage

#: The names of stages without a state begin with this.
STATELESS = "s"


@dataclass(frozen=True, slots=True)
class Element:
    """A record. draws: (stage, value) of every undetermined choice that it rests on. stamp: what caused it."""

    key: str
    path: str
    digest: str
    draws: tuple[tuple[str, int], ...] = ()
    stamp: tuple[str, int, int, int] = ("", 0, 0, 0)
    writer: tuple[str, int] = ("", 0)


def compute(stage: Stage, state: str, element: Element, draw: int) -> tuple[str, list[Element]]:
    """Return a key's next state and a stage's results for an element: none, one or two; the same every time."""
    state = "" if is_stateless(stage) else state
    number = (1, 1, 1, 2, 0)[int(hashlib.sha256((stage.name + element.path).encode()).hexdigest(), 16) % 5]
    if not number and (element.draws or not stage.deterministic):
        number = 1  # a choice that no output shows could not be followed by the oracle
    if not number:
        return state, []
    draws = element.draws if stage.deterministic else (*element.draws, (stage.name, draw))
    after = hashlib.sha256(f"{state}|{element.path}|{element.digest}|{draws}".encode()).hexdigest()[:12]
    return after, [
        Element(key=element.key, path=f"{element.path}/{i}", digest=after, draws=draws) for i in range(number)
    ]


def partition_of(key: str, partitions: int) -> int:
    return int(hashlib.sha256(key.encode()).hexdigest(), 16) % partitions


def is_stateless(stage: Stage) -> bool:
    """Return whether a stage forgets one element before the next."""
    return stage.name.startswith(STATELESS)
