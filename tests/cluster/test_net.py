"""The network of the tests itself: it ends with its process, in every way in which that can end."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.net import _remove, left_of, network, refused
from tests.support import wait_until

pytestmark = pytest.mark.skipif(refused() is not None, reason=str(refused()))

#: Makes a network with a cut link and a process on each side of it, says its name, and waits to be killed.
_MAKER = """
import os, signal, subprocess
from tests.cluster.net import Net
net = Net()
here, there, other = net.here("here"), net.host("there"), net.host("other")
net.cut(here, there)
net.cut(there, other)
for host in (there, other):
    subprocess.Popen(host.inside(["sleep", "600"]))
print(f"fk{os.getpid():x}", flush=True)
signal.pause()
"""


def test_a_process_that_is_killed_leaves_nothing_behind() -> None:
    command = [sys.executable, "-c", _MAKER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as maker:
        assert maker.stdout is not None
        bridge = maker.stdout.readline().strip()
        there = left_of(bridge)
        maker.kill()
    assert len(there) == 6, f"two namespaces, their links to the bridge, the bridge and a rule: {there}"
    wait_until(lambda: not left_of(bridge), 10, lambda: f"nothing to be left of {left_of(bridge)}")


def test_several_processes_may_remove_a_network_at_once() -> None:
    """The keeper of a killed process does, and so does each test process that begins then. Before, one of them failed,
    and with it all tests of a file."""
    with network() as net, ThreadPoolExecutor(3) as removers:
        here, there = net.here("here"), net.host("there")
        net.cut(here, there)
        net.cut(there, net.host("other"))
        for removed in [removers.submit(_remove, net._bridge) for _ in range(3)]:
            removed.result()
        assert not left_of(net._bridge)
