"""Judge of the search engine: recomputes all results from the input, in plain Python.

It shares no code with the application and knows nothing of the run. An answer names the views that it has read. The
judge checks that these views existed, that they are the result of the modules, and that they give exactly this answer.
It also checks that no later answer has read an older version of a view.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from demo.pages import words
from falkirk.checker import (
    AggregateModel,
    Count,
    Guarantee,
    InputRow,
    Latest,
    OutputRow,
    RowPlace,
    Verdict,
    check_keyed,
)

Row = Mapping[str, Any]
Rows = Sequence[Row]
#: The constants that the application declares.
BEST, NEW_WEIGHT, NEW_RANK = 5, 5_000, 1_000_000
#: The greatest relative error of a rank. A rank keeps its old value while it moves by less than 0.001. Nodes pass on
#: 0.85 of their error, so errors add up to at most this.
RANK_TOLERANCE = 0.001 / 0.15
_VIEWS = ("postings", "weights", "rank")


class Flaw(StrEnum):
    """The kinds of faults."""

    DUPLICATE = "there twice"
    LOST = "missing"
    FOREIGN = "nobody asked for it"
    WRONG = "not what its inputs give"
    UNKNOWN_EPOCH = "names an epoch that was never released"
    WENT_BACK = "read less than an earlier one had"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault: its kind, the row or epoch, and the expected and the found value."""

    flaw: Flaw
    subject: str
    due: object = None
    found: object = None

    def __str__(self) -> str:
        told = f": due {self.due!r}, found {self.found!r}" if (self.due, self.found) != (None, None) else ""
        return f"{self.subject}: {self.flaw}{told}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The judgement of one output.

    Args: claim: the statement that holds if there are no faults. checked: the number of checked rows or epochs.
    """

    output: str
    claim: str
    checked: int
    faults: tuple[Fault, ...]


@dataclass(frozen=True, kw_only=True)
class Run:
    """The input and output of one run, after all records have arrived.

    Args:
        modules: the records of `modules`, which has one partition, in order.
        queries, answers: the records of these topics.
        index: the records of the topic `index`, with their places.
        weights, rank: the rows of each published epoch.
        statistics: the rows of the table.
        told: the answers that clients received over HTTP, by the id of the query.
    """

    modules: Rows
    queries: Rows
    index: Sequence[OutputRow]
    weights: Mapping[int, Rows]
    rank: Mapping[int, Rows]
    answers: Rows
    statistics: Rows
    told: Mapping[str, Row] = field(default_factory=dict)

    @cached_property
    def changes(self) -> Mapping[str, Rows]:
        """The changes of each word, in their order."""
        found: dict[str, list[Row]] = defaultdict(list)
        for output in sorted(self.index, key=lambda o: o.place):
            found[str(output.values.get("word"))].append(output.values)
        return found


def judge(run: Run) -> tuple[Finding, ...]:
    """Return the findings of all outputs, upstream first."""
    found = (judge_index(run), judge_weights(run), judge_rank(run), judge_answers(run), judge_statistics(run))
    return (*found, judge_told(run)) if run.told else found


def judge_index(run: Run) -> Finding:
    """Judge the live index: the changes of each word, numbered from 1, are those of the modules, in their order."""
    verdict = index_verdict(run)
    kinds = {"duplicate": Flaw.DUPLICATE, "repeated input": Flaw.DUPLICATE, "lost": Flaw.LOST}
    faults = [
        Fault(flaw=kinds.get(a.kind, Flaw.WRONG), subject=f"word {a.key!r}", due=a.expected, found=a.found)
        for a in verdict.anomalies
    ]
    if not faults and verdict.guarantee is not Guarantee.EXACTLY_ONCE:
        faults.append(Fault(flaw=Flaw.WRONG, subject="index", due=Guarantee.EXACTLY_ONCE, found=verdict.guarantee))
    return Finding(
        output="index",
        claim="every change of the index was published once and in order",
        checked=len(run.index),
        faults=tuple(faults),
    )


def index_verdict(run: Run) -> Verdict:
    """Return the checker's verdict on the live index."""
    inputs = [
        InputRow(
            key=word,
            place=RowPlace("modules", 0, offset, sub),
            row={"word": word, "module": event["name"], "version": event["version"], "times": times},
        )
        for offset, event in enumerate(run.modules)
        for sub, (word, times) in enumerate(Counter(_said(event)).items())
    ]
    aggregates = {name: Latest(name) for name in ("module", "version", "times")}
    return check_keyed(inputs, run.index, AggregateModel(["word"], {"change": Count(), **aggregates}))


