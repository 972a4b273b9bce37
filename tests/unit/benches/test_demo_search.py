"""Parts of the search demo, without Spark or a broker: the declaration, modules and versions, the crowd, the prompt and
the screen."""

import io
import json
import os
import sqlite3
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from pyspark import SparkContext
from rich.console import Console

from demo import load, search, search_judge
from demo.crowd import Crowd, Question, name_of
from demo.load import ModuleProducer, Reader
from demo.modules import EDIT_EVERY, TEXT_MAX, Module, events, modules
from demo.pages import words
from demo.prompt import Prompt
from demo.search_judge import Fault, Finding, Flaw
from demo.search_screen import SearchScreen
from falkirk import Ephemeral, Lazy, Sql
from falkirk.declare.load import load_application
from falkirk.errors import MachineError
from tests.support import wait_until

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder of modules that import each other in every way, and of some without text."""
    files = {
        "top.py": '"""Top."""\nimport pack.inner\nimport os\nimport top\n',
        "pack/__init__.py": '"""Pack."""\nfrom .inner import thing\nfrom . import other\n',
        "pack/inner.py": '"""Inner."""\nfrom pack import other, nothing\nfrom .. import top\n',
        "pack/other.py": '"""Other."""\nfrom pack.inner import thing\n',
        "pack/tests/check.py": '"""Tests are left out."""\n',
        "silent.py": "x = 1\n",
        "broken.py": '"""Not Python 3."""\nprint "x"\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def many() -> list[Module]:
    paragraphs = tuple(f"paragraph {i} " + "x" * 200 for i in range(12))
    return [Module(name=f"m{i}", paragraphs=(f"module {i}", *paragraphs), imports=("m0", "m1")) for i in range(30)]


def test_the_example_declares_four_regimes_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = SparkContext._active_spark_context
    app = load_application(search.example())
    assert SparkContext._active_spark_context is before
    kinds = {name: type(p.policy) for name, p in app.processors.items()}
    assert (kinds["words"], kinds["index"], kinds["answers"]) == (Ephemeral, Lazy, Ephemeral)
    assert app.processors["answers"].views == {"postings", "weights", "rank"}
    assert isinstance(app.sinks["statistics"].to, Sql)
    assert set(search.PARTITIONS) >= {s.topic.topic for n, s in app.sources.items() if n not in app.pushed}
    told = search.regimes(app)
    assert set(told) == {"postings", "weights", "rank", "statistics"}
    assert (told["weights"], told["rank"]) == ("batch, every 10 s", "iterative, every 15 s")


def test_the_judge_knows_the_constants_of_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    given = load_application(search.example()).processors["rank"].body.__globals__
    for name in ("BEST", "NEW_WEIGHT", "NEW_RANK"):
        assert given[name] == getattr(search_judge, name)


def test_modules_import_those_that_are_there(package: Path) -> None:
    found = {m.name: m.imports for m in modules(package)}
    assert found == {
        "top": ("pack.inner",),
        "pack": ("pack.inner", "pack.other"),
        "pack.inner": ("pack.other", "top"),
        "pack.other": ("pack.inner",),
    }


def test_a_seed_gives_another_order_that_is_the_same_each_time(package: Path) -> None:
    orders = [[m.name for m in modules(package, seed=seed)] for seed in (None, 5, 5)]
    assert orders[1] == orders[2]
    assert sorted(orders[0]) == sorted(orders[1])


def test_pages_of_text_link_to_one_another(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.md").write_text("# A\n\nSee [b](sub/b.md#part), [the web](https://example.org/x.md), [me](a.md).")
    (tmp_path / "sub" / "b.md").write_text("Back to [a](../a.md), on to [c](c.md).")
    assert {m.name: m.imports for m in modules(tmp_path)} == {"a.md": ("sub/b.md",), "sub/b.md": ("a.md", "sub/c.md")}


def test_this_python_has_modules_that_are_well_known() -> None:
    assert {"abc", "argparse"} <= {m.name for m in islice(modules(), 10)}


def test_versions_of_a_module_count_from_1_and_differ() -> None:
    sent = list(events(iter(many()), 80, seed=3))
    assert len(sent) == 80
    by_name: dict[str, list[int]] = {}
    for event in sent:
        by_name.setdefault(event.name, []).append(event.version)
    assert all(versions == list(range(1, len(versions) + 1)) for versions in by_name.values())
    edited = [event for event in sent if event.version == 2]
    first = {event.name: event for event in sent if event.version == 1}
    assert edited
    for event in edited:
        assert set(words(first[event.name].text)) - set(words(event.text)), "an edit takes something back"
        assert event.imports != first[event.name].imports
    assert all(len(event.text) <= TEXT_MAX for event in sent)


def test_events_are_the_same_for_the_same_seed_and_end_with_the_modules() -> None:
    runs = [list(events(iter(many()), 20, seed=seed)) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    assert Counter(event.version > 1 for event in runs[0])[True] == 20 // EDIT_EVERY
    assert list(events(iter(()), 20)) == []


def test_text_without_words_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    (tmp_path / "dots.txt").write_text("…")
    with pytest.raises(MachineError) as raised:
        search.run_demo(search.SearchSettings(source=tmp_path), Console(file=io.StringIO()))
    assert raised.value.condition == "INPUT_MISSING"


def crowd_of(users: int, heard: list[tuple[Question, object]]) -> Crowd:
    sent = list(events(iter(many()), 5))
    return Crowd(
        NOWHERE, users=users, partitions=1, sent=lambda: sent, seed=1, on_answer=lambda q, a, _: heard.append((q, a))
    )


def test_the_crowd_takes_each_answer_once_and_thinks_before_it_asks_again() -> None:
    heard: list[tuple[Question, object]] = []
    crowd = crowd_of(2, heard)
    crowd._due_s.clear()  # both users have asked
    ids = [crowd.ask(user, "paragraph") for user in ("ada", "you")]
    assert (crowd.waiting, crowd.words_asked) == (2, 2)
    for answer in ({"id": ids[0]}, {"id": ids[0]}, {"id": ids[1]}, {"id": "77"}):
        crowd._take(answer)
    assert (crowd.waiting, crowd.received) == (0, 4)
    assert [question.user for question, _ in heard] == ["ada", "you"]
    assert list(crowd._due_s) == ["ada"]  # the user at the prompt asks no questions automatically


def test_the_crowd_asks_for_what_is_there_and_now_and_then_for_what_is_not() -> None:
    crowd = crowd_of(1, [])
    there = {word for event in events(iter(many()), 5) for word in words(f"{event.name} {event.text}")}
    asked = [set(words(crowd._idea())) <= there for _ in range(200)]
    assert 0 < asked.count(False) < 50


def test_every_user_has_a_name_of_their_own() -> None:
    assert len({name_of(i) for i in range(100)}) == 100


def test_the_prompt_gives_whole_lines_and_shows_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard, terminal = os.openpty()
    with os.fdopen(terminal, "r") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with Prompt() as prompt:
            assert prompt.lines() == []
            os.write(keyboard, "sockez\x7ft pröb".encode())
            assert prompt.lines() == []
            assert prompt.typed == "socket pröb"
            os.write(keyboard, b"e\n  \nnext\x15\x1b[")
            assert prompt.lines() == ["socket pröbe"]
            assert prompt.typed == "["
    os.close(keyboard)


def test_the_prompt_ends_with_its_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"one\ntwo\n")
    os.close(writing)
    with os.fdopen(reading, "r") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with Prompt() as prompt:
            assert prompt.lines() == ["one", "two"]
            assert prompt.lines() == []


@pytest.mark.parametrize("terminal", [False, True])
def test_the_screen_shows_before_anything_has_come_and_afterwards(terminal: bool) -> None:
    text = io.StringIO()
    producer = ModuleProducer(NOWHERE, "modules", (), 1.0)
    screen = SearchScreen(
        console=Console(file=text, width=150, force_terminal=terminal), producer=producer, total=10,
        reader=Reader(NOWHERE, "index", 1, producer.sent_at_s), crowd=crowd_of(1, []), typed="sock",
        regimes={"weights": "batch, every 10 s"},
    )  # fmt: skip
    screen.console.print(screen.picture(), screen.line())
    region = {"incarnation": 1, "checkpoint_age_s": 2.0, "suppressed": 7, "last_commit": 3, "detail": ""}
    regions = [{"name": name, "state": "running", **region} for name in ("index", "weights")]
    screen.take({"pid": 1, "at_s": 1.0, "regions": regions})
    found = {"best": [{"module": m, "score": 1} for m in "abcd"], "modules": 9, "weights_epoch": 4}
    screen.hear(Question(user="you", text="socket", at_s=0.0), found, 1.25)
    screen.console.print(screen.picture())
    shown = text.getvalue()
    assert "epoch 3" in shown
    assert "7 dropped" in shown
    assert "a, b, c and 6 more" in shown
    assert screen.events[-1].endswith(screen.answers[-1])  # the answer to the prompt's user is shown at once


def test_what_came_out_is_read_from_files_and_tables(tmp_path: Path) -> None:
    assert search.statistics(tmp_path) == []
    with sqlite3.connect(tmp_path / "search.db") as db:
        db.execute("CREATE TABLE statistics (word TEXT, asked INT, found INT)")
        db.execute("INSERT INTO statistics VALUES ('x', 2, 1)")
    db.close()
    assert search.statistics(tmp_path) == [{"word": "x", "asked": 2, "found": 1}]
    for name, rows in {"epoch=0000000002": 1, "epoch=0000000003": 2, ".epoch-0000000004": 1}.items():
        (tmp_path / "weights" / name).mkdir(parents=True)
        text = "".join(json.dumps({"n": i}) + "\n" for i in range(rows))
        (tmp_path / "weights" / name / "part-0.json").write_text(text)
    released = {2: [{"n": 0}], 3: [{"n": 0}, {"n": 1}]}  # an incomplete epoch does not count
    assert search.epochs(tmp_path / "weights") == released
    assert search.epochs(tmp_path / "weights", newest=True) == {3: released[3]}


def test_a_verdict_shows_what_is_wrong() -> None:
    text = io.StringIO()
    faults = tuple(Fault(flaw=Flaw.LOST, subject=f"query {i}", due="x") for i in range(9))
    findings = (
        Finding(output="index", claim="c", checked=1, faults=()),
        Finding(output="answers", claim="c", checked=2, faults=faults),
    )
    Console(file=text, width=150).print(search.render(findings))
    good, wrong, *rest = text.getvalue().splitlines()
    assert ("good" in good, "wrong" in wrong) == (True, True)
    assert len(rest) == search.FAULTS_SHOWN + 1


def test_a_slow_sender_sends_at_its_own_rate_until_it_is_not_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "SLOW_RATE", 4.0)
    producer = ModuleProducer(NOWHERE, "modules", events(iter(many()), 6), rate=1000.0)
    producer.warm.set()
    producer.slow.set()
    producer.start()
    wait_until(lambda: len(producer.sent_at_s) == 3, 10, "the first ones")
    producer.slow.clear()
    wait_until(lambda: len(producer.sent_at_s) == 6, 10, "all to be sent")
    first, second, third, _, fifth, sixth = producer.sent_at_s.values()
    assert min(second - first, third - second) > 0.2
    assert sixth - fifth < 0.2
    assert producer.changes_due > 3
