"""Direct: epochs whose results go straight to their topic, without being written down before. The topic is their log.

That is right where another computation of an epoch gives the same rows (`falkirk/plan/direct.py` says of which batches
that is known): what was there when one was cut off is left out of the next. A row's place is decided by what it says,
since the order in which Spark computes rows is another each time.

What could break it:
  - the function is changed between two tries of one epoch: a decision says by which program epochs are sent, and
    another one does not go on with what is out in part;
  - an epoch of the same batch still waits in its log, for its sink: the next one is not decided as direct then;
  - a job of a former try still sends: it is waited for, or the Spark application is restarted (`BatchRegion.fence`);
    what a producer holds is flushed before the topic's end is read (`TopicTarget`).
"""

from dataclasses import fields
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from falkirk.analysis.structure import digest
from falkirk.errors import HomeError
from falkirk.plan.batch import Batch
from falkirk.runtime.epochs.computed import Computed
from falkirk.runtime.epochs.log import Epoch, EpochLog
from falkirk.runtime.epochs.results import Results
from falkirk.store import Store

if TYPE_CHECKING:
    from falkirk.runtime.sinks.release import Outlet

_PROGRAM = "program"
#: So many records are worked through, and what comes of them is sent, by one task without a shuffle.
FEW_RECORDS = 10_000


class Direct:
    """Of one batch.

    Attributes: outlet: of the batch, if it has one.
    """

    def __init__(self, batch: Batch, epochs: EpochLog, store: Store, results: Results) -> None:
        self._batch, self._epochs, self._store, self._results = batch, epochs, store, results
        self.outlet: Outlet | None = None
        #: By which epochs were last sent, and the number of that decision; None: nobody has asked the store.
        self._program: str | None = None
        self._decided, self._about = -1, f"epochs of {batch.name}"
        self._around = ""

    def may_be_next(self) -> bool:
        """Tell whether the next epoch's results may go straight to their topic: nothing else is still to go there."""
        last = self._epochs.epochs()[-1:]
        return self._batch.is_direct and (all(e.direct for e in last) or self._is_all_released())

    def _is_all_released(self) -> bool:
        known = [r for r in self._store.releases(self._batch.released_to) if r.topic == self._batch.log]
        return any(r.released_exclusive >= self._epochs.next_number() for r in known)

    def takes(self, epoch: Epoch) -> bool:
        """Tell whether an epoch's results go straight to their topic. Raises: HomeError: `EPOCH_OUT_IN_PART`."""
        if epoch.may_be_out and not self._batch.is_direct:
            self._refuse_what_is_out(epoch)
        return epoch.may_be_out and self._batch.is_direct

    def is_small(self, epoch: Epoch) -> bool:
        """Tell whether one task had better do all of an epoch. It is Spark's own operators that it does, and no Python:
        of those it is known that they come out the same. Files and other batches' epochs may be of any size."""
        if not epoch.may_be_out or any(i.topic is None and not i.view for i in self._batch.inputs):
            return False
        read = sum(o - epoch.first.get(log, {}).get(p, 0) for log, ps in epoch.last.items() for p, o in ps.items())
        return read <= FEW_RECORDS

    def send(self, epoch: Epoch, folder: str, computed: Computed) -> tuple[int, int]:
        """Send the results of an epoch; return how many there are, and how many did not fit.

        Args: folder: of those that did not.
        """
        assert self.outlet is not None, "it has a sink"
        self._around = self._around or _around(self._batch, computed.result.sparkSession)
        self._agree(epoch, digest([computed.structure, self._around]))
        deliver = partial(self.outlet.send, epoch.number, few=self.is_small(epoch))
        return self._results.send(folder, computed, deliver)

    def _agree(self, epoch: Epoch, program: str) -> None:
        """See that what has begun to send an epoch is what goes on with it."""
        if self._program is None:
            newest = self._store.newest_decision(_PROGRAM, self._about)
            self._decided, self._program = (-1, "") if newest is None else (newest.number, newest.content["is"])
        if program == self._program:
            return
        self._refuse_what_is_out(epoch)
        self._decided += 1
        self._store.record_decision(_PROGRAM, self._about, self._decided, {"is": program})
        self._store.forget_epochs(_PROGRAM, self._about, self._decided)
        self._program = program

    def _refuse_what_is_out(self, epoch: Epoch) -> None:
        """Raises: HomeError: `EPOCH_OUT_IN_PART`. LogError, SparkError: the topic can't be asked."""
        if self.outlet is None or self.outlet.found() <= epoch.number:
            return
        raise HomeError(
            "EPOCH_OUT_IN_PART",
            f"epoch {epoch.number} of batch {self._batch.name!r} was cut off when some of its results were out, and "
            "the batch, its sink or something that it reads in Python is another now: the rest would not go with it.",
            where=self._batch.where,
            hint="Run it as it was until that epoch is complete; or go back by hand (falkirk rollback --force).",
            processor=self._batch.name,
            epoch=epoch.number,
        )


def _around(batch: Batch, session: SparkSession) -> str:
    """Return on what else it depends, beside its plan, what a row becomes in a topic."""
    (sink,) = batch.sinks
    written = {f.name: getattr(sink.to, f.name) for f in fields(sink.to) if f.name != "where"}
    zone = session.conf.get("spark.sql.session.timeZone")
    read = [(given.name, given.log, given.view) for given in batch.inputs]
    return "\n".join(map(str, (read, written, zone, session.version, version("falkirk"))))
