"""An iteration with its home in an object store: another machine continues it, and fetches the files of its state."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import networkx as nx

import falkirk as fk
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.supervision.query import run_here
from falkirk.spark_setup.broker import Broker
from falkirk.steps.differential import Collection, connected_components
from tests.integration.live import Wire, await_one
from tests.objects import BUCKET, ObjectStore
from tests.postgres import Postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Edge = tuple[int, int]


class Graph:
    """Components of a graph that changes. Each run is in a new folder, as on another machine."""

    def __init__(self, wire: Wire, postgres: Postgres, tag: str, folder: Path) -> None:
        self.wire, self.folder, self.runs = wire, folder, 0
        self.there: Counter[Edge] = Counter()
        self._edges, self._out = wire.topic("edges", 1), wire.topic("out", 1)
        self.app = fk.App("graph", home=f"s3a://{BUCKET}/{tag}", store=postgres.url(), history=2)
        schema = "src LONG NOT NULL, dst LONG NOT NULL, difference INT"
        self.app.source("edges", fk.Kafka(self._edges, schema=schema))

        @self.app.iterate(every="1 second")
        def components(edges: Collection) -> Collection:
            return connected_components(edges)

        self.app.sink("out", components, fk.Kafka(self._out))

    def change(self, *edges: Edge, difference: int = 1) -> None:
        self.wire.send(self._edges, [{"src": a, "dst": b, "difference": difference} for a, b in edges])
        for edge in edges:
            self.there[edge] += difference

    def is_current(self) -> bool:
        """Return whether the sum of all changes is the components of the edges."""
        found: Counter[Edge] = Counter()
        for row in self.wire.rows(self._out):
            found[row["node"], row["component"]] += row["difference"]
        parts = nx.connected_components(nx.Graph(list((+self.there).elements())))
        return {row: n for row, n in found.items() if n} == {(n, min(part)): 1 for part in parts for n in part}

    def run(self, broker: Broker, objects: ObjectStore, *changes: tuple[int, Edge]) -> None:
        """Run on a new machine, and change the graph step by step."""
        self.runs += 1
        self.app.home = self.folder / f"machine-{self.runs}"
        query = run_here(self.app, Connection.of(broker.bootstrap))
        for difference, edge in changes:
            self.change(edge, difference=difference)
            await_one(query, self.is_current, "the components")
        query.stop()


def test_another_machine_continues_an_iteration(
    spark: "SparkSession", broker: Broker, postgres: Postgres, objects: ObjectStore, tag: str, tmp_path: Path
) -> None:
    graph = Graph(Wire(bootstrap=broker.bootstrap, tag=tag), postgres, tag, tmp_path)
    graph.change((1, 2), (2, 3), (4, 5))
    graph.run(broker, objects, (1, (5, 6)))
    before = len(objects.requests)
    graph.run(broker, objects, (1, (3, 4)), (-1, (2, 3)))  # one component, and two again
    place = f"/{BUCKET}/{tag}/regions/components/_files/iterate-1/"
    requests = [(method, path) for method, path in objects.requests[before:] if path.startswith(place)]
    assert any(method == "GET" and path.endswith(".arrow") for method, path in requests), "it has fetched the state"
    with open_home(tmp_path / "reader", "graph", graph.app.store, data=graph.app.data, visits=True) as home:
        log = EpochLog("epochs:components", "components", home.data_of("components"), home.store)
        states = [log.state(epoch) for epoch in log.epochs() if epoch.state is not None]
        named = {name for state in states for name in json.loads((state / "iterate-1.json").read_text())["files"]}
        there = (log.files() / "iterate-1").listed()
    assert named == set(there), "all files of kept states, and no others"
    copy = tmp_path / "machine-2" / "regions" / "components" / "iterate-1"
    assert {str(path.relative_to(copy)) for path in copy.rglob("*.arrow")} <= named
