"""Failures of epochs: which end a batch at once, which pass by themselves, and what a status says of them."""

from pathlib import Path

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from falkirk.differential.rows import TOO_MANY
from falkirk.differential.runs import DAMAGED
from falkirk.errors import FalkirkError, SparkError, is_away
from falkirk.errors.spark import first_line
from falkirk.plan.batch import Batch
from falkirk.runtime.epochs.files import is_lost
from falkirk.runtime.triage import is_failed_expression, is_out_of_memory
from falkirk.system.disk import is_full
from falkirk.system.durable import damaged

#: What `Poison` says first.
_POISON = "Poison: the function failed"


def raise_final(error: BaseException, batch: Batch, files: Path, epoch: int) -> None:
    """Raise what an error of an epoch means, if another try in this session can't help.

    Args: files: the folder of the batch's log.

    Raises: SparkError: `SESSION_LOST`, `FUNCTION_FAILED`, `NUMBER_TOO_LARGE`. HomeError: `STATE_DAMAGED`.
    """
    text = str(error)
    if isinstance(error, Py4JNetworkError | ConnectionError):
        raise SparkError("SESSION_LOST", "Spark's JVM is gone.", certainty="maybe") from error
    if is_out_of_memory(error):
        # By default Spark ends its JVM for that. Falkirk keeps it from that, because a file may be to blame.
        raise SparkError(
            "SESSION_LOST",
            f"Spark ran out of memory in epoch {epoch} of batch {batch.name!r}.",
            certainty="maybe",
            hint="The Spark application is restarted. If it happens again: give it more (spark.driver.memory).",
        ) from error
    if _POISON in text:
        raise SparkError(
            "FUNCTION_FAILED",
            f"a Python function of batch {batch.name!r} failed on a row of epoch {epoch}: {_poison(text)}",
            where=batch.where,
            hint='Mend it and run again; or let such rows be dead letters, with poison="dead-letter".',
            processor=batch.name,
            epoch=epoch,
        ) from error
    if DAMAGED in text:
        raise damaged(f"{batch.name}: {DAMAGED}.", files, processor=batch.name, epoch=epoch) from error
    if TOO_MANY in text:
        raise SparkError(
            "NUMBER_TOO_LARGE",
            f"in epoch {epoch} of {batch.name!r} there is {TOO_MANY}: a row, or a sum.",
            where=batch.where,
            hint="A loop that counts ways grows without end if there is a cycle: use distinct(), or fewer rounds.",
            processor=batch.name,
            epoch=epoch,
        ) from error


def _poison(text: str) -> str:
    """Return what the worker said of the row, without what Spark has put around it."""
    said = text.partition(_POISON)[2].strip()
    return f"on {said.partition(chr(10))[0][:500]}\n{said[-1500:]}"


def may_have_lost_state(error: BaseException) -> bool:
    """Tell whether an error may mean that what Spark keeps in memory is gone.

    An expression that fails on a value says nothing of that, and neither does the user's own Python in the driver.
    """
    return isinstance(error, Py4JError | PySparkException | FalkirkError | OSError) and not is_failed_expression(error)


def passes(error: BaseException) -> bool:
    """Tell whether an error is only that the broker, the store or a file is away, or a disk full."""
    return is_full(error) or is_away(error) or is_lost(error)


def waits_for(error: BaseException) -> str:
    """Return what a status says while a batch waits for an error to pass."""
    if is_full(error):
        return "waiting: the disk is full"
    return f"waiting: {error if is_lost(error) else getattr(error, 'message', str(error))}"


def told(error: BaseException, epoch: int) -> str:
    """Return what a status says of an epoch that failed and is tried again."""
    if is_lost(error):
        return f"epoch {epoch} failed, {waits_for(error)}"
    reason = "the disk is full" if is_full(error) or not isinstance(error, Exception) else first_line(error)[:200]
    return f"epoch {epoch} failed, trying again: {reason}"
