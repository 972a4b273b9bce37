"""Fixtures of tests that kill what the others share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from falkirk.local import broker as local_broker
from falkirk.local.broker import Broker


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that may be tormented: no other test uses it."""
    folder = tmp_path / "broker"
    yield local_broker.start(folder)
    local_broker.stop(folder)
