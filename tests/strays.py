"""Strays for tests: deletes the folders that no epoch uses, and waits for the thread that does it."""

from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.spark.epochs.strays import Strays
from tests.support import PATIENCE


def drop_strays(log: EpochLog, store: Store) -> None:
    """Delete the folders of a batch that stands still and that no epoch uses."""
    strays = Strays(log, store)
    strays.note()
    drop(strays)


def drop(strays: Strays) -> None:
    """Delete the noted folders; return after that."""
    strays.drop_later()
    assert strays.finish(10 * PATIENCE), "the thread that deletes folders does not end"
