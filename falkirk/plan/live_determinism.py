"""Live: what of a live region may come out differently on a replay, and whether anybody could ever tell.

A result that is drawn is still exactly-once on arrival as long as nothing else depends on what was drawn: a replay
draws again, and the barrier drops what it makes of input whose results are outside. So what may come out differently
matters in three places alone, and only if it gets there: in the state of a keyed step, on which later results depend;
in what several results of one record share; in the key by which a result finds its partition, hence its channel.
Source: Delivery, consistency, and determinism, Theorem 1 (of two results that depend on one thing that was drawn, the
first may not be released before that is recoverable); where no two do, it asks nothing.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from falkirk.analysis import determinism
from falkirk.analysis.lineage import Lineage
from falkirk.declare.asserting import Word
from falkirk.declare.parts import Processor
from falkirk.declare.stream import Step
from falkirk.frames import stamped as frames
from falkirk.frames.stamped import STAMP, Frame
from falkirk.plan.reasons import IN_KEY, IN_STATE, SHARED, Undetermined


@dataclass(kw_only=True)
class Doubts:
    """What may come out differently in the steps of one region so far.

    Attributes:
        drawn: where each such operation came in.
        matters: those of which somebody could tell, if there are any: the region's results are tentative.
        words: what the user vouches for instead.
    """

    drawn: dict[str, Undetermined] = field(default_factory=dict)
    matters: Undetermined | None = None
    words: tuple[Word, ...] = ()

    def see(
        self, processor: Processor, step: Step, before: Frame, after: Frame, had: Counter[str], has: Counter[str]
    ) -> None:
        """Take note of a step. Args: had, has: the operations before it and after it."""
        brought = determinism.undetermined(had, has)
        if processor.word is None:
            self.note(brought, processor, step)
        elif brought and processor.word not in self.words:
            self.words = (*self.words, processor.word)
        # A word is about what its processor does itself: what was drawn before it is as it was.
        if not self._is_open:
            return
        if step.operation == "explode":
            shared = Lineage.of(before.data).operations([*before.columns, STAMP], rows=True)
            self._matters(shared | Lineage.of(after.data).operations([STAMP], rows=False), SHARED)
        elif step.operation in ("agg", "count"):
            self._matters(Lineage.of(after.data).operations(after.data.columns, rows=True), IN_STATE)

    def note(self, operations: Iterable[str], processor: Processor, step: Step) -> None:
        """Take note of operations that a step brings in."""
        for name in operations:
            found = Undetermined(operations=(name,), processor=processor.name, where=step.where)
            self.drawn.setdefault(name, found)

    def see_key(self, frame: Frame, keys: Sequence[Any]) -> None:
        """Take note of the key by which results find their partition."""
        if self._is_open and keys:
            keyed = frame.data.select(*map(frames.key_column, keys))
            lineage = Lineage.of(keyed)
            self._matters(lineage.operations(lineage.output, rows=False), IN_KEY)

    def fail(self, operation: str, processor: Processor) -> None:
        """Take note of an operation of which it is not known which results depend on it: all of them may."""
        self.drawn[operation] = Undetermined(operations=(operation,), processor=processor.name, where=processor.where)
        self._matters(frozenset({operation}), IN_STATE)

    def drawn_for(self, frame: Frame) -> tuple[str, ...]:
        """Return what was drawn of all that there is in a frame, or decides what is."""
        if not self.drawn:
            return ()
        if self.matters is not None and self.matters.operations:
            return self.matters.operations
        seen = Lineage.of(frame.data).operations([*frame.columns, STAMP], rows=True)
        return tuple(name for name in self.drawn if name in seen)

    @property
    def _is_open(self) -> bool:
        """Whether anything was drawn of which it is not known yet that it matters."""
        return bool(self.drawn) and (self.matters is None or not self.matters.operations)

    def _matters(self, operations: frozenset[str], why: str) -> None:
        found = sorted(name for name in operations if name in self.drawn)
        if found:
            first = self.drawn[found[0]]
            mine = tuple(n for n in found if self.drawn[n].processor == first.processor)
            policy = "" if self.matters is None else self.matters.policy
            self.matters = replace(first, operations=mine, why=why, policy=policy)

    @property
    def harmless(self) -> tuple[Undetermined, ...]:
        """What may come out differently without anybody being able to tell."""
        told = set() if self.matters is None else set(self.matters.operations)
        return tuple(u for name, u in self.drawn.items() if name not in told)
