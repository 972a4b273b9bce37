"""A pytest plugin that imports the tests once: the workers of a run are forks of the process that has imported them.

Importing the tests and all that they use takes two thirds of the time in which a worker collects the tests.
pytest-xdist starts each worker by a command. With this plugin, the command is a messenger (messenger.py).

A process with threads can't be forked safely. So no module may start a thread when tests import it.

PYTEST_DONT_REWRITE: the nursery imports this module before it has pytest's import hook.
"""

import atexit
import contextlib
import gc
import importlib
import os
import shlex
import socket
import subprocess
import sys
import threading
import warnings
from itertools import chain
from pathlib import Path

import execnet
import pytest
from _pytest.config import _prepareconfig

_MESSENGER = Path(__file__).with_name("messenger.py")
#: How long the nursery waits for a messenger, in seconds: the process of the run may have ended.
_NEXT_S = 60.0


def pytest_xdist_setupnodes(config: pytest.Config, specs: list[execnet.XSpec]) -> None:
    """Start the nursery, and let each worker begin as its fork."""
    name = f"falkirk-nursery-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen(len(specs))
        code = f"from tests.running.nursery import grow; grow({listener.fileno()}, {len(specs)})"
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, config.invocation_params.args)],
            stdin=subprocess.DEVNULL, pass_fds=[listener.fileno()],
        )  # fmt: skip
    config.add_cleanup(process.wait)
    command = shlex.join([sys.executable, "-S", str(_MESSENGER), name])
    specs[:] = [execnet.XSpec(f"popen//python={command}") for _ in specs]


def grow(listening: int, workers: int) -> None:
    """Import the tests and fork workers. Runs in the nursery and its forks, and ends them.

    Args: listening: the descriptor of the socket that takes messengers.
    """
    config = _prepareconfig([*sys.argv[1:], "--capture=no"])
    for file in sorted(chain.from_iterable(folder.rglob("test_*.py") for folder in _folders_of(config))):
        with contextlib.suppress(Exception, pytest.skip.Exception):  # the collection reports it
            importlib.import_module(".".join(file.relative_to(config.rootpath).with_suffix("").parts))
    _draw_texts()
    assert threading.active_count() == 1, "a module of tests starts a thread"
    gc.freeze()  # looking for garbage would copy the pages of all objects
    with socket.socket(fileno=listening) as listener:
        listener.settimeout(_NEXT_S)
        for _ in range(workers):
            messenger, _ = listener.accept()
            _, given, _, _ = socket.recv_fds(messenger, 16, 3)
            if os.fork() == 0:
                listener.close()
                messenger.detach()  # only the end of this process closes it: the messenger waits for that
                _work(given)
                atexit._run_exitfuncs()
                os._exit(0)  # as below
            messenger.close()
            for descriptor in given:
                os.close(descriptor)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    os._exit(0)  # freeing all objects takes a while, and the run kills what outlives it (processes.py)


def _draw_texts() -> None:
    """Draw some texts. Hypothesis then knows the characters of UTF-8 and the constants in all modules, as do its forks.

    In a fresh clone it reads the code of all modules for these constants, and tries to encode each character.
    """
    from hypothesis import given, settings, strategies  # pytest's import hook is there now
    from hypothesis.errors import HypothesisSideeffectWarning

    @settings(max_examples=100, derandomize=True, database=None)
    @given(strategies.text())
    def draw(_: str) -> None:
        pass

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HypothesisSideeffectWarning)  # no test runs yet
        draw()


def _work(given: list[int]) -> None:
    """Be a worker: do as pytest-xdist's own command does, with the descriptors of its messenger."""
    for number, descriptor in enumerate(given):
        os.dup2(descriptor, number)
        os.close(descriptor)
    del sys.argv[1:]
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    exec(eval(sys.stdin.readline()), {"__name__": "__main__", "sys": sys})


def _folders_of(config: pytest.Config) -> list[Path]:
    """Return the folders among the arguments."""
    return [path for path in (config.rootpath / argument for argument in config.args) if path.is_dir()]
