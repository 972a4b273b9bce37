"""Kills and stalls of a live region that looks rows up: each record has one result, and all of it is of one epoch.

One view is a batch, the other one has the newest record of each key of a live processor. It takes minutes of CPU time,
so FALKIRK_STRIKES runs it.
"""

import json
import os
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from falkirk.checker import read_topic
from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import APPS, Application, Load, topics_of
from tests.chaos.regions import Regions
from tests.chaos.test_live_unions import kill
from tests.support import wait_until

pytestmark = pytest.mark.skipif(
    "FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone"
)

KINDS = "python jvm stall all pause jvm"
PRODUCTS = 12


class Market(Load):
    """Orders, and after every tenth one an offer with a higher version of a product. Some products have no offer."""

    def record(self, number: int) -> tuple[str | None, dict[str, Any]]:
        if number % 10 == 0:
            offer = {"product": f"p{number // 10 % PRODUCTS}", "version": number}
            self._producer.produce(self._topic.replace("orders", "offers"), value=json.dumps(offer))
        product = f"p{self._random.randrange(PRODUCTS + 2)}"
        return product, {"id": str(number), "product": product}


def rows(broker: Broker, topic: str) -> list[dict[str, Any]]:
    return [
        json.loads(record.value or b"null") for record in read_topic({"bootstrap.servers": broker.bootstrap}, topic)
    ]


def judge(found: list[dict[str, Any]], sent: int) -> None:
    """Check that each order has one result, that an epoch has one content, and that versions never get older."""
    times = Counter(row["id"] for row in found)
    assert [i for i, n in times.items() if n > 1] == []
    assert {str(n) for n in range(sent)} == set(times)
    content: dict[str, dict[int, dict[str, int]]] = {"epoch": defaultdict(dict), "counts": defaultdict(dict)}
    for row in found:
        assert row["found"] == row["again"], row
        for name, looked, value in (("epoch", "found", "version"), ("counts", "known", "orders")):
            assert len(row[looked]) <= 1
            read = row[looked][0][value] if row[looked] else 0
            assert content[name][row[name]].setdefault(row["product"], read) == read, (name, row)
    for epochs in content.values():
        newest: dict[str, int] = {}
        for _, of in sorted(epochs.items()):
            for product, value in of.items():
                assert value >= newest.get(product, 0)
                newest[product] = value
    print({name: len(epochs) for name, epochs in content.items()}, flush=True)


def test_kills_and_stalls(own_broker: Broker, home: Path, tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = {name: f"{name}-{tag}" for name in ("orders", "offers", "priced")}
    for name, topic in topics.items():
        topics_of(own_broker.bootstrap).create(topic, 2, {})
        monkeypatch.setenv(name.upper(), topic)
    with Application(APPS / "lookups.py", own_broker.bootstrap, home, {}) as application:
        regions = Regions(bootstrap=own_broker.bootstrap, application=application, topics=topics, names=["priced"])
        dropped = Counter[str]()
        with Market(own_broker.bootstrap, topics["orders"], rate=40.0) as load:
            wait_until(lambda: regions.count("priced") > 0, 300, "the first result")
            for kind in os.environ.get("KINDS", KINDS).split():
                application.wait_results_behind({"priced": partial(regions.count, "priced")})
                print(kind, load.sent, regions.count("priced"), flush=True)
                if kill(kind, regions, own_broker):
                    before = regions.count("priced")
                    wait_until(lambda: regions.count("priced") > before, 300, "a result after the kill")  # noqa: B023
                    dropped.update(application.suppressed())
        wait_until(lambda: regions.count("priced") >= load.sent, 300, "all results")
        application.wait_committed(0)
        judge(rows(own_broker, topics["priced"]), load.sent)
        print("judged", load.sent, dict(dropped), flush=True)
        assert dropped["priced"] > 0, "no result was computed twice, so the barrier was not tried"
