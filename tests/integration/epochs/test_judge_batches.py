"""`falkirk verify outputs` on batches: it passes a real run that is right, and names each fault that is planted.

One run serves all cases. Faults are planted into copies of its places.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sql
from click.testing import CliRunner

import falkirk as fk
from falkirk.checker import EpochFault, EpochsVerdict, Guarantee, TopicRecord
from falkirk.kafka_client.connection import Connection
from falkirk.plan.shape import read_shape
from falkirk.recovery.decision_store import ForgottenEpochs
from falkirk.runtime.spark.context import Storage
from falkirk.runtime.spark.epochs.jobs import EpochJobs
from falkirk.runtime.supervision.query import Query, run_here
from falkirk.spark_setup.broker import Broker
from falkirk.theory.ids import EpochNumber, LogId, Offset
from falkirk.user_tools.commands import judge_batches, judge_places
from falkirk.user_tools.commands.epoch_records import epoch_records
from falkirk.user_tools.commands.judge_batches import BatchJudge, batch_judge
from falkirk.user_tools.commands.origins import Origins
from falkirk.user_tools.commands.records import RecordPlace, TopicRecords
from falkirk.user_tools.commands.verify import outputs
from falkirk.user_tools.commands.written import writers_of
from tests.integration.explained import explained
from tests.integration.judged_batches import EPOCHS, FORMATS, ROWS, WORDS, application
from tests.integration.live import Wire, await_one
from tests.support import on_disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Run:
    """A run that has ended, and its judge."""

    app: fk.App
    judge: BatchJudge
    wire: Wire
    database: str
    folder: Path

    def verdict(self, name: str, to: Any = None) -> EpochsVerdict:
        """Judge a sink. Args: to: a copy of its place."""
        sink = self.app.sinks[name]
        batch = self.judge.batch_of(sink)
        assert batch is not None
        return self.judge.judge_sink(batch, sink if to is None else replace(sink, to=to))

    def folder_copy(self, kind: str, name: str) -> Path:
        copy = self.folder / f"{kind}-{name}"
        shutil.copytree(self.app.sinks[kind].to.path, copy)  # type: ignore[union-attr]
        return copy


@pytest.fixture(scope="module")
def run(spark: "SparkSession", broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("judged")
    home, tag, database = folder / "home", folder.name, f"sqlite:///{folder}/out.db"
    wire, connection = Wire(bootstrap=broker.bootstrap, tag=tag), Connection.of(broker.bootstrap)
    events, *_ = (wire.topic(name) for name in ("events", "weights", "odd", "totals", "runs"))
    app = application(tag, home, database)
    query = run_here(app, connection)
    try:
        for number in range(EPOCHS):
            rows = [{"word": WORDS[i % 4], "n": 100 * number + i} for i in range(ROWS)]
            wire.send(events, [b"no json", *rows][number > 0 :][:ROWS], partition=number % 2)
            await_one(query, partial(_is_out, query, number), f"epoch {number}")
    finally:
        query.stop()
    with ExitStack() as stack:
        judge = stack.enter_context(batch_judge(app, None, connection, spark))
        yield Run(app=app, judge=judge, wire=wire, database=database, folder=folder)


def _is_out(query: Query, number: int) -> bool:
    """Return whether the home knows that an epoch of each batch is published."""
    released = [
        query._home.store.releases(f"sinks of {name}") for name in ("weights", "totals", "drawn", "odd", "runs")
    ]
    return all(r and r[0].released_exclusive > number for r in released)


def test_a_clean_run_is_clean(run: Run) -> None:
    rows = dict.fromkeys(("topic", "table", *FORMATS), 4 * EPOCHS)
    for name, count in {**rows, "latest": 4}.items():
        verdict = run.verdict(name)
        assert verdict.compared.faults == [], name
        assert verdict.guarantee is Guarantee.EXACTLY_ONCE, verdict
        assert verdict.compared.due == verdict.compared.found == count
    assert [batch.name for batch in run.judge.logs] == ["weights"]
    assert run.judge.judge_log(run.judge.logs[0]).guarantee is Guarantee.EXACTLY_ONCE


def test_a_result_names_its_epoch_and_the_records_that_it_is_made_of(run: Run) -> None:
    home = run.judge._context.home
    shape, place = read_shape(home.path), Storage(home=home, connection=Connection.of(run.wire.bootstrap))
    assert shape is not None
    records = TopicRecords(place, by_epochs=epoch_records(run.app, writers_of(run.app, shape), place))
    topics = [run.app.sinks["topic"].topic.log, LogId(f"epochs-{run.wire.tag}")]
    results = [(topic, result) for topic in topics for result in run.wire.records(topic)]
    assert len(results) == 2 * 4 * EPOCHS
    for topic, result in results:
        at = RecordPlace(topic=topic, partition=result.partition, offset=Offset(result.offset))
        row = json.loads(result.value or b"")
        origin = Origins(run.app, shape, place, records, limit=ROWS, look=ROWS).explain(at)["origin"]
        assert (origin["kind"], origin["unit"], origin["epoch"]["rows"]) == ("batch", "weights", 4)
        (read,) = origin["reads"]
        assert (read["log"], read["count"], read["alike"]) == (f"events-{run.wire.tag}", ROWS, {"word": row["word"]})
        rows = [json.loads(each["record"]["value"]) for each in read["records"]]
        assert {r["word"] for r in rows} == {row["word"]}
        assert sum(r["n"] for r in rows) == row["n"]


def test_a_result_of_an_epoch_is_computed_again_to_find_its_records(run: Run, spark: "SparkSession") -> None:
    """Before, a list had the records of the sink's key: also those that a filter drops, and all if it is computed."""

    def made(name: str, choose: Callable[[list[TopicRecord]], list[TopicRecord]], look: int = 2 * ROWS) -> Any:
        topic = f"{name}-{run.wire.tag}"
        return explained(run.app, run.wire.bootstrap, spark, topic, choose(run.wire.records(topic)), look=look)

    for row, rows, found, text in made("odd", lambda results: [results[0], results[-1]]):
        assert {(each["word"].upper(), each["n"] % 2) for each in rows} == {(row["word"], 1)}
        assert (len(rows), sum(each["n"] for each in rows)) == (row["rows"], row["n"])
        assert (found["count"], found["rows"], found["values"], found["deleted"]) == (
            len(rows),
            row["rows"],
            [row["word"]],
            0,
        )
        assert "computed again from these records, the result is the same" in text
    for name in ("totals", "runs"):
        for row, rows, _, _ in made(name, lambda results: results[-1:]):
            assert {each["word"] for each in rows} == {row["word"]}
            assert sum(each["n"] for each in rows) == row["total"]
    # Earlier records are beyond the limit, so the epoch is computed after the saved state.
    ((_, rows, found, text),) = made("runs", lambda results: [max(results, key=_total)], ROWS)
    assert min(each["n"] for each in rows) >= 100
    assert found["note"] == "and of the state after epoch 0"


