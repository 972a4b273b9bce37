"""A twin that fails again and again is tried after growing pauses, and rarely in the end."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.runtime.spark.live.twin import Twin
from falkirk.theory.ids import BatchId
from tests.clock import MovedClock


def test_the_pauses_are_those_of_other_parts_and_then_rare(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    context = SimpleNamespace(clock=MovedClock())
    twin = Twin(cast(Any, None), tmp_path, cast(Any, SimpleNamespace(name="counts")), cast(Any, context))
    caplog.set_level(logging.WARNING, logger="falkirk")
    for _ in range(6):
        twin.query = cast(Any, SimpleNamespace(isActive=False, exception=lambda: ValueError("no")))
        twin.update(BatchId(-1))
        assert twin.query is None
    pauses = [record.getMessage().split(" begins in ")[1].split(" s: ")[0] for record in caplog.records]
    assert pauses == ["1", "2", "5", "10", "300", "300"]
