"""send.py of a new project: it prints each result, and finds one that is lost or comes twice."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from falkirk.user_tools.commands.init import make_project

#: The results of two orders, in order.
SALES = [("tea", 1), ("milk", 1), ("tea", 2)]


class Broker:
    """A clock, a producer, and a consumer that gets a result each 0.1 s. Args: sales: the results: item and count."""

    def __init__(self, sales: list[tuple[str, int]]) -> None:
        self.now_s, self.sales, self.sent = 0.0, [*sales], list[str]()

    def produce(self, topic: str, value: bytes, key: str) -> None:
        assert (topic, key) == ("orders", "shop")
        self.sent.append(json.loads(value)["id"])

    def poll(self, timeout_s: float) -> Any:
        self.now_s += 0.1 if self.sales else timeout_s
        if not self.sales:
            return None
        item, sold = self.sales.pop(0)
        text = json.dumps({"item": item, "sold": sold}).encode()
        return SimpleNamespace(error=lambda: None, value=lambda: text)

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


def send(folder: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    """Run the program of a new project with this broker."""
    program = make_project(folder / "shop") / "send.py"
    client = ModuleType("confluent_kafka")
    vars(client).update(Consumer=lambda settings: broker, Producer=lambda settings: broker)
    monkeypatch.setitem(sys.modules, "confluent_kafka", client)
    monkeypatch.setitem(sys.modules, "time", SimpleNamespace(monotonic=lambda: broker.now_s))  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "argv", ["send.py", *arguments])
    exec(compile(program.read_text(), "send.py", "exec"), {"__name__": "__main__"})


def test_each_result_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = Broker(SALES)
    send(tmp_path, broker, monkeypatch)
    assert broker.sent == ["1", "2"]
    *results, last = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in results] == [{"item": item, "sold": sold} for item, sold in SALES]
    assert last == "2 orders gave 3 results, each once and in order"


def test_counts_may_go_on_from_an_earlier_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker([("tea", 7), ("milk", 3), ("tea", 8), ("tea", 9), ("milk", 4), ("tea", 10)])
    send(tmp_path, broker, monkeypatch, "4")
    assert broker.sent == ["1", "2", "1", "2"]


@pytest.mark.parametrize(
    "sales",
    [SALES[:2], [*SALES, SALES[-1]], [SALES[0], SALES[1], SALES[0]], [("tea", 2), ("milk", 1), ("tea", 1)]],
    ids=["lost", "one more", "twice", "wrong order"],
)
def test_a_fault_ends_it_with_an_error(
    sales: list[tuple[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match="2 orders should give 3 results"):
        send(tmp_path, Broker(sales), monkeypatch)
