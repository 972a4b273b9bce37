"""The watch on stubbed homes: the parts that it puts on the board, and its refusals. No Spark, and no broker."""

import threading
from typing import Any

import pytest

from falkirk.errors import FalkirkError
from falkirk.recovery.decision_store.values import Recovery
from falkirk.runtime.spark.status import LATENCY_BOUNDS_S
from falkirk.runtime.supervision.settings import SILENT_S
from falkirk.user_tools.commands.dashboard import watch as module
from falkirk.user_tools.commands.dashboard.latency import Latencies, quantile
from tests.unit.dashboard.conftest import Stage
from tests.unit.dashboard.recorded import HOSTILE
from tests.unit.metrics.statuses import histogram


def test_a_home_without_a_run_shows_nothing_and_is_no_error(stage: Stage) -> None:
    stage.watch.turn()
    assert stage.board.part("now") == {
        "at_s": None, "runs": False, "start_s": None, "down_since_s": 1000.0, "units": {}, "sinks": {}, "foreign": [],
    }  # fmt: skip
    assert stage.board.part("graph") is None
    with pytest.raises(FalkirkError, match="no application has run"):
        stage.watch.letters()
    with pytest.raises(FalkirkError, match="no application has run"):
        stage.watch.preview("1")
    assert stage.watch.failure("sales") is None


def test_the_plan_is_drawn_when_it_is_there_and_when_it_changes(stage: Stage) -> None:
    stage.watch.turn()
    stage.plan()
    stage.write()
    graph = stage.board.part("graph")
    assert [u["name"] for u in graph["units"]] == ["sales-by-item", "sales", "vouchers", "report"]
    edges = {e["id"]: (e["kind"], e["from"], e["to"]) for e in graph["edges"]}
    assert edges["orders to vouchers"] == ("reads", "in:orders", "step:vouchers/vouchers")
    assert edges["hop to sales"] == ("hop", "step:sales-by-item/start of sales", "step:sales/sales")
    assert edges["sink sales"] == ("publishes", "step:sales/sales", "out:sales")
    assert edges["sink report"] == ("publishes", "step:report/report", "out:report")
    assert {o["name"]: o["held"] for o in graph["sinks"]} == {"sales": False, "vouchers": True, "report": False}
    nodes = {n["id"] for n in graph["nodes"]}
    assert {e[1] for e in edges.values()} | {e[2] for e in edges.values()} <= nodes
    (stage.home / "plan.json").write_text("{ torn")
    stage.watch.turn()
    assert stage.board.part("graph") == graph


def test_it_runs_while_its_host_reports(stage: Stage) -> None:
    stage.write()
    assert stage.watch.runs
    stage.clock.now_s += SILENT_S + 1
    assert not stage.watch.runs
    stage.write(units=[{"name": "sales", "state": "stopped"}])
    assert not stage.watch.runs


def test_since_when_it_does_not_run_and_how_long_a_start_takes(stage: Stage) -> None:
    def down() -> tuple[object, object]:
        now = stage.board.part("now")
        return now["down_since_s"], now["start_s"]

    stage.write(units=[{"name": "sales", "state": "starting"}])
    assert down() == (1001.0, None)
    stage.write(units=[{"name": "sales", "state": "starting"}])
    assert down() == (1001.0, None)
    stage.write(start={"took_s": 9.5, "standby": False})
    assert down() == (None, 9.5)
    stage.write(units=[{"name": "sales", "state": "starting"}], pid=2)  # the next host has measured nothing yet
    assert down() == (1004.0, 9.5)


def test_until_the_next_host_reports_all_regions_are_starting(stage: Stage) -> None:
    stage.write()
    (stage.home / "status.json").unlink()
    stage.clock.now_s += 3
    stage.watch.turn()
    now = stage.board.part("now")
    assert (now["units"]["sales"]["state"], now["down_since_s"]) == ("starting", 1004.0)
    stage.write(pid=2)
    assert stage.board.part("now")["units"]["sales"]["state"] == "running"


