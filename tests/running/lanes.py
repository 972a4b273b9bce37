"""A pytest plugin that runs the tests of `chaos/` in one worker, and all others in any free worker.

Two applications under load slow each other, and a slower application computes for longer until its test ends.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.scheduler.protocol import Scheduling

LANE = "tests/chaos/"


class Lanes(LoadScopeScheduling):
    """Groups the tests that one worker gets together: all tests of a lane, or one test."""

    def _split_scope(self, nodeid: str) -> str:
        return LANE if nodeid.startswith(LANE) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Replace `--dist load`."""
    return Lanes(config, log) if config.getvalue("dist") == "load" else None
