"""Epochs inferred as exactly-once are exactly-once: a generated application is interrupted in the session of the tests.

The application and its judges are those of chaos/test_inferred.py, which kills it in the soak.
"""

import itertools
import sys
import threading
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from falkirk.declare.cut import OnArrival
from falkirk.declare.load import load_application
from falkirk.errors import FalkirkError, InternalError
from falkirk.kafka_client.connection import Connection
from falkirk.plan.guarantees import promises_of
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import APPS
from tests.chaos.shapes import Shapes
from tests.chaos.test_inferred import SEEDS, Events, Run, judge_chain, judge_kept, judge_rows, judge_sums
from tests.integration.live import Wire, await_one
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINKS = ("lots", "sums", "kept", "folded", "believed")
#: The events before the interruption, for it, and after it.
PORTIONS = 120, 40, 40
#: How many results each sink that publishes on arrival must have before it, and again after it. Filters drop a fifth.
BEFORE, AFTER = 50, 20


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_inferred_exactly_once_is_caught_and_a_wrong_word_is(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random results are written and not recorded. One declaration is wrong, and the same interruption shows it."""
    shapes, begun = Shapes.of(seed), home.with_name("begun")
    run = Run(broker.bootstrap, tag, SINKS, begun, shapes)
    env = {"SEED": str(seed), "TAG": tag, "BROKER": broker.bootstrap, "HOME": str(home), "KIND": "epochs"}
    env |= {"SINKS": " ".join(SINKS), "BEGUN": str(begun)}
    for name, value in {**shapes.environment(), **{f"DRAWN_{name}": value for name, value in env.items()}}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(OnArrival, "may_be_due", OnArrival.may_be_due)  # the file replaces it
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    app: Any = load_application(APPS / "drawn.py")

    def start(process: str) -> Query:
        monkeypatch.setenv("DRAWN_PROCESS", process)
        return run_here(app, Connection.of(broker.bootstrap), create_topics=True)

    events, numbers = Events(broker.bootstrap, f"events-{tag}", seed=seed), itertools.count()
    before, between, after = PORTIONS

    def send(count: int) -> None:
        """Send events; those of a word are all in one partition."""
        by_word = defaultdict[str, list[Any]](list)
        for number in itertools.islice(numbers, count):
            word, value = events.record(number)
            by_word[str(word)].append(value)
        for word, values in by_word.items():
            wire.send(f"events-{tag}", values, partition=int(word[1:]) % 2, key=word)

    query = start("first")
    try:
        send(before)
        await_one(query, lambda: run.has_more(dict.fromkeys(SINKS, 0), BEFORE), f"{BEFORE} results")
        with monkeypatch.context() as patch:
            interrupt(patch)
            send(between)
            wait_until(lambda: not query.isActive, 60, lambda: f"an epoch of lots: {query.status}")
    finally:
        query.stop()
    assert_interrupted(query.exception())
    query = start("second")
    try:
        published = {name: run.count(name) for name in SINKS}
        send(after)
        await_one(query, lambda: run.has_more(published, AFTER), f"{AFTER} more")
        await_one(query, run.is_complete, f"all results: {run.found()}")
        promises = {promise.sink: promise for promise in promises_of(query._host._plan)}
    finally:
        query.stop()
    judge_rows(run, "lots", run.parts("lots"))
    judge_sums(run)
    judge_kept(run)
    judge_chain(run, "folded")
    assert run.done_again(), "no epoch was computed again: nothing was tested"
    assert {promise.delivery.value for promise in promises.values()} == {"exactly-once"}
    assert {name: [*p.awaits] for name, p in promises.items() if p.awaits} == {"folded-sink": ["folded"]}
    with pytest.raises(AssertionError, match="contradicts"):
        judge_chain(run, "believed")


def interrupt(patch: pytest.MonkeyPatch) -> None:
    """End the application before it records an epoch of `lots`. From then on nothing is recorded, as after a kill."""
    is_over = threading.Event()

    def before(real: Any) -> Any:
        def call(log: EpochLog, *arguments: Any, **options: Any) -> None:
            if log.region == "lots":
                is_over.set()
            if is_over.is_set():
                raise InternalError("CUT_OFF", "an epoch of lots is written, not recorded")
            real(log, *arguments, **options)

        return call

    for name in ("record", "record_state"):
        patch.setattr(EpochLog, name, before(getattr(EpochLog, name)))


def assert_interrupted(error: FalkirkError | None) -> None:
    """Assert that `interrupt` has ended the application."""
    assert isinstance(error, InternalError), error
    assert error.condition == "CUT_OFF"
