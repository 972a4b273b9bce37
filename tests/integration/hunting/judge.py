"""Plans random pipelines, runs those that are inferred deterministic twice, and compares the results."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Window
from pyspark.sql import functions as F

from falkirk.declare.parts import DeclaredProcessor
from falkirk.declare.policy import Eager
from falkirk.errors.location import caller
from falkirk.plan.batch_determinism import Called, differences_of
from falkirk.plan.batch_planning import returned
from falkirk.steps.batch.call import EpochContext
from falkirk.steps.batch.rehearsal import Rehearsal
from falkirk.steps.static_analysis.determinism import DISTINCT, InBatch, operations
from falkirk.steps.static_analysis.escapes import watched
from falkirk.steps.static_analysis.functions import SAME_LIVE, entry_of
from falkirk.steps.static_analysis.structure import KnownLeaves
from tests.integration.hunting import inputs, jvm
from tests.integration.hunting.program import Kind, Pipeline, given, program
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: An expression of one row is selected with the row's number. An aggregate is computed per group.
_BY_ROW, _BY_KEY = ("SELECT id", " FROM r"), ("SELECT s", " FROM r GROUP BY s")
_ZONE = "spark.sql.session.timeZone"
_SETTINGS = {
    "spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "2", _ZONE: "UTC",
    "spark.sql.timeType.enabled": "true",
}  # fmt: skip
#: The settings of the second run. No fingerprint contains them, so a restart may have other ones.
_OTHER = {
    "spark.sql.shuffle.partitions": "3", "spark.sql.adaptive.enabled": "true",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}  # fmt: skip
#: Expressions are not compiled in tests. An uncompiled aggregate does not copy the collated strings that it keeps, so
#: its result has the bytes that are in their place later (in Spark 4.3). So pipelines with collations are compiled.
_COLLATED = re.compile(r"collat|\b(ci|ai)\b", re.IGNORECASE)
_COMPILING = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
#: The estimated time of a pipeline's first run in seconds, until it was measured.
_FIRST_RUN_S = 0.03
#: The number of times that the first runs are tried if they last into the next day. After one of them, their time is
#: known.
_TRIES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The inference about a pipeline: the operations that may differ in a batch, and in a live region.

    Args: batch: None: it can't be planned. live: None: it is not an expression.
    """

    pipeline: Pipeline
    batch: frozenset[str] | None
    live: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Find:
    """A pipeline that is inferred deterministic, and is not."""

    pipeline: Pipeline
    how: str
    one: str
    other: str

    def __str__(self) -> str:
        p, first, second = self.pipeline, Counter(self.one.splitlines()), Counter(self.other.splitlines())
        return (
            f"seed {p.seed}, pipeline {p.number} ({p.kind.value}, {self.how}) is inferred deterministic, but its "
            f"results differ:\n    {p}\n"
            f"  in one run only:   {sorted((first - second).elements())[:3]}\n"
            f"  in the other only: {sorted((second - first).elements())[:3]}\n"
            f"  to repeat: make hunt SEED={p.seed}"
        )


@dataclass(kw_only=True)
class Outcome:
    """The outcome of a hunt.

    Attributes:
        drawn: the number of pipelines. same: inferred deterministic, with equal results. held: not inferred
            deterministic. held_by: the operations that caused this. unplanned: refused by Spark. failed: accepted by
            Spark, but not runnable.
        finds: inferred deterministic, with different results. in_time: another day began between the two runs.
        results: the results of the first runs. zone: the time zone of the session.
    """

    drawn: int = 0
    same: int = 0
    held: int = 0
    held_by: Counter[str] = field(default_factory=Counter)
    unplanned: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    finds: list[Find] = field(default_factory=list)
    in_time: bool = True
    results: dict[Pipeline, str] = field(default_factory=dict)
    zone: str = "UTC"

    def add(self, other: "Outcome") -> None:
        """Add the outcome of another hunt."""
        self.drawn, self.same, self.held = self.drawn + other.drawn, self.same + other.same, self.held + other.held
        self.unplanned, self.in_time = self.unplanned + other.unplanned, self.in_time and other.in_time
        self.held_by, self.failed = self.held_by + other.held_by, self.failed + other.failed
        self.finds = [*self.finds, *other.finds]

    def __str__(self) -> str:
        return (
            f"{self.drawn:,} pipelines: {self.same:,} inferred deterministic with equal results, {self.held:,} not "
            f"inferred deterministic, {len(self.finds)} wrongly inferred deterministic; {self.unplanned} not planned, "
            f"{dict(self.failed)} failed{'' if self.in_time else '; midnight came too early'}"
        )


