"""The verdict on a sink of a live region, as `falkirk verify outputs` shows it."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import falkirk as fk
from falkirk.checker import InputRow, OutputRow, RowPlace, Verdict, check_stateless
from falkirk.platform.terminal import Terminal
from falkirk.recovery.ownership.folder import open_home
from falkirk.theory.ids import LogId, Offset
from falkirk.theory.offsets import PartitionRange
from falkirk.user_tools.commands.invalid_results import InvalidResults, ValidRecords, invalid_ranges
from falkirk.user_tools.commands.judge import LiveVerdict
from falkirk.user_tools.commands.judge_outputs import _as_dict, render_live


def verdict(due: int, found: int) -> Verdict:
    inputs = [InputRow(key=None, place=RowPlace("in", 0, n), row={"n": n}) for n in range(due)]
    outputs = [OutputRow(key=None, place=RowPlace("out", 0, n), values={"n": n}) for n in range(found)]
    return check_stateless(inputs, outputs)


def shown(results: Verdict, letters: Verdict | None) -> str:
    out = io.StringIO()
    Terminal(file=out, width=120).print(render_live(LiveVerdict(results=results, letters=letters)))
    return out.getvalue()


def test_right_dead_letters_take_one_line() -> None:
    text = shown(verdict(3, 3), verdict(2, 2))
    assert "its dead letters: exactly-once, 2 due" in text
    assert "counts as lost" not in text
    assert "dead letters" not in shown(verdict(3, 3), None)


def test_lost_results_and_dead_letters_may_only_be_late() -> None:
    for results, letters in ((verdict(3, 2), None), (verdict(3, 3), verdict(2, 1))):
        assert "A result that is not published yet counts as lost." in shown(results, letters)
    wrong = shown(verdict(3, 3), verdict(1, 2))
    assert "unexplained" in wrong.partition("its dead letters:")[2]
    assert "counts as lost" not in wrong


def test_results_from_before_a_forced_rollback_are_named_and_not_judged() -> None:
    """Before, they counted as duplicates, and nothing said why."""
    ranges = (PartitionRange(0, Offset(2), Offset(4)), PartitionRange(1, Offset(0), Offset(1)))
    valid = ValidRecords(ranges)
    records = [SimpleNamespace(partition=p, place=RowPlace("out", p, n)) for p in (0, 1, 2) for n in range(5)]
    places = [(r.partition, r.place.offset) for r in valid.of(cast(Any, records))]
    assert set(places) == {(p, n) for p in (0, 1, 2) for n in range(5)} - {(0, 2), (0, 3), (1, 0)}
    invalid = valid.found
    assert invalid == InvalidResults(count=3, ranges=ranges)
    found = LiveVerdict(results=verdict(3, 3), letters=None, invalid=invalid)
    out = io.StringIO()
    Terminal(file=out, width=160).print(render_live(found))
    assert "3 results that a rollback made invalid are not judged: partition 0, offsets 2 to 3;" in out.getvalue()
    told = _as_dict(found)
    offsets = [{"partition": 0, "first": 2, "last": 3}, {"partition": 1, "first": 0, "last": 0}]
    assert told["invalid_results"] == {"count": 3, "offsets": offsets}
    assert told["invalid_dead_letters"] is None


def test_the_home_names_the_results_that_a_rollback_made_invalid(tmp_path: Path) -> None:
    app = fk.App("shop", kafka="127.0.0.1:1", home=tmp_path)
    assert invalid_ranges(app, None)("out") == (), "it has never run"
    with open_home(tmp_path, app.name) as home:
        home.store.open_recovery("asked for", {}, voids=[(LogId("out"), 1, Offset(3), Offset(5))])
    ranges = invalid_ranges(app, None)
    assert ranges("out") == (PartitionRange(1, Offset(3), Offset(5)),)
    assert ranges("another") == ()