def judge_weights(run: Run) -> Finding:
    """Judge each epoch of the weights, for the number of modules that it names."""

    def due(events: Rows) -> Iterator[Row]:
        current = _newest(events)
        found = Counter(word for event in current.values() for word in set(_said(event)))
        for word, modules in found.items():
            weight = math.floor(1000 * math.log(len(current) / modules) + 0.5)
            yield {"word": word, "modules": modules, "of": len(current), "events": len(events), "weight": weight}

    return _views("weights", run.modules, run.weights, read_by_weights, due)


def read_by_weights(rows: Rows) -> int:
    """Return the number of records of `modules` that an epoch of the weights names."""
    return int(rows[0]["events"]) if rows else 0


def read_by_rank(rows: Rows) -> int:
    """Return the number of records of `modules` that an epoch of the ranking has read: versions begin at 1."""
    return sum(int(row["version"]) for row in rows)


def judge_rank(run: Run) -> Finding:
    """Judge each epoch of the ranking, for the number of modules that it has read."""

    def due(events: Rows) -> Iterator[Row]:
        current = _newest(events)
        ranks = ranking({name: event["imports"] for name, event in current.items()})
        for name, event in current.items():
            yield {"name": name, "version": event["version"], "rank": ranks[name]}

    near = {}
    for epoch, rows in run.rank.items():
        exact = {row["name"]: row["rank"] for row in due(run.modules[: read_by_rank(rows)])}
        near[epoch] = [_settled(row, exact.get(row["name"])) for row in rows]
    return _views("rank", run.modules, near, read_by_rank, due)


def _settled(row: Row, exact: int | None) -> Row:
    """Return a row of the ranking, with the exact rank if its rank is within the tolerance."""
    if exact is None or abs(int(row["rank"]) - exact) > RANK_TOLERANCE * exact + 1:
        return row
    return {**row, "rank": exact}


