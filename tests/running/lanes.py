"""A pytest plugin that gives the tests of `chaos/` to one worker, and all others to whoever is free.

Two applications under load at once slow each other, and a slower one computes for longer until its test is done. In
`cluster/` the tests of a file share a cluster, so a worker gets a file.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.scheduler.protocol import Scheduling

LANE, FILES = "tests/chaos/", "tests/cluster/"


class Lanes(LoadScopeScheduling):
    """What is given to a worker as one: the lane, a file of a cluster, or a test."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(LANE):
            return LANE
        return nodeid.partition("::")[0] if nodeid.startswith(FILES) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Take the place of `--dist load`."""
    return Lanes(config, log) if config.getvalue("dist") == "load" else None
