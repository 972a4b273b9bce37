"""Properties: what is known of a processor: is it the same on a replay, does order matter, may it take input twice.

What is unknown counts as the worse.
Source: Delivery, consistency, and determinism, Definitions 9 (commutative) and 10 (deterministic).
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from falkirk.analysis.functions import AGGREGATES, ANYWHERE, IDEMPOTENT, ORDER_MATTERS, SAME_LIVE, entry_of, spoken
from falkirk.analysis.lineage import Lineage
from falkirk.declare.asserting import Word
from falkirk.declare.stream import LatestValue, Step
from falkirk.frames.stamped import STAMP, Frame

#: Counting rows: after so many of them it is the same, whichever they were.
_COUNTS_ROWS = re.compile(r"count\((1|\*)\)( AS \w+)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Properties:
    """What is known of a processor.

    Args:
        differs: why it may come out differently on a replay; nothing: it is deterministic (Definition 10).
        ordered: why the order matters in which rows come; nothing: it is commutative (Definition 9).
        adds_up: why an input that is taken in again leaves something else; nothing: it is idempotent.
        words: what the user vouches for.
    """

    differs: tuple[str, ...] = ()
    ordered: tuple[str, ...] = ()
    adds_up: tuple[str, ...] = ()
    words: tuple[Word, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "deterministic": not self.differs, "differs": list(self.differs),
            "order_sensitive": bool(self.ordered), "ordered": list(self.ordered),
            "idempotent": not self.adds_up, "adds_up": list(self.adds_up),
            "by_your_word": [str(word) for word in self.words],
        }  # fmt: skip


def of_live(steps: Iterable[Step], operations: Collection[str], word: Word | None) -> Properties:
    """Return what is known of a live processor. Args: operations: those that its steps bring in."""
    running = [step for step in steps if step.operation == "agg" and not all(map(_counts_rows, step.arguments[1]))]
    ordered = [f"{step.operation}() publishes an intermediate result after each record" for step in running]
    doubtful = [] if word is not None else [n for n in operations if entry_of(n).nature not in SAME_LIVE]
    return Properties(
        differs=reasons(doubtful), ordered=tuple(dict.fromkeys(ordered)), adds_up=_adding(operations),
        words=() if word is None else (word,),
    )  # fmt: skip


@dataclass(kw_only=True)
class Brought:
    """The operations that the steps of a live processor bring in.

    Attributes: own: since its last hop. logged: before it, as far as what is in the log depends on them.
    """

    own: set[str] = field(default_factory=set)
    logged: set[str] = field(default_factory=set)

    def log(self, frame: Frame) -> None:
        """Take note of a hop that is written with a frame's columns."""
        self.logged, self.own = self.remaining(frame), set()

    def remaining(self, frame: Frame) -> set[str]:
        """Return all of them, without those that may come out differently and that nothing in a frame depends on."""
        doubtful = {name for name in self.own if entry_of(name).nature not in SAME_LIVE and name not in ANYWHERE}
        if not doubtful:
            return self.own | self.logged
        seen = Lineage.of(frame.data).operations([*frame.columns, STAMP], rows=True)
        return self.own - (doubtful - seen) | self.logged


def of_batch(operations: Collection[str], doubtful: Collection[str], words: tuple[Word, ...], kept: str) -> Properties:
    """Return what is known of a batch's function.

    Args: doubtful: what may come out differently. kept: what it keeps from one epoch to the next, in words.
    """
    ordered = [name for name in doubtful if entry_of(name).nature in ORDER_MATTERS]
    adds_up = (*_adding(operations), f"it keeps state ({kept})") if kept else ()
    return Properties(differs=reasons(doubtful), ordered=reasons(ordered), adds_up=adds_up, words=words)


def reasons(operations: Iterable[str]) -> tuple[str, ...]:
    """Return for each operation why it may come out differently."""
    return tuple(dict.fromkeys(f"{spoken(name)}: {entry_of(name).reason}" for name in sorted(set(operations))))


def _adding(operations: Collection[str]) -> tuple[str, ...]:
    adding = [n for n in sorted(set(operations)) if entry_of(n).nature in AGGREGATES and n not in IDEMPOTENT]
    return tuple(f"{spoken(name)} counts a repeated row again" for name in adding)


def _counts_rows(aggregate: object) -> bool:
    if isinstance(aggregate, LatestValue):
        return False
    text = str(aggregate._jc.toString()) if hasattr(aggregate, "_jc") else str(aggregate)
    return _COUNTS_ROWS.fullmatch(text) is not None
