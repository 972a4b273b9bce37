"""A user's sink as a target: `fk.Sink` has three members, and this module adds the rest of a target.

Somebody else's code could break an epoch in three ways:
  - a try that was given up still writes, when the next one begins: deliveries to an address wait for each other;
  - it does not answer: a separate thread asks it, so the application keeps running;
  - it does not remember its epochs, or stores fewer rows than it reports: it is asked before and after each epoch.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame

from falkirk.declare.sink import OwnSink
from falkirk.errors import SparkError
from falkirk.errors.conditions.spark import RELEASE_FAILED_OWN
from falkirk.errors.redaction import redact_urls
from falkirk.errors.spark import first_line
from falkirk.runtime.spark.epochs.inputs import ROW
from falkirk.runtime.spark.sinks.asking import Asking, NoAnswer
from falkirk.runtime.spark.sinks.target import sorted_by_place
from falkirk.theory.ids import EpochNumber

log = logging.getLogger("falkirk")

#: A delivery to an address holds its lock. A thread of an application that was stopped may have it still.
_busy: dict[str, threading.Lock] = {}


class OwnTarget:
    """A sink of the user's.

    Args: name: of the sink.
    """

    def __init__(self, to: OwnSink, name: str) -> None:
        self._sink, self._address, self._name = to.sink, to.address, name
        self._asking = Asking[object](name, "delivered()", lambda: self._sink.delivered())
        self._warned = ""

    def visible(self) -> EpochNumber:
        """See Target. An incomplete epoch does not count, and the next try replaces it."""
        return self.delivered()

    def delivered(self) -> EpochNumber:
        """See Target. Raises: SparkError: `RELEASE_FAILED`."""
        try:
            answer = self._asking.ask()
        except NoAnswer as error:
            raise self._failed(str(error)) from None
        except Exception as error:
            raise self._raised("delivered()", error) from error
        if not isinstance(answer, int) or isinstance(answer, bool) or answer < 0:
            raise self._failed(f"delivered() returned {answer!r}, and must return the number of the next epoch")
        return EpochNumber(answer)

    def deliver(self, epoch: EpochNumber, rows: DataFrame, *, few: bool = False) -> None:
        """See Target. Raises: SparkError: `RELEASE_FAILED`."""
        with self._alone():
            if self.delivered() > epoch:
                return
            try:
                self._sink.deliver(epoch, sorted_by_place(rows, few=few).drop(ROW))
            except Py4JNetworkError:
                raise  # there is no Spark any more
            except Exception as error:
                raise self._raised(f"deliver({epoch}, …)", error) from error
            if (now := self.delivered()) != epoch + 1:
                raise self._failed(
                    f"deliver({epoch}, …) succeeded, and delivered() returns {now} instead of {epoch + 1}"
                )
        self._warned = ""

    @contextmanager
    def _alone(self) -> Iterator[None]:
        lock = _busy.setdefault(self._address, threading.Lock())
        if not lock.acquire(blocking=False):
            raise self._failed("an earlier deliver() still runs")
        try:
            yield
        finally:
            lock.release()

    def _raised(self, call: str, error: Exception) -> SparkError:
        reason = f"{call} raised {type(error).__name__}: {redact_urls(first_line(error))}"
        if reason != self._warned:  # once, and not at each try
            log.warning("sink %r: %s", self._name, reason, exc_info=error)
        self._warned = reason
        return self._failed(reason)

    def _failed(self, reason: str) -> SparkError:
        return RELEASE_FAILED_OWN.error(sink=self._name, address=self._address, reason=reason)
