"""A query: an application that runs in this process, with the methods of a StreamingQuery.

There is no coordinator process. The regions run in the user's own session, and a thread watches them.
"""

import contextlib
import logging
import os
import threading
import time
from dataclasses import asdict
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery

from falkirk.declare.application import Application
from falkirk.declare.load import broker_of
from falkirk.declare.place import local_home
from falkirk.errors import FalkirkError
from falkirk.errors.conditions.supervision import GATEWAY_MISSING, HOST_FAILED_THREAD
from falkirk.errors.spark import first_line
from falkirk.kafka_client.connection import Connection
from falkirk.platform.traced import OFF, Recorder
from falkirk.recovery.ownership.claim import Claim
from falkirk.recovery.ownership.executors import await_executors
from falkirk.recovery.ownership.folder import Home, open_home
from falkirk.recovery.ownership.guard import is_replaced
from falkirk.recovery.ownership.lease import refuse_leased
from falkirk.recovery.ownership.requests import fail_former, stop_asked_if_reachable
from falkirk.runtime.spark.status import RegionStatus
from falkirk.runtime.supervision.counts import KeptCounts
from falkirk.runtime.supervision.host import Host
from falkirk.runtime.supervision.measurements import Launch
from falkirk.runtime.supervision.spans import exported, is_recorded
from falkirk.runtime.supervision.start import application_session, assemble_host, jvm_pid

log = logging.getLogger("falkirk")

#: How long a stop waits for records that the producers have not sent yet.
FLUSH_S = 10.0


