"""The link to the store's database is cut without a word: nobody waits for so long that it would count as hanging."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from falkirk.runtime.supervision.settings import SILENT_S
from tests.cluster.net import network, refused
from tests.postgres import Postgres

pytestmark = pytest.mark.skipif(refused() is not None, reason=str(refused()))

#: Calls the store repeatedly, and prints each answer and its time.
_ASKING = """
import sys, threading, time
from falkirk.recovery.decision_store import Store
from falkirk.errors import StoreError
store = Store(sys.argv[1], identity="cut")
store.take_charge("a test")
while True:
    began_s, answer = time.monotonic(), "THERE"
    try:
        store.require_charge()
    except StoreError as error:
        answer = error.condition
    print(answer, time.monotonic() - began_s, flush=True)
    threading.Event().wait(0.1)
"""


def test_a_call_of_the_store_ends_before_a_host_counts_as_silent() -> None:
    with contextlib.ExitStack() as stack:
        net = stack.enter_context(network())
        database_at, host = net.here("database"), net.host("coordinator")
        database = Postgres(database_at.address)
        stack.callback(database.close)
        command = host.inside([sys.executable, "-c", _ASKING, database.url(host=database_at.address)])
        asking = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
        stack.enter_context(asking)
        stack.callback(asking.kill)
        assert asking.stdout is not None
        answers = (line.split() for line in asking.stdout)
        assert next(answers)[0] == "THERE"
        net.cut(database_at, host)
        took_s = next(float(seconds) for answer, seconds in answers if answer == "STORE_AWAY")
        net.heal(database_at, host)
        assert any(answer == "THERE" for answer, _ in answers)
    assert took_s < SILENT_S * 0.75
