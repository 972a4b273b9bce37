"""The doctor reports Spark's ports that others can reach, on a machine with an address that others can reach."""

import socket
from types import SimpleNamespace

import psutil
import pytest
from click.testing import CliRunner

from falkirk.spark_setup import doctor
from falkirk.spark_setup.doctor import CheckResult
from falkirk.user_tools.commands import machine as commands


def has(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> CheckResult:
    """Return the finding on a machine with these addresses."""

    def family(address: str) -> int:
        return socket.AF_INET6 if ":" in address else socket.AF_INET if "." in address else psutil.AF_LINK

    found = [SimpleNamespace(family=family(address), address=address) for address in addresses]
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"any": found})
    return doctor._ports()


def test_ports_are_noted_where_others_reach_them(monkeypatch: pytest.MonkeyPatch) -> None:
    found = has(monkeypatch, "127.0.0.1", "::1", "192.0.2.7", "fe80::1%eth0", "hardware")
    assert (found.ok, found.is_advice) == (True, True)
    assert "192.0.2.7, fe80::1" in found.detail
    assert "hardware" not in found.detail


def test_a_machine_of_its_own_has_nothing_to_note(monkeypatch: pytest.MonkeyPatch) -> None:
    found = has(monkeypatch, "127.0.0.1", "127.8.0.1", "::1")
    assert (found.ok, found.is_advice) == (True, False)


def test_a_note_is_shown_with_its_advice_and_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    note = has(monkeypatch, "192.0.2.7")
    well = CheckResult(name="disk", ok=True, detail="free", fix="free some")
    monkeypatch.setattr(commands, "check_machine", lambda kafka, secure, home: (note, well))
    done = CliRunner().invoke(commands.doctor)
    assert done.exit_code == 0
    assert done.output.splitlines() == [f"note ports: {note.detail}", f"     {note.fix}", "ok   disk: free"]
