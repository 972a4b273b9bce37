"""Failures of epochs: decides which end a batch at once and which pass by themselves, and words them for the status."""

from pyspark.errors import PySparkException

from falkirk.errors import FalkirkError, LogError, SparkError, is_away
from falkirk.errors.conditions.platform import DATA_UNUSABLE
from falkirk.errors.conditions.spark import (
    FUNCTION_FAILED,
    NUMBER_TOO_LARGE,
    SESSION_LOST_DIED,
    SESSION_LOST_MEMORY_EPOCH,
)
from falkirk.errors.spark import JVM_DIED, JVM_ERRORS, first_line
from falkirk.plan.batch import Batch
from falkirk.platform.data import DataPath
from falkirk.platform.disk import is_full
from falkirk.platform.durable import damaged
from falkirk.runtime.spark.causes import (
    is_failed_expression,
    is_out_of_memory,
    objects_away,
    objects_unusable,
    registry_away,
)
from falkirk.runtime.spark.epochs.files import is_lost
from falkirk.steps.differential.rows import TOO_MANY
from falkirk.steps.differential.runs import UNREADABLE_STATE
from falkirk.theory.ids import EpochNumber

#: The beginning of a `Poison` error's text.
_POISON = "Poison: the function failed"


def raise_final(error: BaseException, batch: Batch, files: DataPath, epoch: EpochNumber) -> None:
    """Raise the cause of an epoch's error if another attempt in this session can't help.

    Args: files: the folder of the batch's log.

    Raises: SparkError: `SESSION_LOST`, `FUNCTION_FAILED`, `NUMBER_TOO_LARGE`. HomeError: `STATE_DAMAGED`. StoreError:
        `DATA_UNUSABLE`.
    """
    text = str(error)
    if isinstance(error, JVM_DIED):
        raise SESSION_LOST_DIED.error() from error
    if is_out_of_memory(error):
        # By default Spark then ends its JVM. Falkirk prevents that, because a file may be the cause.
        raise SESSION_LOST_MEMORY_EPOCH.error(region=batch.name, epoch=epoch) from error
    if (reason := objects_unusable(error)) is not None:
        raise DATA_UNUSABLE.error(where=batch.where, reason=reason) from error
    if _POISON in text:
        raise FUNCTION_FAILED.error(
            where=batch.where, processor=batch.name, epoch=epoch, poison=_poison(text)
        ) from error
    if UNREADABLE_STATE in text:
        raise damaged(f"{batch.name}: {UNREADABLE_STATE}.", files, processor=batch.name, epoch=epoch) from error
    if TOO_MANY in text:
        raise NUMBER_TOO_LARGE.error(where=batch.where, processor=batch.name, epoch=epoch, too_many=TOO_MANY) from error


def _poison(text: str) -> str:
    """Return the worker's message about the row, without the text that Spark puts around it."""
    said = text.partition(_POISON)[2].strip()
    return f"on {said.partition(chr(10))[0][:500]}\n{said[-1500:]}"


def may_have_lost_state(error: BaseException) -> bool:
    """Return whether an error may mean that Spark has lost its data in memory.

    An expression that fails on a value says nothing of that, and neither does the user's own Python in the driver.
    """
    return isinstance(error, (*JVM_ERRORS, PySparkException, FalkirkError)) and not is_failed_expression(error)


def passes(error: BaseException) -> bool:
    """Return whether an error passes by itself: a disk is full, or a file, a sink or one of the servers is away."""
    if is_full(error) or is_away(error) or is_lost(error):
        return True
    if isinstance(error, SparkError) and error.condition == "RELEASE_FAILED":  # only what goes straight to its topic
        return True
    return registry_away(error) is not None or objects_away(error) is not None


def waits_for(error: BaseException) -> str:
    """Return the status text of a batch that waits for an error to pass."""
    if is_full(error):
        return "waiting: the disk is full"
    if (away := registry_away(error)) is not None:
        return f"waiting: {away}"
    if (away := objects_away(error)) is not None:
        return f"waiting: the object store does not answer: {away}"
    at = f" ({error.where})" if isinstance(error, LogError) and error.where else ""
    return f"waiting: {error if is_lost(error) else getattr(error, 'message', str(error))}{at}"


def retry_text(error: BaseException, epoch: EpochNumber) -> str:
    """Return the status text for an epoch that failed and is retried."""
    if passes(error) and not is_full(error):
        return f"epoch {epoch} failed, {waits_for(error)}"
    reason = "the disk is full" if is_full(error) or not isinstance(error, Exception) else first_line(error)[:200]
    return f"epoch {epoch} failed, trying again: {reason}"
