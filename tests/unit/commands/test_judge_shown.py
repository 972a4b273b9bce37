"""The verdict on a sink of a live region, as `falkirk verify outputs` shows it."""

import io

from falkirk.check import InputRow, OutputRow, RowPlace, Verdict, check_stateless
from falkirk.commands.judge import LiveVerdict
from falkirk.commands.judge_outputs import render_live
from falkirk.system.terminal import Terminal


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
