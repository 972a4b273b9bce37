"""Comparison: compares the sinks of one batch with the home, because somebody may have restored one of them.

A sink that has epochs which the home lacks proves that the home is an older copy. A sink that lacks epochs gets them
again, if the home still has them.
"""

import logging
import threading
from collections.abc import Mapping
from typing import TypeGuard

from falkirk.errors import HomeError, SparkError
from falkirk.errors.conditions.spark import RELEASE_FAILED_STOP, SINK_AHEAD_EPOCHS, SINK_BEHIND
from falkirk.runtime.spark.epochs.log import Epoch, EpochLog
from falkirk.runtime.spark.sinks.target import Target
from falkirk.theory.ids import EpochNumber

log = logging.getLogger("falkirk")

#: Conditions of a folder, a table or a topic by epochs into which others write, or which they have changed. Its results
#: wait until the operator has removed the cause.
_OF_ONE_SINK = (
    "FOLDER_DAMAGED", "FOLDER_OF_ANOTHER", "TABLE_OF_ANOTHER", "TABLE_UNFIT", "NOTES_LOST", "TOPIC_OF_ANOTHER",
    "TOPIC_REPLACED", "TOPIC_UNFIT", "PARTITIONS_CHANGED",
)  # fmt: skip


class SinkComparison:
    """Compares the sinks of one batch with its home. The caller ensures that nothing is sent meanwhile.

    Args: epochs: the log of the batch. targets: by the names of their sinks. dead_letters: their target, if there is
        one. stopping: once it is set, no further sink is asked.

    Attributes: is_done: whether all sinks were compared with the home since it was opened.
    """

    def __init__(
        self, epochs: EpochLog, targets: Mapping[str, Target], dead_letters: Target | None, stopping: threading.Event
    ) -> None:
        self._epochs, self._targets, self._stopping = epochs, targets, stopping
        self._asked = dict(targets) if dead_letters is None else {**targets, "dead letters": dead_letters}
        #: The epoch up to which this home had results when this process first asked the sinks.
        self._there: EpochNumber | None = None
        self.is_done = False

    def begin(self) -> None:
        """Note the end of the epochs before this process completes more. The sinks may answer only later."""
        if self._there is None:
            self._there = self._known()

    def straight(self) -> EpochNumber:
        """Return the epoch, exclusive, up to which results may have gone straight to their topic."""
        found = [e.number + 1 for e in self._epochs.epochs() if e.direct or _is_open(e)]
        return EpochNumber(max(found, default=0))

    def _known(self) -> EpochNumber:
        return max(self._epochs.end(), self.straight())

    def compare(self) -> EpochNumber:
        """Ask all sinks what readers may have seen; return the epoch, exclusive, up to which any has results.

        A sink that does not answer hides no other sink that is ahead.

        Raises: HomeError: `SINK_AHEAD`: a sink has epochs that this home has not completed. Errors of the sinks that do
            not answer: of these, the first one that concerns more than its sink, or else the first one. SparkError:
            `RELEASE_FAILED`: Falkirk stops.
        """
        self.begin()
        seen, errors = EpochNumber(0), list[Exception]()
        for name, target in self._asked.items():
            if self._stopping.is_set():
                raise RELEASE_FAILED_STOP.error(what=f"the comparison of {self._epochs.name} with its sinks")
            try:
                upto = target.visible()
            except Exception as error:
                errors.append(error)
            else:
                self._refuse_ahead(name, upto)
                seen = max(seen, upto)
        if errors:
            raise min(errors, key=concerns_one_sink)
        self.is_done = True
        return seen

    def _refuse_ahead(self, name: str, upto: EpochNumber) -> None:
        """Check that a sink has no epochs that this home has not completed yet.

        Their numbers would be used again, and the sink would mistake the new epochs for the ones that it has. Until all
        sinks were compared, this process sends nothing. So a sink that was away has no epochs of this process, and is
        compared with those that were there before.
        """
        there = self._known() if self.is_done or self._there is None else self._there
        if upto > there:
            raise SINK_AHEAD_EPOCHS.error(
                where=self._epochs.folder, sink=name, seen=upto, there=there, epochs=self._epochs.name
            )

    def remains(self, released: EpochNumber) -> EpochNumber:
        """Return the epoch, exclusive, up to which all sinks still have the released epochs.

        Raises: HomeError: `SINK_BEHIND`: the log no longer has the epochs that a sink lacks. SparkError, HomeError: a
            sink does not answer.
        """
        sink, upto = self._shortest(released)
        if not self._epochs.any_counts(upto, released):
            return released
        if not self._epochs.has_all(upto, released):
            raise self._behind(sink, upto, released)
        log.warning("sink %r lacks the epochs %d to %d: Falkirk sends them again", sink, upto, released - 1)
        return upto

    def refuse_behind(self, released: EpochNumber) -> None:
        """Check that all sinks still have the released epochs. Raises: as `remains`."""
        sink, upto = self._shortest(released)
        if self._epochs.any_counts(upto, released):
            raise self._behind(sink, upto, released)

    def _shortest(self, released: EpochNumber) -> tuple[str, EpochNumber]:
        """Return the sink that has kept the fewest released epochs, and the epoch up to which it has them."""
        delivered = {name: target.delivered() for name, target in self._targets.items()}
        known = [(upto, name) for name, upto in delivered.items() if upto is not None]
        upto, name = min([*known, (released, "")])
        return name, upto

    def _behind(self, sink: str, upto: EpochNumber, released: EpochNumber) -> HomeError:
        return SINK_BEHIND.error(
            where=self._epochs.folder, sink=sink, kept=upto, released=released, epochs=self._epochs.name
        )


def concerns_one_sink(error: Exception) -> TypeGuard[SparkError | HomeError]:
    """Return whether others may run while this sink waits; after `SESSION_LOST` only another Spark application may."""
    if isinstance(error, SparkError):
        return error.condition != "SESSION_LOST"
    return isinstance(error, HomeError) and error.condition in _OF_ONE_SINK


def _is_open(epoch: Epoch) -> bool:
    return epoch.may_be_out and not epoch.is_complete