def test_a_torn_status_is_not_taken(stage: Stage) -> None:
    stage.write()
    before = stage.board.part("now")
    (stage.home / "status.json").write_text('{"at_s": 5, "regi')
    stage.watch.turn()
    assert stage.board.part("now") == before


def test_latencies_are_those_of_the_last_seconds(stage: Stage) -> None:
    stage.plan()

    def write(records: int, counts: dict[int, int], pid: int = 1) -> dict[str, Any]:
        output = {"records": records, **histogram(LATENCY_BOUNDS_S, counts, 0.0), "held": 5, "held_age_s": 2.5}
        stage.write(figures=[{"name": "sales", "sinks": {"sales": output}, "sources": {}}], pid=pid)
        found: dict[str, Any] = stage.board.part("now")["sinks"]["sales"]
        return found

    assert write(100, {10: 100})["p50_s"] is None
    found = write(200, {10: 100, 2: 95, 5: 5})
    assert (found["per_s"], found["held"], found["held_age_s"]) == (100.0, 5, 2.5)
    assert LATENCY_BOUNDS_S[1] < found["p50_s"] < LATENCY_BOUNDS_S[2]
    assert LATENCY_BOUNDS_S[4] < found["p99_s"] < LATENCY_BOUNDS_S[5]
    assert write(7, {3: 7}, pid=2)["p50_s"] is None, "another host counts anew"
    for n in range(60):
        write(10 + n, {3: 10 + n}, pid=2)
    times, p50, _ = stage.board.part("latency")["sales/sales"]
    assert times == sorted(times)
    assert 25 < len(times) == len(p50) < 35


def test_quantiles_of_a_histogram() -> None:
    nothing = [0] * (len(LATENCY_BOUNDS_S) + 1)
    assert quantile(nothing, 0.5) is None
    assert quantile([10, *nothing[1:]], 0.5) == pytest.approx(0.0005)
    assert quantile([*nothing[:-1], 3], 0.99) == LATENCY_BOUNDS_S[-1]
    assert Latencies().now("x") == {"p50_s": None, "p99_s": None, "per_s": None}


def test_events_are_the_differences_between_statuses(stage: Stage) -> None:
    def unit(**more: Any) -> list[dict[str, Any]]:
        return [{"name": "sales", "state": "running", "last_commit": 3, "restarts": 0, "dead_letters": 0, **more}]

    stage.write(units=unit())
    assert stage.texts() == []
    stage.write(units=unit(last_commit=4))
    stage.write(units=unit(last_commit=4, restarts=1, state="restarting", detail=f"it died: {HOSTILE}\n\x1b[2J"))
    stage.write(units=unit(last_commit=4, restarts=1, dead_letters=2))
    stage.write(units=unit(last_commit=4, restarts=1, dead_letters=None), pid=2)  # it does not know them yet
    stage.write(units=unit(last_commit=4, restarts=1, dead_letters=2), pid=2)
    failed = {"state": "failed", "condition": "REGION_KEEPS_FAILING", "detail": "x" * 9000}
    stage.write(units=unit(last_commit=4, restarts=1, dead_letters=2, **failed), pid=2)
    stage.write(units=unit(last_commit=4, restarts=1, dead_letters=2, **failed, twin=False), pid=2)
    stage.write(units=unit(last_commit=4, restarts=1, dead_letters=2, **failed, twin=True), pid=2)
    texts = stage.texts()
    assert texts[-1] == "checkpoint 4"
    assert f"restarted: it died: {HOSTILE}\\n[2J" in texts
    assert texts.count("2 dead letters") == 1
    assert [text for text in texts if "queries" in text] == ["both queries run", "one of its two queries runs"]
    assert "another Spark application runs (process 2); process 1 has ended" in texts
    assert [len(text) for text in texts if text.startswith("failed for good")] == [501]
    stage.watch.note("the Spark application ended (killed by signal 9); starting it again")
    stage.watch.turn()
    assert "killed by signal 9" in stage.texts()[0]


