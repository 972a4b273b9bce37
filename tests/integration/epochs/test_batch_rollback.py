"""Rollbacks on request with batches: which units roll back together, which epochs become void, and that all results are
right in the end. A unit that need not roll back keeps its state, and its results are neither repeated nor doubled."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from pyspark.sql import functions as F

import falkirk as fk
from falkirk.checker import Guarantee
from falkirk.cli import main
from falkirk.errors import GuaranteeError, HomeError
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.ranges import read_range
from falkirk.recovery.ownership.folder import Home, open_home
from falkirk.recovery.ownership.requests import ask_for_rollback
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from falkirk.user_tools.commands.history.application import OfflineApplication
from falkirk.user_tools.commands.judge_batches import batch_judge
from tests.chaos.harness import Load, judge_counts
from tests.integration.batches import ROWS, application
from tests.integration.epochs.test_batch_failures import assert_walk
from tests.integration.epochs.test_batches import WORDS, Table
from tests.integration.live import Wire, await_one
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: Commands that could not be answered, because the application rolled back or published results meanwhile. While
#: the rollback deletes results of epochs that are compared, their rows are undecided, which counts as faults here.
#: A batch whose saved epochs are all void has no state until it saves the next one.
MEANWHILE = {"verify ROWS_CHANGED", "verify NOT_CHECKABLE", "verify faults", "state STATE_MISSING"}


class Search:
    """The topics and tables of the search engine, and its inputs."""

    def __init__(self, broker: Broker, home: Path, tag: str) -> None:
        self.wire, self.database = Wire(bootstrap=broker.bootstrap, tag=tag), f"sqlite:///{home}.db"
        topics = (self.wire.topic(name) for name in ("events", "queries", "weights", "answers"))
        self.events, self.queries, self.weights, self.answers = topics
        tables = (Table(self.database, f"{name}_{tag}") for name in ("totals", "answered", "walk"))
        self.totals, self.answered, self.walk = tables
        self.sent: Counter[str] = Counter()

    def work(self, query: Query, asked: int, *, void: int = 0) -> None:
        """Send two epochs and a query, and wait until all their results are published. Args: void: the number of
        published epochs of the weights that do not count."""
        words = [WORDS[i % len(WORDS)] for i in range(2 * ROWS)]
        self.sent.update(words)
        self.wire.send(self.events, [{"word": w, "n": i} for i, w in enumerate(words)])
        await_one(query, lambda: self.counted() == dict(self.sent), f"{self.sent}")
        self.wire.send(self.queries, [{"id": asked, "word": "ash"}])
        await_one(query, lambda: {asked} <= self.ids(self.answered.rows()) & self.ids(self.told()), "an answer")
        await_one(query, lambda: len(self.answered.rows()) == len(self.told()), "each answer in both sinks")
        weight = self.sent.total() + void * ROWS
        await_one(query, lambda: sum(r["weight"] for r in self.wire.rows(self.weights)) >= weight, f"{weight}")
        await_one(query, lambda: len(self.walk.rows()) >= self.sent.total() // ROWS - 1, "the walk")

    def counted(self) -> dict[str, int]:
        return {r["word"]: r["total"] for r in self.totals.rows()}

    def told(self) -> list[dict[str, Any]]:
        return self.wire.rows(self.answers)

    def ids(self, rows: list[dict[str, Any]]) -> set[int]:
        return {r["id"] for r in rows}

    def by_epoch(self, topic: str) -> dict[int, list[str]]:
        """Return the rows of a topic, in the order of their texts, by the epoch that they say they are of."""
        found: dict[int, list[str]] = defaultdict(list)
        topics = self.wire.topics
        for record in read_range(
            self.wire.bootstrap, topic, topics.first_positions(topic), topics.end_positions(topic)
        ):
            assert record.header is not None
            found[record.header.stamp.offset].append((record.value or b"").decode())
        return {number: sorted(rows) for number, rows in found.items()}

    def assert_counting(self, home: Home, asked: int) -> None:
        """Assert that valid results occur once, that duplicates are void, and that sinks agree."""
        kept = {}
        for name, topic in (("weights", self.weights), ("answers", self.answers)):
            void = {n for v in home.store.voided_ranges(f"epochs:{name}") for n in range(v.first, v.last_exclusive)}
            found = self.by_epoch(topic)
            assert void, "something was taken back"
            assert void & found.keys(), "something that was taken back is out"
            kept[name] = {n: [json.loads(row) for row in rows] for n, rows in found.items() if n not in void}
        counted: Counter[str] = Counter()
        for rows in kept["weights"].values():
            assert sum(r["weight"] for r in rows) == ROWS, "an epoch is there whole, and once"
            counted.update({r["word"]: r["weight"] for r in rows})
        assert counted == self.sent, "what was taken back was done again once, and nothing else was"
        assert sorted(r["id"] for rows in kept["answers"].values() for r in rows) == list(range(asked))
        assert Counter(map(_text, self.told())) == Counter(map(_text, self.answered.rows())), "the sinks of one agree"
        assert len(self.walk.rows()) == self.sent.total() // ROWS - 1
        assert_walk(self.walk)
        assert home.store.voided_ranges("epochs:walk") == ()


def _text(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True)


def test_a_batch_goes_back_and_those_that_have_read_it_with_it(
    spark: "SparkSession", broker: Broker, home: Path, tag: str
) -> None:
    search = Search(broker, home, tag)
    app, connection = application(tag, home, search.database), Connection.of(broker.bootstrap)

    def run(asked: int, void: int = 0) -> None:
        query = run_here(app, connection)
        try:
            search.work(query, asked, void=void)
        finally:
            query.stop()

    run(0)
    run(1)
    before = {topic: search.by_epoch(topic) for topic in (search.weights, search.answers)}
    steps, answered = search.walk.rows(), search.answered.rows()
    assert Counter(map(_text, search.told())) == Counter(map(_text, answered))
    with open_home(home, app.name) as opened:
        visit = OfflineApplication(app, opened, connection, runs=False, history=app.history)
        checkpoints = [p.checkpoint.number for p in visit.history() if p.region == "weights"]
        asked = visit.asked(f"weights@{checkpoints[-2]}")
        preview = visit.preview(asked)
        moved = {m.region: m for m in preview.moves}
        assert moved.keys() == {"weights", "totals", "answers"}, "walk reads none of it"
        assert preview.stays == ("walk",)
        assert moved["weights"].why == "asked for"
        assert moved["totals"].why == "it has read results of weights that become invalid"
        assert preview.outside, "what is taken back was released"
        newest, older = visit.past_cuts()[:2]
        assert newest.cut.asked == {name: max(p.number for p in r.checkpoints()) for name, r in visit.regions.items()}
        assert (newest.again, dict(newest.outside)) == (0, {}), "all epochs are complete and saved"
        assert older.again > 0
        back = visit.preview(older.cut.asked)
        assert ({m.region: m.to.number for m in back.moves}, back.stays) == (older.cut.asked, ())
        with pytest.raises(GuaranteeError) as refused:
            visit.roll_back(asked, force=False)
        assert refused.value.condition == "CONTRADICTS_RELEASED"
        walked = {c.number: (c.metadata, c.made_at_s) for c in opened.store.checkpoints("walk")}
        visit.roll_back(asked, force=True)
        void = opened.store.voided_ranges("epochs:weights")
        assert [(v.partition, v.first) for v in void] == [(0, checkpoints[-2] + 1)]
        assert visit.garbage().checkpoints.keys() == {"weights", "totals", "walk", "answers"}
        assert {c.number: (c.metadata, c.made_at_s) for c in opened.store.checkpoints("walk")} == walked
    run(2, void=1)
    assert search.counted() == dict(search.sent), "an epoch was lost, or counted twice"
    for topic, rows in before.items():
        after = search.by_epoch(topic)
        assert {number: after[number] for number in rows} == rows, "what was out was sent again"
    assert search.walk.rows()[: len(steps)] == steps
    assert search.answered.rows()[: len(answered)] == answered
    with open_home(home, app.name) as opened:
        search.assert_counting(opened, asked=3)
        still = {c.number: (c.metadata, c.made_at_s) for c in opened.store.checkpoints("walk") if c.number in walked}
        assert still, "some of them are kept"
        assert all(walked[checkpoint] == found for checkpoint, found in still.items()), "a step was drawn again"
        voided = {
            name: sum(v.last_exclusive - v.first for v in opened.store.voided_ranges(f"epochs:{name}"))
            for name in ("weights", "answers")
        }
    with batch_judge(app, None, connection, spark) as judge:
        for name in voided:
            batch = judge.batch_of(app.sinks[name])
            assert batch is not None
            verdict = judge.judge_sink(batch, app.sinks[name])
            assert (verdict.compared.faults, verdict.compared.invalid > 0) == ([], True), verdict
            (invalid,) = [each for each in verdict.judged if "invalid" in each.how]
            assert 0 < len(invalid.epochs) <= voided[name]


@cache
def beside_live(tag: str, home: Path, database: str) -> fk.App:
    """Return the search engine, and a live region that has nothing to do with it."""
    app = application(tag, home, database)
    app.source("clicks", fk.Kafka(f"clicks-{tag}", schema="word STRING NOT NULL, n INT", key="word"))

    @app.stream(fk.Lazy("5 seconds"))
    def counted(clicks: fk.Stream) -> fk.Stream:
        return clicks.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"))

    app.sink("counted", counted, fk.Kafka(f"counts-{tag}", key="word"))
    return app


class Looks:
    """The commands that look at an application, called as a user does while it runs."""

    def __init__(self, search: Search, home: Path, folder: Path) -> None:
        file, tag = folder / "shop.py", search.wire.tag
        arguments = f"{tag!r}, Path({str(home)!r}), {search.database!r}"
        file.write_text(
            f"from pathlib import Path\nfrom {__name__} import beside_live\n\napp = beside_live({arguments})\n"
        )
        self._of_home, self._of_broker = ["--home", str(home)], ["--kafka", search.wire.bootstrap]
        self._commands = [
            ["history", str(file)],
            ["history", str(file), "--unit", "weights"],
            ["peek", str(file), search.weights],
            ["why", str(file), f"{search.weights}/0@0"],
            ["state", str(file), "totals"],
            ["state", str(file), "counted"],
            ["verify", "outputs", str(file), "--sink", "weights", "--sink", "totals"],
            ["gc", str(file)],
        ]
        #: How often each command has ended in which way: without an error, or with the condition.
        self.found: Counter[str] = Counter()

    def look(self, enough: Callable[[], bool] = lambda: False) -> None:
        """Call each command once, until it is enough."""
        for command in self._commands:
            if enough():
                return
            options = [*self._of_home, *([] if command[0] == "state" else self._of_broker)]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("pyspark.sql.SparkSession.stop", lambda session: None)  # the application uses it, too
                done = CliRunner().invoke(main, [*command, *options])
            assert done.exception is None or isinstance(done.exception, SystemExit), (command, done.exception)
            told = re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", done.output) or ["faults"]
            self.found.update(f"{command[0]} {condition}" for condition in (told if done.exit_code else ["fine"]))


def test_a_live_region_beside_batches_that_go_back_goes_on(
    spark: "SparkSession", broker: Broker, home: Path, tag: str, tmp_path: Path
) -> None:
    """Commands look at it while it collects and rolls back. They never fail for a file or a record that is deleted
    meanwhile."""
    search = Search(broker, home, tag)
    clicks, counts = search.wire.topic("clicks"), search.wire.topic("counts")
    app, looks = beside_live(tag, home, search.database), Looks(search, home, tmp_path)
    query = run_here(app, Connection.of(broker.bootstrap))
    store = query._home.store

    def incarnations() -> dict[str, int]:
        return {name: len(store.incarnations(name)) for name in ("counted", "walk", "weights", "totals", "answers")}

    def live() -> Any:
        return next(r for r in query.status if r.name == "counted")

    try:
        with Load(broker.bootstrap, clicks, rate=50.0) as load:
            search.work(query, 0)
            wait_until(lambda: live().last_commit >= 0 and search.wire.count(counts) > 0, 120, f"{query.status}")
            before, was = incarnations(), (live().incarnation, live().restarts, live().suppressed)
            asked = {"weights": store.checkpoints("weights")[-2].number}
            with pytest.raises(HomeError) as refused:
                ask_for_rollback(store, asked, force=False, timeout_s=60)
            assert refused.value.condition == "REQUEST_REFUSED"
            with ThreadPoolExecutor(1) as asking:
                answer = asking.submit(ask_for_rollback, store, asked, force=True, timeout_s=60)
                looks.look()
                while not answer.done():
                    looks.look(answer.done)
            print(f"commands beside the rollback: {dict(looks.found)}")
            assert {found for found in looks.found if not found.endswith(" fine")} <= MEANWHILE
            goes = answer.result().goes
            assert goes.keys() == {"weights", "totals", "answers"}
            last, there = live().last_commit, search.wire.count(counts)
            search.work(query, 1, void=1)
            wait_until(lambda: live().last_commit > last and search.wire.count(counts) > there, 60, f"{query.status}")
        wait_until(lambda: search.wire.count(counts) >= load.sent, 60, f"all counts: {query.status}")
        after = incarnations()
        assert {name: after[name] - before[name] for name in before} == {
            "counted": 0, "walk": 0, "weights": 1, "totals": 1, "answers": 1,
        }  # fmt: skip
        assert (live().incarnation, live().restarts, live().suppressed) == was
        search.assert_counting(query._home, asked=2)
    finally:
        query.stop()
    assert search.counted() == dict(search.sent)
    verdict = judge_counts(broker.bootstrap, clicks, counts)
    assert verdict.guarantee is Guarantee.EXACTLY_ONCE, verdict.anomalies
    assert verdict.counts.observed_outputs == verdict.counts.inputs == load.sent
