"""Findings: whether two runs of each processor that is assumed deterministic gave the same results.

The audit walks through the application from its sources, on a sample. Each processor reads the results of the first run
of the processors before it. The audit does not touch the running application, and writes nothing outside.
"""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import DataFrame, SparkSession

from falkirk.declare.application import Application
from falkirk.declare.cut import ByTime
from falkirk.declare.endpoints import Kafka
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.plan.batch import Batch, BatchInput
from falkirk.plan.patterns import with_topics
from falkirk.plan.planner import plan_application
from falkirk.plan.schemas import with_schemas
from falkirk.steps.live.stamped import Frame
from falkirk.steps.static_analysis.properties import Properties
from falkirk.user_tools.determinism_check import rerun, sample

#: The number of differing results that are shown, for each of the two runs.
SHOWN = 3
#: Distinguishes values that are kept for the next epoch from results.
_KEPT = ("", "kept: ")
_OF_JOIN = "it joins live streams, or reads such a join"
_OF_UNION = "it reads several topics, or reads such a region"
_OF_REQUESTS = "it reads requests, of which the command has no sample"
_OPEN = (
    "the audit can't test your declaration: move the part that you declare deterministic into a processor of its own"
)


class AuditOutcome(StrEnum):
    """The audit's result for a processor."""

    SAME = "same"
    DIFFERS = "differs"
    EXPECTED = "differs, as was inferred"
    SKIPPED = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """The result of two runs of a processor, or of a region of several.

    Args: rows: the number of input rows. by_assertion: whether the user declares it deterministic, or a part of it.
        first, again: results that only one of the runs has. reason: why it was not run, or which question stays open.
    """

    name: str
    outcome: AuditOutcome
    rows: int = 0
    by_assertion: bool = False
    first: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    reason: str = ""


def audit(app: Application, connection: Connection, session: SparkSession, rows: int = 1_000) -> list[AuditFinding]:
    """Return a finding for each region and batch of an application.

    Args: rows: how many of the newest rows of each source to read.
    Raises: LogError: a source can't be read. As `plan_application`. All exceptions of the user's functions.
    """
    return _Walk(app, connection, session, rows).findings()


class _Walk:
    def __init__(self, app: Application, connection: Connection, session: SparkSession, rows: int) -> None:
        app = with_schemas(with_topics(app, lambda cluster: Topics(connection).names(cluster), connection), app.home)
        self._plan = plan_application(app, session, "audit")
        again = plan_application(app, session, "audit")
        #: A second plan calls the user's functions of streams again, as the next start does.
        self._regions_again = {region.name: region for region in again.regions}
        self._batches_again = {batch.name: batch for batch in again.batches}
        self._connection, self._rows = connection, rows
        self._session = session.newSession()
        self._found: dict[str, Frame] = {}
        #: The topics of which there is no sample, with the reasons.
        self._skipped: dict[str, str] = {push.topic.topic: _OF_REQUESTS for push in self._plan.push}

    def findings(self) -> list[AuditFinding]:
        found = []
        for region in self._plan.regions:
            reason = _OF_JOIN if region.joined else _OF_UNION if region.others else None
            reason = reason or self._skipped.get(region.source.topic.topic)
            if reason is not None:
                self._skipped[region.output.topic] = reason
                found.append(AuditFinding(name=region.name, outcome=AuditOutcome.SKIPPED, reason=reason))
                continue
            given, calls = self._topic(region.source.topic), (region, self._regions_again[region.name])
            known = [self._plan.properties[name] for name in region.processors]
            runs = [[rerun.of_steps(called.steps(), given, run)] for run, called in enumerate(calls)]
            found.append(self._compare(region.name, known, given.data.count(), runs))
            self._keep(region.output.topic, runs[0][0])
        for batch in self._plan.batches:
            found.append(self._of_batch(batch))
        return found

    def _of_batch(self, batch: Batch) -> AuditFinding:
        if isinstance(batch.cut, ByTime) or batch.sorts is not None:
            return AuditFinding(
                name=batch.name, outcome=AuditOutcome.SKIPPED, reason="its epochs are cut by event time"
            )
        topics = [i.topic.topic for i in batch.inputs if i.topic is not None]
        if (reason := next((self._skipped[topic] for topic in topics if topic in self._skipped), None)) is not None:
            return AuditFinding(name=batch.name, outcome=AuditOutcome.SKIPPED, reason=reason)
        logs = [i for i in batch.inputs if i.topic is None and i.folder is None]
        missing = next((i.name for i in logs if i.log not in self._found), None)
        if missing is not None:
            return AuditFinding(
                name=batch.name, outcome=AuditOutcome.SKIPPED, reason=f"it reads {missing!r}, which was not run"
            )
        given = {i.name: self._input(i) for i in batch.inputs}
        runs = []
        for run, planned in enumerate((batch, self._batches_again[batch.name])):
            self._session.conf.set("spark.sql.shuffle.partitions", str(run + 2))
            runs.append(rerun.rerun_batch(planned, given, self._session, run))
        self._keep(batch.log, runs[0][0])
        return self._compare(batch.name, [batch.properties], max(frame.data.count() for frame in given.values()), runs)

    def _topic(self, topic: Kafka) -> Frame:
        if topic.topic not in self._found:
            self._found[topic.topic] = sample.of_topic(self._session, self._connection, topic, self._rows)
        return self._found[topic.topic]

    def _input(self, given: BatchInput) -> Frame:
        if given.topic is not None:
            return self._topic(given.topic)
        if given.log not in self._found:
            assert given.folder is not None, "an input without results is a folder"
            self._found[given.log] = sample.of_folder(self._session, given.folder, self._rows)
        return self._found[given.log]

    def _keep(self, log: str, results: DataFrame) -> None:
        self._found[log] = sample.of_results(results, self._rows)

    def _compare(self, name: str, known: list[Properties], rows: int, runs: list[list[DataFrame]]) -> AuditFinding:
        """Compare two runs. Args: runs: for each run the results, then the values that it keeps."""
        results = [
            Counter(f"{_KEPT[i > 0]}{row}" for i, rows in enumerate(run) for row in rows.collect()) for run in runs
        ]
        first, again = results[0] - results[1], results[1] - results[0]
        expected, by_assertion = any(k.differs for k in known), any(k.assertions for k in known)
        outcome = (
            AuditOutcome.SAME
            if not first and not again
            else AuditOutcome.EXPECTED
            if expected
            else AuditOutcome.DIFFERS
        )
        is_open = outcome is AuditOutcome.EXPECTED and by_assertion
        return AuditFinding(
            name=name, outcome=outcome, rows=rows, by_assertion=by_assertion,
            first=tuple(list(first)[:SHOWN]), again=tuple(list(again)[:SHOWN]), reason=_OPEN if is_open else "",
        )  # fmt: skip
