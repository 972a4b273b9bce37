"""Constants in the text of SQL, in all spellings that Spark reads, including words for the present."""

import base64
import random
import re
from collections.abc import Callable

#: Texts that Spark reads as the present, or to which it adds today's date, if it expects a date or a time.
PRESENT = (
    "now",
    "today",
    "tomorrow",
    "yesterday",
    "epoch",
    "12:30",
    "T12:30:00",
    " NOW ",
    "Today UTC",
    "now Asia/Tokyo",
)
_DATES = ("2020-01-01", "2024-02-29", "2020", "2020-02", "1582-10-10", "+2024-01-01", "0001-01-01", "2020-1-1")
_TIMES = (
    "2020-01-01 12:30:00",
    "2024-03-31T01:30:00Z",
    "2020-01-01 00:00:00 Europe/Berlin",
    "2020-01-01 1:2:3.4",
    "2020",
)
_STRINGS = (
    "a",
    "A",
    "b",
    "x y",
    "",
    "ä",
    "a,b",
    "%a_",
    "(a)",
    "yyyy-MM-dd",
    "HH:mm",
    "17",
    "1.50",
    "UTC",
    "UTF-8",
    "$.a",
)
_NUMBERS = ("0", "1", "2", "-1", "3", "10", "2147483647")

#: A token of SQL: a text, a comment, a name, a number, or one other character.
TOKEN = re.compile(
    r"""(?P<text>[rR]?'(?:[^'\\]|\\.|'')*'|[rR]?"(?:[^"\\]|\\.|"")*")|(?P<comment>/\*.*?\*/|--[^\n]*\n)"""
    r"""|(?P<name>[A-Za-z_]\w*|`[^`]*`)|(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\w*)|(?P<space>\s+)|(?P<other>.)""",
    re.DOTALL,
)


def text(drawn: random.Random, value: str) -> str:
    """Return a text as a literal of SQL, in a random spelling."""
    ways: list[Callable[[], str]] = [
        lambda: _quoted(value, "'"), lambda: _quoted(value, '"'), lambda: _raw(value), lambda: _escaped(drawn, value),
        lambda: _halves(drawn, value), lambda: f"X'{value.encode().hex()}'::string",
    ]  # fmt: skip
    return drawn.choice([*ways[:2], *ways])()


def computed(drawn: random.Random, value: str) -> str:
    """Return an expression without columns whose value is a text."""
    cut = drawn.randint(0, len(value))
    several = [
        f"concat({text(drawn, value[:cut])}, {text(drawn, value[cut:])})",
        f"{text(drawn, value[:cut])} || {text(drawn, value[cut:])}",
        f"reverse({text(drawn, value[::-1])})",
        f"lower({text(drawn, value.upper())})",
        f"CAST(unbase64('{base64.b64encode(value.encode()).decode()}') AS STRING)",
        f"replace({text(drawn, value + '#')}, '#')",
        f"array({text(drawn, value)})[0]",
        f"CASE WHEN true THEN {text(drawn, value)} END",
        f"coalesce(NULL, {text(drawn, value)})",
        f"named_struct('k', {text(drawn, value)}).k",
        f"format_string('%s', {text(drawn, value)})",
        f"(SELECT {text(drawn, value)})",
        f"element_at(map('k', {text(drawn, value)}), 'k')",
        f"split({text(drawn, value + '|x')}, '[|]')[0]",
        f"CAST({text(drawn, value)} AS CHAR({len(value.encode()) or 1}))",
        f"try_variant_get(parse_json({text(drawn, _json(value))}), '$', 'string')",
    ]
    return drawn.choice(several)


def of_kind(drawn: random.Random, kind: str) -> str | None:
    """Return a constant of a type, or None if the type has no literal."""
    if kind == "string":
        value = drawn.choice(_STRINGS if drawn.random() < 0.8 else (*PRESENT, *_DATES, *_TIMES))
        return text(drawn, value) if drawn.random() < 0.8 else computed(drawn, value)
    if kind in ("date", "timestamp", "timestamp_ntz"):
        return _time(drawn, kind)
    written = _WRITTEN.get("decimal" if kind.startswith("decimal") else kind)
    return None if written is None else drawn.choice(written)


