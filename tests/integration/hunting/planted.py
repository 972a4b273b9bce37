"""Planted faults: rules of the inference, switched off one at a time, and pipelines that each fault affects.

A rule is a piece of source code. It is replaced in a copy of its module, whose functions then stand for the real ones
in all of Falkirk. A rule that was reworded fails the test, because its old text is no longer found.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType, ModuleType

import pytest

from falkirk.plan import batch_determinism as batch
from falkirk.steps.static_analysis import clocks, escapes, functions, settled, typed
from falkirk.steps.static_analysis.functions import FunctionEntry, Nature
from falkirk.steps.static_analysis.structure import KnownLeaves
from tests.integration.hunting.program import Kind, Pipeline

Plant = Callable[[pytest.MonkeyPatch], None]
#: The text of an aggregate begins with this.
_GROUPED = "by s: "
_PURE = FunctionEntry(nature=Nature.PURE, names="", reason="planted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A rule that is switched off. Args: plant: switches it off. texts: pipelines that then count as deterministic."""

    plant: Plant
    texts: tuple[str, ...]

    def pipelines(self, seed: int) -> list[Pipeline]:
        """Return the pipelines. Args: seed: tells them from those of other faults."""
        return [
            Pipeline(seed=seed, number=number, kind=_kind(text), texts=tuple(text.removeprefix(_GROUPED).split(" >> ")))
            for number, text in enumerate(self.texts)
        ]

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Switch the rule off for a while."""
        with pytest.MonkeyPatch.context() as patch:
            self.plant(patch)
            yield


def _kind(text: str) -> Kind:
    if text.startswith(("r.", _GROUPED)):
        return Kind.FRAME if text.startswith("r.") else Kind.GROUP
    return Kind.SQL if text.split()[0] in ("SELECT", "BEGIN", "DECLARE") else Kind.ROW


def _rule(module: ModuleType, rule: str, instead: str, *texts: str) -> Fault:
    """Return the fault of other source code in the place of a rule."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        source = inspect.getsource(module)
        assert source.count(rule) == 1, f"{module.__name__} no longer has exactly one {rule!r}"
        changed = ModuleType(module.__name__)
        exec(compile(source.replace(rule, instead), f"{module.__file__} with a fault", "exec"), vars(changed))
        for name, real in list(vars(module).items()):
            if isinstance(real, FunctionType) and real.__module__ == module.__name__:
                _replace(patch, real, vars(changed)[name])

    return Fault(plant=plant, texts=texts)


def _replace(patch: pytest.MonkeyPatch, real: object, instead: object) -> None:
    """Replace a function in all modules that have it."""
    for module in [each for name, each in sys.modules.items() if name.split(".")[0] in ("falkirk", "tests")]:
        for name in [name for name, value in vars(module).items() if value is real]:
            patch.setattr(module, name, instead)


def _pure(operation: str, *texts: str) -> Fault:
    """Return the fault of an operation that counts as a function of its arguments."""
    return Fault(plant=lambda patch: patch.setitem(functions._BY_NAME, operation, _PURE), texts=texts)


def _known_leaves(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KnownLeaves, "unknown", lambda leaves, data: frozenset())


def _same_calls(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch, "_plans", lambda several: [])
    patch.setattr(batch.Called, "plans", lambda called: [])


