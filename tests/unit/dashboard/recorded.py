"""A recorded application: its plan, its logs and its checkpoints as values, and a site that shows it without Spark."""

import contextlib
from collections.abc import Iterator
from typing import Any

from falkirk.errors.conditions.commands import CUT_UNKNOWN, PREVIEW_OUTDATED, ROLLBACK_NEEDS_COMMAND
from falkirk.recovery.protocol.layout import Layout, Stage, TimeDomain
from falkirk.recovery.protocol.ports import Checkpoint
from falkirk.runtime.supervision.web import WebServer
from falkirk.theory.frontier import EMPTY, OffsetFrontier
from falkirk.theory.ids import CheckpointNumber, EpochNumber, LogId
from falkirk.theory.times import TopicPartition
from falkirk.user_tools.commands.dashboard.board import Board
from falkirk.user_tools.commands.dashboard.consent import Consented
from falkirk.user_tools.commands.dashboard.graph import graph_of
from falkirk.user_tools.commands.dashboard.progress import Snapshot, failure, frontiers, sink_frontiers
from falkirk.user_tools.commands.dashboard.site import DashboardSite

HOSTILE = '<img src=x onerror="document.title=\'owned\'"><script>document.title="owned"</script>'
TOKEN = "a-token-of-the-test"
NOW_S = 1_796_000_000.0


def upto(log: str, length: int) -> OffsetFrontier:
    return OffsetFrontier.of({TopicPartition(topic=LogId(log), partition=0): length})