def _total(result: TopicRecord) -> int:
    return int(json.loads(result.value or b"")["total"])


def kinds(verdict: EpochsVerdict) -> dict[str, int]:
    """Return how many rows have each kind of fault."""
    return {str(kind): rows for kind, rows in verdict.compared.counts.items() if rows}


def named(verdict: EpochsVerdict, kind: EpochFault) -> Any:
    """Return the only fault of a kind."""
    (found,) = [fault for fault in verdict.compared.faults if fault.kind is kind]
    return found


def test_faults_of_a_topic(run: Run) -> None:
    records = run.wire.records(run.app.sinks["topic"].topic.topic)
    rows = [(r.partition, json.loads(r.value or b"")) for r in records]
    second = [row for row in rows if 300 <= row[1]["n"] < 600]
    assert len(second) == 4

    def judged(name: str, sent: list[tuple[int, dict[str, Any]]]) -> EpochsVerdict:
        topic = run.wire.topic(name)
        for partition in (0, 1):
            run.wire.send(topic, [row for at, row in sent if at == partition], partition=partition)
        return run.verdict("topic", fk.Kafka(topic, key="word"))

    (lost, changed), (at, foreign) = (rows[1], rows[-1]), rows[0]
    bad = {**changed[1], "n": -1}, {**foreign, "word": "yew", "n": -2, "mean": 0, "at": None, "of": []}
    sent = [rows[0], *[r for r in rows if r not in (lost, changed)], (changed[0], bad[0]), (at, bad[1])]
    verdict = judged("bad", sent)
    assert kinds(verdict) == {"changed": 1, "duplicate": 1, "foreign": 1, "missing": 1}
    assert verdict.guarantee is Guarantee.BROKEN
    assert named(verdict, EpochFault.CHANGED).expected["n"] == changed[1]["n"]
    assert named(verdict, EpochFault.CHANGED).explanation.endswith("in n")
    assert named(verdict, EpochFault.MISSING).expected["n"] == lost[1]["n"]
    assert named(verdict, EpochFault.DUPLICATE).found["n"] == foreign["n"]
    assert named(verdict, EpochFault.FOREIGN).found["word"] == "yew"

    verdict = judged("again", [*rows, *second])
    assert (kinds(verdict), named(verdict, EpochFault.DUPLICATE).epoch) == ({"duplicate": 4}, 1)
    assert "epoch 1 is there twice" in named(verdict, EpochFault.DUPLICATE).explanation
    assert verdict.guarantee is Guarantee.REPEATED_DELIVERY
    verdict = judged("less", [row for row in rows if row not in second])
    assert (kinds(verdict), named(verdict, EpochFault.MISSING).epoch) == ({"missing": 4}, 1)
    assert verdict.guarantee is Guarantee.AT_MOST_ONCE
    late = kinds(judged("late", [*second, *[row for row in rows if row not in second]]))
    assert late == {"out of order": 4}


