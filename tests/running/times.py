"""A pytest plugin that measures the time of each test; `make test-times` prints a table.

For each test it records: the wall seconds; the processor seconds of all processes that the test started; the seconds in
which none of them computed, and the number of started JVMs. A sampler checks the processes twice a second; it misses a
process that lives for less time.
"""

import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import pytest

from tests.running.processes import MARK, worker_mark

#: The file to which a line per test is added; if it is not set, nothing is measured.
FILE = "FALKIRK_TEST_TIMES"
SAMPLE_S = 0.5
#: A faster test is not listed by itself.
LISTED_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Usage:
    """The time of one test.

    `cpu_s`: of its processes; `waiting_s`: none of them computed; `jvms`: the number of started JVMs.
    """

    test: str
    wall_s: float
    cpu_s: float
    waiting_s: float
    jvms: int


class Sampler:
    """Sums the resource usage of this worker's processes, from a separate thread."""

    def __init__(self) -> None:
        self.cpu_s, self.waiting_s, self.jvms = 0.0, 0.0, 0
        #: The living processes of this worker, and the processor seconds of each at the last check.
        self._mine: dict[int, psutil.Process] = {}
        self._used_s: dict[int, float] = {}
        self._java: set[int] = set()
        #: The other living processes, at first all. Most are others, so a check only compares their ids.
        self._others = {*psutil.pids()} - {os.getpid()}
        #: Those that had no mark at their first check: a process has it only once it runs its command.
        self._unmarked: set[int] = set()
        self._lock, self._at_s = threading.Lock(), time.monotonic()
        threading.Thread(target=self._run, name="sampler", daemon=True).start()

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(SAMPLE_S):
            self.sample()

    def sample(self) -> None:
        """Check all processes once."""
        with self._lock:
            living = set(psutil.pids())
            self._others &= living
            self._unmarked &= living
            for ended in self._mine.keys() - living:
                self._forget(ended)
            used_s = sum(self._used_since(pid) for pid in living - self._others)
            now_s = time.monotonic()
            passed_s, self._at_s = now_s - self._at_s, now_s
            self.cpu_s += used_s
            self.waiting_s += max(0.0, passed_s - used_s)

    def _forget(self, pid: int) -> None:
        del self._mine[pid]
        self._used_s.pop(pid, None)
        self._java.discard(pid)

    def _used_since(self, pid: int) -> float:
        """Return the processor seconds of a process since the last check; 0 for a process of another worker."""
        try:
            process = self._mine.get(pid) or psutil.Process(pid)
            if pid not in self._mine and pid != os.getpid() and process.environ().get(MARK) != worker_mark():
                (self._others if pid in self._unmarked else self._unmarked).add(pid)
                return 0.0
            self._mine[pid] = process
            with process.oneshot():  # one look for both
                times, name = process.cpu_times(), process.name()
        except (psutil.Error, OSError):  # the process ended, or belongs to another user
            return 0.0
        if name == "java" and pid not in self._java:  # a launcher script becomes java later
            self._java.add(pid)
            self.jvms += 1
        total_s = times.user + times.system
        before_s, self._used_s[pid] = self._used_s.get(pid, 0.0), total_s
        return max(0.0, total_s - before_s)


class Times:
    """Adds a line per test to a file."""

    def __init__(self, file: Path) -> None:
        self._file, self._sampler = file, Sampler()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure a test, including the fixtures that it uses first."""
        sampler = self._sampler
        sampler.sample()
        began_s, cpu_s, waiting_s, jvms = time.monotonic(), sampler.cpu_s, sampler.waiting_s, sampler.jvms
        result = yield
        sampler.sample()
        usage = Usage(
            test=item.nodeid,
            wall_s=round(time.monotonic() - began_s, 2),
            cpu_s=round(sampler.cpu_s - cpu_s, 2),
            waiting_s=round(sampler.waiting_s - waiting_s, 2),
            jvms=sampler.jvms - jvms,
        )
        with open(self._file, "a") as lines:
            lines.write(json.dumps(asdict(usage)) + "\n")
        return result


def pytest_configure(config: pytest.Config) -> None:
    """Measure in each process that runs tests, if a file is named."""
    file = os.environ.get(FILE)
    if file and (hasattr(config, "workerinput") or not config.getoption("numprocesses", None)):
        config.pluginmanager.register(Times(Path(file)))


def read(file: Path) -> list[Usage]:
    """Return the measurements of a run."""
    return [Usage(**json.loads(line)) for line in file.read_text().splitlines()]


def table(usages: Sequence[Usage]) -> str:
    """Return the table as Markdown: totals by folder, then each slow test, then the others by file."""
    long = sorted((u for u in usages if u.wall_s >= LISTED_S), key=lambda u: -u.wall_s)
    short = [u for u in usages if u.wall_s < LISTED_S]
    parts = [
        ("By folder", _sums(usages, lambda test: "/".join(test.split("::")[0].split("/")[:2]))),
        (f"Tests of {LISTED_S:g} s and more", [(u.test.removeprefix("tests/"), 1, u) for u in long]),
        ("All others, by file", _sums(short, lambda test: test.split("::")[0].removeprefix("tests/"))),
    ]
    lines: list[str] = []
    for title, rows in parts:
        lines += [
            f"## {title}",
            "",
            "| | tests | wall s | processor s | waiting s | JVMs |",
            "|---|--:|--:|--:|--:|--:|",
        ]
        lines += [
            f"| {name} | {count} | {u.wall_s:.1f} | {u.cpu_s:.1f} | {u.waiting_s:.1f} | {u.jvms} |"
            for name, count, u in rows
        ]
        lines.append("")
    return "\n".join(lines)


def _sums(usages: Iterable[Usage], group: Callable[[str], str]) -> list[tuple[str, int, Usage]]:
    groups: dict[str, list[Usage]] = defaultdict(list)
    for usage in usages:
        groups[group(usage.test)].append(usage)
    sums = [
        Usage(
            test=name,
            wall_s=sum(u.wall_s for u in of),
            cpu_s=sum(u.cpu_s for u in of),
            waiting_s=sum(u.waiting_s for u in of),
            jvms=sum(u.jvms for u in of),
        )
        for name, of in groups.items()
    ]
    return [(s.test, len(groups[s.test]), s) for s in sorted(sums, key=lambda s: -s.wall_s)]


if __name__ == "__main__":
    print(table(read(Path(sys.argv[1]))))
