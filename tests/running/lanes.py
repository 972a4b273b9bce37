"""A pytest plugin that gives some tests to one worker together, and all others to any free worker.

- All tests of `chaos/` are one lane: two applications under load slow each other, and a slower application computes
  for longer until its test ends.
- The tests of a file of `cluster/` share a cluster, and those of a file in `HEAVY` an expensive fixture of the module.
  In two workers, each would make its own.
- The files of folders without Spark have thousands of tests of milliseconds. Handing out each one takes as long.

The workers get the tests in the order in which they were collected: the longest first. After the lane, its worker
gets tests of folders without Spark as long as there are any. So it does not start a session and a broker for the last
minutes of a run.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.scheduler.protocol import Scheduling
from xdist.workermanage import WorkerController

LANE = "tests/chaos/"
#: Files whose tests share a fixture of the module that takes seconds.
HEAVY = (
    "tests/integration/inference/test_audit.py",
    "tests/integration/inference/test_hunt.py",
    "tests/integration/inference/test_hunt_faults.py",
    "tests/integration/machine/test_class_archive.py",
    "tests/integration/machine/test_local_broker.py",
)
FILES = ("tests/cluster/", "tests/theory/", "tests/unit/", *HEAVY)
WITHOUT_SPARK = ("tests/simulation/", "tests/theory/", "tests/unit/")


class Lanes(LoadScopeScheduling):
    """Groups the tests that one worker gets together: all tests of a lane, of a file, or one test."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(LANE):
            return LANE
        return nodeid.partition("::")[0] if nodeid.startswith(FILES) else nodeid

    def _assign_work_unit(self, node: WorkerController) -> None:
        if LANE in self.assigned_work[node]:
            light = next((scope for scope in self.workqueue if scope.startswith(WITHOUT_SPARK)), None)
            if light is not None:
                self.workqueue.move_to_end(light, last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Replace `--dist load`."""
    if config.getvalue("dist") != "load":
        return None
    config.option.loadscopereorder = False
    return Lanes(config, log)
