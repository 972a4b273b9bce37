"""A run of tests leaves no process behind: not after its end, after kill -9, or after a signal. It measures each test,
and makes an expensive fixture once."""

import itertools
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

from tests.running import imports, lanes, times
from tests.support import wait_until

ROOT = Path(__file__).parents[3]
#: A run of pytest that loads no installed plugin but xdist: others take a third of such a run's time.
PYTEST = (sys.executable, "-m", "pytest", "-p", "xdist", "-p", "no:cacheprovider")
ENVIRONMENT = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "FALKIRK_TEST_GRACE_S": "1"}

#: A test that starts a process in a separate session, prints its number, and passes or waits.
TEST = """
import multiprocessing, subprocess, sys, threading
from pathlib import Path

def test_that_starts_a_process():
    multiprocessing.get_context("spawn").Semaphore()  # Python starts its resource tracker
    waiting = "import threading; threading.Event().wait(600)"
    process = subprocess.Popen([sys.executable, "-c", waiting], start_new_session=True)
    Path({file!r}).write_text(str(process.pid))
    {then}
"""


def run_of(folder: Path, then: str, *options: str) -> tuple["subprocess.Popen[str]", psutil.Process]:
    """Start pytest on this test; return it and the process that the test has started."""
    file, told = folder / "test_started.py", folder / "pid"
    file.write_text(TEST.format(file=str(told), then=then))
    plugins = ["-p", "tests.running.processes", "--rootdir", str(folder), *options]
    running = subprocess.Popen(
        [*PYTEST, *plugins, str(file)],
        cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    wait_until(lambda: told.exists() and told.read_text(), 60, "the test to start its process")
    return running, psutil.Process(int(told.read_text()))


def ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    ("sent", "options"), [(signal.SIGKILL, ()), (signal.SIGKILL, ("-n", "1")), (signal.SIGTERM, ("-n", "1"))]
)
def test_no_process_is_left_by_a_run_that_a_signal_ends(
    tmp_path: Path, sent: signal.Signals, options: tuple[str, ...]
) -> None:
    running, started = run_of(tmp_path, "threading.Event().wait(600)", *options)
    running.send_signal(sent)
    running.communicate()
    wait_until(lambda: ended(started), 60, "the watcher to end what the test had started")


def test_a_process_that_a_test_left_is_named_and_fails_the_run(tmp_path: Path) -> None:
    running, started = run_of(tmp_path, "pass")
    printed, _ = running.communicate()
    assert ended(started)
    assert running.returncode == pytest.ExitCode.TESTS_FAILED
    assert f"{started.pid} {sys.executable}" in printed
    assert "resource_tracker" not in printed


def test_properties_have_no_deadline() -> None:
    """Regression: a property in `unit/` failed on a busy machine, unless `theory/` was part of the same run."""
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check


def test_what_a_test_takes_is_measured_with_its_children(tmp_path: Path) -> None:
    file, lines = tmp_path / "test_burning.py", tmp_path / "lines"
    file.write_text(
        "import subprocess, sys\n"
        "BURN = 'import time\\nwhile time.process_time() < 1: pass'\n"
        "def test_that_computes_in_a_child():\n"
        "    subprocess.run([sys.executable, '-c', BURN], start_new_session=True)\n"
    )
    plugins = ["-p", "tests.running.processes", "-p", "tests.running.times"]
    subprocess.run(
        [*PYTEST, *plugins, "--rootdir", str(tmp_path), str(file)],
        cwd=ROOT, env={**ENVIRONMENT, times.FILE: str(lines)}, check=True, capture_output=True,
    )  # fmt: skip
    printed = times.table(times.read(lines))
    (usage,) = times.read(lines)
    assert 0.5 < usage.cpu_s <= usage.wall_s + 0.5
    assert usage.jvms == 0
    assert "test_burning.py" in printed


#: Files outside of lanes whose fixture of the module takes milliseconds.
CHEAP = {
    *(f"tests/contract/test_{name}.py" for name in ("data_port", "hdfs", "object_parts", "object_rights")),
    *(f"tests/integration/collections/test_differential_{name}.py" for name in ("alone", "graphs")),
}


def test_the_tests_of_an_expensive_fixture_go_to_one_worker() -> None:
    """Regression: the hunt ran in two workers, which took 180 s of the suite."""
    files = {str(path.relative_to(ROOT)): path.read_text() for path in ROOT.glob("tests/**/test_*.py")}
    sharing = {
        file for file, text in files.items() if re.search(r'^@pytest.fixture\(.*scope="module"', text, re.MULTILINE)
    }
    outside = {file for file in sharing if not file.startswith((lanes.LANE, *lanes.OWN_JVM, *lanes.FILES))}
    assert outside == CHEAP, "list the file in HEAVY (tests/running/lanes.py) or in CHEAP"
    assert set(lanes.HEAVY) <= sharing


