"""Ports of servers that start again: nobody who asks for any port, and no connection, gets them meanwhile."""

import socket
from pathlib import Path

import pytest

from falkirk.platform import free_ports as ports
from falkirk.platform.free_ports import free_ports, is_free
from falkirk.spark_setup import broker as local_broker


def test_the_kernel_gives_them_to_nobody() -> None:
    """Before, the port of a broker that was down could be taken by any connection of the machine."""
    found = [*free_ports(4), *local_broker._free_ports()]
    assert len({*found[:4]}) == 4
    assert max(found) < ports.given_away_from()
    assert all(map(is_free, found))


def test_a_port_of_a_server_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])


@pytest.mark.parametrize(("text", "least"), [("1024 65535", 1024), ("nonsense", 10_000)])
def test_a_kernel_that_gives_almost_all_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, least: int
) -> None:
    monkeypatch.setattr(ports, "_RANGE", tmp_path / "range")
    (tmp_path / "range").write_text(text)
    found = free_ports(3)
    assert len({*found}) == 3
    assert min(found) >= least
