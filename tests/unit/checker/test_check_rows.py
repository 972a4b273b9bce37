"""Rows of files and tables have their places, and a description of a run names its places and its model."""

import json
import sqlite3
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from falkirk.checker import AggregateModel, DistinctModel, InputRow, Reading, RowPlace, StatelessModel, check_keyed
from falkirk.checker.described import model_of
from falkirk.cli import main
from falkirk.errors import DefinitionError, FalkirkError, LogError
from tests.check_runs import apply
from tests.postgres import Postgres


def lines(path: Path, *rows: Any) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def table(path: Path, *rows: tuple[Any, ...]) -> str:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE totals (id INTEGER, user TEXT, total NUMERIC)")
        database.executemany("INSERT INTO totals VALUES (?, ?, ?)", rows)
    database.close()
    return f"sqlite:///{path}#totals"


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"n": 1, "x": 1.10}\n\nno object\n[1]\n')
    rows = list(Reading().rows(str(path)))
    assert [place for place, _ in rows] == [RowPlace(str(path), 0, offset) for offset in range(3)]
    assert rows[0][1] == {"n": 1, "x": 1.1}
    assert rows[1][1] == {"(not a JSON object)": b"no object"}
    [(_, exact), *_] = Reading(decimal=True, ignored=frozenset({"n"})).rows(str(path))
    assert exact == {"x": Decimal("1.10")}


def test_fields_of_csv_are_numbers_where_they_are_written_as_such(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("a,b,c,d,e,f\n7,007,-1.5,,1e3,1.2.3\n")
    [(place, values)] = Reading().rows(str(path))
    assert place == RowPlace(str(path), 0, 0)
    assert values == {"a": 7, "b": "007", "c": -1.5, "d": None, "e": "1e3", "f": "1.2.3"}
    [(_, values)] = Reading(decimal=True).rows(str(path))
    assert values["c"] == Decimal("-1.5")


def test_parquet_is_read_in_order_over_its_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    rows = {
        "n": range(25),
        "at": [datetime(2024, 1, 2, 3)] * 25,
        "price": [Decimal("1.50")] * 25,
        "s": [{"x": 1.0}] * 25,
    }
    pq.write_table(pa.table(rows), path, row_group_size=10)
    found = list(Reading().rows(str(path)))
    assert [(place.offset, values["n"]) for place, values in found] == [(n, n) for n in range(25)]
    assert found[0][1] == {"n": 0, "at": "2024-01-02T03:00:00", "price": 1.5, "s": {"x": 1.0}}


def test_a_folder_is_its_files_each_a_log_of_its_own(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl"):
        lines(tmp_path / name, {"n": name}, {"n": name})
    places = [place for place, _ in Reading().rows(f"{tmp_path}/")]
    assert places == [RowPlace(f"{tmp_path}/{name}", 0, n) for name in ("a.jsonl", "b.jsonl") for n in (0, 1)]


def test_a_table_in_the_order_of_a_column(tmp_path: Path) -> None:
    where = table(tmp_path / "shop.db", (2, "b", 1.5), (1, "a", 7))
    assert [(place, values["user"]) for place, values in Reading().rows(f"{where}:id")] == [
        (RowPlace("totals", 0, 0), "a"),
        (RowPlace("totals", 0, 1), "b"),
    ]


def test_a_table_of_postgres_is_streamed(postgres: Postgres) -> None:
    postgres.execute("CREATE TABLE streamed (id int, price numeric(10, 2), at timestamp)")
    postgres.execute(
        "INSERT INTO streamed SELECT 12000 - i, i * 1.5, '2024-01-02 03:00' FROM generate_series(1, 12000) i"
    )
    rows = list(Reading().rows(f"{postgres.url()}#public.streamed:id"))
    assert [values["id"] for _, values in rows] == [place.offset for place, _ in rows] == list(range(12000))
    assert rows[-1][1] == {"id": 11999, "price": 1.5, "at": "2024-01-02T03:00:00"}
    assert next(iter(Reading(decimal=True).rows(f"{postgres.url()}#streamed:id")))[1]["price"] == Decimal("18000.00")


@pytest.mark.parametrize(
    ("where", "condition"),
    [
        ("nowhere.jsonl", "ROWS_UNREADABLE"),
        ("rows.doc", "ROWS_UNREADABLE"),
        ("broken.parquet", "ROWS_UNREADABLE"),
        ("sqlite:///{}/shop.db#nothing", "ROWS_UNREADABLE"),
        ("sqlite:///{}/shop.db#totals:nothing", "ROWS_UNREADABLE"),
        ("nonsense://x#totals", "ROWS_UNREADABLE"),
        ("sqlite:///{}/shop.db", "PLACE_INVALID"),
        ("kafka:orders", "PLACE_INVALID"),
    ],
)
def test_what_cannot_be_read_is_said(where: str, condition: str, tmp_path: Path) -> None:
    table(tmp_path / "shop.db")
    (tmp_path / "rows.doc").write_text("")
    (tmp_path / "broken.parquet").write_text("nothing of the sort")
    where = where.format(tmp_path) if ":" in where else str(tmp_path / where)
    with pytest.raises((LogError, DefinitionError)) as refusal:
        list(Reading().rows(where))
    assert refusal.value.condition == condition


def test_a_model_is_described_by_name() -> None:
    model = model_of("count, count(x), n = count(*), sum(x), low=min(x), latest(page)", ["user"])
    assert isinstance(model, AggregateModel)
    row = InputRow(key="u", place=RowPlace("in", 0, 0), row={"user": "u", "x": 3, "page": "p"})
    [output] = apply(model, [row])
    assert output.values == {"user": "u", "count": 1, "count(x)": 1, "n": 1, "sum(x)": 3, "low": 3, "page": "p"}
    assert isinstance(model_of(None, []), StatelessModel)
    assert isinstance(model_of("stateless", []), StatelessModel)
    assert isinstance(model_of("distinct", ["user"]), DistinctModel)


@pytest.mark.parametrize("text", ["", "median(x)", "sum", "sum()", "count,", "nothing.py:Model", "distinct"])
def test_what_describes_no_model_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError) as refusal:
        model_of(text, [])
    assert refusal.value.condition == "MODEL_INVALID"


OWN = '''
class Doubled:
    """Each row comes out with twice its x."""
    every_row_answers, ordered = True, False
    def initial(self): return None
    def step(self, state, row): return None, {"user": row["user"], "x": 2 * row["x"]}
    def effect(self, row): return (row["user"], row["x"])
    def echo(self, row): return (row["user"], 2 * row["x"])
    def echo_of(self, output): return (output.get("user"), output.get("x"))

ready = Doubled()
unfinished = object()
'''


def test_a_model_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    rows = [InputRow(key="u", place=RowPlace("in", 0, n), row={"user": "u", "x": n}) for n in range(3)]
    for name in ("Doubled", "ready"):
        model = model_of(f"{file}:{name}", ["user"])
        assert check_keyed(rows, apply(model, rows), model).guarantee == "exactly-once"
        assert check_keyed(rows, apply(StatelessModel(), rows), model).guarantee == "broken"
    for name in ("unfinished", "absent"):
        with pytest.raises(DefinitionError):
            model_of(f"{file}:{name}", ["user"])


def check_run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["verify", "run", *arguments])


