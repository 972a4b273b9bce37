"""Runs the hunt for some minutes, `make hunt MINUTES=…`, or for the pipelines of one seed, `make hunt SEED=…`.

In the last fifth of the time, a second JVM with another time zone, language and hash seed runs the same pipelines. Its
results must be the same.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from falkirk.local.spark import session
from tests.conftest import INTERPRETED
from tests.integration.hunting.judge import Hunt, Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The number of seeds that run together, with the same settings and the same midnight between the two runs.
BLOCK = 10
#: The first seed, which is far greater than those of the tests.
FIRST = 1_000_000
_ELSEWHERE = {
    "PYTHONHASHSEED": "77", "TZ": "Asia/Kathmandu",
    "SPARK_SUBMIT_OPTS": "-Duser.timezone=America/St_Johns -Duser.language=tr -Duser.country=TR -XX:+UseSerialGC",
}  # fmt: skip
_MODULE = "tests.integration.hunting.soak"


def seeds_of(block: int) -> range:
    """Return the seeds of a block."""
    return range(block * BLOCK, (block + 1) * BLOCK)


class Hunts:
    """The hunts of one Spark application, by the settings of a block of seeds."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark
        self._known: dict[tuple[bool, int], Hunt] = {}

    def of(self, block: int) -> Hunt:
        """Return the hunt for a block."""
        settings = block % 2 == 1, block // 2 % 4
        if settings not in self._known:
            self._known[settings] = Hunt(self._spark, ansi=settings[0], data=settings[1])
        return self._known[settings]


def soak(minutes: float) -> int:
    """Hunt for this time; return the exit code."""
    began, total = time.monotonic(), Outcome()
    first = (FIRST + int(time.time()) % 1_000_000 * 100) // BLOCK
    with tempfile.TemporaryDirectory() as folder, Path(folder, "record").open("a") as record:
        spark, block = _spark(), first
        hunts = Hunts(spark)
        while time.monotonic() < began + 48 * minutes:
            hunt = hunts.of(block)
            outcome = hunt.through(hunt.told(seeds_of(block)))
            print(*outcome.finds, sep="\n", end="\n" * bool(outcome.finds))
            total.add(outcome)
            print(f"seeds {first * BLOCK} to {seeds_of(block)[-1]}: {total}", flush=True)
            found = {f"{p.seed}:{p.number}": _digest(result) for p, result in outcome.results.items()}
            print(json.dumps({"block": block, "zone": outcome.zone, "results": found}), file=record, flush=True)
            block += 1
        spark.stop()
        _ended(spark)
        print("not inferred deterministic, by operation:", *[f"{n} {c}," for n, c in total.held_by.most_common(40)])
        command = [sys.executable, "-m", _MODULE, "elsewhere", record.name, str(12 * minutes)]
        bad = subprocess.run(command, env=os.environ | _ELSEWHERE, check=False).returncode
    return int(bool(total.finds) or bool(bad))


def elsewhere(record: Path, seconds: float) -> int:
    """Repeat the pipelines that another process has recorded, for this time; return the exit code."""
    began, hunts, seen, bad = time.monotonic(), Hunts(_spark()), 0, 0
    for line in record.read_text().splitlines():
        if time.monotonic() > began + seconds:
            break
        block, zone, expected = json.loads(line).values()
        hunt = hunts.of(block)
        told = hunt.told(seeds_of(block))
        batch = [t.pipeline for t in told if t.batch == frozenset()]
        live = [t.pipeline for t in told if t.batch and t.live == frozenset()]
        results = hunt.first(batch, live, zone)
        found = {f"{p.seed}:{p.number}": _digest(result) for p, result in results.items()}
        texts = {f"{p.seed}:{p.number}": str(p) for p in results}
        for name in sorted(expected.keys() | found.keys()):
            if expected.get(name) != found.get(name):
                bad += 1
                print(f"{name}, in another JVM: {texts.get(name)}: {expected.get(name)} and {found.get(name)}")
        seen += len(found)
        print(f"in another JVM: {seen:,} pipelines repeated, {bad} differ", flush=True)
    return int(bool(bad))


def replay(seed: int) -> int:
    """Check the pipelines of a seed and print them; return the exit code."""
    hunt = Hunts(_spark()).of(seed // BLOCK)
    told = hunt.told([seed])
    outcome = hunt.through(told)
    for one in told:
        batch = "not planned" if one.batch is None else ", ".join(sorted(one.batch)) or "the same"
        print(f"{one.pipeline.number} {one.pipeline.kind.value}: {one.pipeline}\n    [{batch}]")
        if outcome.results.get(one.pipeline, "").startswith("!"):
            print(f"    {outcome.results[one.pipeline]}")
    print(*outcome.finds, outcome, sep="\n")
    return int(bool(outcome.finds))


def _spark() -> "SparkSession":
    """Return a session with two threads. With `FALKIRK_COMPILED` Spark compiles expressions, as in production."""
    settings = {} if os.environ.get("FALKIRK_COMPILED") else INTERPRETED
    return session("falkirk-hunt", master="local[2]", settings=settings)


def _ended(spark: "SparkSession") -> None:
    gateway = spark.sparkContext._gateway
    if gateway is not None:
        gateway.proc.stdin.close()  # the JVM ends with it
        gateway.proc.wait(60)


def _digest(result: str) -> str:
    return "failed" if result.startswith("!") else sha256(result.encode()).hexdigest()[:16]


def main(arguments: list[str]) -> int:
    """Run the hunt that the arguments ask for; return the exit code."""
    match arguments:
        case ["seed", seed]:
            return replay(int(seed))
        case ["elsewhere", record, seconds]:
            return elsewhere(Path(record), float(seconds))
        case _:
            return soak(float(arguments[0]) if arguments else 10.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
