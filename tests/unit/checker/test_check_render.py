"""A verdict is shown in plain words, and as JSON with stable names."""

import json
import re
from decimal import Decimal
from pathlib import Path

import pytest
from rich.console import Console

from falkirk.checker import (
    AggregateModel,
    Count,
    InputRow,
    Kind,
    NoGaps,
    OutputRow,
    RowPlace,
    Sum,
    Unique,
    Verdict,
    check_keyed,
    check_stateless,
    render,
    to_json,
)

DOCS = Path(__file__).parents[3] / "docs"
COUNTS = AggregateModel(["k"], {"n": Count(), "total": Sum("x")})


def judged(*found: tuple[int, str]) -> Verdict:
    """Return the verdict on two input rows of 1.5 and these outputs (count, total)."""
    inputs = [
        InputRow(key="[red]", place=RowPlace("in", 0, n), row={"k": "[red]", "x": Decimal("1.5")}) for n in range(2)
    ]
    outputs = [
        OutputRow(key="[red]", place=RowPlace("out", 0, n), values={"k": "[red]", "n": count, "total": Decimal(total)})
        for n, (count, total) in enumerate(found)
    ]
    return check_keyed(inputs, outputs, COUNTS)


def shown(verdict: Verdict, **limits: int) -> str:
    console = Console(width=160, no_color=True)
    with console.capture() as capture:
        console.print(render(verdict, **limits))
    return capture.get()


def test_a_good_verdict_is_short() -> None:
    text = shown(judged((1, "1.5"), (2, "3.0")))
    assert text.startswith("exactly-once")
    assert "explanation" not in text


def labels(text: str) -> list[str]:
    """Return the labels of the numbers below a verdict."""
    return re.findall(r"^(\w[^:\n]*?)  +\d+$", text, re.MULTILINE)


@pytest.mark.parametrize("page", ["tutorial.md", "how-to/from-structured-streaming.md"])
def test_a_page_with_a_verdict_shows_what_is_printed(page: str) -> None:
    printed = shown(judged((1, "1.5"), (2, "3.0")))
    (on_page,) = re.findall(r"^exactly-once: .*?^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
    assert on_page.splitlines()[:2] == printed.splitlines()[:2]
    assert labels(on_page) == labels(printed)
    assert len(labels(printed)) == 11


def test_faults_have_the_names_of_the_page_and_of_anomalies() -> None:
    table = (DOCS / "check.md").read_text().partition("| anomaly | meaning |")[2].partition("\n\n")[0]
    on_page = re.findall(r"^\| ([a-z ]+) \|", table, re.MULTILINE)
    printed = [label.partition(" (")[0] for label in labels(shown(judged((1, "1.5"), (2, "3.0"))))]
    assert printed[-len(on_page) :] == on_page
    assert set(on_page) <= {kind.value for kind in Kind}
    assert len(on_page) == 7


def test_an_anomaly_shows_its_key_as_it_is_and_its_places() -> None:
    text = shown(judged((1, "1.5"), (2, "3.0"), (2, "3.0")))
    assert text.startswith("repeated delivery with exact state")
    assert "[red]" in text
    assert "the output at out/0@1 is repeated at out/0@2" in text


def test_consistency_is_shown_and_so_is_what_breaks_it() -> None:
    assert "\nconsistent" in shown(judged((1, "1.5")))
    verdict = judged((1, "1.5"), (2, "3.0"), (2, "3.0"))
    assert "inconsistent: the output at out/0@2" in shown(verdict)
    decoded = json.loads(json.dumps(to_json(verdict)))["consistency"]
    assert (decoded["holds"], decoded["inconsistent_keys"], decoded["first"]["kind"]) == (False, 1, "inconsistent")
    assert [place["offset"] for place in decoded["first"]["outputs"]] == [1, 2]


def test_rules_are_shown_below_the_verdict() -> None:
    outputs = [OutputRow(key="k", place=RowPlace("out", 0, n), values={"n": 1}) for n in range(2)]
    text = shown(check_keyed([], outputs, COUNTS, rules=[NoGaps("n"), Unique("id")]))
    assert "rule no gaps in n is broken" in text
    assert "1 came after 1, at out/0@0 and out/0@1" in text.replace("\n", " ")
    assert "rule unique id is broken" in text


def test_what_is_not_shown_is_counted() -> None:
    text = shown(judged(), anomalies_shown=1)
    assert "and 1 more" in text


def test_json_has_plain_values_only() -> None:
    verdict = judged((1, "1.5"))
    decoded = json.loads(json.dumps(to_json(verdict)))
    assert decoded["guarantee"] == "at-most-once"
    assert decoded["holds"]["exactly-once"] is False
    assert decoded["counts"]["lost"] == 1
    [anomaly] = decoded["anomalies"]
    assert anomaly["inputs"] == [{"topic": "in", "partition": 0, "offset": 1, "sub_index": 0}]
    assert anomaly["expected"] == {"k": "[red]", "n": 2, "total": 3.0}


def test_an_output_without_a_key_is_shown_by_its_content() -> None:
    verdict = check_stateless([], [OutputRow(key=None, place=RowPlace("out", 0, 0), values={"text": "hello"})])
    assert verdict.anomalies[0].key is None
    assert "text=hello" in shown(verdict)
    json.dumps(to_json(verdict))


def test_a_missing_row_is_a_result_of_its_input() -> None:
    rows = [InputRow(key=key, place=RowPlace("in", 0, 7, 1), row={"n": 1}) for key in (None, "a")]
    for row in rows:
        [anomaly] = check_stateless([row], []).anomalies
        assert anomaly.explanation == "a result of the input at in/0@7#1 is missing"
