"""Batch: what of a batch's epoch may come out differently when it is computed again."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from falkirk.analysis.determinism import InBatch
from falkirk.analysis.functions import ITSELF
from falkirk.analysis.structure import IN_SQL, OF_ROWS, Leaves, structure_of
from falkirk.declare.asserting import Word
from falkirk.declare.parts import Processor
from falkirk.errors import GuaranteeError
from falkirk.operators.rehearsal import Rehearsal


@dataclass(frozen=True, kw_only=True)
class Called:
    """What a call of a batch's function on empty DataFrames has come to.

    Args: kept: its state, if it returns one. leaves: those that are known in its plans. escaped: see `escapes`.
    """

    result: DataFrame
    kept: DataFrame | None
    rehearsal: Rehearsal
    leaves: Leaves
    escaped: Sequence[InBatch] = ()

    @property
    def is_one(self) -> bool:
        """Whether its result is its state as well."""
        return self.kept is self.result

    @property
    def apart(self) -> list[DataFrame]:
        """What is computed from an epoch's rows, one after the other."""
        kept = [] if self.kept is None or self.is_one else [self.kept]
        return [self.result, *kept, *self.rehearsal.kept.values()]

    @property
    def computed(self) -> list[InBatch]:
        """What is computed before that, and decides what it comes to."""
        return [*map(self.seen, self.rehearsal.computed), *self.escaped]

    def plans(self) -> list[Any]:
        """Return the structures of all plans in `apart` and `computed`, without an inference for each."""
        structures = [structure_of(data, self.leaves) for data in (*self.apart, *self.rehearsal.computed)]
        return [*structures, *_plans(self.escaped)]

    def makes_rows(self, given: Collection[str]) -> bool:
        """Whether there are rows in its result that are neither its inputs' nor in its plan. Args: given: inputs."""
        named = ((str(leaf.getClass().getSimpleName()), name) for leaf, name in self.leaves.named(self.result))
        return any(kind in OF_ROWS and name not in given and name != IN_SQL for kind, name in named)

    def seen(self, data: DataFrame) -> InBatch:
        """Return what there is in a plan that the call has made."""
        return InBatch.of(data, self.leaves)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDoubts:
    """What may come out differently. Args: found: all operations. in_state: some of it in what later epochs begin with.
    words: what the user vouches for instead."""

    found: tuple[str, ...]
    operations: tuple[str, ...] = ()
    in_state: bool = False
    words: tuple[Word, ...] = ()


def doubts_of(processor: Processor, call: Called, again: Callable[[], Called]) -> BatchDoubts:
    """Return what may come out differently in what is computed from an epoch's rows.

    Args: again: calls the function once more. A clock that is read in Python, or lots drawn there, are literals to
        Spark; but they are others in the next call.
    Raises: GuaranteeError: `STATE_APART`: in its result and in a state, which are computed one after the other.
    """
    apart, computed = list(map(call.seen, call.apart)), call.computed
    every = [*apart, *computed]
    names = tuple(frozenset[str]().union(*(each.operations for each in every)))
    if processor.word is not None:
        return BatchDoubts(found=names, words=(processor.word,))
    doubtful = set[str]().union(*(each.undetermined for each in every))
    if sum(bool(each.undetermined) for each in apart) > 1:
        raise GuaranteeError(
            "STATE_APART",
            f"batch {processor.name!r} returns a result and keeps a state, and {', '.join(sorted(doubtful))} may come "
            "out differently in the one and the other.",
            where=processor.where,
            hint="Return one DataFrame that is both, or leave that out.",
            operations=tuple(sorted(doubtful)),
            processor=processor.name,
        )
    begun_with = [*apart[not call.is_one :], *computed]
    in_state = any(each.undetermined for each in begun_with)
    if not in_state and processor.iteration is None:  # an iteration's program is written down at its first call
        other = again()
        then = other.plans()
        in_state = _plans(begun_with) != then[not call.is_one :]
        if in_state or (not doubtful and _plans(every) != then):
            doubtful.add(ITSELF)
    words = dict.fromkeys(word for each in every for word in each.words)
    return BatchDoubts(found=names, operations=tuple(sorted(doubtful)), in_state=in_state, words=tuple(words))


def _plans(several: Sequence[InBatch]) -> list[Any]:
    return [each.plan for each in several]
