"""Conditions of `recovery/protocol`."""

from falkirk.errors import GuaranteeError, UnrecoverableError
from falkirk.errors.condition import Condition

CHECKPOINT_TOO_OLD = Condition(
    "CHECKPOINT_TOO_OLD",
    GuaranteeError,
    "the requested checkpoint is no longer available: {reason}",
    hint="Choose a later checkpoint. `falkirk history --unit NAME` lists those that are available.",
)
NO_CHECKPOINT_LEFT = Condition(
    "NO_CHECKPOINT_LEFT",
    UnrecoverableError,
    "region {name!r} has no checkpoint to which it can roll back.",
    hint="Its input no longer reaches back to the beginning. Restore the home from a backup.",
)
CONTRADICTS_RELEASED = Condition(
    "CONTRADICTS_RELEASED",
    GuaranteeError,
    "results in {topics:listed} are already published, and the rollback would make them invalid.",
    hint="Choose a later checkpoint, or force it (--force): then new results follow the old ones in these topics.",
)
CHECKPOINT_LOST = Condition(
    "CHECKPOINT_LOST",
    UnrecoverableError,
    "{count} published results in {results:listed} depend on checkpoints that can't be used any more. The newest "
    "checkpoints that can be used: {places}.",
    hint="Restore the home from a backup. Or add --force to `falkirk run`: then other results follow these in the same "
    "topics.",
)
NO_CHECKPOINT_LEFT_OLD_ENOUGH = Condition(
    "NO_CHECKPOINT_LEFT",
    UnrecoverableError,
    "region {name!r} would have to roll back to a checkpoint that is older than its oldest one.",
    hint="Restore the home from a backup.",
)
