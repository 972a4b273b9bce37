"""Secrets of the user: in no quoted line, in no traceback of a dead letter, and in no argument of a process."""

import ast
import json
import linecache
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from demo.visitor import Visitor
from falkirk.cli import main
from falkirk.errors import DefinitionError
from falkirk.errors.location import SourceLocation
from falkirk.errors.redaction import HIDDEN, redact
from falkirk.steps.batch.python import LETTER_KIND, RESULT_KIND, RowCollector, mapping

SECRET = "open-sesame"
#: Ten ways to write a secret into a line that an error quotes. Before, six of them were shown.
SPELLINGS = [
    'broker = fk.Connection("b:9092", username="shop", password="open-sesame")',
    "broker = fk.Connection('b:9092', 'SASL_SSL', 'PLAIN', 'shop', 'open-sesame')",
    'broker = connect(**{"sasl.password": "open-sesame"})',
    'app = fk.App("shop", http_token = f"open-sesame")',
    'app = fk.App("shop", http_token="a\\"open-sesame")',
    'app = fk.App("shop", store="postgresql://shop:open-sesame@db/shop")',
    'app.sink("out", out, fk.Sql("postgresql://db/shop?user=shop&password=open-sesame", "out"))',
    'app.sink("out", out, fk.Sql(url("shop", "open-sesame"), "out"))',
    'key = b"open-sesame"; app = fk.App("shop")',
    'app = fk.App("shop")  # the password is open-sesame',
    'word = """open-sesame',
    '"open-sesame", fk.Kafka("out"))',
    'rows.withColumn("c", F.aes_encrypt("c", F.lit("open-sesame")))',
    "app = fk.App(\"shop\", kafka='it''s' \"open-sesame",
    'app = fk.App("shop", http_token=f"{prefix}open-sesame")',
]


@pytest.mark.parametrize("line", SPELLINGS)
def test_a_secret_is_in_no_line_that_is_shown(line: str) -> None:
    where = SourceLocation(file="shop.py", line=1, text=line)
    assert SECRET not in str(where)
    assert SECRET not in repr(where)
    assert SECRET not in str(DefinitionError("NAME_INVALID", "no name.", where=where))


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('app.sink("out", words, fk.Kafka("out", key="word"))', 'app.sink("out", words, fk.Kafka("out", key="word"))'),
        ('@app.batch(every="1 minute", rows=10)', '@app.batch(every="1 minute", rows=10)'),
        ("def words(pages: fk.Stream) -> fk.Stream", "def words(pages: fk.Stream) -> fk.Stream"),
        ('rows.where("n > 1").groupBy(["a"])', 'rows.where("n > 1").groupBy(["a"])'),
        ('.lookup(rank, {"name": "names"}, "ranked")', '.lookup(rank, {"name": "names"}, "ranked")'),
        ('rows.lookup(rank, {"k": F.lit("x")}, "r")', f'rows.lookup(rank, {{"k": F.lit({HIDDEN})}}, "r")'),
        ('agg(fk.latest_value("customer"))', 'agg(fk.latest_value("customer"))'),
        ('fk.App("shop", history=3)', f"fk.App({HIDDEN}, history=3)"),
        ("pin(1234, password=1234)", f"pin({HIDDEN}, password={HIDDEN})"),
        ("return 1 / row.n", "return 1 / row.n"),
        ("", ""),
    ],
)
def test_names_and_what_is_no_secret_are_shown(line: str, shown: str) -> None:
    assert redact(line) == shown


@given(st.text(max_size=60))
@example("\r\x80")
def test_any_line_can_be_redacted(line: str) -> None:
    redact(line)


@given(st.text("ab'\"#\\f{}() ", max_size=12), st.sampled_from(["'", '"', '"""', "f'", "b'"]))
def test_a_literal_stays_hidden_whatever_stands_before_it(before: str, quote: str) -> None:
    """The line is valid Python: the prefix is a literal itself, so it can't end in the middle of one."""
    end = quote.lstrip("fb")
    assert SECRET not in redact(f"connect({before!r}, {quote}{SECRET}{end})")


