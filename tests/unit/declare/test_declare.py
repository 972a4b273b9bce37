"""Declarations need no Spark, and every mistake is a typed error that names the user's line."""

import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import falkirk as fk
from falkirk.declare.load import load_application
from falkirk.declare.policy import Duration, Policy, duration_s
from falkirk.errors.location import SourceLocation

EVENTS = fk.Kafka("events", schema="word STRING, n INT")


def refused(act: Callable[[], Any], condition: str, **parameters: object) -> fk.DefinitionError:
    """Run a one-line function that must be refused; the error must name that line."""
    with pytest.raises(fk.DefinitionError) as caught:
        act()
    error = caught.value
    assert error.condition == condition
    assert isinstance(error.where, SourceLocation)
    assert (error.where.file, error.where.line) == (act.__code__.co_filename, act.__code__.co_firstlineno)
    assert error.hint
    for name, value in parameters.items():
        assert error.parameters[name] == value
    return error


def test_public_names() -> None:
    assert fk.__all__ == [
        "Acknowledged", "App", "Clock", "Collection", "Connection", "Console", "DefinitionError", "Delivery", "Delta",
        "Eager", "Ephemeral", "EpochContext", "EpochTopic", "FalkirkError", "Files", "FullHistory", "GuaranteeError",
        "HomeError", "Http", "Iceberg", "InternalError", "Kafka", "Lazy", "LogError", "LogSends", "MachineError",
        "Newest",
        "Registry", "Sink", "Snapshots", "SparkError", "Sql", "Stamped", "StoreError", "Stream", "Tls",
        "UnrecoverableError", "View", "connected_components", "counted", "current_epoch", "deterministic", "fixpoint",
        "join", "latest_value", "map_rows", "pagerank", "read", "sessions", "shortest_paths",
        "spark_session", "stateful", "testing",
    ]  # fmt: skip
    assert all(getattr(fk, name) is not None for name in fk.__all__)


def test_declaring_an_application_loads_no_spark(tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text(
        "import sys\nimport falkirk as fk\n"
        'app = fk.App("plain", kafka="broker:9092")\n'
        'app.source("events", fk.Kafka("events", schema="word STRING"))\n'
        "@app.stream(fk.Lazy('5 seconds'))\n"
        "def counts(events):\n    return events.where('word is not null').groupBy('word').count()\n"
        'app.sink("counts", counts, fk.Kafka("counts", key="word"))\n'
        'fk.read(fk.Kafka("events", schema="word STRING")).select("word").explode("word", "w")\n'
        "print([m for m in sys.modules if m.partition('.')[0] in ('pyspark', 'py4j')])\n"
    )
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- topics ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a b", "a/b", "größe", "a" * 250, ".", "..", None, 5, "a\n"])
def test_a_topic_name_is_one_that_kafka_takes(name: Any) -> None:
    refused(lambda: fk.Kafka(name), "TOPIC_NAME_INVALID", topic=name)
    refused(lambda: fk.Kafka("t", dead_letters=name or ""), "TOPIC_NAME_INVALID")


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "..a", "a" * 249, "_hidden"])
def test_kafkas_own_topic_names_are_taken(name: str) -> None:
    assert fk.Kafka(name, dead_letters=name).topic == name


def test_options_of_a_topic_are_checked() -> None:
    refused(lambda: fk.Kafka("t", format="xml"), "OPTION_UNKNOWN", option="format", value="xml")  # type: ignore[arg-type]
    refused(lambda: fk.Kafka("t", starting="now"), "OPTION_UNKNOWN", option="starting", value="now")  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["", [], (), [""], ["a", 5]])
def test_a_key_names_columns(key: Any) -> None:
    refused(lambda: fk.Kafka("t", key=key), "KEY_INVALID", key=key)


def test_a_topic_knows_its_keys_and_columns() -> None:
    assert fk.Kafka("t").keys == ()
    assert fk.Kafka("t", key="a").keys == ("a",)
    assert fk.Kafka("t", key=["a", "b"]).keys == ("a", "b")
    assert fk.Kafka("t", format="text").ddl == "value STRING"
    assert fk.Kafka("t", format="binary").ddl == "value BINARY"
    assert fk.Kafka("t", key="a") == fk.Kafka("t", key="a")


def test_a_json_source_needs_a_schema() -> None:
    bare = lambda: fk.read(fk.Kafka("t"))  # noqa: E731
    refused(bare, "SCHEMA_MISSING", source="t")
    assert fk.read(fk.Kafka("t", format="text"))


