"""The text of a plan, without Spark: the tutorial's plan, and a plan whose results wait."""

import io
import re
from dataclasses import replace
from pathlib import Path

from rich.console import Console, RenderableType

import falkirk as fk
from falkirk.analysis.properties import Properties
from falkirk.declare.endpoints import Kafka
from falkirk.declare.nodes import SourceNode
from falkirk.errors.location import SourceLocation
from falkirk.plan.guarantees import promises_of
from falkirk.plan.plan import Plan
from falkirk.plan.reasons import IN_KEY, Undetermined
from falkirk.plan.region import Hop, Region
from falkirk.plan.shown.screen import Shown
from falkirk.plan.slots import region_slots
from tests.unit.regions import region_under

TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial.md"
HOP = "falkirk.links.HOME.counts-by-link"
LINE = SourceLocation(file="links.py", line=8, text='pages.withColumn("link", F.expr("uuid()"))')


def text_of(shown: RenderableType) -> str:
    out = io.StringIO()
    Console(file=out).print(shown, soft_wrap=True)
    return out.getvalue()


def planned(first: Region, last: Region) -> Shown:
    """Return a plan of these two regions."""
    known = {name: Properties() for name in ("links", "counts")}
    plan = Plan(application="links", regions=(first, last), batches=(), properties=known, state_partitions=2)
    slots = tuple(region_slots(region, 2, 2) for region in plan.regions)
    note = "no broker is named (--kafka HOST:PORT), so 2 partitions are assumed for each topic."
    return Shown(plan=plan, slots=slots, available=8, is_provided=True, home=Path("links-home"), notes=(note,))


def regions() -> tuple[Region, Region]:
    """Return the two regions of the tutorial."""
    first, last = region_under("counts-by-link", fk.Lazy("5 seconds")), region_under("counts", fk.Lazy("5 seconds"))
    pages, hop = Kafka("pages", schema="page STRING"), Kafka(HOP, schema="page STRING")
    read, read_hop = SourceNode(name="pages", topic=pages), SourceNode(name="counts-by-link", topic=hop, is_hop=True)
    first = replace(
        first, processors=("links", "counts"), source=read, node=read, output=hop, stateful=False,
        hop=Hop(topic=HOP, keys=("link",), reason="the source pages has no `key=`"),
    )  # fmt: skip
    return first, replace(last, source=read_hop, node=read_hop, reads_hop=True, output=Kafka("links-per-page"))


def test_the_overview_is_the_one_of_the_tutorial() -> None:
    shown = text_of(planned(*regions()).renderable())
    [on_page] = re.findall(r"^```text\n(links · home.*?)^```$", TUTORIAL.read_text(), re.DOTALL | re.MULTILINE)
    assert shown == on_page


def test_a_result_that_waits_names_its_line_the_value_and_what_follows() -> None:
    first, last = regions()
    cause = Undetermined(operations=("Uuid",), processor="links", where=LINE, why=IN_KEY)
    first = replace(first, deterministic=False, undetermined=cause)
    held = Kafka("falkirk.links.HOME.counts-held")
    last = replace(last, released_to=last.output, output=held, deterministic=False, undetermined=cause)
    shown = planned(first, last)
    assert [promise.why for promise in promises_of(shown.plan)] == ["uuid() in links, line 8: differs in a replay"]
    why = text_of(shown.why("counts", 100))
    assert max(map(len, why.splitlines())) <= 100
    told = " ".join(why.split())
    assert "`uuid()` gives another value in a replay (its values are random). This value is part of the key." in told
    assert 'links.py:8: pages.withColumn("link", F.expr("uuid()"))' in told
    assert "(HOME stands for the identity of the home" in told
    assert (
        "counts-by-link (links, and counts before groupBy): live, reads topic pages, writes hop counts-by-link" in told
    )
    assert "counts: live, reads hop counts-by-link, writes the held log, from which Falkirk copies to topic" in told
    for term in ("home", "region", "live", "hop X", "replay", "deterministic"):
        assert f" {term}: " in told


def test_the_statement_of_a_reason_is_quoted_whole_and_once(tmp_path: Path) -> None:
    file = tmp_path / "links.py"
    file.write_text('rows = (\n    pages.withColumn(\n        "link",\n        F.expr("uuid()"),\n    )\n)\n')
    where = SourceLocation(file=str(file), line=2, text="pages.withColumn(")
    first, last = regions()
    causes = [Undetermined(operations=(name,), processor="links", where=where, why=IN_KEY) for name in ("Uuid", "Rand")]
    first = replace(first, deterministic=False, undetermined=causes[0])
    held = Kafka("falkirk.links.HOME.counts-held")
    last = replace(last, released_to=last.output, output=held, deterministic=False, undetermined=causes[1])
    why = text_of(planned(first, last).why("counts", 100))
    assert why.count('4          F.expr("uuid()"),') == 1
    assert "links.py:2:\n" in why
    assert "links.py:2: pages.withColumn(\n" in why