class World:
    """A session in which pipelines run, and its tables. Args: settings: further settings of the session."""

    def __init__(self, spark: "SparkSession", settings: dict[str, str]) -> None:
        self.session = spark.newSession()
        self.set(_SETTINGS | settings)
        self.tables: dict[str, DataFrame] = {}

    def set(self, settings: dict[str, str]) -> None:
        """Change settings of the session."""
        for name, value in settings.items():
            self.session.conf.set(name, value)

    def make(self, data: int, order: int) -> None:
        """Make the tables. Args: see `inputs.made`."""
        jvm.activate(self.session)
        self.tables = inputs.made(self.session, data, order)

    def share(self, other: "World", *, rows: bool = True) -> None:
        """Use the tables of another world. Args: rows: with their rows."""
        jvm.activate(self.session)
        shared = {name: jvm.shared(table, self.session) for name, table in other.tables.items()}
        self.tables = shared if rows else {name: table.limit(0).localCheckpoint() for name, table in shared.items()}

    def run(self, pipelines: Sequence[Pipeline]) -> dict[Pipeline, str]:
        """Return the results of each pipeline, in the form of `jvm.rows`."""
        given(self.session, self.tables)
        compiled = [p for p in pipelines if _COLLATED.search(str(p))]
        found = self._run([p for p in pipelines if p not in compiled])
        before = {name: self.session.conf.get(name) for name in _COMPILING}
        self.set(_COMPILING)
        found |= self._run(compiled)
        self.set(before)
        return found

    def _run(self, pipelines: Sequence[Pipeline]) -> dict[Pipeline, str]:
        found: dict[Pipeline, str] = {}
        for kind, (head, tail) in ((Kind.ROW, _BY_ROW), (Kind.GROUP, _BY_KEY)):
            several = [p for p in pipelines if p.kind is kind]
            found |= zip(several, jvm.columns(self.session, head, tail, [p.texts[0] for p in several]), strict=True)
        return found | {p: self._one(p) for p in pipelines if p not in found}

    def _one(self, pipeline: Pipeline) -> str:
        try:
            return jvm.rows(body(pipeline)(*self.tables.values()))
        except Exception as error:
            if not is_sparks(error):
                raise
            return f"{jvm.FAILED}{error}"[:300]


def body(pipeline: Pipeline) -> Any:
    """Return a pipeline as the function of a batch."""

    def run(r: "DataFrame", q: "DataFrame") -> "DataFrame":
        session = r.sparkSession
        given(session, {"r": r, "q": q})
        if pipeline.kind is Kind.FRAME:
            found: DataFrame = eval(pipeline.texts[0], {"r": r, "q": q, "F": F, "Window": Window})
            return found
        if pipeline.kind is Kind.SQL:
            return [session.sql(text) for text in pipeline.texts][-1]
        head, tail = _BY_ROW if pipeline.kind is Kind.ROW else _BY_KEY
        return session.sql(f"{head}, {pipeline.texts[0]} AS x{tail}")

    return run


class Planner:
    """Infers the operations of pipelines that may differ. Args: world: its tables have no rows."""

    def __init__(self, world: World) -> None:
        self._tables, self._leaves = world.tables, KnownLeaves.of(world.tables)
        given(world.session, world.tables)
        self._base = InBatch.of(world.session.table("r"), self._leaves).operations

    def told(self, pipeline: Pipeline) -> Told:
        """Plan a pipeline."""
        try:
            if pipeline.kind in (Kind.ROW, Kind.GROUP):
                return self._of_expression(pipeline)
            return Told(pipeline=pipeline, batch=self._of_statement(pipeline))
        except Exception as error:
            if not is_sparks(error):
                raise
            return Told(pipeline=pipeline, batch=None)

    def _of_expression(self, pipeline: Pipeline) -> Told:
        data = body(pipeline)(*self._tables.values())
        found = InBatch.of(data, self._leaves)
        live = {name for name in found.operations - self._base if entry_of(name).nature not in SAME_LIVE}
        live |= {DISTINCT} & operations(data).keys()  # refused in a live step
        return Told(pipeline=pipeline, batch=found.undetermined, live=frozenset(live))

    def _of_statement(self, pipeline: Pipeline) -> frozenset[str]:
        """Plan a pipeline like `plan_batch`."""
        session, run, where = self._tables["r"].sparkSession, body(pipeline), caller()
        processor = DeclaredProcessor(name="p", body=run, reads=("r", "q"), policy=Eager(), where=where)

        def called() -> Called:
            rehearsal = Rehearsal(session, EpochContext())
            with watched(self._tables) as watch:
                result, kept = returned("p", run, ("r", "q"), self._tables, None, where, rehearsal)
            return Called(result=result, kept=kept, rehearsal=rehearsal, leaves=watch.leaves, escaped=watch.found)

        return frozenset(differences_of(processor, called(), called).operations)


def is_sparks(error: Exception) -> bool:
    """Whether Spark refuses a pipeline or fails with its own error, or Falkirk refuses it."""
    return type(error).__module__.startswith(("pyspark", "falkirk")) or isinstance(error, TypeError | Py4JJavaError)


