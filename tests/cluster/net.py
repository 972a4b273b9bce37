"""Net: simulated hosts on this machine, each with a separate network, and links between them that a test can cut.

A host is a network namespace with one address on a bridge. The namespace of the tests also has addresses on the bridge,
for the broker and the database. A cut is silent, like an unplugged cable: packets go to an unused hardware address, so
no process is notified that a connection has ended.

A keeper, this module run as a program, removes the network when the test process closes its pipe or ends in any way,
`kill -9` included.
"""

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

#: The prefix of bridge names, before the number of the process that made them.
_NAME = "fk"
#: A hardware address that no device on the bridge has.
_NOBODY = "02:00:00:00:00:01"
#: The priority of the rules that cut links of the tests' namespace.
_PRIORITY = "10"
_CLOSED_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """An address and its namespace; None: the namespace of the tests."""

    name: str
    address: str
    namespace: str | None

    def inside(self, command: list[str]) -> list[str]:
        """Return a command that runs the given command in the namespace, and that dies with its parent."""
        within = [] if self.namespace is None else ["ip", "netns", "exec", self.namespace]
        return ["setpriv", "--pdeathsig", "KILL", *within, *command]


class Net:
    """A bridge with hosts. Use `network`, which removes the bridge at its end."""

    def __init__(self) -> None:
        for bridge in sorted(_left()):
            _remove(bridge)
        self._prefix = _free_prefix()
        self._bridge, self._hosts = f"{_NAME}{os.getpid():x}", list[Host]()
        self._cut = set[tuple[str, str]]()
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.net", self._bridge],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        _ip("link", "add", self._bridge, "type", "bridge", "forward_delay", "0")
        _ip("link", "set", self._bridge, "up")

    def here(self, name: str) -> Host:
        """Return another address in the namespace of the tests."""
        host = Host(name=name, address=self._next_address(), namespace=None)
        _ip("address", "add", f"{host.address}/24", "dev", self._bridge)
        self._hosts.append(host)
        return host

    def host(self, name: str) -> Host:
        """Return a host with a separate network."""
        host = Host(name=name, address=self._next_address(), namespace=f"{self._bridge}-{name}")
        assert host.namespace is not None
        self._hosts.append(host)
        outer, inner = f"{self._bridge}o{len(self._hosts)}", f"{self._bridge}i{len(self._hosts)}"
        _ip("netns", "add", host.namespace)
        _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", host.namespace)
        _ip("link", "set", outer, "master", self._bridge, "up")
        within = ("-n", host.namespace)
        _ip(*within, "link", "set", inner, "name", "eth0")
        _ip(*within, "address", "add", f"{host.address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _ip(*within, "link", "set", device, "up")
        return host

    def cut(self, one: Host, other: Host) -> None:
        """Cut the link between two hosts in both directions."""
        self.cut_way(one, other)
        self.cut_way(other, one)

    def cut_way(self, here: Host, there: Host) -> None:
        """Cut the link between two hosts in one direction, if it is not cut yet."""
        if (here.name, there.name) in self._cut:
            return
        if here.namespace is not None:
            _ip("-n", here.namespace, "neighbour", "replace", there.address, "lladdr", _NOBODY, "nud", "permanent",
                "dev", "eth0")  # fmt: skip
        else:
            _ip("rule", "add", "priority", _PRIORITY, "from", here.address, "to", there.address, "blackhole")
        self._cut.add((here.name, there.name))

    def try_again_for_long(self, host: Host) -> None:
        """Let the kernel of a host try for minutes to deliver the data of processes that have died, each few seconds.

        By default it tries for 50 to 100 s, at intervals that grow up to a minute. Connections that exist keep to that.
        """
        assert host.namespace is not None
        for name, value in (("tcp_orphan_retries", "100"), ("tcp_rto_max_ms", "4000")):
            inside = ["ip", "netns", "exec", host.namespace, "sysctl", "-qw", f"net.ipv4.{name}={value}"]
            subprocess.run(inside, check=True, capture_output=True)

    def unsent_bytes(self, host: Host, to: Host) -> int:
        """Return how much data the kernel of a host still has for another host that nobody has acknowledged."""
        found = subprocess.run(
            host.inside(["ss", "-tnH", "state", "all", "dst", to.address]), check=True, capture_output=True, text=True
        )
        return sum(int(line.split()[2]) for line in found.stdout.splitlines())

    def heal(self, one: Host, other: Host) -> None:
        """Undo a cut."""
        for here, there in ((one, other), (other, one)):
            if (here.name, there.name) not in self._cut:
                continue
            self._cut.remove((here.name, there.name))
            if here.namespace is not None:
                _ip("-n", here.namespace, "neighbour", "delete", there.address, "dev", "eth0")
            else:
                _ip("rule", "delete", "priority", _PRIORITY, "from", here.address, "to", there.address, "blackhole")

    def close(self) -> None:
        """Remove all of it. The processes in it have ended."""
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        assert self._keeper.wait(_CLOSED_S) == 0, "the network could not be removed"

    def _next_address(self) -> str:
        return f"{self._prefix}.{len(self._hosts) + 1}"


def refused() -> str | None:
    """Return why this machine can't make namespaces, or None if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing := [program for program in ("ip", "setpriv", "unshare") if shutil.which(program) is None]:
        return f"these programs are missing: {', '.join(missing)}"
    name, some = f"fk-probe-{secrets.token_hex(2)}", secrets.token_bytes(2)
    # Workers of one run probe at the same time, and a rule that exists already would be an error.
    rule = ("priority", _PRIORITY, "from", f"10.213.{some[0]}.{some[1]}", "to", "10.213.0.1", "blackhole")
    try:
        _ip("netns", "add", name)
        try:
            # A cut between two machines also needs these.
            _ip("-n", name, "link", "add", "fk-probe", "type", "bridge")
            _ip("rule", "add", *rule)
            _ip("rule", "delete", *rule)
        finally:
            _ip("netns", "delete", name)
    except subprocess.CalledProcessError as error:
        return f"network namespaces are not allowed here: {error.stderr.strip()}"
    return None


@contextmanager
def network() -> Iterator[Net]:
    """Yield a network without hosts; remove it at the end of the block."""
    net = Net()
    try:
        yield net
    finally:
        net.close()


def left_of(bridge: str) -> list[str]:
    """Return the existing parts of a network: its namespaces, links and rules."""
    namespaces = [line.split()[0] for line in _ip("netns", "list").splitlines()]
    links = [re.split("[@ ]", line)[0] for line in _ip("-brief", "link", "show").splitlines()]
    prefix = re.compile(rf"{bridge}(-\w+|[oi]\d+)?")
    return [name for name in (*namespaces, *links) if prefix.fullmatch(name)] + _rules(bridge)


def _rules(bridge: str) -> list[str]:
    """Return the rules that cut links of a network."""
    try:
        own = _ip("-brief", "address", "show", "dev", bridge).split()[2:]
    except subprocess.CalledProcessError:  # there is none
        return []
    addresses = {address.partition("/")[0] for address in own}
    rules = (line.split() for line in _ip("rule", "show").splitlines())
    return [" ".join(r[1:]) for r in rules if r[0] == f"{_PRIORITY}:" and addresses & {*r[1:]}]


def _remove(bridge: str) -> None:
    """Remove a network. Namespaces whose processes have not ended yet lose their names and links now.

    Its keeper and the test processes that begin now may all remove it at the same time, and each finds a part deleted
    by another one. A link also goes by itself, with the other end of it.
    """
    for rule in _rules(bridge):
        _delete("rule", "delete", "priority", _PRIORITY, *rule.split())
    for name in left_of(bridge):
        _delete(*(("netns", "delete") if "-" in name else ("link", "delete")), name)
    assert not (left := left_of(bridge)), left


def _delete(*words: str) -> None:
    subprocess.run(["ip", *words], check=False, capture_output=True)


def _free_prefix() -> str:
    """Return the first three numbers of addresses that nobody here uses.

    Workers of one run choose at the same time, so each chooses among its own.
    """
    worker, used = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 8, _ip("-o", "-4", "address", "show")
    free = [p for n in range(31) if f" {(p := f'10.213.{worker * 31 + n + 1}')}." not in used]
    return secrets.choice(free)


def _left() -> set[str]:
    """Return the networks of test processes that were killed, and whose keepers were."""
    names = [*_ip("netns", "list").split(), *_ip("-brief", "link", "show").split()]
    found = {
        (match[0], int(match[1], 16)) for name in names if (match := re.match(f"{_NAME}([0-9a-f]+)(?=[-oi@]|$)", name))
    }
    return {bridge for bridge, pid in found if not psutil.pid_exists(pid)}


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def _keep(bridge: str) -> None:
    """Wait until the test process has ended or asks for the end; then remove its network."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.buffer.read()
    _remove(bridge)


if __name__ == "__main__":
    _keep(sys.argv[1])
