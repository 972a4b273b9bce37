"""Program: compares the steps that compute the state of a batch with those that computed its last epochs.

Under `fk.Lazy`, some states are not saved. After a restart, a deterministic batch computes them again from the same
input, while the results of their epochs stay. Other steps would compute another state than these results belong to. So
the store has a digest of the steps. If it differs, and an epoch without a saved state is complete, the start is
refused.

A non-deterministic batch takes these epochs back at a restart, so its steps may change.
"""

from falkirk.errors.conditions.spark import APPLICATION_CHANGED_PROGRAM
from falkirk.plan.batch import Batch
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.theory.ids import EpochNumber

#: The kind of decision with the digest of the steps that compute the state.
_PROGRAM = "program"


def refuse_other_program(batch: Batch, epochs: EpochLog, store: Store) -> None:
    """Record the steps that compute a batch's state, unless states that are not saved depend on other steps.

    A home of an earlier version has no record of them. Then the present ones count as unchanged.

    Raises: HomeError: `APPLICATION_CHANGED`.
    """
    about = f"state of {batch.name}"
    known = store.newest_decision(_PROGRAM, about)
    before = "" if known is None else str(known.content["is"])
    if before == batch.program:
        return
    complete = [epoch for epoch in epochs.epochs() if epoch.is_complete]
    saved = max((epoch.number for epoch in complete if epoch.saved), default=EpochNumber(-1))
    unsaved = sum(epoch.number > saved for epoch in complete)
    if before and unsaved and batch.deterministic:
        raise APPLICATION_CHANGED_PROGRAM.error(
            where=batch.where,
            changed={"program of the state": (before, batch.program)},
            region=batch.name,
            count=unsaved,
            checkpoint="start" if saved < 0 else str(saved),
            when=batch.saved_when,
        )
    number = EpochNumber(0 if known is None else known.number + 1)
    store.record_decision(_PROGRAM, about, number, {"is": batch.program})
    store.forget_epochs(_PROGRAM, about, number)
