"""Properties: infers whether a processor is deterministic, commutative and idempotent.

Unknown operations count as not having a property.

Source: Delivery, consistency, and determinism, Definitions 9 (commutative) and 10 (deterministic).
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from falkirk.declare.asserting import DeterminismAssertion, assertion_of
from falkirk.declare.grouped import LatestValue
from falkirk.declare.nodes import Step, functions_of
from falkirk.steps.dataframes.names import STAMP
from falkirk.steps.live.stamped import Frame
from falkirk.steps.static_analysis import udfs
from falkirk.steps.static_analysis.functions import (
    AGGREGATES,
    IDEMPOTENT,
    ORDER_MATTERS,
    SAME_LIVE,
    UNTRACEABLE,
    entry_of,
    operation_name,
)
from falkirk.steps.static_analysis.lineage import Lineage

#: An aggregate that counts rows. After n rows, its result does not depend on the rows.
_COUNTS_ROWS = re.compile(r"count\((1|\*)\)( AS \w+)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Properties:
    """The inferred properties of a processor.

    Args:
        differs: reasons why it may differ on a replay; empty: it is deterministic (Definition 10).
        ordered: reasons why the order of rows matters; empty: it is commutative (Definition 9).
        adds_up: reasons why repeated input changes the result; empty: it is idempotent.
        assertions: the user's assertions.
    """

    differs: tuple[str, ...] = ()
    ordered: tuple[str, ...] = ()
    adds_up: tuple[str, ...] = ()
    assertions: tuple[DeterminismAssertion, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "deterministic": not self.differs, "differs": list(self.differs),
            "order_sensitive": bool(self.ordered), "ordered": list(self.ordered),
            "idempotent": not self.adds_up, "adds_up": list(self.adds_up),
            "declared": [str(word) for word in self.assertions],
        }  # fmt: skip


def of_live(steps: Sequence[Step], operations: Collection[str], assertion: DeterminismAssertion | None) -> Properties:
    """Return the properties of a live processor. Args: operations: the operations that its steps introduce."""
    running = [step for step in steps if _is_running(step) and not all(map(_counts_rows, step.arguments[1]))]
    first = [f"{step.operation}() keeps the first record" for step in steps if step.operation == "dropDuplicates"]
    ordered = ["agg() publishes an intermediate result after each record" for _ in running]
    ordered += [*first, *("windows leave out late records" for step in steps if step.operation == "windows")]
    states = [f"{step.operation}() keeps a state" for step in steps if step.operation == "stateful"]
    doubtful = [] if assertion is not None else [n for n in operations if entry_of(n).nature not in SAME_LIVE]
    return Properties(
        differs=reasons(doubtful), ordered=tuple(dict.fromkeys([*ordered, *states])),
        adds_up=(*_adding(operations), *dict.fromkeys(states)),
        assertions=_assertions(steps) if assertion is None else (assertion,),
    )  # fmt: skip


def _assertions(steps: Sequence[Step]) -> tuple[DeterminismAssertion, ...]:
    """Return the user's assertions about the functions that steps call."""
    found: list[DeterminismAssertion | None] = []
    for step in steps:
        functions = functions_of(step)
        found += [assertion_of(function) for function in functions]
        if not functions:
            found += [udf.assertion for udf in udfs.of_values(step.arguments)]
    return tuple(dict.fromkeys(each for each in found if each is not None))


@dataclass(kw_only=True)
class IntroducedOperations:
    """The operations that the steps of a live processor introduce.

    Attributes: own: the operations since its last hop. logged: the earlier ones on which the log depends.
    """

    own: set[str] = field(default_factory=set)
    logged: set[str] = field(default_factory=set)

    def log(self, frame: Frame) -> None:
        """Add a hop that is written with a frame's columns."""
        self.logged, self.own = self.remaining(frame), set()

    def remaining(self, frame: Frame) -> set[str]:
        """Return all operations, without those that may differ and on which nothing in a frame depends."""
        doubtful = {name for name in self.own if entry_of(name).nature not in SAME_LIVE and name not in UNTRACEABLE}
        if not doubtful:
            return self.own | self.logged
        seen = Lineage.of(frame.data).operations([*frame.columns, STAMP], rows=True)
        return self.own - (doubtful - seen) | self.logged


def batch_properties(
    operations: Collection[str], doubtful: Collection[str], assertions: tuple[DeterminismAssertion, ...], kept: str
) -> Properties:
    """Return the properties of a batch's function.

    Args: doubtful: the operations that may differ on a replay. kept: its state between epochs, in words.
    """
    ordered = [name for name in doubtful if entry_of(name).nature in ORDER_MATTERS]
    adds_up = (*_adding(operations), f"it keeps state ({kept})") if kept else ()
    return Properties(differs=reasons(doubtful), ordered=reasons(ordered), adds_up=adds_up, assertions=assertions)


def reasons(operations: Iterable[str]) -> tuple[str, ...]:
    """Return the reason why each operation may differ."""
    return tuple(dict.fromkeys(f"{operation_name(name)}: {entry_of(name).reason}" for name in sorted(set(operations))))


def _adding(operations: Collection[str]) -> tuple[str, ...]:
    adding = [n for n in sorted(set(operations)) if entry_of(n).nature in AGGREGATES and n not in IDEMPOTENT]
    return tuple(f"{operation_name(name)} counts a repeated row again" for name in adding)


def _is_running(step: Step) -> bool:
    """Return whether each record gives an intermediate result."""
    return step.operation == "agg" or (step.operation == "windows" and step.arguments[2] == "update")


def _counts_rows(aggregate: object) -> bool:
    if isinstance(aggregate, LatestValue):
        return False
    text = str(aggregate._jc.toString()) if hasattr(aggregate, "_jc") else str(aggregate)
    return _COUNTS_ROWS.fullmatch(text) is not None
