"""The records of random programs. `clicks`, `more` and `extra` have all records of an id in one partition."""

from datetime import timedelta
from random import Random
from typing import Any

from tests.chaos.program_models import END
from tests.duplicates import BEGAN

IDS, PARTITIONS = 12, 2


def record(random: Random, topic: str, number: int) -> tuple[int, dict[str, Any]]:
    """Return a record of a topic, and its partition."""
    key = random.randrange(IDS)
    partition = random.randrange(PARTITIONS) if topic == "shown" else key % PARTITIONS
    back_s = random.choice([0, 0, 0, 0, 1, 2, 4, 9, 13])
    at = None if random.random() < 0.01 else (BEGAN + timedelta(seconds=number / 10 - back_s)).isoformat()
    return partition, {"id": None if random.random() < 0.01 else _name(topic, key), "at": at, "n": number}


def end(topic: str, partition: int, number: int) -> dict[str, Any]:
    """Return the last record of a partition, which moves its time far ahead."""
    return {"id": _name(topic, partition), "at": END.isoformat(), "n": number}


def _name(topic: str, key: int) -> str:
    return f"{topic[0] if topic in ('more', 'extra') else 'i'}{key}"
