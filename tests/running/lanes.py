"""A pytest plugin that gives some tests to one worker together, and all others to any free worker.

- All tests of `chaos/` are one lane: two applications under load slow each other, and a slower application computes
  for longer until its test ends. They use no session in their worker.
- The files in `OWN_JVM` are another lane, because they change the JVM for all others, or count what is in it. The
  worker of this lane has a separate JVM; all others share one (`shared.py`).
- The tests of a file of `cluster/` share a cluster, and those of a file in `HEAVY` an expensive fixture of the module.
  In two workers, each would make its own.
- The files of folders without Spark have thousands of tests of milliseconds. Handing out each one takes as long.

The workers get the tests in the order in which they were collected: the longest first. The first two workers that are
free get the lanes. After `OWN_JVM`, its worker gets tests of folders without Spark as long as there are any. So tests
with Spark run in the JVM that the others share, which has loaded and compiled their code already.

A worker starts a test once it knows the next one. Others of this run get further tests while two wait. A test of
`cluster/` takes minutes, so its worker gets further tests when one waits: otherwise the worker with the longest test
would get more beside it from the start.

A worker stays in a folder until all tests of the folder are given out, and then prefers a folder without a worker.
Tests of a folder run the same code of Spark, which each JVM first interprets and then compiles.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.scheduler.protocol import Scheduling
from xdist.workermanage import WorkerController

LANE = "tests/chaos/"
#: Tests that stop, delay or repeat the tasks of a whole JVM, stop its connections or Python processes, fill its memory,
#: or look at its process.
OWN_JVM = (
    "tests/integration/collections/test_task_again.py",
    "tests/integration/epochs/test_unreadable_files.py",
    "tests/integration/live_regions/test_attempts.py",
    "tests/integration/live_regions/test_beside_batch.py",
    "tests/integration/live_regions/test_lanes.py",
    "tests/integration/live_regions/test_live_python.py",
    "tests/integration/live_regions/test_live_timers.py",
    "tests/integration/live_regions/test_live_udfs.py",
    "tests/integration/live_regions/test_stray_connection.py",
    "tests/integration/machine/",
)
#: Files whose tests share a fixture of the module that takes seconds.
HEAVY = (
    "tests/integration/epochs/test_judge_batches.py",
    "tests/integration/inference/test_audit.py",
    "tests/integration/inference/test_hunt.py",
    "tests/integration/inference/test_hunt_faults.py",
    "tests/integration/kit/test_kit.py",
    "tests/integration/live_regions/test_udf_values.py",
    "tests/integration/plans/test_plan_promises.py",
)
CLUSTER = "tests/cluster/"
FILES = (CLUSTER, "tests/theory/", "tests/unit/", *HEAVY)
#: The rules of the house parse the same files.
HOUSE = "tests/unit/house/"
#: The lane of these files.
OWN = "own JVM"
#: Whether this worker has a separate JVM.
HAS_OWN = pytest.StashKey[bool]()
WITHOUT_SPARK = ("tests/simulation/", "tests/theory/", "tests/unit/")


class Lanes(LoadScopeScheduling):
    """Groups the tests that one worker gets together: all tests of a lane, of a file, or one test."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(OWN_JVM):
            return OWN
        if nodeid.startswith(LANE):
            return LANE
        if nodeid.startswith(HOUSE):
            return HOUSE
        return nodeid.partition("::")[0] if nodeid.startswith(FILES) else nodeid

    def _reschedule(self, node: WorkerController) -> None:
        work = self.assigned_work[node]
        if self._pending_of(work) < 2 or not next(reversed(work)).startswith(CLUSTER):
            super()._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        # Before the worker of `OWN` can have the session of the others.
        chosen = next((lane for lane in (LANE, OWN) if lane in self.workqueue), None)
        if chosen is None:
            chosen = self._light() if OWN in self.assigned_work[node] else self._near(node)
        if chosen is not None:
            self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)

    def _light(self) -> str | None:
        """Return the first scope without Spark."""
        return next((scope for scope in self.workqueue if scope.startswith(WITHOUT_SPARK)), None)

    def _near(self, node: WorkerController) -> str | None:
        """Return the first scope in the folder of this worker, else in a folder without a worker."""
        mine, *others = (
            folder_of(next(reversed(work))) if work else None
            for work in [self.assigned_work[node], *(w for n, w in self.assigned_work.items() if n is not node)]
        )
        heavy = [scope for scope in self.workqueue if not scope.startswith(WITHOUT_SPARK)]
        return next(
            (scope for scope in self.workqueue if folder_of(scope) == mine),
            next((scope for scope in heavy if folder_of(scope) not in others), None),
        )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let the worker of `OWN` have its own JVM."""
    if item.nodeid.startswith(OWN_JVM):
        item.config.stash[HAS_OWN] = True


def folder_of(scope: str) -> str:
    """Return the folder of a scope's tests."""
    return scope.partition("::")[0].rpartition("/")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Replace `--dist load`."""
    if config.getvalue("dist") != "load":
        return None
    config.option.loadscopereorder = False
    return Lanes(config, log)
