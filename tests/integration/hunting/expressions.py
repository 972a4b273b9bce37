"""Random expressions: calls of all functions of the registry, operators and other forms of SQL. Their arguments are
random columns, constants and other expressions that Spark accepts."""

import random
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from tests.integration.hunting import jvm, literals
from tests.integration.hunting.literals import TOKEN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The number of random calls of a function that are generated, of which Spark should accept one.
TRIES = 7
_EXAMPLE = re.compile(r"> SELECT (.*?);\s*$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"[a-z_]\w*")
#: Functions that only fail.
_NOT_DRAWN = {"raise_error", "assert_true"}
#: The weights of the types of arguments.
_KINDS = {
    "string": 14, "int": 10, "double": 7, "bigint": 4, "date": 4, "timestamp": 5, "timestamp_ntz": 2, "binary": 4,
    "boolean": 3, "decimal(10,2)": 2, "decimal(38,8)": 1, "float": 2, "time": 2, "interval": 1,
    "interval day to second": 2, "interval year to month": 1, "array<string>": 4, "array<int>": 4, "array<double>": 3,
    "map<string,int>": 3, "map<string,double>": 2, "variant": 2, "smallint": 1, "void": 1,
}  # fmt: skip
_FIELDS = ("YEAR", "MONTH", "DAY", "HOUR", "SECOND", "DOW", "WEEK", "QUARTER", "DOY")
_TARGETS = (
    "string", "int", "bigint", "double", "float", "decimal(10,2)", "decimal(38,8)", "date", "timestamp",
    "timestamp_ntz", "binary", "boolean", "array<string>", "array<timestamp>", "map<string,string>", "time",
    "interval day to second", "char(3)", "varchar(30)", "variant", "smallint",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the registry. Args: examples: expressions of its documentation that call it."""

    name: str
    group: str
    examples: tuple[str, ...]


@dataclass(kw_only=True)
class Pool:
    """Expressions of each type, from which arguments are chosen at random.

    Attributes: drawn: the source of randomness. of: expressions by type.
    """

    drawn: random.Random
    of: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def any(self) -> tuple[str, str]:
        """Return a random type, and an expression of this type before it."""
        kinds, weights = [*_KINDS], [*_KINDS.values()]
        kind = self.drawn.choices(kinds, weights)[0]
        if self.drawn.random() < 0.2:
            kind = self.drawn.choice(sorted(self.of))
        return self.one(kind), kind

    def one(self, kind: str) -> str:
        """Return an expression of a type."""
        constant = literals.of_kind(self.drawn, kind) if self.drawn.random() < 0.25 or not self.of[kind] else None
        if constant is not None:
            return constant
        return self.drawn.choice(self.of[kind]) if self.of[kind] else "NULL"

    def starting(self, *kinds: str) -> str:
        """Return an expression of one of the types whose names begin so."""
        return self.one(self.drawn.choice(sorted(kind for kind in self.of if kind.startswith(kinds))))

    def filled(self, form: str) -> str:
        """Return a form with its holes filled."""
        last = ""

        def fill(hole: re.Match[str]) -> str:
            nonlocal last
            what = hole[1]
            if what == "?":
                found, last = self.any()
            elif what == "=":
                found = self.one(last or "string")
            elif what in _WORDS:
                found = self.drawn.choice(_WORDS[what])
            elif what in _FAMILIES:
                found = self.starting(*_FAMILIES[what])
            else:
                found, last = self.one(what), what
            return found

        return re.sub(r"\{([^{}']+)\}", fill, form)


_WORDS = {"to": _TARGETS, "part": _FIELDS, "m": ("m", "w", "1.5")}
_FAMILIES = {"T": ("date", "timestamp"), "A": ("array<",), "S": ("struct<",)}


@cache
def functions(session: "SparkSession") -> dict[str, list[Function]]:
    """Return the functions of the registry by kind: of one row, aggregate, window, generator and table functions."""
    found: dict[str, list[Function]] = defaultdict(list)
    for name, group, examples in sorted(set(jvm.functions(session))):
        if _NAME.fullmatch(name) and name not in _NOT_DRAWN:
            calls = tuple(call for text in _EXAMPLE.findall(examples) for call in _calls(name, text))
            kind = group if group in ("agg_funcs", "window_funcs", "generator_funcs", "table_funcs") else "row"
            found[kind].append(Function(name, group, calls))
    return found


def call(pool: Pool, function: Function) -> str:
    """Return a call of a function, which Spark may refuse."""
    drawn = pool.drawn
    if function.examples and drawn.random() < 0.5:
        return _changed(pool, drawn.choice(function.examples))
    several = drawn.choices([0, 1, 2, 3, 4, 5], [1, 8, 8, 5, 1, 1])[0]
    first, kind = pool.any()
    same = drawn.random() < 0.5
    rest = [pool.one(kind) if same else pool.any()[0] for _ in range(several - 1)]
    return f"{function.name}({', '.join([first, *rest][:several])})"


def accepted(session: "SparkSession", choices: Sequence[Sequence[str]], head: str = "SELECT ", tail: str = " FROM r",
             ) -> list[tuple[str, str] | None]:  # fmt: skip
    """Return for each choice the first expression that Spark accepts, and its type; None: Spark accepts none."""
    flat = [one for several in choices for one in several]
    kinds = dict(zip(flat, jvm.types(session, head, tail, flat), strict=True))
    return [next(((one, kinds[one]) for one in several if kinds[one]), None) for several in choices]


def _calls(name: str, text: str) -> list[str]:
    """Return the calls of a function in an example."""
    tokens = [token[0] for token in TOKEN.finditer(text)]
    found = []
    for at, word in enumerate(tokens):
        if word.lower() == name and tokens[at + 1 : at + 2] == ["("]:
            depth, end = 0, at + 1
            for end in range(at + 1, len(tokens)):
                depth += (tokens[end] == "(") - (tokens[end] == ")")
                if not depth:
                    break
            found.append("".join(tokens[at : end + 1]))
    return found


def _changed(pool: Pool, example: str) -> str:
    """Return an example with some of its constants, and all of its columns, replaced."""
    drawn, found = pool.drawn, []
    tokens = [*TOKEN.finditer(example)]
    for at, token in enumerate(tokens):
        kind, word = str(token.lastgroup), token[0]
        follows = tokens[at + 1][0] if at + 1 < len(tokens) else ""
        if kind == "text" and drawn.random() < 0.35:
            word = pool.one("string")
        elif kind == "number" and drawn.random() < 0.35:
            word = pool.one("int" if word.isdigit() else "double")
        elif word in ("col", "col1", "col2", "x", "y", "expr", "input") and follows != "(" and "->" not in example:
            word = pool.any()[0]
        found.append(word)
    return "".join(found)