class Query:
    """A running application in this process: of `write()`, of `App.start`, and of `App.run` under spark-submit."""

    def __init__(
        self,
        host: Host,
        home: Home,
        counts: KeptCounts,
        claim: Claim | None = None,
        *,
        force: bool = False,
        poll_s: float = 0.5,
        recorder: Recorder = OFF,
    ) -> None:
        self._recorder, self._ending = recorder, contextlib.ExitStack()
        self._spans = exported(home.application, self._ending, log.warning)
        self._host, self._home, self._counts, self._claim, self._poll_s = host, home, counts, claim, poll_s
        self._stopping, self._ended = threading.Event(), threading.Event()
        self._error: FalkirkError | None = None
        try:
            with recorder.span("start"):
                # Until the thread watches, this is the way to notice another owner.
                host.start(on_progress=self._check_claim, force=force)
        except Exception as error:
            counts.end(error)
            self._send_spans()
            self._ending.close()
            raise
        self._thread = threading.Thread(target=self._watch, name="falkirk-watch", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        try:
            while not self._host.wait(self._poll_s, self._stopping):
                self._host.poll()
                self._send_spans()
                self._counts.write()
                self._check_claim()
                if stop_asked_if_reachable(self._home.store):
                    self._stopping.set()
            self._counts.end(None)
        except FalkirkError as error:
            self._end(error)
            self._error = error
        except Exception as error:  # for example, the JVM died: waiting callers must get the error
            self._end(error)
            self._error = HOST_FAILED_THREAD.error(name=type(error).__name__, reason=first_line(error))
            self._error.__cause__ = error
        finally:
            try:
                self._host.stop()
                if self._host.flush(FLUSH_S) and not is_replaced(self._error):
                    self._home.forget_processes()  # they write no more, and their owner may still use them
            except Exception as error:
                log.warning("the query did not stop cleanly: %s", first_line(error))
            finally:
                if self._claim is not None:
                    self._claim.close()
                self._home.close()
                try:
                    self._send_spans()
                    self._ending.close()
                finally:
                    self._ended.set()

    def _check_claim(self) -> None:
        if self._claim is not None:
            self._claim.check()

    def _send_spans(self) -> None:
        if self._spans is not None:
            regions = [asdict(region) for region in self._host.status()]
            status = {"at_s": time.time(), "pid": os.getpid(), "regions": regions, "spans": self._recorder.recent()}
            self._spans.update(status)

    def _end(self, error: Exception) -> None:
        self._host.note_end(error)
        self._counts.end(error)

    def __repr__(self) -> str:
        state = "running" if self.isActive else "stopped" if self._error is None else self._error.condition
        return f"<Query {self.name}: {state}, {len(self.status)} regions and batches>"

    @property
    def name(self) -> str:
        """The name of the application."""
        return self._home.application

    @property
    def isActive(self) -> bool:
        """Whether the query runs, or restarts after a failure."""
        return not self._ended.is_set()

    @property
    def status(self) -> tuple[RegionStatus, ...]:
        """The regions, upstream first."""
        return self._host.status()

    @property
    def foreign(self) -> list[dict[str, object]]:
        """Foreign records that were found in this home's topics: for each topic their number and one example.

        Falkirk ignores these records.
        """
        claims = [] if self._claim is None else self._claim.foreign_records()
        return [*self._host.foreign, *claims]

    @property
    def hops(self) -> tuple[str, ...]:
        """The internal topics between the regions."""
        return self._host.hops

    @property
    def queries(self) -> tuple[StreamingQuery, ...]:
        """Spark's own queries of the running regions, upstream first; their progress shows Spark's work."""
        return self._host.queries

    def exception(self) -> FalkirkError | None:
        """Return the error that ended the query or, if there is none, of the first processor that stays down."""
        return self._error or next(iter(self._host.down.values()), None)

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Wait until the query ends, at most `timeout` seconds; return whether it has ended.

        Raises: FalkirkError: the error that ended the query; after `stop`, of the first processor that was down. While
            the other processors run on, nothing is raised.
        """
        ended = self._ended.wait(timeout)
        if (error := self.exception() if ended else self._error) is not None:
            raise error
        return ended

    def stop(self) -> None:
        """Stop the query. Published results stay published; the next start with the same home resumes from there."""
        self._stopping.set()
        self._ended.wait()


def start_application(
    app: Application,
    *,
    kafka: Connection | str | None,
    create_topics: bool = False,
    home: str | Path | None = None,
    force: bool = False,
    once: bool = False,
    secure: str | Path | None = None,
) -> Query:
    """Start an application in this process: see `App.start`."""
    connection = broker_of(app, kafka)
    home = None if home is None else local_home(home)
    return run_here(app, connection, home=home, create_topics=create_topics, force=force, once=once, secure=secure)


def run_here(
    app: Application,
    connection: Connection,
    *,
    home: Path | None = None,
    create_topics: bool = False,
    force: bool = False,
    once: bool = False,
    secure: str | Path | None = None,
) -> Query:
    """Run an application in this process and session, and return the running query.

    Args: home: by default the application's. force, once: as in RunSettings. secure: as of `spark_session`.
    """
    if app.pushed:
        raise GATEWAY_MISSING.error(where=next(iter(app.pushed.values())).where, next=next(iter(app.pushed)))
    launch, recorder = Launch(began_s=time.time()), Recorder(is_on=is_recorded())
    session = application_session(app, None, 32, secure=secure)
    if app.data is not None:
        refuse_leased(home or app.home, app.name, app.store, app.data)
    with contextlib.ExitStack() as undo:
        opened = undo.enter_context(open_home(home or app.home, app.name, app.store, data=app.data))
        fail_former(opened.store)
        opened.kill_leftovers(spare_pid=jvm_pid(session), spare_application=session.sparkContext.applicationId)
        await_executors(opened.path, application=session.sparkContext.applicationId)
        counts = KeptCounts(opened.path)
        new = assemble_host(
            app, connection, opened, lambda _: session, create_topics=create_topics, is_once=once, launch=launch,
            failures=counts.failures, recorder=recorder, on_claim=lambda claim: undo.callback(claim.close),
        )  # fmt: skip
        new.claim.await_former()
        query = Query(new.host, opened, counts, new.claim, force=force, recorder=recorder)
        undo.pop_all()  # from now on, the query closes them
        return query
