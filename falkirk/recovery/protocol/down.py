"""Down: which failures stop only their own processor for good, and whether any other can still make progress.

A writer of one input can write a value on which the user's own expression fails each time it is read. This failure
must not stop independent processors. So its processor stays down, and all others continue. To the protocol a
processor that is down is one that is alive and makes no progress, however long: nothing that it sent becomes invalid,
nothing that it may need is deleted, and nothing rests on it that did not before. It is started again with the
application, or when a rollback moves it.
"""

import logging
import time
from collections.abc import Callable, Mapping

from falkirk.errors import DefinitionError, FalkirkError
from falkirk.recovery.protocol.layout import Layout
from falkirk.recovery.protocol.ports import RegionPort

log = logging.getLogger("falkirk")

#: Conditions that concern one processor: its program, or the records that it alone reads or has sent.
PROCESSOR_CONDITIONS: Mapping[str, str] = {
    "EXPRESSION_FAILED": "an expression of the user's fails on a value that somebody wrote into its input",
    "EPOCH_KEEPS_FAILING": "an epoch fails at each try, on what it reads or in the user's function",
    "FUNCTION_FAILED": "a Python function of the user's fails on a row",
    "PYTHON_UNSUITABLE": "the Python of an executor can't run a function of the user's, and others need none",
    "NUMBER_TOO_LARGE": "the rows of its input add up to more than a number holds",
    "REGION_KEEPS_FAILING": "its query fails at each start, while the other queries of the session run",
    "QUERY_NOT_STARTED": "Spark refuses its query",
    "NOT_CO_PARTITIONED": "somebody wrote a key into another partition of its input than before",
    "INPUT_EXPIRED": "records of its input expired; with a limit in bytes, a writer of many records causes that",
    "SINK_EXPIRED": "records of its output expired that say what is published; as for INPUT_EXPIRED",
    "EPOCH_OUT_IN_PART": "its program changed between two halves of an epoch",
    "SINK_UNSETTLED": "somebody keeps writing into its output, or has a transaction open there",
    "EPOCHS_NOT_KEPT": "its program reads epochs that were made before anything read them",
}
#: Those of them that may pass. The processor is tried again after a while.
PASSING_CONDITIONS = frozenset(("SINK_UNSETTLED",))
#: Those that an older copy of the home can cause in a region that has not started, because a newer one has deleted
#: records that it needs. So a region that is down for such a reason does not show that the home is no older copy.
AGE_CONDITIONS = frozenset(("SINK_EXPIRED",))
RETRY_S = 15.0
#: Conditions that a processor may fail with and that concern more than it: they end the application, or restart Spark.
#: A condition that is in neither table has the same effect, because nobody has decided on it.
APPLICATION_CONDITIONS: Mapping[str, str] = {
    "SESSION_LOST": "the Spark application has to be a new one",
    "WRITER_STILL_RUNNING": "a writer can't be stopped, so the Spark application has to be a new one",
    "RELEASE_FAILED": "a sink does not accept results, and Falkirk tries again",
    "BROKER_AWAY": "the broker does not answer, which passes",
    "STORE_AWAY": "the store does not answer, which passes",
    "ACCESS_REFUSED": "the broker refuses this user",
    "KAFKA_REFUSED": "the broker refuses a call, for a reason that no record causes",
    "TOPIC_REPLACED": "a topic is another one than this home knows, so its other positions may be wrong as well",
    "TOPIC_MISSING": "as for TOPIC_REPLACED",
    "PARTITIONS_CHANGED": "as for TOPIC_REPLACED",
    "RANGE_NOT_THERE": "the broker lost records that it had acknowledged, perhaps of other topics too",
    "SINK_TRUNCATED": "as for RANGE_NOT_THERE",
    "SINK_AHEAD": "the home is an older copy",
    "FOREIGN_WRITER": "the home lacks a key that signed records name, so it may be an older copy",
    "HOME_TAKEN_OVER": "another process owns the home",
    "STORE_FELL_BACK": "the store is an older copy",
    "STORE_REPLACED": "the store is another file now",
    "HOME_COPIED": "a copy of the home took over",
    "HOME_DAMAGED": "a disk lost data of the home, perhaps more than was found",
    "STATE_DAMAGED": "as for HOME_DAMAGED",
    "CHECKPOINT_DAMAGED": "as for HOME_DAMAGED",
    "DECISION_CONTRADICTED": "two coordinators use one store",
    "APPLICATION_CHANGED": "the application no longer fits its home",
}