def test_faults_of_a_compacted_topic(run: Run) -> None:
    """It was written as if compaction had run. Nobody can judge the rows that this deletes."""
    records = run.wire.records(f"epochs-{run.wire.tag}")
    verdict = run.verdict("epochs")
    assert (verdict.compared.faults, verdict.compared.due, verdict.compared.found) == ([], 8, 8)
    assert verdict.guarantee is Guarantee.UNDECIDED
    assert verdict.judged[-1].how == "judged as far as compaction permits"
    last = {json.loads(r.value or b"")["word"]: r for r in records}

    def judged(name: str, kept: Sequence[TopicRecord]) -> EpochsVerdict:
        topic = run.wire.topic(name, cleanup_policy="compact")
        for r in kept:
            run.wire.send(topic, [r.value], partition=r.partition, key=r.key)
        return run.verdict("epochs", fk.EpochTopic(topic, key="word"))

    verdict = judged("compacted", list(last.values()))
    assert (kinds(verdict), verdict.compared.found) == ({}, 4)
    assert verdict.compared.notes[0].startswith("4 due rows are not there. Compaction deletes a row")
    assert verdict.satisfies(Guarantee.EXACTLY_ONCE, partial=True)
    assert not verdict.satisfies(Guarantee.EXACTLY_ONCE)
    older = next(r for r in records if r.key == b"ash")
    verdict = judged("faults", [older, *(r for r in last.values() if r.key != b"ash"), last["dill"]])
    assert kinds(verdict) == {"missing": 1, "duplicate": 1}
    assert named(verdict, EpochFault.MISSING).expected["word"] == "ash"


def test_faults_of_a_table(run: Run) -> None:
    def judged(name: str, *statements: str) -> EpochsVerdict:
        with sql.create_engine(run.database).begin() as db:
            db.execute(sql.text(f"CREATE TABLE {name} AS SELECT * FROM weights"))
            for statement in statements:
                db.execute(sql.text(statement.format(t=name)))
        return run.verdict("table", fk.Sql(run.database, name))

    rows = "word = 'ash' AND n BETWEEN {} AND {}"
    verdict = judged(
        "bad",
        f"INSERT INTO {{t}} SELECT * FROM weights WHERE {rows.format(0, 299)}",
        f"DELETE FROM {{t}} WHERE {rows.format(300, 900)}",
        "UPDATE {t} SET mean = '0.00' WHERE word = 'birch' AND n >= 300",
        "INSERT INTO {t} (word, n) VALUES ('yew', 1)",
    )
    assert kinds(verdict) == {"changed": 1, "duplicate": 1, "foreign": 1, "missing": 1}
    assert [named(verdict, EpochFault(k)).epoch for k in ("duplicate", "missing", "changed")] == [0, 1, 1]
    assert named(verdict, EpochFault.CHANGED).explanation.endswith("in mean")
    verdict = judged("again", "INSERT INTO {t} SELECT * FROM weights WHERE n >= 300")
    assert (kinds(verdict), named(verdict, EpochFault.DUPLICATE).epoch) == ({"duplicate": 4}, 1)


