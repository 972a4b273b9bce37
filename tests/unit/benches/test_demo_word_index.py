"""Word index demo: it declares the right application without Spark, and removes its files, and those of killed ones."""

import io
import os
import sys
from pathlib import Path

import pytest
from pyspark import SparkContext
from rich.console import Console

from demo.load import IndexReader, PageProducer
from demo.screen import IndexScreen
from demo.stage import workplace
from demo.word_index import DemoSettings, example, run_demo
from falkirk import Ephemeral, Lazy
from falkirk.declare.load import load_application
from falkirk.declare.policy import Delivery
from falkirk.errors import MachineError

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def console() -> Console:
    """A console that is not a terminal."""
    return Console(file=io.StringIO(), width=200)


@pytest.fixture
def screen(console: Console) -> IndexScreen:
    """A screen of a demo that has not begun."""
    producer = PageProducer(NOWHERE, "pages", (), 1.0)
    reader = IndexReader(NOWHERE, "index", 1, producer.sent_at_s)
    return IndexScreen(console=console, producer=producer, reader=reader, total=10)


def status(pid: int, state: str = "running") -> dict[str, object]:
    """Return the status of a host."""
    region = {"name": "index", "state": state, "incarnation": 1, "checkpoint_age_s": 2.0, "suppressed": 0}
    return {"pid": pid, "at_s": 1.0, "regions": [region]}


def test_the_example_declares_the_word_index_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = SparkContext._active_spark_context
    app = load_application(example())
    assert SparkContext._active_spark_context is before
    assert app.name == "word-index"
    assert app.sources["pages"].topic.schema == "page STRING NOT NULL, text STRING"
    assert {name: p.reads for name, p in app.processors.items()} == {"words": ("pages",), "index": ("words",)}
    assert isinstance(app.processors["words"].policy, Ephemeral)
    assert isinstance(app.processors["index"].policy, Lazy)
    sink = app.sinks["index"]
    assert (sink.topic.keys, sink.delivery) == (("word",), Delivery.EXACTLY_ONCE)


def test_a_text_without_words_is_refused_before_anything_is_started(tmp_path: Path, console: Console) -> None:
    (tmp_path / "dots.txt").write_text("…")
    with pytest.raises(MachineError) as raised:
        run_demo(DemoSettings(source=tmp_path), console)
    assert raised.value.condition == "INPUT_MISSING"


def test_a_workplace_is_removed_and_what_a_killed_demo_left_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, console: Console
) -> None:
    monkeypatch.setenv("FALKIRK_CACHE", str(tmp_path))
    left = tmp_path / "demo" / "left"
    left.mkdir(parents=True)
    (left / "lock").touch()
    with workplace(keep=False, console=console) as first, workplace(keep=True, console=console) as second:
        assert not left.exists()
        assert first.exists()  # a demo does not touch the folder of a running one
    assert not first.exists()
    with workplace(keep=False, console=console):
        assert second.exists()  # a kept folder stays
    assert str(second) in console.file.getvalue().replace(os.linesep, "")  # type: ignore[attr-defined]


def test_the_last_word_of_a_killed_host_does_not_count(screen: IndexScreen) -> None:
    screen.take(status(1))
    assert screen.running()
    screen.mark_killed()
    screen.take(status(1))
    assert not screen.running()
    screen.take(status(2))
    assert screen.running()


def test_the_screen_shows_before_anything_has_come(screen: IndexScreen) -> None:
    assert "pages 0 of 10" in screen.line()
    screen.take(status(1))
    screen.console.print(screen.picture())
    assert "incarnation 1" in screen.console.file.getvalue()  # type: ignore[attr-defined]
