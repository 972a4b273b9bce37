"""Reasons: why results are published when they are, as data and in plain English.

A program or a test compares the kind, the processor and the operations of a reason, never its text.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from falkirk.declare.asserting import DeterminismAssertion
from falkirk.errors.location import SourceLocation
from falkirk.steps.static_analysis.functions import CLOCK_TIMER, NEWEST_EPOCH, Nature, entry_of, operation_name

ReasonKind = Literal[
    "deterministic",  # every step gives the same results on replay
    "declared",  # the user declares that a function does
    "independent",  # a value differs on replay, and no two results depend on it
    "waits",  # a value differs on replay, and several results depend on it
    "policy",  # fk.Snapshots
    "recorded",  # a value differs on replay, and each epoch is recorded before it is published
    "unsaved",  # a value differs on replay, and the state that depends on it is not saved with each epoch
    "upstream",  # an input may be cancelled
    "repeated",  # the output asks for repeated results, or an acknowledged processor repeats them
    "sink",  # the sink is the user's, and has to keep the promise
    "chain",  # which steps with a state follow each other without an internal topic
    "event-time",  # how long a live step keeps a key, and which records are late
    "python",  # how a live step calls Python
    "view",  # which epoch of a view a live step reads
    "hop",  # why there is an internal topic
    "micro-batches",  # why a stream does not run live
    "epoch",  # when an epoch is complete
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One reason.

    Args:
        text: a sentence. short: a few words, for a table. place: of the operation, if it begins `short`.
        processor: whose reason it is, and operations: those that differ on replay, by Catalyst's names.
        where: the user's line.
    """

    kind: ReasonKind
    text: str
    short: str = ""
    place: str = ""
    processor: str = ""
    operations: tuple[str, ...] = ()
    where: SourceLocation | None = None

    def __str__(self) -> str:
        return self.text if self.where is None else f"{self.text} ({self.where.place})"

    def as_json(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "kind": self.kind, "text": self.text, "processor": self.processor, "operations": list(self.operations),
            "declared": None if self.where is None else str(self.where),
        }  # fmt: skip


#: Why it matters that a value differs on replay.
IN_STATE = "in the state"
SHARED = "shared"
IN_KEY = "in the key"
ANYWHERE = "anywhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undetermined:
    """Operations whose values may differ on a replay.

    Args: operations: by Catalyst's names. processor, where: in which it is, at which line of the user's. why: it
        matters, `IN_STATE` and its like. policy: the one that counts checkpoints alone, whether or not anything may.
    """

    operations: tuple[str, ...]
    processor: str
    where: SourceLocation
    why: str = ""
    policy: str = ""

    def __str__(self) -> str:
        causes = [*map(operation_name, self.operations), *([self.policy] if self.policy else [])]
        return f"{', '.join(causes)} in {self.processor!r} ({self.where.place})"


def differing(operations: Iterable[str], *, within: str = "") -> str:
    """Return the start of a sentence: which operations, of the processor `within` if it is named, differ on replay."""
    operations = tuple(operations)
    names = list(dict.fromkeys(map(_quoted, operations)))  # several may have the same one, such as "a Python function"
    plural = len(names) > 1
    verb = ("give" if plural else "gives") if _surely(operations) else "may give"
    place = f" in {within}" if within else ""
    different = "different values" if plural else "a different value"
    text = f"{listed(names)}{place} {verb} {different} in a replay"
    return f"{text[0].upper()}{text[1:]}"


def _surely(operations: Iterable[str]) -> bool:
    perhaps = (CLOCK_TIMER, NEWEST_EPOCH)
    return all(entry_of(name).nature is Nature.DIFFERENT and name not in perhaps for name in operations)


def consequence_of(cause: Undetermined) -> str:
    """Return why results must wait because of operations that differ, as sentences that end with the subject."""
    value, is_ = ("These values", "are") if len(cause.operations) > 1 else ("This value", "is")
    if cause.why == SHARED:
        return f"Several results of one record share {value.lower()}, so these results"
    if cause.why == IN_KEY:
        return (
            f"{value} {is_} part of the key. A replay could send the result to another partition, where Falkirk would "
            "not recognise it. Results therefore"
        )
    if cause.why == IN_STATE:
        return (
            f"The state of {cause.processor} contains {value.lower()}, so later results of the same key depend on "
            f"{'them' if len(cause.operations) > 1 else 'it'}. Results therefore"
        )
    return f"Any result of {cause.processor} may depend on {value.lower()}. Results therefore"


def background(operations: Iterable[str]) -> str:
    """Return why operations differ, in brackets."""
    reasons = dict.fromkeys(reason for name in operations if (reason := entry_of(name).reason))
    return f" ({'; '.join(reasons)})" if reasons else ""


def listed(names: "list[str] | tuple[str, ...]", word: str = "and") -> str:
    """Return names as a list in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"


def of_assertions(assertions: Iterable[DeterminismAssertion], processor: str) -> Iterator[Reason]:
    """Yield the reasons of a user's assertions of determinism. Args: processor: its name, or several names."""
    for each in assertions:
        yield Reason(
            kind="declared",
            processor=processor,
            short="you declared it deterministic",
            where=each.where,
            text=f"{processor}: {each}.",
        )