def test_faults_of_a_table_with_a_key(run: Run) -> None:
    with sql.create_engine(run.database).begin() as db:
        for statement in (
            "CREATE TABLE latest AS SELECT * FROM totals WHERE word <> 'ash'",
            "UPDATE latest SET total = -1 WHERE word = 'birch'",
            "UPDATE latest SET total = (SELECT n FROM weights WHERE word = 'cedar' AND n < 300) WHERE word = 'cedar'",
            "INSERT INTO latest SELECT 'yew', 1 UNION ALL SELECT * FROM totals WHERE word = 'dill'",
        ):
            db.execute(sql.text(statement))
    verdict = run.verdict("latest", fk.Sql(run.database, "latest", key="word"))
    assert kinds(verdict) == {"changed": 1, "duplicate": 1, "foreign": 1, "missing": 2}
    assert "row of an earlier epoch" in " ".join(f.explanation for f in verdict.compared.faults)


def _other(line: str) -> str:
    """Return a row with another word."""
    for word in WORDS:
        line = line.replace(word, "yew")
    return line


#: Of each epoch: a row twice; a row less, and one with another word.
CHANGES: tuple["Callable[[list[str]], list[str]]", ...] = (
    lambda rows: [rows[0], *rows],
    lambda rows: [_other(rows[0]), *rows[2:]],
)


@pytest.mark.parametrize("kind", FORMATS)
def test_faults_of_a_folder(run: Run, kind: str) -> None:
    folder = run.folder_copy(kind, "bad")
    shutil.copytree(folder / "epoch=0000000000", folder / "epoch=0000000099")
    for number, change in enumerate(CHANGES):
        (file, *_) = [f for f in (folder / f"epoch={number:010d}").glob("part-*") if f.stat().st_size > 40]
        lines = file.read_text().splitlines()
        header, rows = (lines[:1], lines[1:]) if kind == "csv" else ([], lines)
        file.write_text("\n".join([*header, *change(rows)]) + "\n")
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    (folder / f"stray.{kind}").write_text("{}")
    verdict = run.verdict(kind, fk.Files(str(folder), kind))  # type: ignore[arg-type]  # one of them
    assert kinds(verdict) == {"changed": 1, "duplicate": 5, "foreign": 1, "missing": 1}
    assert "in the place of epoch 99" in " ".join(f.explanation for f in verdict.compared.faults)
    assert named(verdict, EpochFault.MISSING).epoch == 1
    assert named(verdict, EpochFault.CHANGED).epoch == 1
    assert named(verdict, EpochFault.FOREIGN).places == (f"stray.{kind}",)
    shutil.rmtree(folder / "epoch=0000000001")
    assert "epoch 1 is missing" in str(run.verdict(kind, fk.Files(str(folder), kind)))  # type: ignore[arg-type]


def test_results_that_differ_each_time_are_compared_with_the_log_or_counted(run: Run) -> None:
    verdict = run.verdict("drawn")
    assert (verdict.guarantee, verdict.compared.faults) == (Guarantee.UNDECIDED, [])
    assert not verdict.satisfies(Guarantee.EXACTLY_ONCE)
    assert verdict.satisfies(Guarantee.EXACTLY_ONCE, partial=True)
    (judged,) = verdict.judged
    assert (judged.how, judged.epochs) == ("compared with the log", (0, 1))
    assert "may differ each time" in judged.reason

    folder = Path(run.app.sinks["drawn"].to.path)  # type: ignore[union-attr]
    copy = run.folder_copy("drawn", "bad")
    shutil.rmtree(copy / "epoch=0000000001")
    shutil.copytree(folder / "epoch=0000000000", copy / "epoch=0000000001")
    verdict = run.verdict("drawn", fk.Files(str(copy)))
    assert kinds(verdict) == {"duplicate": 11, "missing": 12}  # one record did not fit
    assert {fault.epoch for fault in verdict.compared.faults} == {0, 1}


