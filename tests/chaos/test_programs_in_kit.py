"""The random programs in the test kit, with crashes: the models of test_random_programs.py and the kit agree.

The kit has one partition for each topic, and no kills. So a fault of a step, a model or a plan shows in seconds.
"""

import os
from collections import Counter
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

import falkirk as fk
from falkirk.errors import SparkError
from falkirk.testing import kit
from tests.chaos import programs
from tests.chaos.program_records import end, record
from tests.chaos.programs_judge import faults_of, letter_of

__all__ = ["kit"]
SOAK = pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
FIRST, END = map(int, os.environ.get("FALKIRK_LOOPS", "0:9").split(":"))
RECORDS, PARTS = 160, 4


@SOAK
@pytest.mark.parametrize("seed", range(FIRST, END))
def test_the_results_are_those_of_the_models(kit: Any, seed: int) -> None:
    processors, random = programs.program(seed), Random(f"records {seed}")
    print(f"seed {seed}", *processors, sep="\n", flush=True)
    app = fk.App(f"random-{seed}")
    programs.declare(app, processors, str)
    topics = programs.topics_of_sources(processors)
    records: dict[str, list[Any]] = {topic: [] for topic in topics}
    for number in range(1, RECORDS + 1):
        topic = random.choice(topics)
        records[topic].append(record(random, topic, number)[1])
    for topic, mine in records.items():
        mine.append(end(topic, 0, RECORDS + 1))
    t = kit(app, at=datetime(2026, 6, 1, tzinfo=UTC))
    try:
        for part in range(PARTS):
            for topic, mine in records.items():
                first, after = (len(mine) * each // PARTS for each in (part, part + 1))
                t.feed(_source(app, topic), mine[first:after])
            t.crash()
        t.advance("10 seconds")
    except SparkError as error:
        if "failing udf" in str(processors) and "Python worker" in str(error):
            pytest.skip("in the kit, a UDF that fails on a result of a step with a state ends the test")
        raise
    t.checkpoint()
    due = programs.outcomes(processors, {topic: {0: mine} for topic, mine in records.items()})
    faults = {p.name: faults_of(p, due[p.name], t.read(f"{p.name}-sink")) for p in processors}
    assert not any(faults.values()), faults
    known = Counter((row["region"].split("-")[0], letter_of(row)[0]) for row in t.dead_letters())
    assert known == Counter((p.name, kind) for p in processors for kind, _ in due[p.name].letters.elements())


def _source(app: fk.App, topic: str) -> str:
    """Return the name of a topic's source. A topic of a list has another name than the list."""
    source = next(name for name, topics in programs.SOURCES.items() if topic in topics)
    return next(name for name in app.sources if name == source or name.startswith(f"{source}/{topic}"))