def test_the_line_of_an_error_is_redacted(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(f'import falkirk as fk\nfk.App("no name", kafka=str("{SECRET}"))\n')
    linecache.checkcache(str(file))
    with pytest.raises(DefinitionError) as refused:
        exec(compile(file.read_text(), str(file), "exec"), {"__name__": "shop"})
    assert SECRET not in str(refused.value)
    assert "shop.py:2: fk.App(" in str(refused.value)


def _fails(row: object) -> object:
    try:
        raise ValueError("at https://shop:open-sesame@db/rows")
    except ValueError as error:
        raise KeyError(login("shop", "open-sesame")) from error


def login(user: str, word: str) -> str:
    return user


def test_a_dead_letter_quotes_no_secret_of_the_function() -> None:
    """Before, readers of the dead letters saw the function's lines of code, including literals."""
    letter = pa.struct([("key", pa.string()), ("value", pa.string())])
    result = pa.struct([("n", pa.int64())])
    schema = pa.schema([("__falkirk_kind", pa.string()), (RESULT_KIND, result), (LETTER_KIND, letter)])
    rows = pa.RecordBatch.from_pylist([{"n": 1}])
    batches: Iterator[pa.RecordBatch] = mapping(_fails, ["n"], lambda: RowCollector(schema, "r", fails=False))(
        iter([rows])
    )
    [told] = [row[LETTER_KIND] for batch in batches for row in batch.to_pylist()]
    text = json.loads(told["value"])["traceback"]
    assert SECRET not in told["value"]
    assert f"raise KeyError(login({HIDDEN}, {HIDDEN})) from error" in text
    assert "ValueError: at https://…@db/rows" in text
    assert "test_redaction.py" in text


def test_redaction_imports_nothing_of_falkirk() -> None:
    """Its source is sent to workers, which may not have Falkirk installed."""
    import falkirk.errors.redaction

    tree = ast.parse(Path(falkirk.errors.redaction.__file__).read_text())
    found = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and (n.module or "").startswith("falkirk")]
    assert not found


@pytest.mark.parametrize(
    "arguments",
    [
        ["--output", "kafka:out", "--kafka", "b:1", "--client", f"sasl.password={SECRET}"],
        ["--output", "kafka:out", "--kafka", "b:1", "--client", f"ssl.key.pem={SECRET}"],
        ["--output", f"postgresql://shop:{SECRET}@db/shop#out"],
        ["--input", f"postgresql://db/shop?user=shop&password={SECRET}#in", "--output", "out.jsonl"],
    ],
)
def test_a_secret_in_an_argument_is_refused(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, ["verify", "run", *arguments])
    assert done.exit_code == 1
    assert "SECRET_IN_ARGUMENT" in done.output
    assert SECRET not in done.output


def test_a_secret_comes_from_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from falkirk.checker.secrets import setting

    (tmp_path / "secret").write_text(f"{SECRET}\n")
    monkeypatch.setenv("SHOP_SECRET", SECRET)
    assert setting("sasl.password", "env:SHOP_SECRET") == SECRET
    assert setting("sasl.password", f"file:{tmp_path / 'secret'}") == SECRET
    assert setting("client.id", "judge") == "judge"
    for value in ("env:SHOP_NOTHING", f"file:{tmp_path / 'nothing'}"):
        with pytest.raises(DefinitionError) as refused:
            setting("sasl.password", value)
        assert refused.value.condition == "SECRET_MISSING"
        assert refused.value.parameters["option"] == "sasl.password"


def test_the_line_that_the_demo_shows_gives_no_process_the_token(tmp_path: Path) -> None:
    """Before, the shell put the token into curl's arguments, which every user of the machine can read."""
    (tmp_path / "http.json").write_text('{"url": "http://127.0.0.1:1"}')
    (tmp_path / "http.token").write_text(SECRET)
    shim = tmp_path / "curl"
    shim.write_text('#!/bin/sh\necho "$@"\ncat\n')
    shim.chmod(0o755)
    line = Visitor(tmp_path, "/queries").curl()
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(line, shell=True, env=environment, capture_output=True, text=True, check=True)
    arguments, header = done.stdout.splitlines()
    assert SECRET not in arguments
    assert header == f"Authorization: Bearer {SECRET}"