def distinct_reasons(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Return reasons without repetitions. One reason stands for all deterministic processors.

    A hop before a keyed step divides a processor. If a value in its first region differs on replay, the processor is
    not called deterministic, although its second region is.
    """
    found = tuple(dict.fromkeys(reasons))
    differ = {each.processor for each in found if each.operations}
    determined = [each for each in found if each.kind == "deterministic"]
    names = dict.fromkeys(name for each in determined for name in each.processor.split(", "))
    kept = [name for name in names if name not in differ]
    if len(determined) < 2 and len(kept) == len(names):
        return found
    others = tuple(each for each in found if each.kind != "deterministic")
    return (replace(determined[0], processor=", ".join(kept), text=same(kept)), *others) if kept else others


def duration_text(duration_s: float) -> str:
    """Return a duration as text: in hours or minutes if these are whole, else in seconds."""
    for unit_s, unit in ((3_600, "h"), (60, "min")):
        if duration_s >= unit_s and duration_s % unit_s == 0:
            return f"{duration_s / unit_s:g} {unit}"
    return f"{duration_s:g} s"


def same(names: list[str]) -> str:
    """Return the sentence that all results of these are the same on a replay."""
    several = len(names) > 1 or "," in names[0]
    verb, them = ("are", "them") if several else ("is", names[0])
    return (
        f"{listed(names)} {verb} deterministic: a replay gives the same results, so no result waits because of {them}."
    )


def differs_in_place(cause: Undetermined, but: str = "") -> str:
    """Return the value that differs on replay, its place, and that it differs, in a few words. Args: but: what follows.

    A policy that counts checkpoints alone is its own reason.
    """
    if not cause.operations:
        return in_place(cause)
    verb = ("differ" if len(cause.operations) > 1 else "differs") if _surely(cause.operations) else "may differ"
    return f"{in_place(cause)}: {verb}{but or ' in a replay'}"


def in_place(cause: Undetermined) -> str:
    what = [
        *map(operation_name, cause.operations),
        *([f"{cause.policy}()"] if cause.policy and not cause.operations else []),
    ]
    more = f" and {len(what) - 1} more" if len(what) > 1 else ""
    return f"{what[0]}{more} in {cause.processor}, line {cause.where.line}"


def _quoted(operation: str) -> str:
    name = operation_name(operation)
    return f"`{name}`" if name.endswith(")") else name


# -- in a few words ----------------------------------------------------------------------------------------------------

#: The kinds that decide when results are published. The first existing one decides.
_DECIDES: tuple[ReasonKind, ...] = (
    "waits",
    "policy",
    "unsaved",
    "upstream",
    "repeated",
    "independent",
    "declared",
    "recorded",
)


def in_short(reasons: Iterable[Reason]) -> str:
    """Return the reason that decides when results are published, in a few words."""
    found = tuple(reasons)
    for kind in _DECIDES:
        for reason in found:
            if reason.kind == kind:
                return reason.short
    return "deterministic"


def of_independent(each: Undetermined, *, repeats: bool) -> Reason:
    """Return the reason of an operation that may differ on a replay without any contradiction between results."""
    but = (
        "Nothing waits for it, so a result that is repeated after a failure may differ from the first one."
        if repeats
        else "Each value affects one result only, so results need not wait. If a replay computes a published result "
        "again, with a different value, Falkirk drops the second version of the result."
    )
    return Reason(
        kind="repeated" if repeats else "independent", processor=each.processor, operations=each.operations,
        short=differs_in_place(each, "" if repeats else ", but affects one result only"), place=in_place(each),
        where=each.where,
        text=f"{differing(each.operations)}{background(each.operations)}. {but}",
    )  # fmt: skip


def of_undetermined(cause: Undetermined, region: str, *, waits: bool) -> Reason:
    """Return the reason of results that a replay may change. Args: waits: they wait for a checkpoint of the region."""
    if not cause.operations:
        after = "results are published when a checkpoint covers them" if waits else "results wait for no checkpoint"
        repeated = "" if waits else ", and those after the last checkpoint are repeated after a failure"
        return Reason(
            kind="policy" if waits else "repeated", processor=cause.processor, short=differs_in_place(cause),
            where=cause.where, text=f"{cause.processor} has the policy {cause.policy}: {after}{repeated}.",
        )  # fmt: skip
    effect = (
        f"{consequence_of(cause)} wait for a checkpoint of {region}."
        if waits
        else "Nothing waits for it, so a result that is repeated after a failure may differ from the first one."
    )
    return Reason(
        kind="waits" if waits else "repeated", processor=cause.processor, operations=cause.operations,
        short=differs_in_place(cause), where=cause.where,
        text=f"{differing(cause.operations)}{background(cause.operations)}. {effect}",
    )  # fmt: skip
