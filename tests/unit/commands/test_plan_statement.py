"""The statement of the user's code that `falkirk plan --why` quotes: whole, with line numbers, without secrets."""

import linecache
import textwrap
from pathlib import Path

import pytest

from falkirk.errors.location import SourceLocation
from falkirk.plan.explain.statement import LINES_MAX, statement_at

CHAIN = '''\
    def vouchers(orders):
        """Not quoted."""
        code = (  # a comment
            orders

            # another comment
            .withColumn("code", F.expr("uuid()"))
            .where("n > 1")
        )
        return code.explode("items", "item")
'''


def at(folder: Path, code: str, line: int) -> SourceLocation:
    """Write a file; return a location as Falkirk makes it."""
    file = folder / "shop.py"
    file.write_text(textwrap.dedent(code))
    linecache.checkcache(str(file))
    return SourceLocation(file=str(file), line=line, text=linecache.getline(str(file), line).strip())


def test_all_lines_of_a_statement_are_quoted_with_their_numbers(tmp_path: Path) -> None:
    expected = [
        "shop.py:7:",
        "  3  code = (",
        "  4      orders",
        '  7      .withColumn("code", F.expr("uuid()"))',
        '  8      .where("n > 1")',
        "  9  )",
    ]
    assert statement_at(at(tmp_path, CHAIN, 7)) == expected


def test_a_statement_of_one_line_stays_a_line(tmp_path: Path) -> None:
    assert statement_at(at(tmp_path, CHAIN, 10)) == ['shop.py:10: return code.explode("items", "item")']


@pytest.mark.parametrize("line", [1, 2, 3, 4, 5])
def test_a_function_is_quoted_up_to_its_body(tmp_path: Path, line: int) -> None:
    """The line that Python names is one of a decorator or of the signature."""
    code = """\
        @app.stream(
            fk.Lazy("1 minute"),
        )
        def sales(
            orders):
            return orders
    """
    shown = ["@app.stream(", '    fk.Lazy("1 minute"),', ")", "def sales(", "    orders):"]
    expected = [f"  {number}  {text}" for number, text in enumerate(shown, 1)]
    assert statement_at(at(tmp_path, code, line)) == [f"shop.py:{line}:", *expected]


def test_a_block_is_quoted_up_to_its_body(tmp_path: Path) -> None:
    code = "if wanted(\n    1,\n):\n    app.sink(out)\nelse:\n    app.sink(\n        other)\n"
    assert statement_at(at(tmp_path, code, 2)) == ["shop.py:2:", "  1  if wanted(", "  2      1,", "  3  ):"]
    assert statement_at(at(tmp_path, code, 6)) == ["shop.py:6:", "  6  app.sink(", "  7      other)"]


@pytest.mark.parametrize("named", [1, 2, 9, 10, 30, 38, 39, 40])
def test_a_long_statement_is_cut_and_keeps_its_first_line_and_the_named_one(tmp_path: Path, named: int) -> None:
    code = "\n".join(["rows = (orders", *(f"    .step({n})" for n in range(2, 40)), ")"])
    _, *shown = statement_at(at(tmp_path, code, named))
    numbers = [int(line.split()[0]) for line in shown if line.strip() != "…"]
    assert len(numbers) == LINES_MAX
    assert numbers[0] == 1
    assert named in numbers
    gaps = [(here, there) for here, there in zip(numbers, [*numbers[1:], 41], strict=True) if there > here + 1]
    assert [line for line in shown if line.strip() == "…"] == ["      …"] * len(gaps)


def test_no_secret_of_another_line_is_quoted(tmp_path: Path) -> None:
    """The word that tells a secret is on another line than the secret."""
    code = 'app.sink(\n    "out", rows, fk.Sql(\n    token,\n    where("open-sesame"),\n    """open-\nsesame"""\n))\n'
    text = "\n".join(statement_at(at(tmp_path, code, 1)))
    assert "sesame" not in text
    assert '4      where("…"),' in text


def test_a_file_that_has_changed_or_is_missing_gives_the_line_alone(tmp_path: Path) -> None:
    where = at(tmp_path, CHAIN, 7)
    at(tmp_path, f"\n{CHAIN}", 7)
    assert statement_at(where) == ['shop.py:7: .withColumn("code", F.expr("uuid()"))']
    elsewhere = SourceLocation(file=str(tmp_path / "away.py"), line=3, text="rows.count()")
    assert statement_at(elsewhere) == ["away.py:3: rows.count()"]
    assert statement_at(at(tmp_path, "rows = (\n", 1)) == ["shop.py:1: rows = ("], "this is no Python"


def test_a_line_that_is_too_long_is_continued_below_itself(tmp_path: Path) -> None:
    code = f"rows = (\n    orders.select({', '.join(['item'] * 12)})\n)\n"
    assert statement_at(at(tmp_path, code, 1), 60) == [
        "shop.py:1:",
        "  1  rows = (",
        "  2      orders.select(item, item, item, item, item, item,",
        "           item, item, item, item, item, item)",
        "  3  )",
    ]