def ranking(imports: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the rank of each module, in millionths: PageRank, until nothing changes."""
    links = {name: {to for to in tos if to in imports and to != name} for name, tos in imports.items()}
    ranks, moved = dict.fromkeys(imports, 0.15), 1.0
    while moved > 1e-9:
        given = dict.fromkeys(imports, 0.15)
        for name, tos in links.items():
            for to in tos:
                given[to] += 0.85 * ranks[name] / len(tos)
        moved = max((abs(given[name] - rank) for name, rank in ranks.items()), default=0.0)
        ranks = given
    return {name: round(1_000_000 * rank) for name, rank in ranks.items()}


def _views(
    output: str,
    modules: Rows,
    epochs: Mapping[int, Rows],
    read_by: Callable[[Rows], int],
    due: Callable[[Rows], Iterable[Row]],
) -> Finding:
    faults, before = [], 0
    for epoch, rows in sorted(epochs.items()):
        read = read_by(rows)
        if not before < read <= len(modules):
            faults.append(
                Fault(flaw=Flaw.WENT_BACK, subject=f"epoch {epoch} of {output}", due=f"more than {before}", found=read)
            )
            read = min(read, len(modules))
        before = max(before, read)
        expected = {_content(row) for row in due(modules[:read])}
        found = Counter(_content(row) for row in rows)
        for row in sorted(found.keys() - expected, key=repr):
            faults.append(Fault(flaw=Flaw.WRONG, subject=f"epoch {epoch} of {output}", found=dict(row)))
        for row in sorted(expected - found.keys(), key=repr):
            faults.append(Fault(flaw=Flaw.LOST, subject=f"epoch {epoch} of {output}", due=dict(row)))
        for row in sorted((r for r, times in found.items() if times > 1), key=repr):
            faults.append(Fault(flaw=Flaw.DUPLICATE, subject=f"epoch {epoch} of {output}", found=dict(row)))
    if before != len(modules):
        faults.append(Fault(flaw=Flaw.LOST, subject=output, due=f"{len(modules)} modules read", found=before))
    return Finding(
        output=output,
        claim="the result of each epoch equals the one that the checker computes from the same modules",
        checked=len(epochs),
        faults=tuple(faults),
    )


def judge_answers(run: Run) -> Finding:
    """Judge the answers: one for each query, and each as the epochs that it names determine."""
    queries, times = {q["id"]: q for q in run.queries}, Counter(a.get("id") for a in run.answers)
    faults = [Fault(flaw=Flaw.LOST, subject=f"query {i}", due=q["text"]) for i, q in queries.items() if not times[i]]
    faults += [Fault(flaw=Flaw.DUPLICATE, subject=f"query {i}") for i, n in times.items() if i in queries and n > 1]
    faults += [Fault(flaw=Flaw.FOREIGN, subject=f"answer {i}") for i in times if i not in queries]
    weights = {epoch: {r["word"]: int(r["weight"]) for r in rows} for epoch, rows in run.weights.items()}
    ranks = {epoch: {r["name"]: (int(r["version"]), int(r["rank"])) for r in rows} for epoch, rows in run.rank.items()}
    for answer in run.answers:
        query, subject = queries.get(answer.get("id")), f"query {answer.get('id')}"
        if query is None:
            continue
        if answer.get("weights_epoch") not in weights or answer.get("rank_epoch") not in ranks:
            named = {name: answer.get(f"{name}_epoch") for name in ("weights", "rank")}
            faults.append(Fault(flaw=Flaw.UNKNOWN_EPOCH, subject=subject, found=named))
            continue
        due = answer_of(query, answer, run.changes, weights[answer["weights_epoch"]], ranks[answer["rank_epoch"]])
        found = {name: answer.get(name) for name in due}
        if found != due:
            faults.append(Fault(flaw=Flaw.WRONG, subject=subject, due=due, found=found))
    faults += _going_back(run.answers)
    return Finding(
        output="answers",
        claim="every search was answered once, and each answer is correct for the epochs that it names",
        checked=len(run.answers),
        faults=tuple(faults),
    )


def answer_of(
    query: Row, says: Row, changes: Mapping[str, Rows], weights: Mapping[str, int], ranks: Mapping[str, tuple[int, int]]
) -> dict[str, Any]:
    """Return the expected content of an answer.

    Args: says: the found answer; it names how many changes of the index it has read, by word.
    """
    read, points = _read(says), Counter[str]()
    asked = list(dict.fromkeys(words(query["text"])))
    for word in asked:
        there = {c["module"]: (c["version"], c["times"]) for c in changes.get(word, ())[: read.get(word, 0)]}
        for module, (version, times) in there.items():
            newest, _ = ranks.get(module, (0, 0))
            points[module] += 0 if newest > version else times * weights.get(word, NEW_WEIGHT)
    scores = {m: n * (ranks[m][1] if m in ranks else NEW_RANK) // 1_000_000 for m, n in points.items()}
    order = sorted(((score, module) for module, score in scores.items() if score > 0), reverse=True)
    due: dict[str, Any] = {name: query[name] for name in ("id", "user", "text")}
    due["read"] = [
        {"word": w, "changes": n} for w in sorted(asked) if (n := min(read.get(w, 0), len(changes.get(w, ()))))
    ]
    due["modules"] = len(order)
    due["best"] = [{"module": module, "score": score} for score, module in order[:BEST]]
    return due


def _going_back(answers: Rows) -> Iterable[Fault]:
    """Yield the answers that have read less than an earlier one, or that differ from one of the same epoch.

    Queries are numbered, and a user asks again after an answer. So the answer to a later query of a user has read the
    same epochs or newer ones.
    """
    newest: dict[tuple[object, str], int] = {}
    for answer in sorted(answers, key=lambda a: [int(n) for n in re.findall(r"\d+", str(a.get("id")))]):
        for name in _VIEWS:
            who, epoch = (answer.get("user"), name), int(answer.get(f"{name}_epoch") or 0)
            if epoch < newest.get(who, 0):
                subject = f"query {answer.get('id')}"
                yield Fault(flaw=Flaw.WENT_BACK, subject=subject, due=newest[who], found=epoch)
            newest[who] = max(epoch, newest.get(who, 0))
    seen: dict[str, tuple[int, int]] = {}
    for answer in sorted(answers, key=lambda a: int(a.get("postings_epoch") or 0)):
        read = _read(answer)
        for word in words(str(answer.get("text"))):
            epoch, changes = int(answer.get("postings_epoch") or 0), read.get(word, 0)
            before, there = seen.get(word, (epoch, changes))
            if changes < there or (epoch == before and changes != there):
                subject = f"query {answer.get('id')}, word {word!r}"
                yield Fault(flaw=Flaw.WENT_BACK, subject=subject, due=there, found=changes)
            seen[word] = (epoch, changes)


def judge_told(run: Run) -> Finding:
    """Judge the answers that clients received over HTTP: each equals the answer in the topic."""
    there = {a.get("id"): a for a in run.answers}
    faults = tuple(
        Fault(flaw=Flaw.WRONG if i in there else Flaw.FOREIGN, subject=f"query {i}", due=there.get(i), found=told)
        for i, told in run.told.items()
        if there.get(i) != told
    )
    claim = "the client of each query got the answer that is in the topic"
    return Finding(output="over HTTP", claim=claim, checked=len(run.told), faults=faults)


def judge_statistics(run: Run) -> Finding:
    """Judge the table: for each word, the number of queries with it, and of those with results."""
    found_any = {a.get("id") for a in run.answers if a.get("best")}
    asked, found = Counter[str](), Counter[str]()
    for query in run.queries:
        for word in set(words(query["text"])):
            asked[word] += 1
            found[word] += query["id"] in found_any
    due = {word: (n, found[word]) for word, n in asked.items()}
    there = {str(r["word"]): (r["asked"], r["found"]) for r in run.statistics}
    faults = [
        Fault(
            flaw=Flaw.LOST if word not in there else Flaw.FOREIGN if word not in due else Flaw.WRONG,
            subject=f"word {word!r}",
            due=due.get(word),
            found=there.get(word),
        )
        for word in sorted(due.keys() | there.keys())
        if due.get(word) != there.get(word)
    ]
    twice = Counter(str(row["word"]) for row in run.statistics)
    faults += [Fault(flaw=Flaw.DUPLICATE, subject=f"word {word!r}") for word, n in twice.items() if n > 1]
    return Finding(
        output="statistics",
        claim="each row equals the one that the checker computes from the searches",
        checked=len(run.statistics),
        faults=tuple(faults),
    )


def _said(event: Row) -> list[str]:
    return words(f"{event['name']} {event['text']}")


def _newest(events: Rows) -> dict[str, Row]:
    """Return the newest version of each module."""
    return {event["name"]: event for event in sorted(events, key=lambda e: int(e["version"]))}


def _read(answer: Row) -> dict[str, int]:
    return {each["word"]: int(each["changes"]) for each in answer.get("read") or ()}


def _content(row: Row) -> tuple[tuple[str, object], ...]:
    return tuple(sorted((name, tuple(v) if isinstance(v, list) else v) for name, v in row.items()))