class Hunt:
    """Hunts through the pipelines of seeds, in one Spark application.

    Args: data: of the tables. first_run_s: how long the first run of a pipeline takes, as far as is known.
    """

    def __init__(self, spark: "SparkSession", *, ansi: bool, data: int, first_run_s: float = _FIRST_RUN_S) -> None:
        mode = {"spark.sql.ansi.enabled": str(ansi).lower()}
        # With other settings, a batch would sort the rows of a live region in another way.
        self._first, self._in_order = World(spark, mode), World(spark, mode)
        self._second, self._planning = World(spark, mode | _OTHER), World(spark, mode)
        self._first.make(data, 0)
        self._second.make(data, 1 + data)
        self._in_order.share(self._first)
        self._planning.share(self._first, rows=False)
        self._planner = Planner(self._planning)
        self._first_run_s = first_run_s

    def told(self, seeds: Iterable[int], *, each: int = 1) -> list[Told]:
        """Generate the pipelines of seeds, and plan them. Args: each: 2 plans every second one of a seed."""
        session, tables = self._planning.session, self._planning.tables
        given(session, tables)
        return self.planned([pipeline for seed in seeds for pipeline in [*program(session, tables, seed)][::each]])

    def planned(self, pipelines: Sequence[Pipeline]) -> list[Told]:
        """Plan pipelines."""
        given(self._planning.session, self._planning.tables)
        return [self._planner.told(pipeline) for pipeline in pipelines]

    def through(self, told: Sequence[Told], meanwhile: Callable[[Outcome], None] = lambda _: None) -> Outcome:
        """Run the pipelines that are inferred deterministic twice. Between the two runs another day begins.

        Args: meanwhile: other work, for the time until then. It gets the outcome of the first runs.
        """
        outcome = _noted(told)
        batch, live = divided(told)
        for _ in range(_TRIES):
            midnight, outcome.zone = _midnight(self._first_run_s * len(batch + live))
            began = time.monotonic()
            outcome.results = self.first(batch, live, outcome.zone)
            self._first_run_s = 1.2 * (time.monotonic() - began) / max(1, len(batch + live))
            outcome.in_time = time.monotonic() < midnight
            if outcome.in_time:
                break
        meanwhile(outcome)
        wait_until(lambda: time.monotonic() >= midnight, 120, "midnight")
        with jvm.on_another_machine(self._first.session):
            second, in_order = self._second.run(batch), self._in_order.run(live)
        for how, runs in (("in a batch", second), ("in a live region", in_order)):
            for pipeline, other in runs.items():
                compare(outcome, pipeline, how, outcome.results[pipeline], other)
        return outcome

    def first(self, batch: Sequence[Pipeline], live: Sequence[Pipeline], zone: str) -> dict[Pipeline, str]:
        """Return the results of the first runs of pipelines.

        Batches and live regions run in separate jobs. Whether Spark sorts rows depends on everything that a job
        computes, and a live region, whose rows arrive one by one, has no such effect.
        """
        for world in (self._first, self._second, self._in_order):
            world.set({_ZONE: zone})
        return self._first.run(batch) | self._first.run(live)


def divided(told: Sequence[Told]) -> tuple[list[Pipeline], list[Pipeline]]:
    """Return the pipelines that are inferred deterministic in a batch, and those only in a live region."""
    batch = [each.pipeline for each in told if each.batch == frozenset()]
    return batch, [each.pipeline for each in told if each.batch and each.live == frozenset()]


def compare(outcome: Outcome, pipeline: Pipeline, how: str, one: str, other: str) -> None:
    """Compare the results of two runs."""
    failures = [result.startswith(jvm.FAILED) for result in (one, other)]
    if any(failures):
        outcome.failed["twice" if all(failures) else "once"] += 1
    elif one == other:
        outcome.same += 1
    else:
        outcome.finds.append(Find(pipeline=pipeline, how=how, one=one, other=other))


def _noted(told: Sequence[Told]) -> Outcome:
    held = Counter(name for one in told for name in one.batch or ())
    return Outcome(
        drawn=len(told), unplanned=sum(one.batch is None for one in told), held_by=held,
        held=sum(bool(one.batch) for one in told),
    )  # fmt: skip


def _midnight(after_s: float) -> tuple[float, str]:
    """Return the time of a midnight some seconds from now, by the monotonic clock, and its time zone."""
    now, began = datetime.now(UTC), time.monotonic()
    midnight = (now + timedelta(seconds=int(after_s) + 1)).replace(microsecond=0)
    passed = timedelta(hours=midnight.hour, minutes=midnight.minute, seconds=midnight.second)
    offset = -passed if passed <= timedelta(hours=12) else timedelta(days=1) - passed
    return began + (midnight - now).total_seconds(), _zone(offset)


def _zone(offset: timedelta) -> str:
    seconds = int(offset.total_seconds())
    hours, rest = divmod(abs(seconds), 3600)
    return f"{'-' if seconds < 0 else '+'}{hours:02}:{rest // 60:02}:{rest % 60:02}"
