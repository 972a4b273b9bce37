"""A pytest plugin that runs the tests of `chaos/` in one worker, and all others in any free worker.

Two applications under load slow each other, and a slower application computes for longer until its test ends. In
`cluster/`, the tests of a file share a cluster, so one worker gets the whole file.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.scheduler.protocol import Scheduling

LANE, FILES = "tests/chaos/", "tests/cluster/"


class Lanes(LoadScopeScheduling):
    """Groups the tests that one worker gets together: all tests of a lane, of a file of `cluster/`, or one test."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(LANE):
            return LANE
        return nodeid.partition("::")[0] if nodeid.startswith(FILES) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Replace `--dist load`."""
    return Lanes(config, log) if config.getvalue("dist") == "load" else None
