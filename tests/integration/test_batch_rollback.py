"""Going back by hand with batches: who goes with whom, what is voided, and that all comes right again."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from falkirk.coordinator.home import open_home
from falkirk.coordinator.visit import Visit
from falkirk.errors import GuaranteeError
from falkirk.local.broker import Broker
from falkirk.logs.connection import Connection
from falkirk.query import run_here
from tests.integration.batches import ROWS, application
from tests.integration.live import Wire
from tests.integration.test_batches import WORDS, Table
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_batch_goes_back_and_those_that_have_read_it_with_it(
    spark: "SparkSession", broker: Broker, home: Path, tag: str
) -> None:
    wire, database = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db"
    events, queries = wire.topic("events"), wire.topic("queries")
    wire.topic("weights"), wire.topic("answers")
    totals, answered = Table(database, f"totals_{tag}"), Table(database, f"answered_{tag}")
    app, connection = application(tag, home, database), Connection.of(broker.bootstrap)
    sent: Counter[str] = Counter()

    def work(asked: int) -> None:
        words = [WORDS[i % len(WORDS)] for i in range(2 * ROWS)]
        sent.update(words)
        wire.send(events, [{"word": w, "n": i} for i, w in enumerate(words)])
        query = run_here(app, connection)
        try:
            wait_until(
                lambda: {r["word"]: r["total"] for r in totals.rows()} == dict(sent), 120, f"{sent}: {query.status}"
            )
            wire.send(queries, [{"id": asked, "word": "ash"}])
            wait_until(lambda: len(answered.rows()) > asked, 120, f"an answer: {query.status}")
        finally:
            query.stop()

    work(0)
    work(1)
    with open_home(home, app.name) as opened:
        visit = Visit(app, opened, connection, runs=False, history=app.history)
        points = [p.point.number for p in visit.history() if p.region == "weights"]
        asked = visit.asked(f"weights@{points[-2]}")
        preview = visit.preview(asked)
        moved = {m.region: m for m in preview.moves}
        assert moved.keys() == {"weights", "totals", "answers"}, "walk reads none of it"
        assert preview.stays == ("walk",)
        assert moved["weights"].why == "asked for"
        assert moved["totals"].why == "it has read what weights takes back"
        assert preview.outside, "what is taken back was released"
        with pytest.raises(GuaranteeError) as refused:
            visit.roll_back(asked, force=False)
        assert refused.value.condition == "CONTRADICTS_RELEASED"
        visit.roll_back(asked, force=True)
        void = opened.store.voided_ranges("epochs:weights")
        assert [(v.partition, v.first) for v in void] == [(0, points[-2] + 1)]
        assert visit.garbage().checkpoints.keys() == {"weights", "totals", "walk", "answers"}
    work(2)
    assert {r["word"]: r["total"] for r in totals.rows()} == dict(sent), "an epoch was lost, or counted twice"
