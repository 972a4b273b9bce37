"""The terminal as a sink: the host's output reaches the user's terminal, and the loss of a terminal loses no result."""

import os
import threading

import pytest

from falkirk.runtime.spark.sinks.console import _print
from falkirk.runtime.spark.status import CONSOLE
from falkirk.runtime.supervision.starting import show_console


def test_what_a_host_prints_comes_out_at_the_coordinators(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed, pipe = os.pipe()
    monkeypatch.setenv(CONSOLE, str(pipe))
    shows = threading.Thread(target=show_console, args=(printed,))
    shows.start()
    text = "".join(f"ä{i}\n" for i in range(20_000))  # more than a pipe holds
    _print(text)
    os.close(pipe)  # the host's death has the same effect
    shows.join(30)
    assert capsys.readouterr().out == text


def test_in_a_process_of_the_users_own_it_is_printed_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(CONSOLE, raising=False)
    _print("row\n")
    assert capsys.readouterr().out == "row\n"
