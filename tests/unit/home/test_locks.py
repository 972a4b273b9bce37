"""Locks: a process that only tests a lock shares it for an instant, in which nobody can take it."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from falkirk.errors import HomeError
from falkirk.platform import locks
from tests.clock import MovedClock


@pytest.mark.parametrize("looks", [0, locks.LOOKS])
def test_a_process_that_looks_is_not_taken_for_an_owner(looks: int, tmp_path: Path) -> None:
    """Another process has got as far as into `is_held`. Before, a start at that moment was refused: without the further
    looks it is."""
    looking = locks.open_lock(tmp_path, locks.OWNER)
    fcntl.flock(looking, fcntl.LOCK_SH | fcntl.LOCK_NB)
    clock = MovedClock()
    clock.meanwhile = lambda: fcntl.flock(looking, fcntl.LOCK_UN)
    if not looks:
        with pytest.raises(HomeError) as refused:
            locks.hold(tmp_path, locks.OWNER, "1", clock=clock, looks=looks)
        assert refused.value.condition == "HOME_IN_USE"
    else:
        held = locks.hold(tmp_path, locks.OWNER, "1", clock=clock, looks=looks)
        assert locks.is_held(tmp_path, locks.OWNER)
        os.close(held)
    os.close(looking)
    assert not locks.is_held(tmp_path, locks.OWNER)


def test_an_owner_is_found_at_once_or_after_a_moment(tmp_path: Path) -> None:
    held = locks.hold(tmp_path, locks.OWNER, "17")
    with pytest.raises(HomeError) as refused:
        locks.hold(tmp_path, locks.OWNER, "18")
    assert refused.value.condition == "HOME_IN_USE"
    assert refused.value.parameters["pid"] == "17"
    os.close(held)


@pytest.mark.parametrize("says", ["9", "1234"])
def test_a_full_disk_leaves_a_lock_with_its_holder(says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that has a block can be written, and an empty one can't. A takeover asks whom the lock names."""
    lock = locks.hold(tmp_path, locks.OWNER, locks.visitor(17))
    write = os.pwrite

    def full(file: int, text: bytes, at: int) -> int:
        if os.fstat(file).st_size < at + len(text):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, text, at)

    monkeypatch.setattr(os, "pwrite", full)
    locks.write_holder(lock, says)
    assert (locks.said(lock), os.fstat(lock).st_size) == (says, len(says))
    with pytest.raises(OSError, match="No space"):
        locks.write_holder(lock, says * 10)
    assert locks.said(lock) == "", "a former holder would be wrong"
    os.close(lock)
