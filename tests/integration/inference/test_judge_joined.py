"""`falkirk verify outputs` finds the results of two joins of three streams right, and each planted fault in them.

No application runs: a model in plain Python writes the topics.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import falkirk as fk
from falkirk.checker import Guarantee
from falkirk.kafka_client.connection import Connection
from falkirk.user_tools.commands.judge import LiveJudge, LiveVerdict
from tests import thrice_joined as model
from tests import timed_streams
from tests.integration.live import Wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
RECORDS, LONG_S = 120, 10_000
COLUMNS = ("n", "clicked", "right_n")
ALL_KINDS = [pytest.param(*kinds, marks=[] if kinds == model.KINDS[0] else SOAK) for kinds in model.KINDS]
Results = Sequence[model.Result]


class Judged:
    """An application with two joins. Args: is_ended: its inputs have last records, which move time far ahead."""

    def __init__(self, wire: Wire, home: Path, spark: "SparkSession", first: str, second: str, *, is_ended: bool):
        self._wire, self._kinds = wire, (first, second)
        self._app = fk.App("thrice", home=home)
        self.records = model.drawn(5, RECORDS, ids=12)
        for name, partitions in self.records.items():
            topic = wire.topic(name)
            for partition, mine in partitions.items():
                mine += timed_streams.ends(RECORDS)[partition] if is_ended else []
                wire.send(topic, mine, partition)
            self._app.source(name, fk.Kafka(topic, schema=model.SCHEMA))
        steps = model.body(first, second)

        def numbers(shown: fk.Stream, clicks: fk.Stream, sold: fk.Stream) -> Any:
            return steps(shown, clicks, sold).select(*COLUMNS)

        self._app.add_processor("seen", numbers, reads=(*model.DELAYS_S,), policy=fk.Lazy("5 seconds"), engine="live")
        self._judge = LiveJudge(self._with_sink("right"), Connection.of(wire.bootstrap), spark)

    def _with_sink(self, name: str) -> fk.App:
        self._app.sink(name, "seen", fk.Kafka(self._wire.topic(name, 1)))
        return self._app

    def judge(self, results: Results) -> LiveVerdict:
        """Return the verdict on these results."""
        self._wire.send(f"right-{self._wire.tag}", [dict(zip(COLUMNS, each, strict=True)) for each in results])
        return self._judge.judge_sink(self._app.sinks["right"])

    def due(self) -> model.Due:
        return model.expected(self.records, *self._kinds)


@pytest.mark.parametrize(("first", "second"), ALL_KINDS)
def test_each_planted_fault_is_found(
    wire: Wire, home: Path, spark: "SparkSession", first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost result, a doubled one, and one with a record that was late."""
    judged = Judged(wire, home, spark, first, second, is_ended=True)
    due = judged.due()
    whole = [each for each in due.results if None not in each]
    lost, doubled = whole[3], whole[7]
    with monkeypatch.context() as patched:
        patched.setattr(model, "DELAYS_S", dict.fromkeys(model.DELAYS_S, LONG_S))
        late = next(each for each in judged.due().results if None not in each and each not in due.results)
    verdict = judged.judge([*(each for each in due.results if each != lost), doubled, late])
    counts = verdict.results.counts
    assert verdict.results.guarantee is Guarantee.BROKEN
    assert (counts.lost, counts.duplicates, counts.unexplained) == (1, 1, 1), verdict.results.anomalies
    assert counts.expected_outputs == len(due.results) > 20
    assert verdict.letters is not None
    assert verdict.letters.counts.lost == len(due.letters)


@SOAK
@pytest.mark.parametrize("is_ended", [True, False])
@pytest.mark.parametrize(("first", "second"), model.KINDS)
def test_the_results_of_the_model_are_right(
    wire: Wire, home: Path, spark: "SparkSession", first: str, second: str, is_ended: bool
) -> None:
    """While sources may still bring partners, a result without one is not due."""
    judged = Judged(wire, home, spark, first, second, is_ended=is_ended)
    due = judged.due().results
    verdict = judged.judge(due).results
    early = verdict.counts.unexplained
    assert (verdict.counts.lost, verdict.counts.duplicates) == (0, 0), verdict.anomalies
    assert early == 0 if is_ended else 0 < early < len(due), verdict.anomalies