def verdict(*arguments: str) -> Any:
    return json.loads(check_run(*arguments, "--json").output)


ORDERS = [{"user": "a", "amount": 5}, {"user": "b", "amount": 1}, {"user": "a", "amount": 2}]


def test_without_a_model_rows_come_out_as_they_went_in(tmp_path: Path) -> None:
    went_in = lines(tmp_path / "in.jsonl", *ORDERS)
    csv = tmp_path / "out.csv"
    csv.write_text("amount,user,at\n1,b,x\n5,a,y\n2,a,z\n")
    assert check_run("--input", went_in, "--output", str(csv)).exit_code == 1
    assert check_run("--input", went_in, "--output", str(csv), "--ignore", "at").exit_code == 0
    csv.write_text("amount,user\n2,a\n1,b\n5,a\n")
    assert check_run("--input", went_in, "--output", str(csv)).exit_code == 0
    assert verdict("--input", went_in, "--output", str(csv), "--key", "user")["counts"]["broken_sequences"] == 1


def test_a_table_that_keeps_the_last_of_each_key(tmp_path: Path) -> None:
    went_in = lines(tmp_path / "in.jsonl", *ORDERS)
    where = table(tmp_path / "shop.db", (1, "a", 7), (2, "b", 1))
    about = ["--input", went_in, "--output", where, "--key", "user", "--model", "total=sum(amount)", "--ignore", "id"]
    assert check_run(*about, "--final").exit_code == 0
    assert check_run(*about).exit_code == 1
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("UPDATE totals SET total = 5 WHERE id = 1")
    database.close()
    assert verdict(*about, "--final")["anomalies"][0]["inputs"][0]["offset"] == 2
    assert check_run(*about, "--final", "--expect", "consistent").exit_code == 0


def test_several_inputs_and_several_key_columns(tmp_path: Path) -> None:
    one, two = lines(tmp_path / "1.jsonl", *ORDERS), lines(tmp_path / "2.jsonl", *ORDERS)
    came_out = lines(
        tmp_path / "out.jsonl",
        *({"user": u, "amount": x, "count": n} for n in (1, 2) for u, x in (("a", 5), ("b", 1), ("a", 2))),
    )
    about = ["--input", one, "--input", two, "--output", came_out, "--key", "user, amount", "--model", "count"]
    assert check_run(*about).exit_code == 0
    assert verdict(*about)["counts"]["keys"] == 3


def test_rules_alone(tmp_path: Path) -> None:
    came_out = lines(tmp_path / "out.jsonl", *({"id": "x", "state": state} for state in ("new", "paid", "sent")))
    about = ["--output", came_out, "--key", "id"]
    assert check_run(*about, "--transitions", "state:>new,new>paid,paid>sent").exit_code == 0
    assert check_run(*about, "--transitions", "state:new>paid").exit_code == 1
    found = verdict(*about, "--transitions", "state:new>paid", "--unique", "state")
    assert [rule["broken"] for rule in found["rules"]] == [0, 1]
    assert [place["offset"] for place in found["rules"][1]["anomalies"][0]["outputs"]] == [1, 2]


@pytest.mark.parametrize("arguments", [[], ["--unique", "id"], ["--key", "id"], ["--key", "id", "--model", "count"]])
def test_a_run_that_is_not_described_in_full_is_refused(arguments: list[str], tmp_path: Path) -> None:
    refused = CliRunner().invoke(main, ["verify", "run", "--output", lines(tmp_path / "out.jsonl"), *arguments])
    assert refused.exit_code == 1
    assert not isinstance(refused.exception, FalkirkError)


def test_what_may_be_expected(tmp_path: Path) -> None:
    went_in = lines(tmp_path / "in.jsonl", *ORDERS)
    again = lines(tmp_path / "out.jsonl", *ORDERS, ORDERS[2])
    about = ["--input", went_in, "--output", again, "--key", "user", "--expect"]
    codes = {
        each: check_run(*about, each).exit_code for each in ("exactly-once", "repeated", "at-most-once", "consistent")
    }
    assert codes == {"exactly-once": 1, "repeated": 0, "at-most-once": 1, "consistent": 1}