# -- durations and policies --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30 seconds", 30), ("1 second", 1), ("500 ms", 0.5), ("500ms", 0.5), ("1.5 s", 1.5), ("2 minutes", 120),
     ("2m", 120), ("1 Hour", 3600), ("3 h", 10800), ("10 milliseconds", 0.01), (2, 2), (" 5  seconds ", 5),
     ("5 days", 432_000), ("1 d", 86_400), (timedelta(minutes=1.5), 90)],
)  # fmt: skip
def test_durations(text: Duration, seconds: float) -> None:
    assert duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "5", "seconds", "-5 seconds", "0 s", 0, -1, timedelta(0), timedelta(-1), "5 rooms", "5 items",
             "5 msms", "1 s 2 s", float("nan"), float("inf"), True, None, [5], "1e3 s"],
)  # fmt: skip
def test_what_is_no_duration_is_refused(text: Any) -> None:
    refused(lambda: duration_s(text), "DURATION_MALFORMED")
    refused(lambda: fk.Lazy(text), "DURATION_MALFORMED")
    refused(lambda: fk.App("a", buffer_timeout=text), "DURATION_MALFORMED")


def test_policies() -> None:
    assert fk.Lazy().interval_s == 10
    assert fk.Lazy("2 minutes").interval_s == 120
    refused(lambda: fk.Lazy("999 ms"), "INTERVAL_TOO_SHORT", interval="999 ms")
    for kind in (fk.Snapshots, fk.LogSends, fk.Acknowledged):
        assert (kind().interval_s, kind("2 minutes").interval_s) == (10, 120)
        with pytest.raises(fk.DefinitionError) as caught:
            kind(0.5)
        assert caught.value.parameters.items() >= {"interval": 0.5}.items()
    assert fk.Ephemeral().interval_s == fk.Eager().interval_s == 10, "unused, but every policy has an interval"
    assert isinstance(fk.Ephemeral(), Policy)


# -- applications ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a b", "a/b", "-a", "a" * 65, "ü", "../a", None])
def test_names_become_folders_and_topics_so_they_are_plain(name: Any) -> None:
    app = fk.App("a")
    app.source("events", EVENTS)
    refused(lambda: fk.App(name), "NAME_INVALID", name=name)
    refused(lambda: app.sink(name, "events", fk.Kafka("out")), "NAME_INVALID", name=name)
    refused(lambda: app.add_processor(name, lambda s: s, reads=("e",), policy=fk.Lazy()), "NAME_INVALID", name=name)


@pytest.mark.parametrize("number", [0, -1, 1.5, "2", None])
def test_state_partitions_are_counted(number: Any) -> None:
    refused(lambda: fk.App("a", state_partitions=number), "OPTION_UNKNOWN", option="state_partitions", value=number)


def test_the_address_of_a_broker_is_checked_when_declared() -> None:
    refused(lambda: fk.App("a", kafka="broker"), "BOOTSTRAP_INVALID")


def test_home_is_below_the_working_folder_by_default() -> None:
    assert fk.App("search").home == Path(".falkirk/search")
    assert fk.App("search", home="elsewhere").home == Path("elsewhere")


def test_names_are_unique() -> None:
    app = fk.App("a")
    app.source("events", EVENTS)
    app.add_processor("words", lambda s: s, reads=("events",), policy=fk.Lazy())
    app.sink("out", "words", fk.Kafka("out"))
    refused(lambda: app.source("events", EVENTS), "NAME_TAKEN", name="events")
    refused(lambda: app.source("words", EVENTS), "NAME_TAKEN", name="words")
    refused(lambda: app.add_processor("events", abs, reads=("x",), policy=fk.Lazy()), "NAME_TAKEN", name="events")  # type: ignore[arg-type]
    refused(lambda: app.add_processor("words", abs, reads=("x",), policy=fk.Lazy()), "NAME_TAKEN", name="words")  # type: ignore[arg-type]
    refused(lambda: app.sink("out", "words", fk.Kafka("other")), "NAME_TAKEN", name="out")
    app.sink("words", "words", fk.Kafka("sinks-may-be-called-like-what-they-read"))


def test_the_same_function_name_twice_names_the_second_line() -> None:
    app = fk.App("a")

    @app.stream()
    def words(events: fk.Stream) -> fk.Stream:
        return events

    with pytest.raises(fk.DefinitionError) as caught:

        @app.stream()
        def words(events: fk.Stream) -> fk.Stream:
            return events

    assert caught.value.condition == "NAME_TAKEN"
    assert isinstance(caught.value.where, SourceLocation)
    first = app.processors["words"].where
    assert caught.value.where.line - first.line == 6
    assert "def words(events" in first.text