def live(name: str, reads: str, writes: str, *, processors: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    return {
        "name": name, "processors": list(processors or (name,)), "reads": reads, "writes": writes, "released_to": None,
        "engine_reason": "all its steps can run there, and results take milliseconds", "policy": "Lazy",
        "consequence": "After a failure the region recomputes the same results, and the barrier drops those that are "
        "already published.", "interval_s": 10.0, "declared": f"shop.py:9: def {name}(orders):", **more,
    }  # fmt: skip


def sink(name: str, to: str, promise: str = "exactly once", when: str = "on arrival", **more: Any) -> dict[str, Any]:
    detail = {
        "kind": "deterministic",
        "text": f"{name} is deterministic: a replay gives the same results.",
        "declared": None,
    }
    return {
        "sink": name, "to": to, "promise": promise, "when": when, "why": "deterministic", "awaits": [], "held": None,
        "within_s": None, "advice": [], "costs": [f"{name}: records wait tenths of a second during a checkpoint"],
        "details": [detail], **more,
    }  # fmt: skip


def shop() -> tuple[dict[str, Any], Snapshot]:
    """Return an application with a hop, an output that waits for a checkpoint, and a batch."""
    drawn = {
        "kind": "drawn", "text": "uuid() differs on replay, so its results wait for a checkpoint.",
        "declared": 'shop.py:21: code = orders.withColumn("code", F.expr("uuid()"))',
    }  # fmt: skip
    plan = {
        "application": "shop",
        "regions": [
            live("sales-by-item", "orders", "hop", processors=("items", "start of sales")),
            live("sales", "hop", "sales"),
            live("vouchers", "orders", "held", released_to="vouchers", interval_s=20.0),
        ],
        "batches": [{
            "name": "report", "engine": "a DataFrame job per epoch", "engine_reason": "it is declared as a batch",
            "cut": "every 60 s, by the clock", "state": None, "declared": "shop.py:40: def report(sales):",
            "reads": [{"name": "orders", "log": "orders", "view": False}],
            "writes": [{"sink": "report", "to": "table report"}],
        }],
        "properties": {
            "items": {"differs": []}, "sales": {"differs": []}, "vouchers": {"differs": ["uuid() in line 21"]},
        },
        "sinks": [
            sink("sales", "topic sales"),
            sink("vouchers", "topic vouchers", when="after a checkpoint, ≤ 20 s", awaits=["vouchers"], held="held",
                 why="uuid() in vouchers, line 21", details=[drawn]),
            sink("report", "table report", when="per epoch, every 60 s"),
        ],
        "push": [],
    }  # fmt: skip
    layout = Layout(
        stages={
            "sales-by-item": Stage(name="sales-by-item", inputs=(LogId("orders"),), output=LogId("hop")),
            "sales": Stage(name="sales", inputs=(LogId("hop"),), output=LogId("sales")),
            "vouchers": Stage(
                name="vouchers", inputs=(LogId("orders"),), output=LogId("held"), deterministic=False
            ),
            "report": Stage(
                name="report", inputs=(LogId("orders"),), output=LogId("epochs:report"), times=TimeDomain.EPOCHS
            ),
        },
        partitions={LogId(n): 1 for n in ("orders", "hop", "sales", "held", "vouchers", "epochs:report")},
        held={LogId("held"): "vouchers", LogId("epochs:report"): "report"},
    )  # fmt: skip
    look = Snapshot(
        layout=layout,
        checkpoints={
            "sales-by-item": checkpoints("orders", "hop", (900, 1800), (1000, 2000)),
            "sales": checkpoints("hop", "sales", (1700, 1700), (1950, 1950)),
            "vouchers": checkpoints("orders", "held", (800, 1600), (980, 1960)),
            "report": checkpoints("orders", "epochs:report", (600, 1), (900, 2)),
        },
        ends={
            LogId(log): upto(log, n)
            for log, n in (("orders", 1100), ("hop", 2180), ("sales", 2170), ("held", 2190), ("epochs:report", 2))
        },
        released={LogId("held"): upto("held", 1960), LogId("epochs:report"): upto("epochs:report", 2)},
        cuts={"report": [(EpochNumber(i), upto("orders", n)) for i, n in enumerate((600, 900, 1050))]},
        lags={("sales-by-item", "orders"): 10, ("vouchers", "orders"): 5, ("sales", "hop"): 10},
    )  # fmt: skip
    return plan, look


def checkpoints(read: str, sent: str, *pairs: tuple[int, int]) -> tuple[Checkpoint, ...]:
    start = Checkpoint(number=CheckpointNumber(-1), read=upto(read, 0), sent=EMPTY)
    later = (
        Checkpoint(number=CheckpointNumber(i), read=upto(read, r), sent=upto(sent, s), made_at_s=NOW_S - 30 + 10 * i)
        for i, (r, s) in enumerate(pairs)
    )
    return (start, *later)


def large(number: int) -> tuple[dict[str, Any], Snapshot]:
    """Return an application of this many regions, in chains and branches."""
    regions, stages, sinks = [], {}, []
    for i in range(number):
        before = (i - 1) // 2 if i % 5 else None
        reads = f"topic-{i // 40}" if i == 0 or before is None else f"log-{before}"
        regions.append(live(f"step-{i}", reads, f"log-{i}"))
        stages[f"step-{i}"] = Stage(name=f"step-{i}", inputs=(LogId(reads),), output=LogId(f"log-{i}"))
    read = {stage.inputs[0] for stage in stages.values()}
    for i in range(number):
        if LogId(f"log-{i}") not in read:
            sinks.append(sink(f"out-{i}", f"topic log-{i}"))
    plan = {"application": "large", "regions": regions, "batches": [], "properties": {}, "sinks": sinks, "push": []}
    logs = {log for s in stages.values() for log in (*s.inputs, s.output)}
    layout = Layout(stages=stages, partitions=dict.fromkeys(sorted(logs), 1), held={})
    look = Snapshot(
        layout=layout,
        checkpoints={
            n: checkpoints(s.inputs[0], s.output, (50 + i, 50), (80 + i, 80)) for i, (n, s) in enumerate(stages.items())
        },
        ends={log: upto(log, 400) for log in logs},
    )
    return plan, look


class RecordedWatch:
    """Answers the requests of a page from the record.

    Attributes: asked: the rollbacks that were asked for. shown: the effect that the page showed for the last one.
        is_outdated: the effect of a rollback is another one now.
    """

    def __init__(self, look: Snapshot) -> None:
        self.look, self.asked, self.runs, self.is_outdated = look, list[tuple[str, bool]](), True, False
        self.shown: Consented | None = None

    def letters(self) -> list[dict[str, Any]]:
        return [
            {
                "id": "t/0@1", "unit": "sales", "at_s": NOW_S - 9, "reason": f"it does not fit: {HOSTILE}",
                "source": "orders 0@17", "payload": HOSTILE, "length": len(HOSTILE),
            }
        ]  # fmt: skip

    def failure(self, unit: str) -> dict[str, Any] | None:
        return died(self.look, frozenset({unit})) if unit in self.look.layout.stages else None

    def preview(self, cut: str) -> dict[str, Any]:
        if not cut.isdigit() or len(cut) > 18:  # as the real one
            raise CUT_UNKNOWN.error(cut=cut, number_shown=cut, advice="")
        move = {
            "region": "sales", "from": 1, "to": 0, "made_at_s": NOW_S - 30, "input_read_again": 250,
            "results_taken_back": 470, "why": "asked for",
        }  # fmt: skip
        return {
            "cut": int(cut),
            "moves": [move],
            "stays": ["report"],
            "outside": {"sales": 470} if cut == "3" else {},
            "at_s": NOW_S,
        }

    def roll_back(self, cut: str, *, force: bool, shown: Consented) -> dict[str, Any]:
        if not self.runs:
            raise ROLLBACK_NEEDS_COMMAND.error(where="home", reason="it does not run", cut=cut)
        if self.is_outdated:
            raise PREVIEW_OUTDATED.error(cut=cut, reason="regions go back to other checkpoints")
        self.asked.append((cut, force))
        self.shown = shown
        return {"goes": {"sales": 0}}


def died(look: Snapshot, failed: frozenset[str]) -> dict[str, Any]:
    return {**failure(look, failed), "by_standby": False, "back_s": 13.0}


def filled(plan: dict[str, Any], look: Snapshot) -> Board:
    """Return a board with all parts."""
    board, graph = Board(), graph_of(plan, look.layout)
    board.publish("app", {"application": plan["application"], "file": "shop.py", "home": ".falkirk/shop"})
    board.publish("graph", graph)
    unit = {
        "state": "running",
        "incarnation": 3,
        "restarts": 1,
        "last_commit": 41,
        "checkpoint_age_s": 3.2,
        "detail": "",
    }
    units = {name: {**unit, "name": name, "suppressed": 12, "dead_letters": 0} for name in look.layout.stages}
    if "sales" in units:
        units["sales"]["dead_letters"] = 1
    now = {"records": 2170, "held": 0, "held_age_s": 0.0, "p50_s": 0.0043, "p99_s": 0.018, "per_s": 212.0}
    board.publish("now", {
        "at_s": NOW_S, "runs": True, "units": units, "foreign": [],
        "sinks": {o["name"]: {**now, "key": o["name"], **({"held": 230, "held_age_s": 6.1} if o["held"] else {})}
                    for o in graph["sinks"]},
    })  # fmt: skip
    times = [NOW_S - 2 * i for i in range(120, 0, -1)]
    wave = [0.004 + 0.0006 * (i % 7) for i in range(120)]
    board.publish("latency", {o["name"]: [times, wave, [4 * w for w in wave]] for o in graph["sinks"]}, quiet=True)
    edges: dict[str, Any] = frontiers(look)
    mine = sink_frontiers(look)
    edges |= {f"sink {o['name']}": mine[o["unit"]] for o in graph["sinks"] if o["unit"] in mine}
    board.publish("look", {"at_s": NOW_S, "edges": edges})
    board.publish("failure", died(look, frozenset(look.layout.stages)))
    board.publish("history", [
        {"cut": n, "since_cut": n, "made_at_s": NOW_S - 10 * (7 - n), "since_s": NOW_S - 10 * (7 - n),
         "checkpoints": {}, "input_read_again": 120 * (7 - n), "outside": {"sales": 470} if n <= 3 else {}}
        for n in range(6, 0, -1)
    ])  # fmt: skip
    board.publish("events", [
        {"n": 3, "at_s": NOW_S - 3, "kind": "checkpoint", "unit": "sales", "text": "checkpoint 41"},
        {"n": 2, "at_s": NOW_S - 9, "kind": "letters", "unit": "sales", "text": f"1 dead letter {HOSTILE}"},
        {"n": 1, "at_s": NOW_S - 40, "kind": "restart", "unit": "", "text": "process 9 has ended"},
    ])  # fmt: skip
    return board


@contextlib.contextmanager
def served(plan: dict[str, Any], look: Snapshot) -> Iterator[tuple[WebServer, RecordedWatch, Board]]:
    """Serve the recorded application."""
    board, watch = filled(plan, look), RecordedWatch(look)
    site = DashboardSite(watch, board)  # type: ignore[arg-type]  # it has the methods that the site calls
    with WebServer([site], ("127.0.0.1", 0)) as server:
        site.open_with(TOKEN, is_open=server.is_open)
        yield server, watch, board
        board.close()