def test_dead_letters_from_before_the_first_look_are_no_event(stage: Stage) -> None:
    for letters in (None, None, 5, 6):
        stage.write(units=[{"name": "sales", "state": "running", "last_commit": 3, "dead_letters": letters}])
    assert [text for text in stage.texts() if "letter" in text] == ["1 dead letter"]


def test_events_are_bounded_and_checkpoints_push_nothing_out(stage: Stage) -> None:
    events = stage.watch.events
    events.note("the one that matters", "restart")
    for n in range(5000):
        events.note(f"checkpoint {n}", "checkpoint")
    shown = events.shown()
    assert len(shown) < 100
    assert shown[-1]["text"] == "the one that matters"
    for n in range(1000):
        events.note(f"note {n}")
    assert len(events.shown()) < 300


def test_a_recovery_is_noted_once_per_step(stage: Stage) -> None:
    def recovery(state: str, ended_at_s: float | None) -> Recovery:
        goes = {f"unit-{n}": n for n in range(20)} | {"stays": None}
        return Recovery(
            recovery=7, reason="sales is dead", decided=goes, state=state, begun_at_s=5.0, ended_at_s=ended_at_s  # type: ignore[arg-type]
        )  # fmt: skip

    events = stage.watch.events
    for each in (None, recovery("decided", None), recovery("decided", None), recovery("done", 6.5)):
        events.take_recovery(each)
    texts = [e["text"] for e in events.shown()]
    assert len(texts) == 2
    assert texts[0].startswith("recovery 7 (sales is dead): unit-0 to 0, unit-1 to 1")
    assert texts[0].endswith("and 12 more; done, in 1.5 s")


# -- looks at the home and the logs -----------------------------------------------------------------------------------


def test_frontiers_failure_and_history_are_of_one_look(looked: Stage) -> None:
    looked.write(start={"took_s": 12.5, "standby": False})
    edges = looked.board.part("look")["edges"]
    assert edges["orders to vouchers"]["saved"] == 980
    assert edges["sink vouchers"] == {"there": 2190, "computed": 2190, "out": 1960, "saved": 1960}
    found = looked.board.part("failure")
    assert (found["back_s"], found["by_standby"], found["again"]) == (12.5, False, 425)
    one = looked.watch.failure("sales")
    assert one is not None
    assert (one["back_s"], [g["unit"] for g in one["goes"]]) == (None, ["sales"])
    cuts = looked.board.part("history")
    assert [c["cut"] for c in cuts] == sorted((c["cut"] for c in cuts), reverse=True)
    assert cuts[-1]["made_at_s"] is None


def test_nobody_looks_at_the_logs_while_no_page_is_open(stage: Stage) -> None:
    stage.plan()
    stage.write()
    assert stage.board.part("look") is None


def test_an_error_of_a_visit_is_shown(looked: Stage) -> None:
    looked.visits.found = None
    looked.write()
    assert looked.board.part("look") == {"error": "NEVER_RAN: no application has run in this home yet."}


def test_a_long_history_is_cut_in_the_middle(looked: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CUTS_MAX", 3)
    looked.write()
    cuts = looked.board.part("history")
    assert len(cuts) == 3
    assert cuts[-1]["made_at_s"] is None, "the oldest stays"


def test_a_look_that_fails_is_not_repeated_at_once(looked: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(visit: object, lags: object) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(module, "take_snapshot", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        looked.watch.turn()
    looked.watch.turn()


def test_a_request_that_hangs_does_not_delay_the_end(stage: Stage) -> None:
    holds, ended = threading.Event(), threading.Event()

    def hang() -> None:
        with stage.visits.lock:
            holds.set()
            ended.wait(10)

    request = threading.Thread(target=hang)
    with stage.watch:
        request.start()
        holds.wait()
    assert request.is_alive(), "the watch waited for it"
    ended.set()
    request.join()
