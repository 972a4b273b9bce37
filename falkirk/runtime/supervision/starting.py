"""Starts the process of a host, and prints the output of its console sinks."""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from falkirk.platform.terminal import plain_text
from falkirk.runtime.spark.status import CONSOLE

#: The command of a host.
PROGRAM = (sys.executable, "-m", "falkirk.runtime.supervision.process")


def start_process(home: Path, program: Sequence[str] = PROGRAM) -> "subprocess.Popen[str]":
    """Start a host that waits for its settings. Args: home: the folder, which gets its log. program: its command."""
    printed, pipe = os.pipe()
    with open(home / "host.log", "ab") as log:
        process = subprocess.Popen(
            program,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            text=True,
            start_new_session=True,
            pass_fds=(pipe,),
            env=host_environment() | {CONSOLE: str(pipe)},
        )
    os.close(pipe)
    threading.Thread(target=show_console, args=(printed,), name="falkirk-console", daemon=True).start()
    return process


def host_environment() -> dict[str, str]:
    """Return the environment of a host.

    The hash seed is fixed, so `hash("a")` and the order of a set are the same in each host, and so are steps that
    depend on them. Spark passes the seed to its Python workers.
    """
    return os.environ | {"PYTHONHASHSEED": "0"}


def show_console(printed: int) -> None:
    """Print the output of a host's console sinks until the host has ended. Args: printed: the end of a pipe."""
    with os.fdopen(printed, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            print(plain_text(line), end="", flush=True)
