"""Conditions of recovery objectives."""

from falkirk.errors import DefinitionError, GuaranteeError
from falkirk.errors.condition import Condition

OBJECTIVE_CONTRADICTED = Condition(
    "OBJECTIVE_CONTRADICTED",
    DefinitionError,
    "recover_within={recover_within!r} chooses the time between checkpoints, and {other} sets it.",
    hint="Give only one of them.",
)
OBJECTIVE_REFUSED = Condition(
    "OBJECTIVE_REFUSED",
    DefinitionError,
    "{name!r} can't have recover_within: {reason}.",
    hint='Give an interval instead: fk.Lazy("10 seconds").',
)
OBJECTIVE_MISSED = Condition(
    "OBJECTIVE_MISSED",
    GuaranteeError,
    "{region!r} may need longer than {goal} to recover: with a checkpoint every {interval}, the shortest choice, a "
    "death at the worst moment costs {expected}. The restart alone takes {restart}.",
    hint="{advice}, or set a longer recover_within.",
)
