"""Judges each output of an application: sinks of live regions, sinks of batches, and logs between batches."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from falkirk.checker import Guarantee, Space, epochs_to_json, render, render_epochs, to_json
from falkirk.declare.application import Application
from falkirk.declare.endpoints import Kafka
from falkirk.declare.parts import DeclaredSink
from falkirk.errors import DefinitionError, HomeError
from falkirk.kafka_client.connection import Connection
from falkirk.plan.batch import Batch
from falkirk.plan.patterns import with_recorded_topics
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from falkirk.plan.schemas import with_schemas
from falkirk.recovery.ownership.folder import data_folder
from falkirk.recovery.ownership.identity import identify
from falkirk.recovery.ownership.lease import has_run
from falkirk.spark_setup.spark import spark_session
from falkirk.user_tools.commands.invalid_results import invalid_ranges
from falkirk.user_tools.commands.judge import NO_HOME, PROMISES, LiveJudge, LiveVerdict
from falkirk.user_tools.commands.judge_batches import BatchJudge, batch_judge
from falkirk.user_tools.commands.running import home_to_read


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgeable:
    """An output: a sink, or the log of a batch from which other batches read."""

    sink: DeclaredSink | None = None
    log: Batch | None = None

    @property
    def title(self) -> str:
        """Its kind and name."""
        return f"sink {self.sink.name}" if self.sink is not None else f"log of {self.log.name if self.log else ''}"

    @property
    def promise(self) -> str:
        """Its promise. Readers inside the application get every epoch exactly once."""
        return str(Guarantee.EXACTLY_ONCE) if self.sink is None else self.sink.delivery.value

    def as_dict(self) -> dict[str, object]:
        """Return its name and promise with stable names."""
        named = {"sink": self.sink.name} if self.sink is not None else {"log": self.log.name if self.log else ""}
        return {**named, "promise": self.promise}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundOutput:
    """The verdict on an output. Args: is_kept: it kept its promise. shown: for people. as_dict: for programs."""

    is_kept: bool
    shown: RenderableType
    as_dict: Mapping[str, object]


class OutputsJudge:
    """Judges the outputs of one application. Use it as a context manager.

    Args: home: None: the application's. partial: an output of which only a part can be judged may keep its promise.
    """

    def __init__(
        self, app: Application, connection: Connection, *, home: Path | None, memory_bytes: int, partial: bool
    ) -> None:
        if app.patterns:
            with home_to_read(app, home) as (held, _):
                app = with_recorded_topics(app, held.store)
        app = with_schemas(app, home or app.home)
        self._app, self._connection, self._home, self._partial = app, connection, home, partial
        self._session = spark_session(
            app.name, master="local[2]", state_partitions=app.state_partitions, data=app.data, shows_log=False
        )
        self._space = Space(memory_bytes=memory_bytes)
        self._live: LiveJudge | None = None
        self._open = ExitStack()
        self._batches: BatchJudge | None = None

    def __enter__(self) -> "OutputsJudge":
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    @cached_property
    def _plan(self) -> Plan:
        """The plan for all outputs. Its internal topics are those of the home, if the application has run there."""
        app, path = self._app, self._home or self._app.home
        identity = NO_HOME
        if has_run(path, app.name, app.store, app.data):
            data = None if app.data is None else data_folder(path, app.data)
            identity = identify(path, app.name, app.store, data)
        return plan_application(app, self._session, identity)

    def outputs(self, names: tuple[str, ...]) -> Iterator[Judgeable]:
        """Yield the sinks with these names; for no names all sinks, and the logs that batches read from."""
        for sink in self._app.sinks.values():
            if not names or sink.name in names:
                yield Judgeable(sink=sink)
        if not names and self._batches is not None:
            yield from (Judgeable(log=batch) for batch in self._batches.logs)

    def judge(self, what: Judgeable) -> FoundOutput:
        """Return the verdict on an output. Raises: as `LiveJudge` and `BatchJudge`."""
        if what.sink is None:
            assert what.log is not None, "an output is a sink or a log"
            return self._found(what.log, None)
        reads = self._app.processors.get(what.sink.reads)
        if not isinstance(what.sink.to, Kafka) or (reads is not None and reads.cut is not None):
            return self._of_batch(what.sink, None)
        try:
            if self._live is None:
                self._live = LiveJudge(
                    self._app, self._connection, self._session, self._space,
                    invalid=invalid_ranges(self._app, self._home), plan=self._plan,
                )  # fmt: skip
            verdict = self._live.judge_sink(what.sink)
        except DefinitionError as error:
            if error.condition != "NOT_CHECKABLE":
                raise
            return self._of_batch(what.sink, error)
        kept = verdict.satisfies(PROMISES[what.sink.delivery])
        return FoundOutput(is_kept=kept, shown=render_live(verdict), as_dict=_as_dict(verdict))

    def _of_batch(self, sink: DeclaredSink, refusal: DefinitionError | None) -> FoundOutput:
        """Judge the sink of a batch. Args: refusal: why it could not be judged as that of a live region."""
        if self._batches is None:
            made = batch_judge(self._app, self._home, self._connection, self._session, self._plan)
            try:
                self._batches = self._open.enter_context(made)
            except HomeError as error:
                if refusal is None or error.condition != "NEVER_RAN":
                    raise
                raise refusal from error
        batch = self._batches.batch_of(sink)
        if batch is None:
            assert refusal is not None, "a live region writes only topics"
            raise refusal
        return self._found(batch, sink)

    def _found(self, batch: Batch, sink: DeclaredSink | None) -> FoundOutput:
        assert self._batches is not None, "it was made for the batch"
        verdict = self._batches.judge_log(batch) if sink is None else self._batches.judge_sink(batch, sink)
        promised = Guarantee.EXACTLY_ONCE if sink is None else PROMISES[sink.delivery]
        return FoundOutput(
            is_kept=verdict.satisfies(promised, partial=self._partial), shown=render_epochs(verdict),
            as_dict=epochs_to_json(verdict),
        )  # fmt: skip


#: Under the verdict on a live region that misses results.
_LATER = "A result that is not published yet counts as lost. `falkirk run FILE --once` processes all input."


def render_live(verdict: LiveVerdict) -> RenderableType:
    """Return the verdict on a sink of a live region for a terminal."""
    parts = _parts(verdict)
    for found, what in ((verdict.invalid, "results"), (verdict.invalid_letters, "dead letters")):
        if found is not None:
            parts.append(found.shown(what))
    if any(each is not None and each.counts.lost for each in (verdict.results, verdict.letters)):
        parts.append(Text(_LATER, style="yellow"))
    return Group(*parts)


def _parts(verdict: LiveVerdict) -> list[RenderableType]:
    if verdict.letters is None:
        return [render(verdict.results)]
    if verdict.letters.guarantee is Guarantee.EXACTLY_ONCE:
        due = f", {verdict.letters.counts.expected_outputs:,} due"
        right = Text.assemble("its dead letters: ", (str(verdict.letters.guarantee), "bold green"), due)
        return [render(verdict.results), right]
    return [render(verdict.results), Text("its dead letters:"), render(verdict.letters)]


def _as_dict(verdict: LiveVerdict) -> dict[str, object]:
    letters = None if verdict.letters is None else to_json(verdict.letters)
    found = {"invalid_results": verdict.invalid, "invalid_dead_letters": verdict.invalid_letters}
    invalid = {name: None if each is None else each.as_dict() for name, each in found.items()}
    return {**to_json(verdict.results), "dead_letters": letters, **invalid}