def test_a_processor_reads_something() -> None:
    app = fk.App("a")
    with pytest.raises(fk.DefinitionError) as caught:

        @app.stream()
        def nothing() -> None: ...

    assert caught.value.condition == "UPSTREAM_MISSING"
    refused(lambda: app.add_processor("x", abs, reads=(), policy=fk.Lazy()), "UPSTREAM_MISSING", processor="x")  # type: ignore[arg-type]


def test_a_policy_is_an_instance_of_one() -> None:
    app = fk.App("a")
    refused(lambda: app.stream(fk.Lazy), "POLICY_UNKNOWN")  # type: ignore[arg-type]
    refused(lambda: app.stream("10 seconds"), "POLICY_UNKNOWN")  # type: ignore[arg-type]
    refused(lambda: app.stream(lambda events: events), "POLICY_UNKNOWN")  # type: ignore[arg-type]


def test_the_decorator_returns_the_function_as_it_was() -> None:
    app = fk.App("a")

    @app.stream(fk.Ephemeral())
    def words(events: fk.Stream) -> fk.Stream:
        return events

    source = fk.read(EVENTS)
    assert words(source) is source
    assert app.processors["words"].reads == ("events",)
    assert app.processors["words"].policy == fk.Ephemeral()


def test_sources_and_sinks_take_topics() -> None:
    app = fk.App("a")
    refused(lambda: app.source("events", "events"), "NOT_A_TOPIC")  # type: ignore[arg-type]
    refused(lambda: app.sink("out", "words", "out"), "NOT_AN_ENDPOINT")  # type: ignore[arg-type]
    refused(lambda: fk.read("events"), "NOT_A_TOPIC")  # type: ignore[arg-type]
    refused(lambda: fk.read(EVENTS).write("out", kafka="b:1"), "NOT_A_TOPIC")  # type: ignore[arg-type]


def test_delivery_is_one_of_three() -> None:
    app = fk.App("a")
    topic = fk.Kafka("out")
    refused(lambda: app.sink("out", "words", topic, delivery="twice"), "DELIVERY_UNKNOWN", delivery="twice")
    for number, name in enumerate(("exactly-once", "repeated", "at-most-once")):
        app.sink(f"out{number}", "words", fk.Kafka(f"out{number}"), delivery=name)
        assert app.sinks[f"out{number}"].delivery == fk.Delivery(name)


def test_a_sink_reads_what_has_a_name() -> None:
    app = fk.App("a")
    events = app.source("events", EVENTS)
    app.sink("copy", events, fk.Kafka("copy"))
    assert app.sinks["copy"].reads == "events"
    topic = fk.Kafka("out")
    refused(lambda: app.sink("out", events.select("word"), topic), "UPSTREAM_UNNAMED", sink="out")
    refused(lambda: app.sink("out", fk.read(EVENTS), topic), "UPSTREAM_UNNAMED", sink="out")
    refused(lambda: app.sink("out", None, topic), "UPSTREAM_UNNAMED", sink="out")  # type: ignore[arg-type]
    refused(lambda: app.sink("out", 5, topic), "UPSTREAM_UNNAMED", sink="out")  # type: ignore[arg-type]


# -- streams -----------------------------------------------------------------------------------------------------------


def test_a_stream_records_steps_with_their_lines() -> None:
    stream = fk.read(EVENTS)
    changed = stream.select("word").where("n > 1").drop("n")
    assert stream.node is not changed.node
    node: Any = changed.node
    operations = []
    while hasattr(node, "parent"):
        operations.append((node.operation, Path(node.where.file).name))
        node = node.parent
    assert operations == [(name, "test_declare.py") for name in ("drop", "where", "select")]


@pytest.mark.parametrize("method", ["crossJoin", "intersect", "distinct", "writeStream", "count", "show", "limit"])
def test_what_a_stream_lacks_is_named(method: str) -> None:
    stream = fk.read(EVENTS)
    error = refused(lambda: getattr(stream, method)(), "UNSUPPORTED_METHOD", method=method)
    assert "groupBy" in error.hint
    assert "node" not in error.hint
    assert "@app.stream(fk.Eager()) or @app.batch(…)" in error.hint, "where the method exists"


@pytest.mark.parametrize("attribute", ["columns", "schema", "dtypes", "printSchema"])
def test_a_stream_knows_no_columns_before_it_is_planned(attribute: str) -> None:
    for stream in (fk.read(EVENTS), fk.read(EVENTS).where("n > 1")):
        error = refused(lambda given=stream: getattr(given, attribute), "UNSUPPORTED_METHOD", method=attribute)
        assert isinstance(error, AttributeError)
        assert "plans the application" in str(error)
        assert "schema=" in error.hint


