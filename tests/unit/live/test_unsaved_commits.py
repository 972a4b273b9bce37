"""Commits of Spark that are not recorded yet, because their files are still uploaded to an object store."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.live import checkpoint_files
from falkirk.runtime.spark.live.region import LiveRegion
from falkirk.theory.ids import BatchId, CheckpointNumber
from tests.stores import RECORD
from tests.unit.live.test_checkpoint_files import write

#: The last commit in Spark's folder, and the last one that is recorded.
COMMITTED, SAVED = BatchId(4), BatchId(2)


@pytest.fixture
def region(tmp_path: Path) -> LiveRegion:
    live = LiveRegion.__new__(LiveRegion)
    live._checkpoint = write(tmp_path / "checkpoint", COMMITTED + 1)
    live._store, live._on_progress = Store(tmp_path / "decisions.db"), lambda: None
    live._store.create_region("counts", RECORD, {})
    live.logs = cast(Any, SimpleNamespace(name="counts", sources=("pages",), output="out", views=()))
    live.region = cast(
        Any, SimpleNamespace(name="counts", deterministic=True, dead_letter_topic="dead", interval_s=1.0)
    )
    live._outputs = cast(Any, SimpleNamespace(names=("out", "dead")))
    topics = SimpleNamespace(end_positions=lambda name: {0: 50}, exists=lambda topic: True)
    live._context = cast(Any, SimpleNamespace(topics=topics, clock=time))
    live.letters = cast(Any, SimpleNamespace(count=lambda ends: None))
    live.opening = cast(Any, SimpleNamespace(incarnation=1, restored_batch=1))
    live.files = cast(
        Any,
        SimpleNamespace(
            save=lambda last: SAVED, numbers=lambda: tuple(range(SAVED + 1)), damage=lambda batch: None,
            end_offsets=lambda batch, topic: {0: batch}, made_at_s=float, restore=lambda batch: "a file is missing.",
        ),
    )  # fmt: skip
    live.twin = live.observations = live.query = None
    live.damaged, live._reached, live._checkpoints = set(), {}, ()
    live.progressed_at_s, live._delay_s, live._unsaved = 0.0, 0.0, BatchId(1)
    return live


def test_a_position_serves_only_restores_to_commits_after_it(region: LiveRegion) -> None:
    """Batches up to the commit after the last one of Spark may have sent results before the position.

    A restore to a recorded checkpoint between the two replays them, and has to look for them.
    """
    assert region.observe() == SAVED
    assert [tail.valid_from_commit for tail in region._store.tails("counts")] == [-1, COMMITTED + 1]
    assert region._checkpoints[-1].number == SAVED


def test_a_region_whose_checkpoints_wait_for_the_object_store_does_not_hang(region: LiveRegion) -> None:
    region.observe()
    region.progressed_at_s = 0.0
    region.observe()
    assert region.progressed_at_s == 0.0, "no commit since"
    region._unsaved = BatchId(COMMITTED - 1)
    before_s = time.monotonic()
    region.observe()
    assert region.progressed_at_s >= before_s


def test_a_checkpoint_that_can_not_be_fetched_is_not_tried_again(region: LiveRegion) -> None:
    """The region stays dead, so the next turn restores an older one."""
    assert checkpoint_files.restore_while(region.files, SAVED, lambda: None) == "a file is missing."
    region._ends = {}
    region.start(CheckpointNumber(SAVED))
    assert region._store.distrusted("counts") == {SAVED}
    assert region._ends == {}, "it is still fenced"
    assert not region._store.incarnations("counts")
