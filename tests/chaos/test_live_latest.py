"""kill -9 while a live region looks up the newest rows of another live region: each order is published once, and the
prices of a product never go back.

`falkirk verify outputs` judges. Without the hop that records the order of orders and prices, a replay finds older
prices than the published ones. Each case costs minutes of CPU time, so they run with FALKIRK_STRIKES alone.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import Load
from tests.chaos.regions import RIGHT, running

pytestmark = pytest.mark.skipif(
    "FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone"
)


class Products(Load):
    """Records of a few products, each with a greater number than those before."""

    def record(self, number: int) -> tuple[str | None, dict[str, Any]]:
        name = f"p{self._random.randrange(8)}"
        return name, {"id": name, "n": number + 1}


@pytest.mark.parametrize("hop", ["on", "off"])
def test_kill_9_of_everything(broker: Broker, home: Path, tag: str, hop: str) -> None:
    sources = ["offers", "orders"]
    with running(broker, home, tag, "latest.py", sources=sources, names=["priced"], HOP=hop) as regions:
        offers, orders = (regions.topics[name] for name in sources)
        with (
            Products(broker.bootstrap, offers, rate=60, seed=1) as table,
            Products(broker.bootstrap, orders, rate=60, seed=2) as stream,
        ):
            suppressed = regions.strike(again=3, is_barred=hop == "on")
        due = sum(row["n"] % 5 != 0 for row in regions.results("orders"))
        regions.settle({"priced": due})
        found = regions.results("priced")
        faults = regions.verify("priced")["priced"] if hop == "on" else (None, None)
        backward = went_back(regions.rows("priced"))
    print(f"{table.sent} offers, {stream.sent} orders, {due} due, {suppressed} suppressed, {backward} back, {faults}")
    assert len(found) == due
    assert sum(row.get("found") is not None for row in found) > due // 2
    if hop == "on":
        assert (faults, backward) == (RIGHT, 0)
    else:
        assert backward, "a replay finds older prices than those that are published"


def went_back(partitions: Any) -> int:
    """Return how often a product has an older price than before. A product is in one partition."""
    count, newest = 0, dict[str, int]()
    for mine in partitions.values():
        for row in mine:
            price = (row.get("found") or {}).get("price", 0)
            count += price < newest.get(row["id"], 0)
            newest[row["id"]] = price
    return count
