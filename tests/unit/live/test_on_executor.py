"""A Python of another machine: Falkirk's archive is its program, and it has neither Falkirk nor the user's files."""

import os
import socket
import struct
import subprocess
import sys
import tempfile
import types
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.types import IntegerType, StructField, StructType

from falkirk.declare.load import LOADING
from falkirk.platform import private
from falkirk.spark_setup import shipped
from falkirk.steps.live.on_executor import DRIVER
from falkirk.steps.live.row_calls import RowCalls, answer_of
from falkirk.steps.live.row_codec import RowCodec
from falkirk.steps.live.row_worker import ANSWER, REFUSAL, UNSUITABLE

ROWS = StructType([StructField("n", IntegerType())])
#: Executors have Spark and Arrow. Without `site`, Python does not find the Falkirk of a checkout.
PACKAGES = Path(pyspark.__file__).parents[1]


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker process, and the socket to it."""

    connection: socket.socket

    def send(self, message: bytes) -> None:
        self.connection.sendall(struct.pack(">i", len(message)) + message)

    def answer(self) -> tuple[bytes, bytes]:
        """Return the kind and the text of the next answer."""
        (size,) = struct.unpack(">i", self._bytes(4))
        found = self._bytes(size)
        return found[:1], found[1:]

    def _bytes(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self.connection.recv(size - len(found))
            assert more, "it ended"
            found += more
        return found


@contextmanager
def worker(folder: Path, *, version: str = shipped.python_version(), packages: object = PACKAGES) -> Iterator[Worker]:
    """Run a fork server as an executor does, with one worker. Args: folder: for sockets; it must be short."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "w"))
        listening.listen()
        listening.settimeout(60)
        command = [sys.executable, "-S", str(shipped.archive()), str(folder)]
        env = {**os.environ, "PYTHONPATH": str(packages), DRIVER: version}
        with subprocess.Popen(command, env=env, cwd="/", stdin=subprocess.PIPE) as server:
            assert server.stdin is not None
            server.stdin.write(f"{folder}/w\n".encode())
            server.stdin.flush()
            connection = listening.accept()[0]
            with connection:
                connection.settimeout(60)
                made = Worker(connection=connection)
                assert made.answer()[0] == ANSWER, "the number of the process"
                yield made
            server.stdin.close()
            assert server.wait(60) == 0
    assert not folder.exists(), "its folder ends with it"


def setup_of(function: Callable[[Row], object]) -> bytes:
    calls = RowCalls(function=function, given=ROWS, returns=ROWS, zone="UTC", fails=True)
    made: bytes = cloudpickle.dumps(calls)
    return made


def loaded(source: str) -> Callable[[Row], object]:
    """Return the function `called` of a user's file, which is loaded as `falkirk run` does it."""
    space = {"__name__": LOADING}
    exec(source, space)
    function: Callable[[Row], object] = space["called"]  # type: ignore[assignment]
    return function


@pytest.fixture
def folder() -> Path:
    return Path(tempfile.mkdtemp(dir=private.temporary_folder()))


def test_a_function_arrives_by_value(folder: Path) -> None:
    source = (
        "import falkirk as fk\n"
        "def more(n): return n + 1\n"
        "@fk.deterministic\n"
        "def called(row):\n"
        "    assert fk.__file__.startswith(__import__('sys').argv[0]), 'of the archive'\n"
        "    return {'n': more(row.n)}\n"
    )
    with worker(folder) as made:
        made.send(setup_of(loaded(source)))
        assert made.answer() == (ANSWER, b"")
        made.send(RowCodec(ROWS).encode({"n": 41}))
        kind, answer = made.answer()
        assert kind == ANSWER, answer
        assert RowCodec(answer_of(ROWS)).decode(answer)["results"] == [{"n": 42}]


def test_a_module_that_the_executor_does_not_have(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function of another module of the user's arrives as its name."""
    helpers = types.ModuleType("shop_helpers")
    exec("def called(row): return row", helpers.__dict__)
    monkeypatch.setitem(sys.modules, "shop_helpers", helpers)
    with worker(folder) as made:
        made.send(setup_of(helpers.called))
        kind, text = made.answer()
    assert kind == UNSUITABLE
    assert "No module named 'shop_helpers'" in text.decode()


def test_a_function_that_can_not_be_loaded_for_another_reason(folder: Path) -> None:
    with worker(folder) as made:
        made.send(b"no pickle")
        assert made.answer()[0] == REFUSAL


def test_another_version_of_python(folder: Path) -> None:
    with worker(folder, version="3.7") as made:
        made.send(os.urandom(3_000_000))
        kind, text = made.answer()
    assert kind == UNSUITABLE
    assert text.decode() == f"{sys.executable} is Python {shipped.python_version()}, and the driver has Python 3.7"


def test_a_python_without_spark(folder: Path) -> None:
    with worker(folder, packages="/nowhere") as made:
        made.send(b"")
        kind, text = made.answer()
    assert kind == UNSUITABLE
    assert "can't import what a worker needs: ModuleNotFoundError: No module named 'pyspark'" in text.decode()


def test_the_archive_has_all_modules_and_is_made_once() -> None:
    first = shipped.archive()
    made_ns = first.stat().st_mtime_ns
    assert shipped.archive() == first
    assert first.stat().st_mtime_ns == made_ns
    names = zipfile.ZipFile(first).namelist()
    assert {"__main__.py", "falkirk/__init__.py", "falkirk/steps/live/row_worker.py"} <= {*names}
    assert all(name.endswith(".py") for name in names)
