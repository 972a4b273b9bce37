"""Determinism of live regions: finds the values that may differ on a replay, and whether results could contradict them.

A result with a random value is exactly-once on arrival as long as nothing else depends on the value. A replay computes
a new value, and the barrier drops a result of a record whose result is already published. So a value that may differ
matters only if it reaches one of three places:

  - the state of a keyed step, on which later results depend;
  - several results of one record;
  - the key that decides a result's partition, and so its channel.

Source: Delivery, consistency, and determinism, Theorem 1. If two results depend on one random value, the first may not
be released before the value is recoverable. If no two results do, the theorem demands nothing.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from falkirk.declare.asserting import DeterminismAssertion
from falkirk.declare.nodes import NEWEST_ROW, Step
from falkirk.declare.parts import DeclaredProcessor
from falkirk.plan import python_steps
from falkirk.plan.reasons import ANYWHERE, IN_KEY, IN_STATE, SHARED, Undetermined
from falkirk.steps.dataframes.names import STAMP, TIME
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.stamped import Frame
from falkirk.steps.static_analysis import determinism
from falkirk.steps.static_analysis.functions import CLOCK_TIMER, NEWEST_EPOCH
from falkirk.steps.static_analysis.lineage import Lineage
from falkirk.steps.static_analysis.udfs import CALL, KnownUdf


@dataclass(kw_only=True)
class LiveDifferences:
    """The operations in the steps of one region so far that may differ on a replay.

    Attributes:
        varying: by operation, the place where the region first uses it.
        matters: the operations on which several results depend, if any. Then the region's results are tentative.
        assertions: the user's assertions that replace the inference.
    """

    varying: dict[str, Undetermined] = field(default_factory=dict)
    matters: Undetermined | None = None
    assertions: tuple[DeterminismAssertion, ...] = ()

    def see(
        self,
        processor: DeclaredProcessor,
        step: Step,
        before: Frame,
        after: Frame,
        had: Counter[str],
        has: Counter[str],
        called: Sequence[KnownUdf],
    ) -> None:
        """Add a step. Args: had, has: the operations before it and after it. called: its UDFs."""
        introduced = determinism.undetermined(had, has)
        # No function decides which epoch a record finds, or when a timer by the clock fires.
        others = (NEWEST_EPOCH, CLOCK_TIMER)
        covered = [] if processor.assertion is None else [name for name in introduced if name not in others]
        self.note([name for name in introduced if name not in covered], processor, step)
        if processor.assertion is not None and covered and processor.assertion not in self.assertions:
            self.assertions = (*self.assertions, processor.assertion)
        self.assertions = tuple(dict.fromkeys([*self.assertions, *python_steps.step_assertions(step, called)]))
        # An assertion covers only its own processor. Values from before it may still differ.
        if not self._is_open:
            return
        if CLOCK_TIMER in introduced:
            self._matters(frozenset({CLOCK_TIMER, CALL} & {*introduced}), IN_STATE)
            return
        if CALL in introduced:  # a record may be a result, and a dead letter in the replay
            self._matters(frozenset({CALL}), ANYWHERE)
            return
        if step.operation in ("explode", "map_rows"):
            shared = Lineage.of(before.data).operations([*before.columns, STAMP], rows=True)
            self._matters(shared | Lineage.of(after.data).operations([STAMP], rows=False), SHARED)
        elif step.operation == "stateful":
            self._matters(Lineage.of(before.data).operations([*before.columns, STAMP], rows=True), IN_STATE)
        elif step.operation in ("agg", "count", "windows", "timedJoin", NEWEST_ROW):
            self._matters(Lineage.of(after.data).operations(after.data.columns, rows=True), IN_STATE)
        elif step.operation == "dropDuplicates":  # its state has keys and times, and no other values
            read = [*step.arguments[0], TIME, STAMP]
            self._matters(Lineage.of(before.data).operations(read, rows=True), IN_STATE)

    def add(self, other: "LiveDifferences") -> None:
        """Add the operations of the other side of a union. Each column depends on those of both sides."""
        self.varying = {**other.varying, **self.varying}
        found = [each for each in (self.matters, other.matters) if each is not None]
        self.matters = next((each for each in found if each.operations), found[0] if found else None)
        self.assertions = tuple(dict.fromkeys([*self.assertions, *other.assertions]))

    def note(self, operations: Iterable[str], processor: DeclaredProcessor, step: Step) -> None:
        """Add the operations that a step introduces."""
        for name in operations:
            found = Undetermined(operations=(name,), processor=processor.name, where=step.where)
            self.varying.setdefault(name, found)

    def see_key(self, frame: Frame, keys: Sequence[Any]) -> None:
        """Add the key that decides the partition of results."""
        if self._is_open and keys:
            keyed = frame.data.select(*map(frames.key_column, keys))
            lineage = Lineage.of(keyed)
            self._matters(lineage.operations(lineage.output, rows=False), IN_KEY)

    def fail(self, operation: str, processor: DeclaredProcessor) -> None:
        """Add an operation on which any result may depend, because its dependents are unknown."""
        self.varying[operation] = Undetermined(operations=(operation,), processor=processor.name, where=processor.where)
        self._matters(frozenset({operation}), ANYWHERE)

    def varying_for(self, frame: Frame) -> tuple[str, ...]:
        """Return the differing operations that influence the rows or columns of a frame."""
        if not self.varying:
            return ()
        if self.matters is not None and self.matters.operations:
            return self.matters.operations
        seen = Lineage.of(frame.data).operations([*frame.columns, STAMP], rows=True)
        return tuple(name for name in self.varying if name in seen)

    @property
    def _is_open(self) -> bool:
        """Whether there are differing operations, and it is still open whether they matter."""
        return bool(self.varying) and (self.matters is None or not self.matters.operations)

    def _matters(self, operations: frozenset[str], why: str) -> None:
        found = sorted(name for name in operations if name in self.varying)
        if found:
            first = self.varying[found[0]]
            mine = tuple(n for n in found if self.varying[n].processor == first.processor)
            policy = "" if self.matters is None else self.matters.policy
            self.matters = replace(first, operations=mine, why=why, policy=policy)

    @property
    def harmless(self) -> tuple[Undetermined, ...]:
        """The operations that may differ without any contradiction between results."""
        dependent = set() if self.matters is None else set(self.matters.operations)
        return tuple(u for name, u in self.varying.items() if name not in dependent)
