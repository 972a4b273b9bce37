"""An application with its home in an object store runs for FALKIRK_MINUTES, and needs no more and more of anything.

With FALKIRK_OBJECTS=s3proxy the object store is a real server. Halfway, everything is killed by kill -9 once. The
figures of each look are printed, and are in `figures.json` of the test's folder.
"""

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
import sqlalchemy as sql
from pyarrow.fs import FileSelector

from falkirk.spark_setup.broker import Broker
from tests.chaos.harness import APPS, START_S, Application, Load, topics_of
from tests.chaos.test_object_home import LEASE, components_found
from tests.integration.live import Wire
from tests.objects import ObjectStore
from tests.postgres import Postgres

MINUTES = float(os.environ.get("FALKIRK_MINUTES", "0"))
#: A quarter of an hour with a checkpoint each second has as many checkpoints as an hour with one every 4 seconds.
INTERVAL = os.environ.get("FALKIRK_INTERVAL", "5 seconds")
pytestmark = pytest.mark.skipif(not MINUTES, reason="a soak of an hour: it runs with FALKIRK_MINUTES=60 alone")

RATE = 50.0
LOOK_S = 30.0
#: How much more the last third of the looks may need than the second: the factor, and what is too little to count.
GROWTH = 1.15
NEGLIGIBLE = {"python_mb": 30, "jvm_mb": 100, "threads": 20, "files_open": 60, "home_mb": 5, "home_files": 100,
              "objects": 60, "objects_mb": 2, "database_mb": 2, "log_records": 5000}  # fmt: skip


class Words(Load):
    """Records with numbers in order, and 40 words. All records of a word are in one partition."""

    def record(self, number: int) -> tuple[str | None, dict[str, Any]]:
        """Return the key and value of a record."""
        word = f"w{number % 40}"
        return word, {"word": word, "n": number}


class Looks:
    """Looks at all that an application uses. Attributes: figures: of each look, by name."""

    def __init__(
        self, application: Application, objects: ObjectStore, database: str, wire: Wire, own: set[str]
    ) -> None:
        self._application, self._objects, self._wire, self._own = application, objects, wire, own
        self._engine = sql.create_engine(sql.make_url(database).set(drivername="postgresql+psycopg"))
        self._root = objects.root.partition("://")[2]
        self.figures: list[dict[str, float]] = []

    def look(self, since_s: float) -> None:
        """Add the figures of this moment."""
        found: Counter[str] = Counter()
        for process in self._application.processes():
            try:
                name = "jvm_mb" if "java" in process.name() else "python_mb"
                found[name] += process.memory_info().rss / 2**20
                found["threads"] += process.num_threads()
                found["files_open"] += process.num_fds()
            except psutil.NoSuchProcess:
                continue
        for file in self._application.home.rglob("*"):
            try:
                found["home_mb"] += file.lstat().st_size / 2**20
            except FileNotFoundError:
                continue
            found["home_files"] += 1
        for info in self._objects.system().get_file_info(FileSelector(self._root, recursive=True)):
            found["objects"] += 1
            found["objects_mb"] += (info.size or 0) / 2**20
        with self._engine.connect() as connection:
            found["database_mb"] = (
                connection.execute(sql.text("SELECT pg_database_size('postgres')")).scalar_one() / 2**20
            )
        topics = topics_of(self._wire.bootstrap)
        for topic in self._wire.admin.list_topics(timeout=30).topics:
            if self._wire.tag in topic and topic not in self._own:
                first, end = topics.first_positions(topic), topics.end_positions(topic)
                found["log_records"] += sum(end.values()) - sum(first.values())
        self.figures.append({"s": round(since_s), **{name: round(value, 1) for name, value in sorted(found.items())}})
        print(json.dumps(self.figures[-1]), flush=True)

    def grown(self) -> dict[str, tuple[float, float]]:
        """Return the greatest figure of the second third and of the last, of each that has grown too much."""
        third = len(self.figures) // 3
        middle, last = self.figures[third : 2 * third], self.figures[2 * third :]
        most = {name: (max(f[name] for f in middle), max(f[name] for f in last)) for name in NEGLIGIBLE}
        return {name: (was, now) for name, (was, now) in most.items() if now > GROWTH * was + NEGLIGIBLE[name]}


def test_an_hour_needs_no_more_than_its_first_minutes(
    broker: Broker, postgres: Postgres, tag: str, tmp_path: Path
) -> None:
    wire, objects = Wire(bootstrap=broker.bootstrap, tag=tag), ObjectStore()
    events = wire.topic("events", 2)
    out, windowed, connected = (wire.topic(name, 2) for name in ("out", "windowed", "connected"))
    names = {
        "EVENTS": events,
        "OUT": out,
        "DATA": f"{objects.root}/{tag}",
        "STORE": postgres.url(),
        "INTERVAL": INTERVAL,
    }
    options = (*LEASE, "--no-standby")
    application = Application(
        APPS / "long_run.py", broker.bootstrap, tmp_path / "home", {**names, **objects.environment}, *options
    )
    looks = Looks(application, objects, postgres.url(), wire, {events, out, windowed, connected})
    try:
        with application, Words(broker.bootstrap, events, rate=RATE) as load:
            application.wait_committed(0)
            began_s, is_killed = time.monotonic(), False
            while (since_s := time.monotonic() - began_s) < 60 * MINUTES:
                assert application.runs(), application.log()
                if since_s > 6 * MINUTES and not is_killed:  # early, so that both later thirds come after it
                    application.kill_everything()
                    application.wait_committed(0)
                    is_killed = True
                looks.look(since_s)
                next_s = time.monotonic() + LOOK_S
                application.wait(lambda next_s=next_s: time.monotonic() > next_s, 2 * LOOK_S, "the next look")  # type: ignore[misc]
            load.rate = 0
            sent = load.sent
            application.wait(
                lambda: wire.count(out) >= sent and len(wire.rows(out)) >= sent, START_S, f"{sent} results"
            )
            application.wait(lambda: are_connected(wire, connected), START_S, "all components")
    finally:
        (tmp_path / "figures.json").write_text(json.dumps(looks.figures))
        objects.close()
    assert sorted(row["n"] for row in wire.rows(out)) == list(range(sent))
    counts = Counter((row["window"]["start"], row["word"]) for row in wire.rows(windowed))
    assert set(counts.values()) == {1}
    assert {row["number"] for row in wire.rows(windowed)} <= set(range(1, 14))
    assert looks.grown() == {}


def are_connected(wire: Wire, topic: str) -> bool:
    """Return whether the changes in the topic add up to the components of 300 numbers."""
    linked = [n for n in range(300) if n % 7]
    return components_found(wire.rows(topic)) == dict.fromkeys(
        [(node, node // 7 * 7) for n in linked for node in (n, n - 1)], 1
    )