@pytest.mark.parametrize("method", ["first", "pivot", "applyInPandas", "write"])
def test_what_a_grouped_stream_lacks_is_named(method: str) -> None:
    grouped = fk.read(EVENTS).groupBy("word")
    error = refused(lambda: getattr(grouped, method)("n"), "UNSUPPORTED_METHOD", method=method)
    assert "agg, avg, count" in error.hint
    assert isinstance(error, AttributeError)
    assert not hasattr(grouped, method)


@pytest.mark.parametrize("function", ["sum", "avg", "min", "max"])
def test_the_shortcuts_of_a_group_are_aggregates_with_pysparks_names(function: str) -> None:
    grouped = fk.read(EVENTS).groupBy("word")
    node: Any = getattr(grouped, function)("n", "a`b").node
    columns = (f"{function}(`n`) AS `{function}(n)`", f"{function}(`a``b`) AS `{function}(a``b)`")
    assert (node.operation, node.arguments, Path(node.where.file).name) == (
        "agg", (("word",), columns), "test_declare.py",
    )  # fmt: skip
    for wrong in ((), (1,), ("",)):
        refused(lambda given=wrong: getattr(grouped, function)(*given), "AGGREGATE_MISSING")


def test_a_notebook_is_told_to_start_the_application_in_its_own_process() -> None:
    outside_a_file = {"app": fk.App("plain", kafka="broker:9092")}
    with pytest.raises(fk.DefinitionError) as caught:
        exec("app.run()", outside_a_file)
    assert caught.value.condition == "APPLICATION_MISSING"
    assert "app.start()" in caught.value.hint


def test_a_start_elsewhere_leaves_the_home_as_it_was_declared() -> None:
    app = fk.App("plain", home="declared")
    with pytest.raises(fk.DefinitionError) as caught:
        app.start(home="elsewhere")
    assert caught.value.condition == "BROKER_MISSING"
    assert app.home == Path("declared")


def test_a_stream_shows_its_steps() -> None:
    assert repr(fk.read(EVENTS).where("n > 1").groupBy("word").sum("n")) == "Stream('events').where(…).agg(…)"


def test_protocols_that_a_stream_lacks_are_lacking_politely() -> None:
    for name in ("_repr_html_", "__len__", "_ipython_canary_method_should_not_exist_"):
        assert not hasattr(fk.read(EVENTS), name)
        assert not hasattr(fk.read(EVENTS).groupBy("word"), name)


def test_grouping_needs_keys_and_aggregates() -> None:
    stream = fk.read(EVENTS)
    refused(lambda: stream.groupBy(), "KEY_MISSING")
    refused(lambda: stream.groupBy("word").agg(), "AGGREGATE_MISSING")


def test_latest_has_a_name() -> None:
    assert fk.latest_value("n").name == "n"
    assert fk.latest_value("n").alias("newest").name == "newest"


def test_write_needs_a_broker_and_names_the_line() -> None:
    stream = fk.read(EVENTS)
    refused(lambda: stream.write(fk.Kafka("out")), "BROKER_MISSING")


# -- loading -----------------------------------------------------------------------------------------------------------


def test_loading_returns_the_application_without_running_it(tmp_path: Path) -> None:
    (tmp_path / "helper_of_app.py").write_text("import falkirk as fk\nTOPIC = fk.Kafka('t', format='text')\n")
    file = tmp_path / "app.py"
    file.write_text(
        "import falkirk as fk\nfrom helper_of_app import TOPIC\n"
        "app = same = fk.App('loaded')\napp.source('t', TOPIC)\napp.run()\n"
        "if __name__ == '__main__':\n    raise SystemExit('must not run')\n"
    )
    assert load_application(file).name == "loaded"


@pytest.mark.parametrize(
    ("text", "condition"),
    [(None, "FILE_MISSING"), ("", "APPLICATION_MISSING"), ("def make(): ...", "APPLICATION_MISSING"),
     ("import falkirk as fk\na = fk.App('a')\nb = fk.App('b')", "APPLICATIONS_SEVERAL"),
     ("import falkirk as fk\na = fk.App('a b')", "NAME_INVALID")],
)  # fmt: skip
def test_loading_refuses(tmp_path: Path, text: str | None, condition: str) -> None:
    file = tmp_path / "app.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(fk.DefinitionError) as caught:
        load_application(file)
    assert caught.value.condition == condition
    if condition == "NAME_INVALID":
        assert isinstance(caught.value.where, SourceLocation)
        assert (caught.value.where.file, caught.value.where.line) == (str(file), 2)


def test_loading_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(fk.DefinitionError) as caught:
        load_application(tmp_path)
    assert caught.value.condition == "FILE_MISSING"