def workers_of(root: Path, *folders: str, late: str = "", until: int = 0) -> list[tuple[str, str]]:
    """Run twelve tests in each of these folders in two workers; return the folder and the worker of each test.

    Args: late: the tests of this folder wait until `until` tests have run.
    """
    (root / "told").touch()
    for folder in folders:
        (root / folder).mkdir(parents=True)
        lines = (
            "import os, pytest",
            "from tests.support import wait_until",
            "@pytest.mark.parametrize('n', range(12))",
            "def test_worker(n):",
            f"    least = {until if folder == late else 0}",
            f"    wait_until(lambda: len(open({str(root / 'told')!r}).readlines()) >= least, 60, 'others')",
            f"    with open({str(root / 'told')!r}, 'a') as told:",
            f"        told.write('{folder} ' + os.environ['PYTEST_XDIST_WORKER'] + chr(10))",
        )
        (root / folder / f"test_{folder.rpartition('/')[2]}.py").write_text("\n".join(lines))
    plugins = ["-p", "tests.running.lanes", "--rootdir", str(root)]
    subprocess.run(
        [*PYTEST, *plugins, "-n", "2", "--dist", "load", *(str(root / f) for f in folders)],
        cwd=ROOT, env={**ENVIRONMENT, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True,
    )  # fmt: skip
    told = [line.split() for line in (root / "told").read_text().splitlines()]
    return [(folder, worker) for folder, worker in told]


def test_one_worker_gets_a_lane(tmp_path: Path) -> None:
    workers = Counter(folder for folder, _ in set(workers_of(tmp_path, "tests/integration", "tests/unit")))
    assert workers == {"tests/integration": 2, "tests/unit": 1}


def test_two_workers_get_a_lane_each_and_the_one_with_its_own_jvm_takes_tests_without_spark_next(
    tmp_path: Path,
) -> None:
    """So other tests with Spark run in the JVM that the other workers share. The tests of `chaos/` use no session."""
    folders = ("tests/contract", "tests/integration/machine", "tests/chaos", "tests/theory", "tests/unit")
    ran = workers_of(tmp_path, *folders, late="tests/contract", until=26)
    order = {worker: [folder for folder, each in ran if each == worker] for _, worker in ran}
    first, second = sorted(order.values(), key=lambda mine: mine[0])
    assert first[:13] == ["tests/chaos"] * 12 + ["tests/contract"]
    assert second[:12] == ["tests/integration/machine"] * 12
    assert second[12:14] in (["tests/theory"] * 2, ["tests/unit"] * 2)


def test_a_worker_stays_in_a_folder(tmp_path: Path) -> None:
    ran = workers_of(tmp_path, "tests/integration/plans", "tests/integration/sinks")
    for worker in {worker for _, worker in ran}:
        folders = [folder for folder, each in ran if each == worker]
        assert len([*itertools.groupby(folders)]) == len({*folders}), folders


def test_a_worker_with_a_long_test_of_a_cluster_gets_no_further_one(tmp_path: Path) -> None:
    """Regression: the worker with the longest file of `make test-cluster` got another file from the start, and a third
    one after its first test. The others were idle while it ran them."""
    folder, told = tmp_path / "tests" / "cluster", tmp_path / "told"
    folder.mkdir(parents=True)
    told.touch()
    wait = "from tests.support import wait_until\n"
    wait += f"def test_long():\n    wait_until(lambda: len(open({str(told)!r}).readlines()) == 3, 4, 'the others')\n"
    (folder / "test_a.py").write_text(f"{wait}def test_more():\n    pass\n")
    for name in "bcd":
        line = f"def test_one():\n    with open({str(told)!r}, 'a') as told:\n        told.write('done\\n')\n"
        (folder / f"test_{name}.py").write_text(line)
    plugins = ["-p", "tests.running.lanes", "--rootdir", str(tmp_path)]
    ran = subprocess.run(
        [*PYTEST, *plugins, "-n", "2", "--dist", "load", str(folder)],
        cwd=ROOT, env={**ENVIRONMENT, "PYTHONPATH": str(ROOT)}, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout


def test_workers_import_different_files_first() -> None:
    files = [Path(name) for name in "abcdef"]
    orders = [imports.rotated(files, worker, 4) for worker in range(5)]  # the fifth replaces a crashed one
    assert ["".join(map(str, order)) for order in orders] == ["abcdef", "bcdefa", "defabc", "efabcd", "abcdef"]
