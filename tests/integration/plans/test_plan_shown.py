"""`falkirk plan` as its user sees it: a screen, the details of one output, the graph, and a plan's number of calls."""

import io
import json
import re
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from pyspark.sql import functions as F
from rich.console import Console

import falkirk as fk
from falkirk.cli import main
from falkirk.declare.cut import ByClock, ByRows, ByTime, Cut, OnArrival
from falkirk.plan.explain.screen import Shown
from falkirk.plan.guarantees import ends, epochs, promises_of
from falkirk.plan.planner import plan_application
from falkirk.plan.slots import region_slots
from falkirk.steps.static_analysis.structure import plan_tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]
SEARCH, PAGE = ROOT / "examples" / "search.py", ROOT / "docs" / "applications.md"
pytestmark = pytest.mark.usefixtures("spark")


def invoked(*arguments: str) -> tuple[int, str, str]:
    """Return the exit code of `falkirk plan`, its output and its standard error."""
    result = CliRunner().invoke(main, ["plan", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_the_plan_of_the_search_engine_fits_a_screen() -> None:
    code, text, error = invoked(str(SEARCH))
    assert (code, error) == (0, "")
    lines = text.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    rows = {line.split()[0]: re.split(r" {2,}", line)[1:] for line in lines if "→" in line}
    assert list(rows) == ["index", "answers", "weights", "rank", "statistics"]
    assert rows["index"] == ["exactly once", "immediately", "deterministic"]
    why = " ".join(re.split(r" {2,}", line)[-1] for line in lines[: lines.index("", 2)])
    differs = r"lookup\(\) in answers, line \d+: may differ, but "
    assert re.search(f"{differs}affects one result only", why)
    assert re.search(f"{differs}is recorded before statistics reads it", why)
    reads = {line.split()[0]: re.split(r" {2,}", line)[-1] for line in lines if ", every " in line and "→" not in line}
    assert reads["postings"] == "hop index-out"
    assert rows["weights"] == ["exactly once", "per epoch, every 10 s", "deterministic"]
    for name in ("index-by-word", "postings", "rank", "answers"):
        assert sum(line.startswith(f"{name} ") for line in lines) >= 1, name
    assert any(line.startswith("Core slots (threads): 14 needed, one per live Spark task.") for line in lines)
    assert any(line.startswith("index-by-word (words, and index before") for line in lines)
    assert any(line.startswith("index (copy in topic index)") for line in lines)
    assert "--why" in lines[-1]
    assert {"live", "hop X", "epoch", "newest X"} <= {line.partition(": ")[0] for line in lines}, "terms are explained"


def program_of_page(folder: Path, processor: str) -> str:
    """Write the program of docs/applications.md with this processor to a file; return its path."""
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (program,) = [text for text in programs if f"def {processor}(" in text]
    file = folder / f"{processor}.py"
    file.write_text(program)
    return str(file)


def test_the_plan_on_the_page_is_the_one_that_is_shown(tmp_path: Path) -> None:
    code, text, _ = invoked(program_of_page(tmp_path, "sales"))
    assert code == 0
    assert textwrap.indent(text, "    ", str.strip) in PAGE.read_text()


def test_the_output_that_waits_on_the_page_is_the_one_that_is_shown(tmp_path: Path) -> None:
    file = program_of_page(tmp_path, "vouchers")
    code, text, _ = invoked(file)
    _, outputs, _ = text.split("\n\n", 2)
    assert code == 0
    assert textwrap.indent(outputs, "    ") in PAGE.read_text()
    _, details, _ = invoked(file, "--why", "vouchers")
    value = "`uuid()` gives a different value in a replay (its values are random). "
    reason = (
        f"{value}Several results of one record share this value, so these results wait for a checkpoint of vouchers."
    )
    assert reason in " ".join(details.split())
    assert reason in " ".join(PAGE.read_text().split())


def test_the_details_of_an_output_and_one_that_there_is_not() -> None:
    code, text, _ = invoked(str(SEARCH), "--why", "answers")
    assert (code, text.splitlines()[0]) == (0, "answers → topic answers")
    told = " ".join(text.split())
    assert "`lookup()` may give a different value in a replay (a lookup reads" in told
    facts = [line[13:] for line in text.splitlines() if len(line) > 70 and not re.search(r"search\.py:\d", line)]
    assert len(facts) == len(set(facts)), "each fact is told once, for all regions that share it"
    assert "The lookup() of rank runs live in the same way." in told
    assert 'asked.lookup(postings, {"word": "words"}, "hits", epoch="postings_epoch")' in told
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 100, "also if nobody has a terminal"
    assert "\x1b" not in text, "no colours"
    code, _, error = invoked(str(SEARCH), "--why", "answer")
    assert code == 1
    assert error.startswith("SINK_UNKNOWN ")
    assert "index, answers, weights, rank, statistics" in error


def test_the_plan_as_json_has_the_reasons_as_data() -> None:
    code, text, _ = invoked(str(SEARCH), "--json")
    sinks = {sink["sink"]: sink for sink in json.loads(text)["sinks"]}
    assert code == 0
    (independent,) = [each for each in sinks["answers"]["details"] if each["kind"] == "independent"]
    assert (independent["processor"], independent["operations"]) == ("answers", ["NewestEpoch"])
    assert "search.py:" in independent["declared"]
    assert sinks["answers"]["release"] == "on arrival"
    assert (sinks["index"]["when"], sinks["index"]["why"]) == ("immediately", "deterministic")
    assert sinks["index"]["release"] == "on arrival"


def planned(spark: "SparkSession", **names: str) -> Shown:
    """Plan a stream with a random value that several results share, behind a source and a processor of these names."""
    app = fk.App("shown")
    app.source("events", fk.Kafka(names.get("topic", "events"), schema="s STRING, a ARRAY<STRING>", key="s"))
    body = lambda s: s.withColumn("r", F.rand()).explode("a", "part")  # noqa: E731
    app.add_processor("random", body, reads=("events",), policy=fk.Lazy("20 seconds"))
    app.sink(names.get("sink", "out"), "random", fk.Kafka(names.get("out", "out")))
    if "folder" in names:
        copied: Any = lambda random: random  # noqa: E731
        app.add_processor("copied", copied, reads=("random",), policy=fk.Eager(), cut=ByRows(rows=5))
        app.sink("files", "copied", fk.Files(names["folder"], format="json"))
    plan = plan_application(app, spark, "deadbeef")
    slots = tuple(region_slots(region, 2, 2) for region in plan.regions)
    return Shown(plan=plan, slots=slots, available=1)


def test_too_few_slots_and_what_waits_are_told(spark: "SparkSession") -> None:
    out = io.StringIO()
    Console(file=out).print(planned(spark).renderable(), soft_wrap=True)
    text = out.getvalue()
    assert "exactly once  after a checkpoint, ≤ 20 s  rand() in random, line " in text
    assert "Warning: 2 core slots are needed and 1 available." in text
    assert "--why out" in text


CUTS = [
    (ByClock(every_s=60), "every 1 min", "An epoch ends every 1 min, by the clock.", "every 60 s, by the clock"),
    (ByRows(rows=1_000), "every 1,000 records", "An epoch ends after 1,000 records.", "with 1,000 records"),
    (
        OnArrival(),
        "whenever records arrive",
        "An epoch has all records that have arrived when the one before it is done.",
        "as soon as a record arrives",
    ),
    (
        ByTime(column="at", every_us=60_000_000, late_us=10_000_000, over=5),
        "every 1 min of event time (`at`)",
        "An epoch ends every 1 min of event time (`at`). Each epoch covers the last 5 min. "
        "Rows may be up to 10 s late.",
        "when at has passed each 60 s, over 300 s, rows 10 s late at most",
    ),
]


@pytest.mark.parametrize(("cut", "cell", "sentence", "recorded"), CUTS, ids=lambda each: type(each).__name__)
def test_table_and_sentence_name_the_end_of_an_epoch_in_one_unit(
    cut: Cut | ByTime, cell: str, sentence: str, recorded: str
) -> None:
    """The text that homes have recorded does not change with them."""
    assert (epochs(cut), ends(cut), str(cut)) == (cell, sentence, recorded)


def test_no_line_is_wider_than_the_terminal(spark: "SparkSession") -> None:
    out, shown = io.StringIO(), planned(spark, sink="a-sink-with-a-rather-long-name", out="a.topic.with.a.long.name")
    for told in (shown.renderable(60), shown.why("a-sink-with-a-rather-long-name", 60)):
        Console(file=out).print(told, soft_wrap=True)
    assert max(map(len, out.getvalue().splitlines())) <= 60
    assert "a.topic.with.a.long.name" in out.getvalue().replace("\n", "")


NODE = re.compile(r'(?:subgraph )?\w+(?:\[/|\[\(|\(\[|\[\[|\[)"[^"\[\]{}<>]*"(?:/\]|\)\]|\]\)|\]\]|\])')
EDGE = re.compile(r"\w+ (?:-->|-\. [a-z ]+ \.->) \w+")


ODD = {"sink": "end", "folder": 'say "hi" [x](y) #1 <br> `'}


@pytest.mark.parametrize("names", [{}, {"topic": "a.b-c_d", "out": "x.y-z"}, ODD], ids=["plain", "dots", "odd"])
def test_the_graph_is_mermaid_whatever_names_there_are(spark: "SparkSession", names: dict[str, str]) -> None:
    first, *lines = planned(spark, **names).mermaid().splitlines()
    assert first == "flowchart LR"
    for line in (each.strip() for each in lines):
        assert line == "end" or NODE.fullmatch(line) or EDGE.fullmatch(line), line
    declared = {match[1] for line in lines if (match := re.match(r"\s*(?:subgraph )?(\w+)[\[(]", line))}
    ends = {end for line in lines if EDGE.fullmatch(line.strip()) for end in (line.split()[0], line.split()[-1])}
    assert ends <= declared
    assert sum("after a checkpoint" in line for line in lines) == 1


def test_the_graph_has_all_parts_of_the_search_engine() -> None:
    _, text, _ = invoked(str(SEARCH), "--graph", "mermaid")
    for part in ("topic modules", "POST /search", "hop index-by-word", "index (live)", "rank (every 15 s)"):
        assert f'"{part}"' in text or f'"{part}' in text, part
    assert "table statistics" in text


def test_a_plan_is_turned_into_json_once(spark: "SparkSession") -> None:
    data = spark.range(1)
    assert plan_tree(data) is plan_tree(data)
    assert plan_tree(data) is not plan_tree(spark.range(1))


def test_a_streams_function_is_called_twice_for_a_plan(spark: "SparkSession") -> None:
    """Two calls show a random value of Python's; more would only take time."""
    calls = Counter[str]()

    def counted(name: str) -> Any:
        def body(stream: fk.Stream) -> fk.Stream:
            calls[name] += 1
            return stream.where("s <> ''")

        return body

    app, read = fk.App("called"), "events"
    app.source("events", fk.Kafka("events", schema="s STRING"))
    for name in ("one", "two", "three"):
        app.add_processor(name, counted(name), reads=(read,), policy=fk.Lazy())
        read = name
    app.sink("out", read, fk.Kafka("out"))
    plan = plan_application(app, spark, "deadbeef")
    assert calls == {"one": 2, "two": 2, "three": 2}
    assert [promise.why for promise in promises_of(plan)] == ["deterministic"]
