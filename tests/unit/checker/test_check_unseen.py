"""No verdict on unseen rows: folders, kinds of files, damage, changes, places named twice, no rows at all."""

import bz2
import gzip
import json
import lzma
import os
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from falkirk.checker import Described, Reading, RowPlace, Space, Unique, Verdict, check_described, unseen
from falkirk.checker.rows_read import RowsRead
from falkirk.cli import main
from falkirk.errors import FalkirkError
from falkirk.theory.ids import LogId

ROWS = [{"user": "a", "n": 1}, {"user": "b", "n": 2}, {"user": "a", "n": 3}]


def lines(path: Path, rows: list[Any], suffix: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    packed: Any = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}.get(suffix, bytes)
    path.write_bytes(pa.compress(text, codec="zstd", asbytes=True) if suffix == ".zst" else packed(text))
    return path


def judged(reading: Reading, *outputs: object, inputs: tuple[object, ...]) -> Verdict:
    run = Described(inputs=[str(each) for each in inputs], outputs=[str(each) for each in outputs])
    verdict = check_described(run, reading, space=Space())
    assert isinstance(verdict, Verdict)
    return verdict


def refused(*outputs: object, inputs: tuple[object, ...] = (), **how: Any) -> FalkirkError:
    with pytest.raises(FalkirkError) as refusal:
        judged(Reading(**how), *outputs, inputs=inputs)
    return refusal.value


@pytest.fixture
def went_in(tmp_path: Path) -> Path:
    return lines(tmp_path / "in.jsonl", ROWS)