def concerns_one(error: FalkirkError) -> bool:
    """Return whether a failure of a processor concerns that processor alone.

    A `DefinitionError` does: the program of the processor raised it, perhaps because of a value that it read.
    """
    return error.condition in PROCESSOR_CONDITIONS or (
        isinstance(error, DefinitionError) and error.condition not in APPLICATION_CONDITIONS
    )


def stays_down(condition: str) -> str:
    """Return for how long a region is down that has stopped because of an error, in words."""
    if condition in PASSING_CONDITIONS:
        return f"stays down, and is tried again every {RETRY_S:g} s"
    return "failed for good and stays down"


def is_comparison_open(error: FalkirkError) -> bool:
    """Return whether old data stays until a region that is down with this error was compared with the home.

    It is tried again, and compares its outputs then, or the age of the home may be the reason.
    """
    return error.condition in PASSING_CONDITIONS | AGE_CONDITIONS


def related(layout: Layout, name: str) -> frozenset[str]:
    """Return a region with all that it is connected to by logs between regions, in either direction."""
    found, ahead = {name}, [name]
    while ahead:
        stage = layout.stages[ahead.pop()]
        beside = {reader.name for reader in layout.readers(stage.output)}
        beside |= {writer.name for log in stage.inputs if (writer := layout.writer(log)) is not None}
        ahead += beside - found
        found |= beside
    return frozenset(found)


def has_work(layout: Layout, down: Mapping[str, object]) -> bool:
    """Return whether the input of any region can still grow that is not down itself.

    A view alone makes no progress: its reader reads it when its other inputs grow.
    """
    works: set[str] = set()
    while True:
        found = {
            stage.name
            for stage in layout.stages.values()
            if stage.name not in down
            and any(
                (writer := layout.writer(log)) is None or writer.name in works
                for log in [log for log in stage.inputs if log not in stage.views] or stage.inputs
            )
        }
        if found == works:
            return bool(works)
        works = found


class Down:
    """The regions of an application that stay down, with their errors, oldest first."""

    def __init__(self, layout: Layout, clock: Callable[[], float] = time.monotonic) -> None:
        self._layout, self._clock = layout, clock
        self.errors: dict[str, FalkirkError] = {}
        #: When those whose failures may pass are tried again.
        self._again_at_s: dict[str, float] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.errors

    def keep(self, name: str, error: FalkirkError) -> None:
        """Keep a region down that has stopped because of an error. Raises: the error, if it concerns more than it."""
        if not concerns_one(error):
            raise error
        known = self.errors.pop(name, None)
        self.errors[name] = error
        if error.condition in PASSING_CONDITIONS:
            self._again_at_s[name] = self._clock() + RETRY_S
        if known is None or known.condition != error.condition:
            log.error("%s %s. %s: %s", name, stays_down(error.condition), error.condition, error)

    def fences(self, name: str, region: RegionPort, *, must: bool = False) -> bool:
        """Fence a region; keep it down and return False if it can't be fenced, for a reason that concerns it alone.

        Args: must: raise this reason, too. Raises: the error, if it concerns more than this region.
        """
        try:
            region.fence()
        except FalkirkError as error:
            if must:
                raise
            self.keep(name, error)
            return False
        return True

    def due(self) -> frozenset[str]:
        """Return the regions that are to be tried again now."""
        return frozenset(name for name, at_s in self._again_at_s.items() if at_s <= self._clock())

    def forget(self, name: str) -> None:
        """Forget a failure: the region is started again."""
        self.errors.pop(name, None)
        self._again_at_s.pop(name, None)

    def refuse_standstill(self) -> None:
        """Raise the newest failure if no region is left that can make progress, now or after another try."""
        if self.errors and not self._again_at_s and not has_work(self._layout, self.errors):
            raise next(reversed(self.errors.values()))
