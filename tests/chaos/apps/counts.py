"""Keyed counts of one topic, each under a different mechanism and with a separate sink.

The environment names the topics and, in `COUNTED`, the counts that a test wants. So one run under one series of kills
is judged for each mechanism. The topic of the plain count is `COUNTS`; another count's topic is `COUNTS.NAME`. A
coordinator starts at most `STANDBYS_MAX` standbys: one that a test does not wait for costs a start of Spark. They start
at once, with the usual priority: the application costs more while a test waits for a standby.
"""

import os

from pyspark.sql import functions as F

import falkirk as fk
from falkirk.platform import priority
from falkirk.runtime.supervision.standby import Standby

INTERVAL, EVENTS, COUNTS = os.environ.get("INTERVAL", "5 seconds"), os.environ["EVENTS"], os.environ["COUNTS"]
SCHEMA = "word STRING NOT NULL, n INT"

if "STANDBYS_MAX" in os.environ:
    begun, begin, may_start = [], Standby._begin, Standby._may_start
    Standby._begin = lambda self, home: (begun.append(home), begin(self, home))
    Standby._may_start = lambda self: len(begun) < int(os.environ["STANDBYS_MAX"]) and may_start(self)
    Standby._is_steady = lambda self, status: {region["state"] for region in status["regions"]} == {"running"}
    priority.lower = lambda pid: None

FENCED = {"": None, "yes": True, "no": False}[os.environ.get("SINKS_TRANSACTIONAL", "")]

app = fk.App(
    "counts", history=int(os.environ.get("HISTORY", "10")), store=os.environ.get("STORE") or None, transactional=FENCED
)
app.source("events", fk.Kafka(EVENTS, schema=SCHEMA, key="word"))
app.source("loose", fk.Kafka(EVENTS, schema=SCHEMA))


def passed(events):
    return events.select("word", "n")


def counted(events):
    return events.groupBy("word").agg(F.count("*").alias("version"), fk.latest_value("n"))


def chained(events):
    """Count in a chain of two keyed steps, of which the second one gives the results of the first."""
    return counted(events).groupBy("word").agg(F.max("version").alias("version"), fk.latest_value("n"))


def _count(name, *, reads="events", policy=fk.Lazy, delivery="exactly-once", body=counted):
    app.add_processor(name, body, reads=(reads,), policy=policy(INTERVAL))
    topic = COUNTS if name == "counts" else f"{COUNTS}.{name}"
    app.sink(name, name, fk.Kafka(topic, key="word"), delivery=delivery)


for wanted in os.environ.get("COUNTED", "counts").split():
    match wanted:
        case "counts":
            _count("counts")
        case "hopped":  # a word may be in several partitions, so a hop orders it
            _count("hopped", reads="loose")
        case "twins":  # two queries for its region
            _count("twins", policy=lambda interval: fk.Lazy(interval, twins=True))
        case "hopped-twins":  # two queries for each of its regions, with a hop between these; see lanes.py
            _count("hopped-twins", reads="loose", policy=lambda interval: fk.Lazy(interval, twins=True))
        case "fenced":  # lanes.py fences its region
            _count("fenced", body=chained)
        case "snapshots":
            _count("snapshots", policy=fk.Snapshots)
        case "logged":
            _count("logged", policy=fk.LogSends)
        case "repeated":
            _count("repeated", delivery="repeated")
        case "acknowledged":  # an acknowledged processor has no state, so the count reads it
            app.add_processor("passed", passed, reads=("events",), policy=fk.Acknowledged(INTERVAL))
            _count("acknowledged", reads="passed", delivery="at-least-once")
        case _:
            raise ValueError(f"COUNTED names {wanted}: use the names of the cases above")

if __name__ == "__main__":
    app.run(kafka=os.environ["KAFKA"], home=os.environ["HOME_FOLDER"])
