"""`falkirk verify outputs` on a live region that has run: it passes the run, and names each fault that is planted."""

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import falkirk as fk
from falkirk.checker import Guarantee
from falkirk.kafka_client.connection import Connection
from falkirk.user_tools.commands.judge import LiveJudge
from tests.integration.live import Wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def see_judged(
    spark: "SparkSession",
    app: fk.App,
    name: str,
    wire: Wire,
    more: Callable[[], object],
    *,
    late: int,
    always: bool = False,
) -> None:
    """See that a sink is judged right. Then plant a duplicate and a contradiction, and send further input.

    Args: more: sends input, which gives a result and some late records. Nobody processes it, so both are lost. late:
        the number of these late records. always: it judges in each run. Two judgements of 300 records cost 7 to 20 s
        of CPU time, so other tests do it with FALKIRK_STRIKES alone.
    """
    if not always and "FALKIRK_STRIKES" not in os.environ:
        return
    judge, sink = LiveJudge(app, Connection.of(wire.bootstrap), spark), app.sinks[name]
    right = judge.judge_sink(sink)
    assert right.satisfies(Guarantee.EXACTLY_ONCE), (right.results.anomalies, right.letters and right.letters.anomalies)
    assert right.letters is not None
    assert min(right.results.counts.observed_outputs, right.letters.counts.observed_outputs) > 0
    topic = sink.topic.topic
    first, *_, last = wire.records(topic)
    wire.send(topic, [first.value], first.partition, first.key)
    wire.send(topic, [changed(json.loads(last.value))], last.partition, last.key)
    more()
    wrong = judge.judge_sink(sink)
    counts = wrong.results.counts
    assert wrong.results.guarantee is Guarantee.BROKEN
    assert (counts.duplicates, counts.unexplained) == (1, 1), wrong.results.anomalies
    assert counts.lost >= 1
    assert wrong.letters is not None
    assert wrong.letters.counts.lost == late
    assert wrong.letters.guarantee is (Guarantee.AT_MOST_ONCE if late else Guarantee.EXACTLY_ONCE)


def changed(values: dict[str, Any]) -> dict[str, Any]:
    """Return a result with one changed number, or a changed text if it has none."""
    for kind, more in ((int, 1_000_000), (str, "!")):
        for name, value in reversed(values.items()):
            if type(value) is kind:
                return {**values, name: value + more}
    raise AssertionError(f"{values} has no number and no text")
