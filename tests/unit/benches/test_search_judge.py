"""The judge of the search engine accepts a run that was computed manually, and finds each way to break it."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from demo.search_judge import Finding, Flaw, Run, judge, ranking
from falkirk.checker import OutputRow, RowPlace

README = Path(__file__).parents[3] / "README.md"
Rows = list[dict[str, Any]]

MODULES: Rows = [
    {"name": "a", "version": 1, "text": "alpha beta", "imports": ["b"]},
    {"name": "b", "version": 1, "text": "Alpha", "imports": []},
    {"name": "a", "version": 2, "text": "gamma", "imports": ["b", "nowhere"]},
]
#: Word, change, module, version. Each word occurs once.
CHANGES = [
    ("a", 1, "a", 1), ("alpha", 1, "a", 1), ("beta", 1, "a", 1), ("alpha", 2, "b", 1), ("b", 1, "b", 1),
    ("a", 2, "a", 2), ("gamma", 1, "a", 2),
]  # fmt: skip
#: A word in one of two modules: 1000 ln 2 = 693. The ranks converge to 0.15 and 0.15 + 0.85 × 0.15 = 0.2775.
WEIGHTS = {
    0: [("a", 1, 2, 2, 693), ("alpha", 2, 2, 2, 0), ("beta", 1, 2, 2, 693), ("b", 1, 2, 2, 693)],
    1: [("a", 1, 2, 3, 693), ("alpha", 1, 2, 3, 693), ("gamma", 1, 2, 3, 693), ("b", 1, 2, 3, 693)],
}
RANK = {
    0: [("a", 1, 150_000), ("b", 1, 277_500)],
    1: [("a", 2, 150_000), ("b", 1, 277_500)],
}
QUERIES: Rows = [
    {"id": "0", "user": "ada", "text": "beta"},
    {"id": "1", "user": "alan", "text": "Alpha beta"},
    {"id": "2", "user": "ada", "text": "oiseau"},
]


def answer(number: int, postings: int, views: int, read: dict[str, int], best: dict[str, int]) -> Any:
    return QUERIES[number] | {
        "postings_epoch": postings, "weights_epoch": views, "rank_epoch": views,
        "read": [{"word": w, "changes": n} for w, n in read.items()],
        "best": [{"module": m, "score": s} for m, s in best.items()],
        "modules": len(best),
    }  # fmt: skip


#: At first beta is in a: 693 × 0.15 = 103. Then b has the better alpha, 693 × 0.2775 = 192, and a has neither word.
ANSWERS: Rows = [
    answer(0, 3, 0, {"beta": 1}, {"a": 103}),
    answer(1, 4, 1, {"alpha": 2, "beta": 1}, {"b": 192}),
    answer(2, 4, 1, {}, {}),
]
STATISTICS: Rows = [
    {"word": "alpha", "asked": 1, "found": 1},
    {"word": "beta", "asked": 2, "found": 2},
    {"word": "oiseau", "asked": 1, "found": 0},
]


def good_run() -> dict[str, Any]:
    """Return a correct run, which the tests change."""
    run = {
        "modules": MODULES,
        "queries": QUERIES,
        "index": [
            {"word": w, "change": n, "module": m, "version": v, "times": 1} for w, n, m, v in CHANGES
        ],
        "weights": {
            epoch: [dict(zip(("word", "modules", "of", "events", "weight"), row, strict=True)) for row in rows]
            for epoch, rows in WEIGHTS.items()
        },
        "rank": {
            epoch: [dict(zip(("name", "version", "rank"), row, strict=True)) for row in rows]
            for epoch, rows in RANK.items()
        },
        "answers": ANSWERS,
        "statistics": STATISTICS,
    }  # fmt: skip
    return copy.deepcopy(run)


def findings(run: dict[str, Any]) -> tuple[Finding, ...]:
    index = tuple(
        OutputRow(key=row["word"], place=RowPlace("index", 0, offset), values=row)
        for offset, row in enumerate(run["index"])
    )
    return judge(Run(**{**run, "index": index}))


def flaws(run: dict[str, Any]) -> set[tuple[str, Flaw]]:
    """Return the judge's findings: each output and its flaw."""
    return {(f.output, fault.flaw) for f in findings(run) for fault in f.faults}


def test_the_table_in_the_readme_has_the_claims() -> None:
    shown = dict(re.findall(r"^    (\w+) +good +[\d,]+ +(.*)$", README.read_text(), re.MULTILINE))
    assert shown == {each.output: each.claim for each in findings(good_run())}


def test_a_run_worked_out_by_hand_is_good() -> None:
    assert flaws(good_run()) == set()


def test_ranks_are_of_modules_that_are_there_and_of_others() -> None:
    assert ranking({"a": ["b", "nowhere", "a"], "b": []}) == {"a": 150_000, "b": 277_500}