@contextmanager
def _deleted_at(run: Run, name: str, module: object, function: str) -> Iterator[None]:
    """Delete the results of a batch's first epoch when a function is first called. Spark has listed their files."""
    log = run.judge._done[name].log.real
    epoch = log.epochs()[0]
    folder, before = on_disk(log.path(str(epoch.folder))), getattr(module, function)
    kept = run.folder / f"kept-{folder.name}"
    shutil.copytree(folder, kept)

    def delete(*arguments: Any, **options: Any) -> Any:
        found = before(*arguments, **options) if module is not EpochJobs else None
        if folder.exists():
            log.drop(folder.name)
        return before(*arguments, **options) if module is EpochJobs else found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, function, delete)
        yield
        assert not folder.exists()
    shutil.move(kept, folder)


def test_results_that_are_deleted_while_spark_reads_them_leave_the_rest_checked(run: Run) -> None:
    """Before, nothing of the output was checked: Spark's error ended the command."""
    run.verdict("drawn")
    with _deleted_at(run, "drawn", judge_batches, "epoch_rows"):
        verdict = run.verdict("drawn")
    assert verdict.compared.faults == []
    assert {j.epochs: j.how for j in verdict.judged} == {(0,): "counted", (1,): "compared with the log"}

    (weights,) = run.judge.logs
    run.judge.judge_log(weights)
    with _deleted_at(run, "weights", judge_places, "epoch_rows"):
        verdict = run.judge.judge_log(weights)
    assert verdict.guarantee is Guarantee.EXACTLY_ONCE, verdict
    assert [j.epochs for j in verdict.judged] == [(1,)]


def test_results_that_are_deleted_while_another_batch_reads_them_are_computed_again(run: Run) -> None:
    """Before, the epochs of the other batch were not computed again, because a file was missing."""
    run.verdict("latest")
    totals = run.judge.batch_of(run.app.sinks["latest"])
    assert totals is not None
    with _deleted_at(run, "weights", EpochJobs, "write"):
        found = run.judge._recomputation.of(totals)
    assert (sorted(found.results), found.reasons) == ([0, 1], {})


def test_deleted_records_and_inputs_are_told_and_not_passed(run: Run, tmp_path: Path) -> None:
    store = run.judge._context.home.store
    run.wire.topics.delete_below(f"events-{run.wire.tag}", {0: 6})
    store.forget_epochs("epoch", "weights", EpochNumber(1))
    assert store.forgotten_epochs("weights") == ForgottenEpochs(first=0, below=1, epochs=1, rows=4)
    with sql.create_engine(run.database).begin() as db:
        db.execute(sql.text("CREATE TABLE before AS SELECT * FROM weights"))
        db.execute(sql.text("DELETE FROM weights WHERE n < 300 AND word = 'ash'"))
    file = tmp_path / "judged.py"
    arguments = f"{run.wire.tag!r}, Path({str(run.app.home)!r}), {run.database!r}"
    imported = f"from pathlib import Path\nfrom {application.__module__} import application"
    file.write_text(f"{imported}\n\napp = application({arguments})\n")
    wanted = [option for name in ("topic", "table", "latest") for option in ("--sink", name)]
    options = [str(file), "--kafka", run.wire.bootstrap, "--json", *wanted]
    said = CliRunner().invoke(outputs, options, catch_exceptions=False)
    assert said.exit_code == 1
    found, text = {}, said.output
    while text.strip():
        each, end = json.JSONDecoder().raw_decode(text.lstrip())
        found[each["sink"]], text = each, text.lstrip()[end:]

    def ways(name: str) -> dict[str, Any]:
        return {way["how"]: (way["ranges"], way["reason"]) for way in found[name]["epochs"]}

    assert found["topic"]["guarantee"] == "undecided"
    gone = ([[0, 0]], "the home has deleted their records")
    assert ways("topic") == {"computed again": ([[1, 1]], ""), "only counted, all together": gone}
    assert (found["topic"]["rows"], found["topic"]["faults"]) == ({"due": 8, "found": 8, "invalid": 0}, [])
    assert found["table"]["counts"]["missing"] == 1
    assert "have 4 rows by record, and 3 are there" in found["table"]["faults"][0]["explanation"]
    assert found["latest"]["guarantee"] == "undecided"
    assert ways("latest")["computed again"] == ([[1, 1]], "")
    assert "epochs of 'weights' that it has read were deleted" in ways("latest")["compared with the log"][1]
