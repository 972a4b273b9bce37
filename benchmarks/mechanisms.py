"""Mechanisms: defines the jobs of `python -m benchmarks guarantees` under each mechanism, and checks their results.

    count   writes each record's word in capitals, and counts each word, with one result per record
    enrich  only writes the word in capitals, without state

A record is (word, n, text). The text is some hundred random letters, so that records are larger than states.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from benchmarks.child import Child, serve_application
from falkirk.app import App
from falkirk.checker import (
    AggregateModel,
    Count,
    Guarantee,
    InputRow,
    Latest,
    Verdict,
    check_keyed,
    check_stateless,
    decode_json,
    outputs_of,
    read_topic,
)
from falkirk.declare.cut import ByClock
from falkirk.declare.endpoints import Kafka
from falkirk.declare.grouped import latest_value
from falkirk.declare.policy import Acknowledged, Delivery, Eager, Ephemeral, Lazy, LogSends, Policy, Snapshots
from falkirk.declare.stream import Stream, source_node
from falkirk.steps.batch.functions import stateful

JOBS = ("count", "enrich")
#: The mechanisms of streams, with the policy for an interval.
LIVE: dict[str, Callable[[float], Policy]] = {
    "determinism": Lazy,
    "snapshots": Snapshots,
    "strong_productions": LogSends,
    "acknowledgements": Acknowledged,
    "micro_batches": lambda interval_s: Eager(),
}
MECHANISMS = (*LIVE, "log_sends")
SCHEMA = "word STRING, n LONG, text STRING"
_STATE, _RETURNS = "version LONG", "word STRING, version LONG, n LONG, loud STRING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A job under a mechanism, between two topics, in a home.

    Args: interval_s: between checkpoints of live regions. every_s: between epochs of batches.
    """

    mechanism: str
    job: str
    bootstrap: str
    source: str
    sink: str
    home: Path
    interval_s: float
    every_s: float

    @property
    def promise(self) -> Delivery:
        """The delivery that its sink declares."""
        return Delivery.AT_LEAST_ONCE if self.mechanism == "acknowledgements" else Delivery.EXACTLY_ONCE

    def application(self) -> App:
        """Return the application."""
        app = App("bench-guarantees", home=self.home)
        app.sources["records"] = source_node("records", Kafka(self.source, schema=SCHEMA, key="word"))
        if self.mechanism == "log_sends":
            app.add_processor(
                "result", _counted_in_epochs if self.job == "count" else _enriched_in_epochs, reads=("records",),
                policy=LogSends(), cut=ByClock(every_s=self.every_s), stamped={"records": "stamp"},
            )  # fmt: skip
        else:
            self._add_streams(app, LIVE[self.mechanism](self.interval_s))
        app.sink("result", "result", Kafka(self.sink, key="word"), delivery=self.promise)
        return app

    def _add_streams(self, app: App, policy: Policy) -> None:
        if isinstance(policy, Eager):
            body = _enriched if self.job == "enrich" else _counted_in_python
            app.add_processor("result", body, reads=("records",), policy=policy, engine="micro-batch")
            return
        if self.job == "enrich":
            app.add_processor("result", _enriched, reads=("records",), policy=policy)
            return
        # An acknowledged processor has no state. So a second processor counts, and saves its own checkpoints.
        first, second = (policy, Lazy(self.interval_s)) if isinstance(policy, Acknowledged) else (Ephemeral(), policy)
        app.add_processor("enriched", _enriched, reads=("records",), policy=first)
        app.add_processor("result", _counted, reads=("enriched",), policy=second)


class RunningSubject(Child):
    """A started subject. Its account is the number of results that it computed again and suppressed."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(serve_application, subject, f"{subject.job}, {subject.mechanism}")


def judge(subject: Subject) -> tuple[Verdict, int]:
    """Return the checker's verdict on a subject's input and output, and the number of input bytes."""
    config = {"bootstrap.servers": subject.bootstrap}
    inputs, processed = [], 0
    for record in read_topic(config, subject.source):
        row = dict(decode_json(record.value))
        processed += len(record.value or b"") + len(record.key or b"")
        inputs.append(InputRow(key=row["word"], place=record.place, row={**row, "loud": str(row["word"]).upper()}))
    outputs = outputs_of(read_topic(config, subject.sink))
    if subject.job == "enrich":
        return check_stateless(inputs, outputs), processed
    model = AggregateModel(["word"], {"version": Count(), "n": Latest("n"), "loud": Latest("loud")})
    return check_keyed(inputs, outputs, model), processed


def is_expected(mechanism: str, verdict: Verdict) -> bool:
    """Return whether the verdict is exactly what a mechanism promises."""
    exactly_once = verdict.satisfies(Guarantee.EXACTLY_ONCE)
    if mechanism != "acknowledgements":
        return exactly_once
    return verdict.satisfies(Guarantee.AT_LEAST_ONCE) and not exactly_once  # without state, results are only repeated


def _enriched(records: Stream) -> Stream:
    return records.withColumn("loud", F.upper("word"))


def _counted(enriched: Stream) -> Stream:
    return enriched.groupBy("word").agg(F.count("*").alias("version"), latest_value("n"), latest_value("loud"))


def _counted_in_python(records: Stream) -> Stream:
    return _enriched(records).stateful(_count, key="word", state=_STATE, returns=_RETURNS)


def _enriched_in_epochs(records: DataFrame) -> DataFrame:
    return records.withColumn("loud", F.upper("word")).drop("stamp")


def _counted_in_epochs(records: DataFrame) -> DataFrame:
    return stateful(records.withColumn("loud", F.upper("word")), _count, key="word", state=_STATE, returns=_RETURNS)


def _count(row: Row, state: Row | None) -> tuple[dict[str, Any], dict[str, Any]]:
    version = 1 if state is None else state.version + 1
    return {"word": row.word, "version": version, "n": row.n, "loud": row.loud}, {"version": version}
