"""Pages with a program that needs a broker: the README's first program, and the page about lake tables."""

import contextlib
import io
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from deltalake.exceptions import TableNotFoundError
from pyiceberg.exceptions import NoSuchTableError

from falkirk.app import App
from falkirk.declare.load import load_application
from falkirk.spark_setup.broker import Broker
from tests.integration.live import TIMEOUT_S, Wire
from tests.integration.plans.test_tutorial import ADDRESS, BLOCK, DOCS
from tests.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="it runs with FALKIRK_STRIKES alone")
PAGE = (DOCS / "how-to" / "lakehouse.md").read_text()
README = (DOCS.parent / "README.md").read_text()


def test_the_first_program_of_the_readme_does_what_it_says(
    spark: "SparkSession", broker: Broker, tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = (match[2] for match in BLOCK.finditer(README) if match[1] == "python")
    body, waits, rest = program.partition("query.awaitTermination()\n")
    assert (bool(waits), rest) == (True, "")
    taken, given = re.findall(r"`({\"word\".*?})`", README)
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    for topic in ("words", "counts"):
        assert f'Kafka("{topic}"' in body
        body = body.replace(f'Kafka("{topic}"', f'Kafka("{topic}-{tag}"')
    assert ADDRESS in body
    names: dict[str, Any] = {"__name__": "words"}
    exec(compile(body.replace(ADDRESS, broker.bootstrap), "README.md", "exec"), names)
    try:
        wire.send(f"words-{tag}", [taken.encode()] * 3)
        wire.await_count(f"counts-{tag}", 3, names["query"])
        assert wire.rows(f"counts-{tag}")[-1] == json.loads(given)
    finally:
        names["query"].stop()
    assert Path(".falkirk", f"counts-{tag}").is_dir()


def test_the_page_about_lake_tables_does_what_it_says(
    spark: "SparkSession", broker: Broker, tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lake").mkdir()
    here = {
        r"/lake\b": f"{tmp_path}/lake",
        r"broker:9092": broker.bootstrap,
        r'Kafka\("orders"': f'Kafka("orders-{tag}"',
    }
    blocks = [(match[1], match[2]) for match in BLOCK.finditer(PAGE)]
    for on_page, on_this_machine in here.items():
        assert any(re.search(on_page, code) for _, code in blocks)
        blocks = [(kind, re.sub(on_page, on_this_machine, code)) for kind, code in blocks]
    (_, program), (_, reader), (kind, expected) = blocks
    assert kind == "text"
    (order,) = re.findall(r"`({.*?})`", PAGE)
    Path("shop.py").write_text(program.replace('every="1 minute"', 'every="1 second"'))
    wire = Wire(bootstrap=broker.bootstrap, tag=tag)
    query = cast(App, load_application(Path("shop.py"))).start(create_topics=True)
    try:
        wire.send(wire.topic("orders"), [order.encode()])

        def printed() -> str:
            out = io.StringIO()
            with contextlib.suppress(TableNotFoundError, NoSuchTableError), contextlib.redirect_stdout(out):
                exec(compile(reader, "lakehouse.md", "exec"), {"__name__": "reader"})
            return out.getvalue()

        wait_until(lambda: printed() == expected, TIMEOUT_S, lambda: f"{expected!r}; there is {printed()!r}")
    finally:
        query.stop()
