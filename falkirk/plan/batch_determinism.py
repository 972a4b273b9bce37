"""Determinism of batches: finds the operations of an epoch that may differ when it is computed again."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from falkirk.declare.asserting import DeterminismAssertion
from falkirk.declare.parts import DeclaredProcessor
from falkirk.errors import DefinitionError
from falkirk.errors.conditions.plan import STATE_APART
from falkirk.steps.batch.rehearsal import Rehearsal
from falkirk.steps.static_analysis.code import function_digest
from falkirk.steps.static_analysis.determinism import InBatch
from falkirk.steps.static_analysis.functions import ITSELF
from falkirk.steps.static_analysis.python import functions
from falkirk.steps.static_analysis.structure import IN_SQL, OF_ROWS, KnownLeaves, digest, structure_of


@dataclass(frozen=True, kw_only=True)
class Called:
    """The outcome of a call of a batch's function on empty DataFrames.

    Args: kept: its state, if it returns one. leaves: the known leaves of its plans. escaped: see `escapes`.
    """

    result: DataFrame
    kept: DataFrame | None
    rehearsal: Rehearsal
    leaves: KnownLeaves
    escaped: Sequence[InBatch] = ()

    @property
    def is_one(self) -> bool:
        """Whether its result is also its state."""
        return self.kept is self.result

    @property
    def apart(self) -> list[DataFrame]:
        """The results and states that are computed from an epoch's rows, one after the other."""
        kept = [] if self.kept is None or self.is_one else [self.kept]
        return [self.result, *kept, *self.rehearsal.kept.values()]

    @property
    def computed(self) -> list[InBatch]:
        """The DataFrames that are computed before, and on which `apart` depends."""
        return [*map(self.seen, self.rehearsal.computed), *self.rehearsal.steps, *self.escaped]

    def plans(self) -> list[Any]:
        """Return the structures of all plans in `apart` and `computed`, without an inference for each."""
        structures = [structure_of(data, self.leaves) for data in (*self.apart, *self.rehearsal.computed)]
        return [*structures, *_plans(self.escaped)]

    def program_of_state(self) -> str:
        """Return a digest of all that decides the state with which later epochs begin: plans, and Python functions.

        A function whose digest can't be computed counts as unchanged.
        """
        frames = [*self.apart[not self.is_one :], *self.rehearsal.computed]
        plans = [*(structure_of(data, self.leaves) for data in frames), *_plans(self.escaped)]
        return digest([plans, [_digest_of(function) for data in frames for function in functions(data)]])

    def makes_rows(self, given: Collection[str]) -> bool:
        """Whether its result has rows that are neither from its inputs nor in its plan. Args: given: the inputs."""
        named = self.leaves.named(self.result)
        return any(kind in OF_ROWS and name not in given and name != IN_SQL for kind, name in named)

    def seen(self, data: DataFrame) -> InBatch:
        """Return the operations in a plan that the call has made."""
        return InBatch.of(data, self.leaves)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDifferences:
    """The operations that may differ on a replay.

    Args: found: all operations. in_state: some of the differing ones are in the state with which later epochs begin.
        assertions: the user's assertions that replace the inference.
    """

    found: tuple[str, ...]
    operations: tuple[str, ...] = ()
    in_state: bool = False
    assertions: tuple[DeterminismAssertion, ...] = ()


def differences_of(processor: DeclaredProcessor, call: Called, again: Callable[[], Called]) -> BatchDifferences:
    """Return the operations that may differ when an epoch is computed again.

    Args: again: calls the function a second time. A clock or a random number that Python reads is a literal for Spark,
        but differs in the second call.
    Raises: GuaranteeError: `STATE_APART`: the result and a state are computed one after the other, and may not agree.
    """
    apart, computed = list(map(call.seen, call.apart)), call.computed
    every = [*apart, *computed]
    names = tuple(frozenset[str]().union(*(each.operations for each in every)))
    if processor.assertion is not None:
        return BatchDifferences(found=names, assertions=(processor.assertion,))
    if processor.newest_of:  # the planner's own function, which is the same on a replay
        return BatchDifferences(found=())
    doubtful = set[str]().union(*(each.undetermined for each in every))
    if sum(bool(each.undetermined) for each in apart) > 1:
        raise STATE_APART.error(
            where=processor.where,
            operations=tuple(sorted(doubtful)),
            processor=processor.name,
        )
    begun_with = [*apart[not call.is_one :], *computed]
    in_state = any(each.undetermined for each in begun_with)
    if not in_state and processor.iteration is None:  # an iteration's program is recorded at its first call
        other = again()
        then = other.plans()
        in_state = _plans(begun_with) != then[not call.is_one :]
        if in_state or (not doubtful and _plans(every) != then):
            doubtful.add(ITSELF)
    assertions = dict.fromkeys(word for each in every for word in each.assertions)
    return BatchDifferences(
        found=names, operations=tuple(sorted(doubtful)), in_state=in_state, assertions=tuple(assertions)
    )


def _digest_of(function: Any) -> str:
    try:
        return "" if function is None else function_digest(function)
    except DefinitionError:
        return ""


def _plans(several: Sequence[InBatch]) -> list[Any]:
    return [each.plan for each in several]
