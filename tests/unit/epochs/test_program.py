"""The steps that compute a state may change only where no unsaved state depends on the former ones."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.errors import HomeError
from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store import Store
from falkirk.runtime.spark.epochs.log import EpochLog
from falkirk.runtime.spark.epochs.program import refuse_other_program
from tests.stores import void_range


def batch(program: str, *, deterministic: bool = True) -> Any:
    return SimpleNamespace(
        name="b", program=program, deterministic=deterministic, where="shop.py:7", saved_when="every minute"
    )


@pytest.fixture
def epochs(store: Store, tmp_path: Path) -> EpochLog:
    return EpochLog("epochs:b", "b", LocalData(tmp_path / "b"), store)


def complete(epochs: EpochLog, *, saved: bool) -> None:
    number = epochs.decide({"t": {0: 0}}, {"t": {0: 1}}, {}, 0.0)
    epochs.record(number, folder=f"{number}-aa", rows=1, dead=0, state=None, saved=saved)


def test_other_steps_wait_for_a_saved_state(epochs: EpochLog, store: Store) -> None:
    refuse_other_program(batch("one"), epochs, store)
    refuse_other_program(batch("two"), epochs, store)  # nothing is computed yet
    complete(epochs, saved=True)
    refuse_other_program(batch("three"), epochs, store)
    complete(epochs, saved=False)
    complete(epochs, saved=False)
    for _ in range(2):
        with pytest.raises(HomeError) as refused:
            refuse_other_program(batch("four"), epochs, store)
        assert refused.value.condition == "APPLICATION_CHANGED"
        assert refused.value.parameters.items() >= {"count": 2, "checkpoint": "0", "region": "b"}.items()
        assert refused.value.parameters["changed"] == {"program of the state": ("three", "four")}
        refuse_other_program(batch("three"), epochs, store)
    assert [e.number for e in epochs.epochs()] == [0, 1, 2], "the record of programs has nothing to do with epochs"
    void_range(store, "epochs:b", 0, 1, 3)  # a rollback to the saved state
    refuse_other_program(batch("four"), epochs, store)


def test_a_batch_that_takes_unsaved_epochs_back_may_change(epochs: EpochLog, store: Store) -> None:
    refuse_other_program(batch("one", deterministic=False), epochs, store)
    complete(epochs, saved=False)
    refuse_other_program(batch("two", deterministic=False), epochs, store)
    with pytest.raises(HomeError):
        refuse_other_program(batch("three"), epochs, store)  # these epochs would stay from now on


def test_a_home_of_an_earlier_version_has_no_record(epochs: EpochLog, store: Store) -> None:
    complete(epochs, saved=False)
    refuse_other_program(batch("one"), epochs, store)
    with pytest.raises(HomeError):
        refuse_other_program(batch("two"), epochs, store)


def test_a_batch_that_saves_each_state_has_no_record(epochs: EpochLog, store: Store) -> None:
    refuse_other_program(batch(""), epochs, store)
    assert store.newest_decision("program", "state of b") is None
