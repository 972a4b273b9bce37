"""The counts of counts.py on one of two machines that share a home: no machine sees processes of the other.

The environment names the machine. OFF names mechanisms that are switched off, so that a test can see that it fails.
"""

import os
from pathlib import Path

from falkirk.platform import processes
from falkirk.recovery.decision_store import generation
from falkirk.recovery.ownership import guard, lease

MACHINE = os.environ["MACHINE"]
OFF = os.environ.get("OFF", "").split()
_find = processes.find_process


def _find_here(pid, since):
    found = _find(pid, since)
    return found if found is None or _is_here(pid) else None


def _is_here(pid):
    try:
        return f"MACHINE={MACHINE}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


processes.machine = lambda: MACHINE
processes.find_process = _find_here
if "lease" in OFF:
    lease.LeaseKeeper.check = lambda self: None
if "generation" in OFF:
    generation.check_generation = lambda db, number, where: None
if "claim" in OFF:
    guard.watch_owner = lambda look, say: None

from tests.chaos.apps.counts import app  # noqa: E402, F401