_NUMBERED = "SELECT id, row_number() OVER (PARTITION BY o ORDER BY i % 2) AS x FROM r"
_BEFORE = "SELECT id, sum(id) OVER (PARTITION BY o ORDER BY i % 2 ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS x FROM r"
#: Equal values of two spellings, in several groups.
_ZEROS = "(SELECT id % 5 AS k, (id % 2 - 0.5D) * 0D AS d FROM r)"
_LETTERS = "(SELECT id % 5 AS k, collate(if(id % 2 = 0, 'a', 'A'), 'UTF8_LCASE') AS d FROM r)"
#: Tables of functions, types, constants and leaves.
FAULTS = {
    "random values": _pure("Uuid", "uuid()", "transform(a, x -> uuid())"),
    "the clock": _pure("CurrentTimestamp", "current_timestamp()"),
    "places of rows": _pure("MonotonicallyIncreasingID", "monotonically_increasing_id()"),
    "the first of several rows": _pure("First", "SELECT o, first(id) AS x FROM r GROUP BY o"),
    "the order of collect_list": _pure("CollectList", "SELECT o, collect_list(id) AS x FROM r GROUP BY o"),
    "sums of floating-point numbers in other aggregates": _pure(
        "StddevPop", "SELECT o, stddev_pop(id * 0.1D + 1e8D) AS x FROM r GROUP BY o"
    ),
    "rows that a sample takes": _pure("Sample", "SELECT id FROM r TABLESAMPLE (50 PERCENT) REPEATABLE (7)"),
    "operations that are not in the table": Fault(
        plant=lambda patch: patch.setattr(functions, "_NOT_LISTED", _PURE),
        texts=("DECLARE OR REPLACE VARIABLE falkirk_v = current_date() >> SELECT id, falkirk_v AS x FROM r",),
    ),
    "the greatest of equal values": _rule(
        typed, "return several[0] and any(several[1:])", "return False",
        f"SELECT k, max(d) AS x FROM {_ZEROS} GROUP BY k", f"SELECT k, min(array(d)) AS x FROM {_ZEROS} GROUP BY k",
        f"SELECT k, min(d) AS x FROM {_LETTERS} GROUP BY k",
    ),
    "one of several spellings": _rule(
        typed, "lambda kind: bool(is_stable(kind)) and not _has_interval(kind)", "lambda kind: True",
        "SELECT ci AS k, count(*) AS x FROM r GROUP BY ci", "r.select('ci').distinct()",
    ),
    "dropDuplicates by some of the columns": _rule(
        typed, "not _identities(node.output()) <= _identities(node.keys())", "False", 'r.dropDuplicates(["s"])'
    ),
    "dropDuplicates by one column under two names": _rule(
        typed, "not _identities(node.output()) <= _identities(node.keys())",
        "node.output().size() > node.keys().size()",
        'r.select("i", "s").dropDuplicates(["s", "S"])',
    ),
    "sums of floating-point numbers": _rule(
        typed, "        yield name\n", "        pass\n",
        "SELECT id % 5 AS k, sum(d) AS x FROM r WHERE abs(d) < 1e17 GROUP BY 1",
        f"SELECT id % 2 AS k, avg(CASE id % 3 WHEN 0 THEN {2**62} WHEN 1 THEN {-(2**62)} ELSE id END) AS x "
        "FROM r GROUP BY 1",
    ),
    "sums that overflow in one order": _rule(
        typed, "yield OVERFLOWING", "pass",
        f"SELECT id % 5 AS k, try_sum(if(id % 2 = 0, {2**63 - 1}, {1 - 2**63})) AS x FROM r GROUP BY 1",
    ),
    "words for the present": _rule(
        clocks, "_is_literal(part) and not _is_known(part)", "False", "CAST('today' AS DATE)", "to_timestamp('12:30')"
    ),
    "the present in a literal": _rule(
        clocks, "return not _LITERAL.fullmatch(text)", "return False", "date'today'",
        'timestamp_ltz"now"', "by s: concat(first(txt), string(date'today'))",
    ),
    "the present in a computed text": _rule(
        clocks, "not is_literal and _TEXTS.search(kind) is not None and bool(value.references().isEmpty())", "False",
        "CAST(concat('to', 'day') AS DATE)", "to_date(reverse('yadot'))",
    ),
    "a time of day": _rule(clocks, "if _TIME_OF_DAY.search(kind):", "if False:", "CAST(z AS timestamp_ntz)"),
    "the present in rows of constants": _rule(
        clocks, "not _TIME_IN_TEXT.search(str(origin.get()))", "True", "SELECT x FROM VALUES (date'today') AS v(x)"
    ),
    "rows that were computed before": Fault(plant=_known_leaves, texts=("BEGIN SELECT current_date() AS x; END",)),
    "what a checkpoint was computed from": _rule(
        escapes, "self.found.append(InBatch.of(rows, self.leaves))\n        if isinstance", "if isinstance",
        'r.select("id", F.uuid().alias("x")).localCheckpoint()',
    ),
    "what went through Python": _rule(
        escapes, "names = frozenset({ROWS_OF_PYTHON})", "names = frozenset()",
        'r.sparkSession.createDataFrame([(n, x.id) for n, x in enumerate(r.select("id").collect())], "n INT, id INT")',
    ),
    "two calls that differ": Fault(
        plant=_same_calls, texts=('r.select("id", F.lit(__import__("time").time_ns()).alias("x"))',)
    ),
}  # fmt: skip
#: The rules of `settled`.
SETTLED = {
    "limits of unsorted rows": _rule(
        settled, "if name in _LIMITS and _is_sorted(node, is_one):", "if name in _LIMITS:", "SELECT id FROM r LIMIT 5"
    ),
    "limits of rows that are sorted within their partitions": _rule(
        settled, 'bool(getattr(below, "global")()) and ', "",
        'r.groupBy("i").count().sortWithinPartitions("i").limit(2)',
    ),
    "what keeps an order": _rule(
        settled, '_LIMITS | {"Project", "SubqueryAlias"}', '_LIMITS | {"Project", "RepartitionByExpression"}',
        'r.groupBy("id").count().orderBy("id").repartition(3, "count").limit(2)',
    ),
    "a part of a key": _rule(
        settled, "return all(any(column.semanticEquals(one) for one in by)",
        "return any(any(column.semanticEquals(one) for one in by)",
        'r.groupBy("o", "id").count().orderBy("o").limit(5)',
    ),
    "sorted by all columns, of equal values": _rule(
        settled, "all(is_one(column.dataType()) for column in output) and has_all(output)", "has_all(output)",
        f"SELECT d FROM {_ZEROS} ORDER BY d LIMIT 5",
    ),
    "sorted by some of the columns": _rule(
        settled, "for column in output) and has_all(output)", "for column in output)",
        "SELECT id % 2 AS k, id FROM r ORDER BY k LIMIT 5",
    ),
    "0.0 and -0.0": _rule(
        settled, "bool(is_stable(kind)) and is_one_text(json.loads(str(kind.json())))", "bool(is_stable(kind))",
        f"SELECT k, sort_array(collect_list(d)) AS x FROM {_ZEROS} GROUP BY k",
    ),
    "collations": _rule(
        settled, "bool(is_stable(kind)) and is_one_text(", "is_one_text(",
        f"SELECT d FROM {_LETTERS} ORDER BY d LIMIT 5",
    ),
    "ranks of equal rows": _rule(settled, '_OF_PEERS = {"Rank", ', '_OF_PEERS = {"Rank", "RowNumber", ', _NUMBERED),
    "numbers in an order that others share": _rule(
        settled, "    if is_total:\n        return is_known", "    if True:\n        return is_known", _NUMBERED
    ),
    "a row and those before it": _rule(
        settled, "is_whole or _name(frame.frameType())", "True or _name(frame.frameType())", _BEFORE
    ),
    "the beginning of a frame": _rule(
        settled, '"UnboundedPreceding$", "UnboundedFollowing$"]', '"UnboundedPreceding$", "CurrentRow$"]',
        _BEFORE.replace("1 PRECEDING", "UNBOUNDED PRECEDING"),
    ),
    "frames of rows": _rule(settled, '== "RangeFrame$"', '== "RowFrame$"', _BEFORE),
    "the first row of a frame": _rule(
        settled, "return is_known and (is_whole", "return (is_whole",
        "SELECT id, first(id) OVER (PARTITION BY o) AS x FROM r",
    ),
    "an operation that is settled in one of two places": _rule(
        settled, "found[name] == named.get(name, 0)", "found[name] > 0",
        "SELECT sort_array(collect_list(id)) AS x, collect_list(id) AS y FROM r",
        'r.groupBy("o", "id").count().selectExpr("id", "row_number() OVER (PARTITION BY id ORDER BY o) AS x", '
        '"row_number() OVER (PARTITION BY count ORDER BY o) AS y")',
    ),
    "what forgets an order": _rule(
        settled, "_SORTING, _COUNTING = {", '_SORTING, _COUNTING = {"Reverse", ',
        "SELECT reverse(collect_list(id)) AS x FROM r",
    ),
    "what counts alone": _rule(
        settled, '{"Size", "ArraySize", "Cardinality"}', '{"Size", "ArrayDistinct"}',
        "SELECT array_distinct(collect_list(id)) AS x FROM r",
    ),
    "lists that are sorted by nothing": _rule(
        settled, "_unresolved(above.function()) == usual", "True",
        "SELECT array_sort(collect_list(id), (x, y) -> 0) AS x FROM r",
    ),
    "lists of equal values": _rule(
        settled, "return sorts and is_one(aggregate.dataType().elementType())", "return sorts",
        f"SELECT k, array_sort(collect_list(d)) AS x FROM {_ZEROS} GROUP BY k",
    ),
    "the value with the greatest of another": _rule(
        settled, "return any(value.semanticEquals(part) for part in compared)", "return True",
        "SELECT max_by(id, i % 2) AS x FROM r", "SELECT min_by(id, struct(o, o)) AS x FROM r",
    ),
    "the greatest of equal values, by itself": _rule(
        settled, "if _name(aggregate) not in _BY or not is_one(aggregate.dataType()):",
        "if _name(aggregate) not in _BY:", f"SELECT k, max_by(d, d) AS x FROM {_ZEROS} GROUP BY k",
    ),
}  # fmt: skip
