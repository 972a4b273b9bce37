"""Targets: the state that `falkirk rollback --to` names, as a time, as the number of a cut, or as a checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from falkirk.declare.policy import duration_s
from falkirk.errors import DefinitionError
from falkirk.errors.conditions.commands import CHECKPOINT_INVALID_STATE, CUT_TOO_OLD, CUT_UNKNOWN
from falkirk.platform.times import when
from falkirk.recovery.protocol.consistent_cuts import ConsistentCut, as_of, cut_numbered
from falkirk.theory.ids import CheckpointNumber
from falkirk.user_tools.commands.history.application import OfflineApplication

_NONE_LEFT = "No consistent cut of the application is left. Restore the home from a backup."
#: The number of a cut is shorter. Python reads no longer ones than about 4,000 digits.
_DIGITS_MAX = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackTarget:
    """Args: asked: the checkpoint of each named region. cut: the cut that consists of them, unless one is named."""

    asked: Mapping[str, CheckpointNumber]
    cut: ConsistentCut | None = None


def rollback_target(visit: OfflineApplication, text: str, now_s: float) -> RollbackTarget:
    """Return the state that a text names: TIME, CUT or PROCESSOR@CHECKPOINT.

    Raises: DefinitionError: `CHECKPOINT_INVALID`, `CHECKPOINT_UNKNOWN`, `CUT_UNKNOWN`. GuaranteeError: `CUT_TOO_OLD`.
    """
    text = text.strip()
    if "@" in text:
        return RollbackTarget(asked=visit.asked(text))
    if text.isascii() and text.isdigit():
        cut = _cut_numbered(visit.cuts(), text)
    elif (at_s := time_s(text, now_s)) is not None:
        cut = _cut_as_of(visit.cuts(), text, at_s)
    else:
        raise CHECKPOINT_INVALID_STATE.error(text=text)
    return RollbackTarget(asked=cut.asked, cut=cut)


def _cut_numbered(cuts: tuple[ConsistentCut, ...], text: str) -> ConsistentCut:
    cut = cut_numbered(cuts, int(text)) if len(text) <= _DIGITS_MAX else None
    if cut is None:
        raise CUT_UNKNOWN.error(
            cut=text,
            number_shown=text[:_DIGITS_MAX],
            advice=f"Choose a cut that `falkirk history` lists, from {cuts[-1].number} to {cuts[0].number}."
            if cuts
            else _NONE_LEFT,
        )
    return cut


def _cut_as_of(cuts: tuple[ConsistentCut, ...], text: str, at_s: float) -> ConsistentCut:
    cut = as_of(cuts, at_s)
    if cut is None:
        raise CUT_TOO_OLD.error(
            text=text,
            advice=f"The oldest is {cut_text(cuts[-1])}: choose it or a later one. To keep older, increase `history=`."
            if cuts
            else _NONE_LEFT,
        )
    return cut


def time_s(text: str, now_s: float) -> float | None:
    """Return the time that a text names, in seconds of Unix time; None if it names none.

    A time without a fraction means the whole second, because tables show cuts without a fraction.
    """
    try:
        if text.lower().endswith(" ago"):
            return now_s - duration_s(text[: -len(" ago")])
        at = datetime.fromisoformat(text)
        return at.timestamp() + (0.0 if at.microsecond else 0.999_999)
    except (ValueError, OverflowError, DefinitionError):
        return None


def cut_text(cut: ConsistentCut) -> str:
    """Return a cut's number and time."""
    made_at_s = cut.made_at_s
    return f"{cut.number} (the start)" if made_at_s is None else f"{cut.number} of {when(made_at_s)}"