def test_a_folder_of_epochs_is_read_below_its_folders(went_in: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for number, row in enumerate(ROWS):
        lines(out / f"epoch={number:010d}" / "part-00000.json", [row])
        (out / f"epoch={number:010d}" / "_SUCCESS").touch()
        (out / f"epoch={number:010d}" / ".part-00000.json.crc").write_bytes(b"crc")
    (out / "_falkirk.json").write_text("{}")
    lines(out / ".epoch-0000000003-0a1b2c3d" / "part-00000.json", ROWS)
    ignored = frozenset({"epoch"})
    verdict = judged(Reading(ignored=ignored), out, inputs=(went_in,))
    assert verdict.guarantee == "exactly-once"
    before, after = verdict.read
    assert (before.where, before.logs, before.rows, before.passed_over_count) == (str(went_in), 1, 3, 0)
    assert (after.logs, after.rows, after.passed_over_count) == (3, 3, 8)
    assert ".epoch-0000000003-0a1b2c3d (hidden)" in after.passed_over
    assert "epoch=0000000001/_SUCCESS (hidden)" in after.passed_over
    assert after.notes == ("columns from the names of folders: epoch",)
    lines(out / "epoch=0000000003" / "part-00000.json", [ROWS[0]])
    verdict = judged(Reading(ignored=ignored), out, inputs=(went_in,))
    assert verdict.counts.duplicates == 1
    assert verdict.anomalies[0].outputs[-1] == RowPlace(f"{out}/epoch=0000000003/part-00000.json", 0, 0)
    assert judged(Reading(), out, inputs=(went_in,)).counts.unexplained == 4  # with the column of the folders
    lines(out / "_epoch=0000000004-0a1b2c3d" / "part-00000.json", [ROWS[0]])  # an earlier version's, which Spark reads
    assert judged(Reading(ignored=ignored | {"_epoch"}), out, inputs=(went_in,)).counts.duplicates == 2


def test_the_names_of_folders_give_columns(tmp_path: Path) -> None:
    rows = [{"user": "a", "n": 1}, {"user": "x/y", "n": 2}, {"user": None, "n": 3}, {"user": 7, "n": 4}]
    went_in = lines(tmp_path / "in.jsonl", rows)
    for folder, row in zip(("a", "x%2Fy", "__HIVE_DEFAULT_PARTITION__", "7"), rows, strict=True):
        lines(tmp_path / "out" / f"user={folder}" / "part.json", [{"n": row["n"]}])
    assert judged(Reading(), tmp_path / "out", inputs=(went_in,)).guarantee == "exactly-once"
    lines(tmp_path / "out" / "user=a" / "part.json", [{"n": 1, "user": "a"}])
    assert judged(Reading(), tmp_path / "out", inputs=(went_in,)).guarantee == "exactly-once"
    lines(tmp_path / "out" / "user=a" / "part.json", [{"n": 1, "user": "b"}])
    assert refused(tmp_path / "out", inputs=(went_in,)).condition == "ROWS_UNREADABLE"


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst", ".GZ"])
def test_a_compressed_file_is_read_and_a_damaged_one_refused(suffix: str, went_in: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    lines(out / "p.json", ROWS)
    assert judged(Reading(), out, inputs=(went_in,)).guarantee == "exactly-once"
    path = lines(out / f"q.json{suffix}", ROWS[:1], suffix.lower())
    assert judged(Reading(), out, inputs=(went_in,)).counts.duplicates == 1
    whole = path.read_bytes()
    for damaged in (whole[:-3], b"\0" * 20):
        path.write_bytes(damaged)
        assert refused(out, inputs=(went_in,)).condition == "ROWS_UNREADABLE"
    path.write_bytes(whole + whole)
    assert judged(Reading(), out, inputs=(went_in,)).counts.duplicates == 2


@pytest.mark.parametrize(
    "name",
    ["q.txt", "q.orc", "q.avro", "q", "q.json.lz4", "q.parquet.gz", "q.json.bak", "a/b=1/q.snappy", "_x=1/q.txt"],
)
def test_what_might_hold_rows_and_is_not_read_is_refused(name: str, went_in: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    lines(out / "p.json", ROWS)
    lines(out / name, ROWS[:1])
    refusal = refused(out, inputs=(went_in,))
    assert refusal.condition == "ROWS_UNREAD"
    assert list(refusal.parameters["unread"]) == [name]  # type: ignore[call-overload]
    for pattern in (name, f"*{Path(name).suffix or 'q'}"):
        verdict = judged(Reading(skipped=(pattern,)), out, inputs=(went_in,))
        assert (verdict.guarantee, verdict.read[1].passed_over) == ("exactly-once", (f"{name} (as asked)",))


@pytest.mark.parametrize("name", ["_delta_log", "_spark_metadata", "deep/.hoodie"])
def test_a_folder_whose_own_log_says_which_files_count_is_refused(name: str, went_in: Path, tmp_path: Path) -> None:
    lines(tmp_path / "out" / "p.json", ROWS)
    (tmp_path / "out" / name).mkdir(parents=True)
    assert refused(tmp_path / "out", inputs=(went_in,)).condition == "ROWS_UNREAD"


def test_links_are_followed_or_refused(went_in: Path, tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    lines(out / "p.json", ROWS)
    lines(elsewhere / "q.json", ROWS[:1])
    (out / "link").symlink_to(elsewhere)
    assert judged(Reading(), out, inputs=(went_in,)).counts.duplicates == 1
    (out / "link").unlink()
    for target in ("nowhere", out):
        (out / "link.json").symlink_to(target)
        assert refused(out, inputs=(went_in,)).condition == "ROWS_UNREAD"
        (out / "link.json").unlink()
    os.mkfifo(out / "pipe.json")
    assert refused(out, inputs=(went_in,)).condition == "ROWS_UNREAD"


def test_an_empty_file_of_an_unknown_kind_hides_nothing(went_in: Path, tmp_path: Path) -> None:
    lines(tmp_path / "out" / "p.json", ROWS)
    (tmp_path / "out" / "done").touch()
    verdict = judged(Reading(), tmp_path / "out", inputs=(went_in,))
    assert (verdict.guarantee, verdict.read[1].passed_over) == ("exactly-once", ("done (empty)",))


def test_what_is_named_twice_is_refused(went_in: Path, tmp_path: Path) -> None:
    # The same rows twice on both sides would look exactly-once. A comparison of a file with itself always succeeds.
    twice = lines(tmp_path / "out.jsonl", ROWS * 2)
    again, linked = f"{tmp_path}/./in.jsonl", tmp_path / "linked.jsonl"
    linked.symlink_to(went_in)
    copies = tmp_path / "copies"
    copies.mkdir()
    os.link(went_in, copies / "hard.jsonl")
    for other in (went_in, again, linked, copies):
        assert refused(twice, inputs=(went_in, other)).condition == "PLACE_TWICE"
        assert refused(went_in, inputs=(other,)).condition == "PLACE_TWICE"
        assert refused(went_in, other, inputs=(twice,)).condition == "PLACE_TWICE"
    assert refused("kafka:x", inputs=("kafka:x",)).condition == "PLACE_TWICE"
    for table in ("a.db#rows:id", "./a.db#rows"):
        assert (
            refused(f"sqlite:///{tmp_path}/a.db#rows", inputs=(f"sqlite:///{tmp_path}/{table}",)).condition
            == "PLACE_TWICE"
        )
    tables = [f"sqlite:///{tmp_path}/{name}.db#rows" for name in "ab"]
    assert refused(went_in, inputs=tuple(tables)).condition == "PLACE_TWICE"


def test_nothing_is_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    refusal = refused(tmp_path / "out", inputs=(tmp_path / "in",))
    assert refusal.condition == "NO_ROWS"
    (tmp_path / "out" / "_SUCCESS").touch()
    (tmp_path / "out" / "p.csv").write_text("user,n\n")
    refusal = refused(tmp_path / "out", inputs=(tmp_path / "in",))
    assert (refusal.condition, refusal.parameters["passed_over"]) == ("NO_ROWS", ["_SUCCESS (hidden)"])
    rules = Described(inputs=[], outputs=[str(tmp_path / "out")], keys=["user"], rules=[Unique("n")])
    with pytest.raises(FalkirkError) as caught:
        check_described(rules, Reading(), space=Space())
    assert caught.value.condition == "NO_ROWS"


@pytest.mark.parametrize(
    ("how", "missing"),
    [
        ({"keys": ["usr"], "model": "count"}, ["usr"]),
        ({"keys": ["user"], "model": "count, sum(m)"}, ["m"]),
        ({"keys": ["user"], "model": "count", "ignored": "user"}, ["user"]),
    ],
)
def test_a_column_that_no_row_has_is_refused(how: dict[str, Any], missing: list[str], tmp_path: Path) -> None:
    went_in = lines(tmp_path / "in.jsonl", ROWS)
    ignored = frozenset([how.pop("ignored")]) if "ignored" in how else frozenset[str]()
    counts = [{"user": "a", "count": 1}, {"user": "b", "count": 1}, {"user": "a", "count": 2}]
    run = Described(inputs=[str(went_in)], outputs=[str(lines(tmp_path / "out.jsonl", counts))], **how)
    with pytest.raises(FalkirkError) as refusal:
        check_described(run, Reading(ignored=ignored), space=Space())
    assert (refusal.value.condition, refusal.value.parameters["columns"]) == ("COLUMN_MISSING", missing)


class Writing(RowsRead):
    """A sight during which another process writes: after everything was read, before the verdict."""

    def __init__(self, write: Any) -> None:
        super().__init__()
        self._write = write

    def check(self) -> None:
        self._write()
        super().check()


@pytest.mark.parametrize("what", ["in.jsonl", "out/p.json", "out/new.json", "out/new/new.json"])
def test_what_is_written_while_it_is_read_is_refused(what: str, went_in: Path, tmp_path: Path) -> None:
    lines(tmp_path / "out" / "p.json", ROWS)
    more = Writing(lambda: lines(tmp_path / what, [*ROWS, *ROWS]))
    assert refused(tmp_path / "out", inputs=(went_in,), sight=more).condition == "ROWS_CHANGED"
    assert judged(Reading(sight=Writing(lambda: None)), tmp_path / "out", inputs=(went_in,)).read[1].logs >= 1


def test_a_file_that_grows_under_the_reader_is_refused(tmp_path: Path) -> None:
    path = lines(tmp_path / "in.jsonl", ROWS)
    rows = Reading().rows(str(path))
    next(rows)
    with path.open("a") as file:
        file.write('{"user": "late"}\n')
    with pytest.raises(FalkirkError) as refusal:
        list(rows)
    assert refusal.value.condition == "ROWS_CHANGED"


CSV = [
    "a,a\n1,2\n",
    "a,\n1,2\n",
    "1,a\n2,b\n",
    "1.5,a\n2,b\n",
    "ann,new\nann,new\n",
    'a,b\n1,"2\n3,4\n',
    "a,b\n1,\xff\n",
]


@pytest.mark.parametrize("text", CSV)
def test_csv_without_a_clear_header_or_end_is_refused(text: str, went_in: Path, tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_bytes(text.encode("latin-1"))
    assert refused(tmp_path / "out.csv", inputs=(went_in,)).condition == "ROWS_UNREADABLE"


def test_a_line_of_csv_with_other_fields_than_the_header_is_explained_by_nothing(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.csv", tmp_path / "cut.csv"
    whole.write_text('user,n\na,\n"b ""x"", y\n",2\n')
    assert [values for _, values in Reading().rows(str(whole))] == [
        {"user": "a", "n": None},
        {"user": 'b "x", y\n', "n": 2},
    ]
    for text in ("a", "a,,", 'a,"', '"a"b,'):
        cut.write_text(f'user,n\n{text}\n"b ""x"", y\n",2\n' if text != 'a,"' else f'user,n\n{text}x"y\n')
        assert judged(Reading(), cut, inputs=(whole,)).guarantee != "exactly-once"


def test_objects_over_several_lines_are_no_rows(tmp_path: Path) -> None:
    # Line by line, in any order, the two would be equal.
    pretty = [json.dumps([{"a": 1, "b": one}, {"a": 2, "b": other}], indent=1) for one, other in ((1, 2), (2, 1))]
    for name, text in zip(("in.json", "out.json"), pretty, strict=True):
        (tmp_path / name).write_text(text)
    assert refused(tmp_path / "out.json", inputs=(tmp_path / "in.json",)).condition == "ROWS_UNREADABLE"
    for text in ('{"a": 1}\n{"b": "x\n{"a": 2}\n', '{"a": 1}\n{"a"\n: 2}\n'):
        (tmp_path / "out.json").write_text(text)
        assert refused(tmp_path / "out.json", inputs=(tmp_path / "in.json",)).condition == "ROWS_UNREADABLE"
    (tmp_path / "cut.json").write_text('{"a": 1}\n{"a": 2')
    assert len(list(Reading().rows(str(tmp_path / "cut.json")))) == 2


def test_a_mark_at_the_beginning_of_a_file_is_none_of_its_rows(tmp_path: Path) -> None:
    for name, text in (("in.csv", "user,n\na,1\n"), ("in.jsonl", '{"user": "a", "n": 1}\n')):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
        assert [values for _, values in Reading().rows(str(tmp_path / name))] == [{"user": "a", "n": 1}]


def test_numbers_of_a_table_are_not_rounded(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE rows (x NUMERIC)")
        database.execute("INSERT INTO rows VALUES (0.123456789012345)")
    database.close()
    went_in = lines(tmp_path / "in.jsonl", [{"x": 0.1234567890}])
    assert judged(Reading(), f"sqlite:///{tmp_path}/shop.db#rows", inputs=(went_in,)).guarantee == "broken"
    lines(went_in, [{"x": 0.123456789012345}])
    assert judged(Reading(), f"sqlite:///{tmp_path}/shop.db#rows", inputs=(went_in,)).guarantee == "exactly-once"


def test_maps_of_parquet_are_objects_and_columns_have_one_name(tmp_path: Path) -> None:
    table = pa.table({"m": pa.array([[("a", None)]], pa.map_(pa.string(), pa.int64()))})
    pq.write_table(table, tmp_path / "out.parquet")
    for row, guarantee in (({"m": {"a": None}}, "exactly-once"), ({"m": {}}, "broken")):
        went_in = lines(tmp_path / "in.jsonl", [row])
        assert judged(Reading(), tmp_path / "out.parquet", inputs=(went_in,)).guarantee == guarantee
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["x", "x"]), tmp_path / "out.parquet")
    assert refused(tmp_path / "out.parquet", inputs=(went_in,)).condition == "ROWS_UNREADABLE"


def check_run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["verify", "run", *arguments])


def test_the_command_names_what_it_has_not_read(went_in: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    lines(out / "p.json", ROWS)
    (out / "_SUCCESS").touch()
    about = ["--input", str(went_in), "--output", str(out)]
    passed = check_run(*about)
    assert passed.exit_code == 0
    assert "_SUCCESS" in passed.output
    assert json.loads(check_run(*about, "--json").output)["read"][1]["passed_over"] == ["_SUCCESS (hidden)"]
    (out / "q.txt").write_text("x")
    assert check_run(*about).exit_code == 1
    assert check_run(*about, "--skip", "*.txt").exit_code == 0
    rules = ["--output", str(out), "--skip", "*.txt", "--key", "n", "--unique"]
    assert "_SUCCESS" in check_run(*rules, "user").output
    assert (check_run(*rules, "user").exit_code, check_run(*rules, "usr").exit_code) == (0, 1)


def test_the_command_takes_types(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("user,n\na,1.10\n")
    (tmp_path / "out.csv").write_text("user,n\na,1.1\n")
    about = ["--input", str(tmp_path / "in.csv"), "--output", str(tmp_path / "out.csv")]
    assert check_run(*about).exit_code == 1
    assert check_run(*about, "--type", "n=decimal").exit_code == 0
    assert check_run(*about, "--type", "n").exit_code == 2
    assert isinstance(check_run(*about, "--type", "n=money").exit_code, int)
    assert check_run(*about, "--type", "n=money").exit_code == 1


@pytest.mark.parametrize("sinks", [["--sink", "totals"], ["--sink", "orders", "--sink", "totals"]])
def test_a_sink_that_the_application_does_not_have_is_not_judged(sinks: list[str], tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text(
        "import falkirk as fk\n"
        "app = fk.App('shop')\n"
        "app.source('orders', fk.Kafka('orders', schema='n INT'))\n"
        "app.add_processor('copied', lambda s: s, reads=('orders',), policy=fk.Ephemeral())\n"
        "app.sink('orders', 'copied', fk.Kafka('copies'))\n"
    )
    refusal = CliRunner().invoke(main, ["verify", "outputs", str(file), "--kafka", "localhost:1", *sinks])
    assert refusal.exit_code == 1
    assert "SINK_UNKNOWN" in refusal.output


def test_the_broker_is_asked_about_a_log_of_an_application() -> None:
    """Its id is a subclass of `str`, which the client refuses. A topic with transactions has holes, so it is asked."""
    assert unseen.is_compacted({"bootstrap.servers": "127.0.0.1:1"}, LogId("counts"), 0.1) is None
