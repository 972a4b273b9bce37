"""The failures that stop one processor alone, the processors that remain, and the view of users."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError

import falkirk as fk
from falkirk.errors import DefinitionError, FalkirkError, HomeError, InternalError, LogError, SparkError, StoreError
from falkirk.recovery.protocol.down import APPLICATION_CONDITIONS, PROCESSOR_CONDITIONS, Down, concerns_one, has_work
from falkirk.recovery.protocol.layout import Layout, Stage
from falkirk.runtime.spark.epochs.failures import may_have_lost_state
from falkirk.runtime.spark.status import RegionStatus
from falkirk.runtime.supervision.coordinator import Coordinator
from falkirk.runtime.supervision.failures import Failures
from falkirk.runtime.supervision.query import Query
from falkirk.runtime.supervision.settings import RunSettings
from falkirk.runtime.supervision.supervised import Supervision
from falkirk.runtime.supervision.supervised_batch import SupervisedBatch
from falkirk.user_tools.commands import run

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"
FAILED = SparkError("FUNCTION_FAILED", "a function failed on a row.", where="shop.py:7", hint="Mend it.")


def test_each_condition_is_decided_on_once_and_documented() -> None:
    assert not PROCESSOR_CONDITIONS.keys() & APPLICATION_CONDITIONS.keys()
    assert PROCESSOR_CONDITIONS.keys() | APPLICATION_CONDITIONS.keys() <= set(
        re.findall(r"`([A-Z_]+)`", OPERATIONS.read_text())
    )


@pytest.mark.parametrize(
    ("error", "alone"),
    [
        (DefinitionError("EXPRESSION_FAILED", "a cast fails"), True),
        (SparkError("EPOCH_KEEPS_FAILING", "an epoch fails"), True),
        (SparkError("REGION_KEEPS_FAILING", "a query fails"), True),
        (DefinitionError("COLUMN_MISSING", "raised by a body that depends on what it reads"), True),
        (LogError("INPUT_EXPIRED", "too late"), True),
        (LogError("TOPIC_REPLACED", "another topic"), False),
        (LogError("ACCESS_REFUSED", "no right"), False),
        (SparkError("SESSION_LOST", "the JVM died"), False),
        (HomeError("HOME_TAKEN_OVER", "another owner"), False),
        (HomeError("STATE_DAMAGED", "a torn file"), False),
        (StoreError("STORE_UNREADABLE", "a torn store"), False),
        (InternalError("ANY_OF_OURS", "a bug"), False),
        (SparkError("NOT_IN_A_TABLE", "nobody has decided on it"), False),
    ],
)  # fmt: skip
def test_what_a_value_causes_concerns_one_processor(error: FalkirkError, alone: bool) -> None:
    assert concerns_one(error) is alone


#: in ▶ a ▶ b, which d reads beside other; and c, which reads other and views a.
LAYOUT = Layout(
    stages={
        "a": Stage(name="a", inputs=("in",), output="log-a"),
        "b": Stage(name="b", inputs=("log-a",), output="log-b"),
        "c": Stage(name="c", inputs=("other", "log-a"), output="log-c", views=("log-a",)),
        "d": Stage(name="d", inputs=("log-b", "other"), output="log-d"),
    },
    partitions=dict.fromkeys(("in", "other", "log-a", "log-b", "log-c", "log-d"), 1),
    held={},
)


@pytest.mark.parametrize(
    ("failed", "works"),
    [("", True), ("a", True), ("ac", True), ("cd", True), ("acd", False), ("abcd", False)],
)  # fmt: skip
def test_a_reader_of_what_is_down_makes_no_progress(failed: str, works: bool) -> None:
    assert has_work(LAYOUT, dict.fromkeys(failed)) is works


def test_the_newest_failure_is_raised_once_nothing_is_left() -> None:
    down = Down(LAYOUT)
    for name in "acd":
        down.refuse_standstill()
        down.keep(name, DefinitionError("EXPRESSION_FAILED", name))
    with pytest.raises(DefinitionError, match="d"):
        down.refuse_standstill()
    down.forget("c")
    down.refuse_standstill()
    with pytest.raises(HomeError):
        down.keep("b", HomeError("HOME_COPIED", "a copy took over"))
    assert list(down.errors) == ["a", "d"]


def test_a_status_has_the_whole_error_and_stays_stopped() -> None:
    status = RegionStatus(name="sales", state="running", last_commit=7).failed(FAILED)
    assert (status.state, status.condition, status.last_commit) == ("failed", "FUNCTION_FAILED", 7)
    assert status.detail == "FUNCTION_FAILED: a function failed on a row. (shop.py:7) Mend it."
    assert RegionStatus(name="sales", state="stopped").failed(FAILED).state == "stopped"


def test_the_terminal_says_it_once_and_the_exit_code_tells_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    app = fk.App("shop", kafka="127.0.0.1:1", home=tmp_path / "home")
    status = {"regions": [vars(RegionStatus(name="sales").failed(FAILED)), vars(RegionStatus(name="items"))]}

    def noting(self: Coordinator) -> None:
        for _ in range(2):
            self._note_down(status)

    monkeypatch.setattr(Coordinator, "run", noting)
    monkeypatch.setattr(run, "stop_on_signals", lambda stop: None)
    with pytest.raises(SystemExit) as ended:
        run.run_in_terminal(app, RunSettings(file=Path(__file__)))
    assert ended.value.code == 1
    assert capsys.readouterr().err.count("FUNCTION_FAILED: a function failed on a row. (shop.py:7)") == 1
    status["regions"] = [vars(RegionStatus(name="sales"))]
    run.run_in_terminal(app, RunSettings(file=Path(__file__)))  # it was started again, and runs


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (Py4JError("Job aborted: [CAST_INVALID_INPUT] The value 'n/a' of the type …"), False),
        (ValueError("the user's own, in the driver"), False),
        (Py4JError("Job aborted: block rdd_1_0 was not found"), True),
        (SparkError("JOB_FAILED", "an executor is gone"), True),
    ],
)  # fmt: skip
def test_a_value_takes_no_state_from_spark(error: Exception, lost: bool) -> None:
    """Before, a random state that was not saved restarted the Spark application at each try."""
    assert may_have_lost_state(error) is lost


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (ConnectionRefusedError("the JVM died while a state was restored"), "SESSION_LOST"),
        (ValueError("the user's own"), "EPOCH_KEEPS_FAILING"),
        (FAILED, "FUNCTION_FAILED"),
    ],
)
def test_a_batch_that_ended_is_stopped_and_told_with_its_line(error: Exception, condition: str) -> None:
    ended: list[str] = []
    watch = Supervision(context=cast(Any, None), failures=Failures(), say=lambda line: None)

    def looked_at(name: str, failure: Exception | None) -> FalkirkError | None:
        region = SimpleNamespace(
            batch=SimpleNamespace(name=name, where="shop.py:7"), failure=lambda: failure, releaser=None,
            end=lambda: ended.append(name), epochs=SimpleNamespace(epochs=lambda: ()),
            jobs=SimpleNamespace(detail=""), health=lambda: SimpleNamespace(runs=failure is None),
        )  # fmt: skip
        return SupervisedBatch(cast(Any, region), watch).poll()

    told = looked_at("totals", error)
    assert looked_at("runs", None) is None
    assert told is not None
    assert (told.condition, ended) == (condition, ["totals"])
    assert told.where == "shop.py:7" or condition == "SESSION_LOST"


def test_a_query_tells_of_what_is_down_and_raises_it_only_at_its_end() -> None:
    query: Any = Query.__new__(Query)
    query._error, query._host = None, SimpleNamespace(down={"sales": FAILED})
    query._ended = SimpleNamespace(wait=lambda timeout: False)
    assert query.exception() is FAILED
    assert query.awaitTermination(0) is False
    query._ended = SimpleNamespace(wait=lambda timeout: True)
    with pytest.raises(SparkError):
        query.awaitTermination(0)
    assert cast(Any, query.exception()).condition == "FUNCTION_FAILED"