def at(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Return a function that sets a value at a place such as ``answers.0.user``."""
    *way, last = [int(p) if p.isdigit() else p for p in path.split(".")]

    def change(run: Any) -> None:
        for each in way:
            run = run[each]
        run[last] = value

    return change


def without(path: str) -> Callable[[dict[str, Any]], None]:
    """Return a function that removes the value at a place."""
    *way, last = [int(p) if p.isdigit() else p for p in path.split(".")]

    def change(run: Any) -> None:
        for each in way:
            run = run[each]
        del run[last]

    return change


def again(path: str, number: int, **changed: Any) -> Callable[[dict[str, Any]], None]:
    """Return a function that repeats a row of a list, optionally with changes."""

    def change(run: Any) -> None:
        for each in path.split("."):
            run = run[int(each) if each.isdigit() else each]
        run.append(copy.deepcopy(run[number]) | changed)

    return change


BROKEN: list[tuple[str, Callable[[dict[str, Any]], None], tuple[str, Flaw]]] = [
    ("answered twice", again("answers", 0), ("answers", Flaw.DUPLICATE)),
    ("not answered", without("answers.0"), ("answers", Flaw.LOST)),
    ("an answer to nobody", again("answers", 0, id="77"), ("answers", Flaw.FOREIGN)),
    ("another user's name", at("answers.0.user", "alan"), ("answers", Flaw.WRONG)),
    ("a score off by one", at("answers.0.best.0.score", 104), ("answers", Flaw.WRONG)),
    ("another module", at("answers.0.best.0.module", "b"), ("answers", Flaw.WRONG)),
    ("a module left out", at("answers.0.best", []), ("answers", Flaw.WRONG)),
    ("modules miscounted", at("answers.0.modules", 2), ("answers", Flaw.WRONG)),
    ("weights of another epoch", at("answers.1.weights_epoch", 0), ("answers", Flaw.WRONG)),
    ("ranks of another epoch", at("answers.1.rank_epoch", 0), ("answers", Flaw.WRONG)),
    ("weights that were never there", at("answers.1.weights_epoch", 5), ("answers", Flaw.UNKNOWN_EPOCH)),
    ("ranks that were never there", at("answers.1.rank_epoch", None), ("answers", Flaw.UNKNOWN_EPOCH)),
    ("more of the index than there is", at("answers.0.read.0.changes", 2), ("answers", Flaw.WRONG)),
    ("less of the index than was used", at("answers.1.read.0.changes", 1), ("answers", Flaw.WRONG)),
    ("nothing of the index, but found", at("answers.0.read", []), ("answers", Flaw.WRONG)),
    ("an older view than before", at("answers.2.postings_epoch", 2), ("answers", Flaw.WENT_BACK)),
    ("a word asked for once more", at("statistics.0.asked", 2), ("statistics", Flaw.WRONG)),
    ("a word found once less", at("statistics.1.found", 1), ("statistics", Flaw.WRONG)),
    ("a word not counted", without("statistics.2"), ("statistics", Flaw.LOST)),
    ("a word that nobody asked for", again("statistics", 0, word="z"), ("statistics", Flaw.FOREIGN)),
    ("a word counted twice", again("statistics", 0), ("statistics", Flaw.DUPLICATE)),
    ("a change twice", again("index", 0), ("index", Flaw.DUPLICATE)),
    ("a change lost", without("index.3"), ("index", Flaw.LOST)),
    ("a change of something else", at("index.0.times", 2), ("index", Flaw.WRONG)),
    ("a weight off by one", at("weights.0.0.weight", 692), ("weights", Flaw.WRONG)),
    ("a word without its weight", without("weights.1.1"), ("weights", Flaw.LOST)),
    ("a word weighed twice", again("weights.1", 0), ("weights", Flaw.DUPLICATE)),
    ("weights that leave a module out", without("weights.1"), ("weights", Flaw.LOST)),
    ("weights without anything new", lambda run: run["weights"].update({2: run["weights"][1]}),
     ("weights", Flaw.WENT_BACK)),
    ("weights of more than there is", at("weights.1.0.events", 4), ("weights", Flaw.WENT_BACK)),
    ("a rank too far off", at("rank.0.1.rank", 297_501), ("rank", Flaw.WRONG)),
    ("a module not ranked", without("rank.1.1"), ("rank", Flaw.LOST)),
    ("a ranking left out", without("rank.1"), ("rank", Flaw.LOST)),
]  # fmt: skip


@pytest.mark.parametrize(("break_it", "found"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_what_is_broken_is_found(break_it: Callable[[dict[str, Any]], None], found: tuple[str, Flaw]) -> None:
    run = good_run()
    break_it(run)
    assert found in flaws(run)


def test_two_answers_of_one_epoch_read_the_same() -> None:
    """Both answers match the views that they name, but they name different contents for one epoch of a view."""
    run = good_run()
    run["queries"].append({"id": "3", "user": "tim", "text": "alpha"})
    run["statistics"][0] |= {"asked": 2, "found": 1}
    run["answers"].append(answer(1, 4, 1, {"alpha": 1}, {}) | {"id": "3", "user": "tim", "text": "alpha"})
    assert flaws(run) == {("answers", Flaw.WENT_BACK)}
    run["answers"][-1] |= {"postings_epoch": 5, "epoch": 3}  # a later epoch of the view is wrong too
    assert flaws(run) == {("answers", Flaw.WENT_BACK)}


@pytest.mark.parametrize(
    ("number", "change", "flaw"),
    [("0", {}, None), ("0", {"best": []}, Flaw.WRONG), ("7", {}, Flaw.FOREIGN)],
)
def test_what_clients_were_told_is_what_is_in_the_topic(number: str, change: Any, flaw: Flaw | None) -> None:
    run = good_run()
    run["told"] = {number: run["answers"][0] | change}
    assert flaws(run) == (set() if flaw is None else {("over HTTP", flaw)})
