"""Homes: compares a home in an object store with one on the local disk.

Two applications run one after the other: a keyed count, whose pauses at checkpoints and recovery after kill -9 are
measured, and a batch with a state, whose epochs follow each other without a wait. Both run with each home by turns.
"""

import os
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.client import Measured
from benchmarks.recovery import COUNT, KEYS, Run, incomplete, record, running
from benchmarks.report import Report
from falkirk.spark_setup import broker as local_broker

#: The variable with the URL of the PostgreSQL database for decisions. It has a password, so it is no argument.
STORE = "FALKIRK_BENCH_STORE"
#: A batch with a state. {place} is for arguments of `fk.App` that name another home.
TALLIES = """
import os

from pyspark.sql import functions as F

import falkirk as fk

app = fk.App("tallies"{place})
app.source("records", fk.Kafka({source!r}, schema="word STRING, n LONG"))


@app.batch(rows={rows}, state="word STRING, times LONG")
def tallies(records, tallies):
    added = records.groupBy("word").agg(F.count("*").alias("times"))
    now = tallies.unionByName(added).groupBy("word").agg(F.sum("times").alias("times"))
    return now, now


app.sink("tallies", tallies, fk.Kafka({sink!r}, key="word"))
"""
_EPOCH_S = 120.0
#: The time between two checkpoints of the keyed count, each of which has one pause.
_INTERVAL_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HomesSettings:
    """Args: data: the address of a folder in an object store. turns: with each home.
    steady_s: before the kills; the pause is the longest latency in 10 s of it. kills: in each turn. rate: records per
    second. epochs: of the batch, after `warm` ones.
    """

    data: str
    turns: int = 2
    warm_up_s: float = 30.0
    steady_s: float = 60.0
    kills: int = 2
    rate: float = 50.0
    epochs: int = 12
    warm: int = 4

    def places(self) -> dict[str, tuple[str, str]]:
        """Return the arguments of `fk.App` for each home: those of the count, and those of the batch."""
        address = f"{self.data.rstrip('/')}/{uuid.uuid4().hex[:8]}"
        count, batch = (f", home={f'{address}/{job}'!r}, store=os.environ['{STORE}']" for job in ("count", "batch"))
        return {"local": ("", ""), "objects": (count, batch)}


def run_homes(settings: HomesSettings, say: Callable[[str], None]) -> Report:
    """Measure a count and a batch with each home. Raises: SparkError: `BENCH_INCOMPLETE`."""
    report = Report(bench="homes", settings={"turns": settings.turns, "kills": settings.kills, "rate": settings.rate})
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="falkirk-bench-") as name:
        folder = Path(name)
        broker = local_broker.start(folder / "broker")
        try:
            for turn in range(settings.turns):
                for kind, (count, batch) in settings.places().items():
                    measured = _count(settings, folder / f"count-{kind}-{turn}", broker.bootstrap, count)
                    measured |= _batch(settings, folder / f"batch-{kind}-{turn}", broker.bootstrap, batch)
                    for figure, values in measured.items():
                        found.setdefault(f"{kind}_{figure}", []).extend(values)
                        told = " ".join(f"{value:.2f}" for value in values)
                        say(f"{kind} {figure}: {told} (load {os.getloadavg()[0]:.1f})")
        finally:
            local_broker.stop(folder / "broker")
    for figure, values in found.items():
        report.figures |= {
            figure: round(median(values), 3),
            f"{figure}_least": round(min(values), 3),
            f"{figure}_most": round(max(values), 3),
        }
    return report


def _count(settings: HomesSettings, folder: Path, bootstrap: str, place: str) -> dict[str, list[float]]:
    with running(folder, bootstrap, COUNT, standby=False, place=place) as run:
        run.begin(settings.rate)
        time.sleep(settings.warm_up_s)
        began_s = time.monotonic()
        time.sleep(settings.steady_s)
        pauses_s = _measured(run, began_s, time.monotonic()).longest_per(_INTERVAL_S)
        recoveries_s = []
        for _ in range(settings.kills):
            recoveries_s.append(run.kill())
            time.sleep(10.0)
        lost, repeated = run.finish()
        if lost or repeated:
            raise incomplete(f"{lost} results are lost, {repeated} repeated")
    return {"pause_s": pauses_s, "recovery_s": recoveries_s}


def _measured(run: Run, begin_s: float, end_s: float) -> Measured:
    """Return the latencies of the records that were sent in a time."""
    time.sleep(2.0)  # their results arrive
    sent = {n: at for n, at in enumerate(list(run.sent_at_s)) if begin_s <= at < end_s and n in run.seen_at_s}
    return Measured(
        latencies_s=[run.seen_at_s[n] - at for n, at in sent.items()],
        sent_at_s=list(sent.values()),
        missing=0,
        repeated=0,
    )


def _batch(settings: HomesSettings, folder: Path, bootstrap: str, place: str) -> dict[str, list[float]]:
    rows, seen_s = 10 * KEYS, list[float]()
    text = TALLIES.replace("{rows}", str(rows))
    with running(folder, bootstrap, text, standby=False, place=place) as run:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
        number = settings.warm + settings.epochs + 1
        for n in range(number * rows):
            word, value = record(n)
            producer.produce(run.source, key=word, value=value)
            producer.poll(0)
        producer.flush()
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 0})
        consumer.assign([TopicPartition(run.sink, p, 0) for p in range(2)])
        until_s = time.monotonic() + _EPOCH_S * number
        while len(seen_s) < number:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None and message.key() == b"w0":
                seen_s.append(time.monotonic())
            if time.monotonic() > until_s or not run.runs():
                raise incomplete(f"only {len(seen_s)} of {number} epochs were published")
        consumer.close()
    kept = seen_s[settings.warm :]
    return {"epoch_s": [after - before for before, after in pairwise(kept)]}
