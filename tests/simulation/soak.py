"""Runs schedules that no test has run, for some minutes: `make soak MINUTES=…`. Prints the seed of each failure."""

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import count, islice

from tests.simulation.run import Run

#: Far above the seeds of the tests.
FIRST = 1_000_000
BLOCK = 20


def failures(first: int) -> list[str]:
    """Run a block of seeds; return one line for each failure."""
    found = []
    for seed in range(first, first + BLOCK):
        try:
            Run(seed).go()
        except Exception as error:
            found.append(f"make simulate SEED={seed}: {type(error).__name__}: {str(error)[:200]}")
    return found


def main(minutes: float) -> int:
    """Run for this many minutes; return the exit code."""
    until, blocks, bad = time.monotonic() + 60 * minutes, 0, 0
    starts = count(FIRST + int(time.time()) % 1_000_000 * 1000, BLOCK)
    with ProcessPoolExecutor() as pool:
        while time.monotonic() < until:
            for lines in pool.map(failures, islice(starts, 8)):
                blocks += 1
                bad += len(lines)
                for line in lines:
                    print(line, flush=True)
            print(f"{blocks * BLOCK:,} schedules, {bad} failed", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0))