def commented(drawn: random.Random, sql: str) -> str:
    """Return the same SQL with comments, another case and other white space."""
    found = []
    for token in TOKEN.finditer(sql):
        kind, word = str(token.lastgroup), token[0]
        if kind == "space":
            word = drawn.choice([" ", "  ", "\n", " /* now */ ", " -- 'today'\n", " /**/ "]) if " " in word else word
        elif kind == "name" and "`" not in word and drawn.random() < 0.3:
            word = drawn.choice([word.upper(), word.lower()])
        found.append(word)
    return "".join(found)


def _time(drawn: random.Random, kind: str) -> str:
    value = drawn.choice((*_DATES, *_TIMES[: 0 if kind == "date" else None], *PRESENT))
    name = drawn.choice({"date": ["date", "DATE"], "timestamp": ["timestamp", "timestamp_ltz"]}.get(kind, [kind]))
    spelled = text(drawn, value)
    if drawn.random() < 0.4 and "::" not in spelled and "' '" not in spelled:
        return f"{name}{drawn.choice(['', ' ', ' /* of */ '])}{spelled}"
    given = spelled if drawn.random() < 0.5 else computed(drawn, value)
    makers = {"date": ["to_date", "try_to_date"], "timestamp_ntz": ["to_timestamp_ntz"]}
    made = drawn.choice(makers.get(kind, ["to_timestamp", "try_to_timestamp", "to_timestamp_ltz"]))
    return drawn.choice(
        [
            f"CAST({given} AS {name})",
            f"TRY_CAST({given} AS {name})",
            f"({given})::{name}",
            f"{made}({given})",
            f"{name}({given})",
        ]
    )


_WRITTEN = {
    "tinyint": ("1Y", "-2Y", "127Y"), "smallint": ("1S", "-300S"), "int": _NUMBERS,
    "bigint": ("1L", "0l", "4611686018427387904L"),
    "float": ("1.5F", "-0F", "1e30f"), "double": ("1.5D", "-0D", "1E1", "0d", "DOUBLE('NaN')", "1e308D"),
    "decimal": ("1.5", "0.10", "1.00BD", ".5"), "boolean": ("true", "FALSE", "NULL::boolean"),
    "binary": ("X'00FF'", "x'61'", "binary('a')"), "void": ("NULL",),
    "interval day to second": ("INTERVAL '1' DAY", "INTERVAL 1 hour 30 minutes", "INTERVAL '1 02:03' DAY TO MINUTE"),
    "interval year to month": ("INTERVAL '1' YEAR", "INTERVAL '1-2' YEAR TO MONTH", "-INTERVAL 3 months"),
    "interval": ("make_interval(0, 1, 0, 2)",), "time": ("TIME'12:30'", "time '01:02:03.456'", "to_time('12:30:00')"),
    "array<int>": ("array(1, 2)", "array(3, NULL, 1)", "sequence(1, 3)"),
    "array<string>": ("array('a', 'b')", "split('b,a', ',')"),
    "map<string,int>": ("map('a', 1, 'b', 2)",), "array<double>": ("array(1D, -0D)",),
    "array<date>": ("array(date'today')",),
    "variant": ("parse_json('{\"a\": 1}')", "1::variant"),
}  # fmt: skip


def _quoted(value: str, quote: str) -> str:
    return quote + value.replace("\\", "\\\\").replace(quote, "\\" + quote) + quote


def _raw(value: str) -> str:
    return _quoted(value, "'") if "'" in value or "\\" in value else f"r'{value}'"


def _escaped(drawn: random.Random, value: str) -> str:
    plain = _quoted(value, "'")
    letters = [i for i, c in enumerate(plain) if c.isalpha() and c.isascii()]
    if not letters or "\\" in plain:
        return plain
    at, form = drawn.choice(letters), drawn.choice(["\\u{:04x}", "\\{:03o}", "\\U{:08x}"])
    return plain[:at] + form.format(ord(plain[at])) + plain[at + 1 :]


def _halves(drawn: random.Random, value: str) -> str:
    """Return two adjacent literals, which Spark concatenates."""
    cut = drawn.randint(0, len(value))
    return _quoted(value[:cut], "'") + " " + _quoted(value[cut:], "'")


def _json(value: str) -> str:
    return '"' + value.replace('"', '\\"') + '"'
