"""Record keys: a result whose record has a wrong key is reported, and the right keys of any writer are not."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from falkirk.checker.record_keys import WRONG_KEY, RecordKeys
from falkirk.cli import main

INPUTS = [{"user": "ada", "n": 7}, {"user": "bob", "n": 8}]
MODEL = """
from falkirk.checker import StatelessModel

class Own(StatelessModel):
    def record_key(self, output):
        return f"user-{output['user']}".encode()
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    """The address of a simulated broker."""
    owner = Producer({"bootstrap.servers": "simulated", "test.mock.num.brokers": 1, "log_level": 0})
    [node] = owner.list_topics(timeout=10).brokers.values()
    yield f"{node.host}:{node.port}"
    owner.flush(0)


def judge(broker: str, folder: Path, tag: str, keys: Sequence[str | None], *options: str) -> tuple[int, dict[str, Any]]:
    """Return exit code and verdict of a run whose outputs have these record keys."""
    producer = Producer({"bootstrap.servers": broker})
    for row, key in zip(INPUTS, keys, strict=True):
        producer.produce(f"out-{tag}", key=key, value=json.dumps(row), partition=0)
    assert producer.flush(10) == 0
    file = folder / "in.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in INPUTS))
    places = ["--input", str(file), "--output", f"kafka:out-{tag}", "--kafka", broker]
    found = CliRunner().invoke(main, ["verify", "run", *places, *options, "--json"], catch_exceptions=False)
    return found.exit_code, json.loads(found.stdout)


def test_a_wrong_key_is_told_with_the_key_that_was_found(broker: str, tmp_path: Path, tag: str) -> None:
    """The planted fault: all values are right, and two records have each other's key."""
    wrong = ("bob", "ada")
    assert judge(broker, tmp_path, f"unseen-{tag}", wrong)[0] == 0, "nobody says which key is right"
    code, verdict = judge(broker, tmp_path, tag, wrong, "--record-key", "user")
    assert (code, verdict["guarantee"]) == (1, "broken")
    unexplained = [each for each in verdict["anomalies"] if each["kind"] == "unexplained"]
    assert {(each["found"]["user"], each["found"][WRONG_KEY]) for each in unexplained} == {
        ("ada", "bob"),
        ("bob", "ada"),
    }
    assert verdict["counts"]["lost"] == 2


@pytest.mark.parametrize(
    ("keys", "options"),
    [
        (("ada", "bob"), ["--record-key", "user"]),
        (("7", "8"), ["--record-key", "n", "--key", "user"]),
        (('{"user":"ada","n":7}', '{"n": 8, "user": "bob"}'), ["--record-key", "user, n"]),
        (("user-ada", "user-bob"), ["--model", "MODEL:Own"]),
    ],
)
def test_right_keys_pass_and_one_wrong_key_does_not(
    keys: tuple[str, str], options: list[str], broker: str, tmp_path: Path, tag: str
) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    options = [option.replace("MODEL", str(tmp_path / "model.py")) for option in options]
    code, verdict = judge(broker, tmp_path, tag, keys, *options)
    assert (code, verdict["guarantee"]) == (0, "exactly-once")
    for number, wrong in enumerate((keys[0], None, "no key")):
        code, verdict = judge(broker, tmp_path, f"{number}-{tag}", (keys[0], wrong), *options)
        assert (code, verdict["counts"]["unexplained"]) == (1, 1)


@pytest.mark.parametrize(
    ("value", "key", "is_right"),
    [
        ("ada", b"ada", True),
        ("ada", b'"ada"', True),  # from a writer that writes all keys as JSON
        ("7", b"7", True),
        (7, b"7", True),
        (7, b"7.5", False),
        (1.5, b"1.5", True),
        (True, b"true", True),
        (True, b"1", False),
        (None, None, True),
        (None, b"", False),
        ("", b"", True),
        ("", None, False),
        ("\u00e9", "\u00e9".encode(), True),
        ("\u00e9", b"\xe9", False),
        (7, b'7, "more": null', False),
    ],
)
def test_keys_of_one_column(value: object, key: bytes | None, is_right: bool) -> None:
    row = {"user": value, "n": 1}
    marked = RecordKeys(columns=("user",)).marked(row, key)
    assert (WRONG_KEY not in marked) is is_right
    assert row.items() <= marked.items()


@pytest.mark.parametrize(
    ("places", "condition"),
    [
        (["--input", "in.jsonl", "--output", "out.jsonl"], "RUN_INCOMPLETE"),
        (["--output", "kafka:out", "--key", "user", "--unique", "n"], "RUN_INCOMPLETE"),
    ],
)
def test_without_a_topic_or_an_input_there_is_nothing_to_compare(places: list[str], condition: str) -> None:
    found = CliRunner().invoke(main, ["verify", "run", *places, "--record-key", "user"])
    assert found.exit_code == 1
    assert "leave out --record-key" in " ".join(found.output.split())
