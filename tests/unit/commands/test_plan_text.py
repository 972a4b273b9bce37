"""The text of a plan, without Spark: the tutorial's plan, and a plan whose results wait."""

import io
import re
from dataclasses import replace
from pathlib import Path

from rich.console import Console, RenderableType

import falkirk as fk
from falkirk.declare.endpoints import Kafka
from falkirk.declare.nodes import SourceNode
from falkirk.errors.location import SourceLocation
from falkirk.plan.explain.screen import Shown
from falkirk.plan.guarantees import promises_of
from falkirk.plan.plan import Plan
from falkirk.plan.reasons import IN_KEY, Undetermined
from falkirk.plan.region import Hop, Region
from falkirk.plan.slots import region_slots
from falkirk.steps.static_analysis.properties import Properties
from tests.unit.regions import region_under

TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial.md"
HOP = "falkirk.website.HOME.total-by-target"
LINE = SourceLocation(file="website.py", line=8, text='pages.withColumn("target", F.expr("uuid()"))')


def text_of(shown: RenderableType) -> str:
    out = io.StringIO()
    Console(file=out).print(shown, soft_wrap=True)
    return out.getvalue()


def planned(first: Region, last: Region) -> Shown:
    """Return a plan of these two regions."""
    known = {name: Properties() for name in ("pairs", "total")}
    plan = Plan(application="website", regions=(first, last), batches=(), properties=known, state_partitions=2)
    slots = tuple(region_slots(region, 2, 2) for region in plan.regions)
    note = "no broker is named (--kafka HOST:PORT), so 2 partitions are assumed for each topic."
    return Shown(plan=plan, slots=slots, available=8, is_provided=True, home=Path("website-home"), notes=(note,))


def regions() -> tuple[Region, Region]:
    """Return the two regions of the tutorial."""
    first, last = (
        region_under("total-by-target", fk.Lazy("5 seconds")),
        region_under("popularity", fk.Lazy("5 seconds")),
    )
    pages, hop = Kafka("pages", schema="page STRING"), Kafka(HOP, schema="page STRING")
    read, read_hop = SourceNode(name="pages", topic=pages), SourceNode(name="total-by-target", topic=hop, is_hop=True)
    first = replace(
        first, processors=("pairs", "total"), source=read, node=read, output=hop, stateful=False,
        hop=Hop(topic=HOP, keys=("target",), reason="the source pages has no `key=`"),
    )  # fmt: skip
    return first, replace(
        last, processors=("total",), source=read_hop, node=read_hop, reads_hop=True, output=Kafka("links-per-page")
    )


def test_the_overview_is_the_one_of_the_tutorial() -> None:
    shown = text_of(planned(*regions()).renderable())
    [on_page] = re.findall(
        r"^```text\n(application website · home.*?)^```$", TUTORIAL.read_text(), re.DOTALL | re.MULTILINE
    )
    assert shown == on_page


def test_the_overview_names_a_home_in_an_object_store() -> None:
    shown = replace(planned(*regions()), data="s3a://company-data/website")
    assert "application website · home s3a://company-data/website (checkpoints)" in text_of(shown.renderable())


def test_a_result_that_waits_names_its_line_the_value_and_what_follows() -> None:
    first, last = regions()
    cause = Undetermined(operations=("Uuid",), processor="pairs", where=LINE, why=IN_KEY)
    first = replace(first, deterministic=False, undetermined=cause)
    held = Kafka("falkirk.website.HOME.popularity-held")
    last = replace(last, released_to=last.output, output=held, deterministic=False, undetermined=cause)
    shown = planned(first, last)
    assert [promise.why for promise in promises_of(shown.plan)] == ["uuid() in pairs, line 8: differs in a replay"]
    why = text_of(shown.why("popularity", 100))
    assert max(map(len, why.splitlines())) <= 100
    told = " ".join(why.split())
    assert (
        "`uuid()` gives a different value in a replay (its values are random). This value is part of the key." in told
    )
    assert 'website.py:8: pages.withColumn("target", F.expr("uuid()"))' in told
    assert "(HOME stands for the identity of the home" in told
    assert (
        "total-by-target (pairs, and total before groupBy): live, reads topic pages, writes hop total-by-target" in told
    )
    assert (
        "popularity (total): live, reads hop total-by-target, writes the held log, from which Falkirk copies to topic"
        in told
    )
    for term in ("home", "region", "live", "hop X", "replay", "deterministic"):
        assert f" {term}: " in told


def test_the_statement_of_a_reason_is_quoted_whole_and_once(tmp_path: Path) -> None:
    file = tmp_path / "website.py"
    file.write_text('rows = (\n    pages.withColumn(\n        "target",\n        F.expr("uuid()"),\n    )\n)\n')
    where = SourceLocation(file=str(file), line=2, text="pages.withColumn(")
    first, last = regions()
    causes = [Undetermined(operations=(name,), processor="pairs", where=where, why=IN_KEY) for name in ("Uuid", "Rand")]
    first = replace(first, deterministic=False, undetermined=causes[0])
    held = Kafka("falkirk.website.HOME.popularity-held")
    last = replace(last, released_to=last.output, output=held, deterministic=False, undetermined=causes[1])
    why = text_of(planned(first, last).why("popularity", 100))
    assert why.count('4          F.expr("uuid()"),') == 1
    assert "website.py:2:\n" in why
    assert "website.py:2: pages.withColumn(\n" in why
