"""A pytest plugin that gives the tests of `chaos/` to one worker, and all others to whoever is free.

Two applications under load at once slow each other, and a slower one computes for longer until its test is done.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.scheduler.protocol import Scheduling

LANE = "tests/chaos/"


class Lanes(LoadScopeScheduling):
    """What is given to a worker as one: the lane, or a test."""

    def _split_scope(self, nodeid: str) -> str:
        return LANE if nodeid.startswith(LANE) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Take the place of `--dist load`."""
    return Lanes(config, log) if config.getvalue("dist") == "load" else None
