"""The calls of a Python function by a task of a live region: Java asks real processes, which die, hang and lie."""

import os
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil
import pytest
from pyspark import cloudpickle

from falkirk.platform import private
from falkirk.steps.live import on_executor
from falkirk.steps.live.row_calls import RefusedRow
from tests.support import is_alive, suspend, wait_until
from tests.unit.java.conftest import Command

WORKER = (sys.executable, "-m", "falkirk.steps.live.row_worker")
#: Workers that do what a request says: always if it ends with "!", else once. For that they make files whose names
#: begin with the argument of the program.
ODD = (sys.executable, str(Path(__file__).with_name("odd_workers.py")))


class Caller:
    """A JVM with one task that calls Python."""

    def __init__(self, jvm: "subprocess.Popen[str]") -> None:
        self._jvm = jvm

    def line(self, line: str) -> str:
        """Return the answer to a line."""
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        print(line, file=self._jvm.stdin, flush=True)
        return self._jvm.stdout.readline().removesuffix("\n")

    def begin(self, setup: bytes, words: Sequence[str], call_ms: int, start_ms: int, file: Path) -> None:
        """Begin a command, whose setup the file will have."""
        file.write_bytes(setup)
        assert self.line("\t".join(["begin", str(start_ms), str(call_ms), str(file), *words])) == "begun"

    def ask(self, request: bytes) -> tuple[int, bytes]:
        """Return the number of the process that answered, and its answer."""
        pid, _, answer = self.line(request.hex()).partition(" ")
        return int(pid), bytes.fromhex(answer)

    def fold(self, key: str, partition: int, request: bytes) -> str:
        """Return the answer to a record of a step with a state, or the error."""
        answer = self.line(f"{key} {partition} {request.hex()}").partition(" ")[2]
        return answer if "|" in answer else bytes.fromhex(answer).decode()

    def rows(self, *requests: bytes | str | None) -> list[bytes | str | None]:
        """Return the answers to rows of a task of a step without a state. A text is an error."""
        words = (r if isinstance(r, str) else "null" if r is None else r.hex() for r in requests)
        found = self.line(f"rows {' '.join(words)}")
        answers, error = found, ""
        for start in ("FALKIRK", "the iterator"):
            if start in found:
                at = found.index(start)
                answers, error = found[:at], found[at:]
        taken: list[bytes | str | None] = [None if a == "null" else bytes.fromhex(a) for a in answers.split(" ") if a]
        return [*taken, error] if error else taken

    def send(self, *requests: bytes) -> None:
        """Send requests that are under way together."""
        assert self.line(" ".join(["send", *(each.hex() for each in requests)])) == "sent"

    def following(self) -> bytes:
        """Return the answer to the first request under way."""
        return bytes.fromhex(self.line("next").partition(" ")[2])

    def error(self, request: bytes) -> str:
        """Return the error of a request."""
        return self.line(request.hex()).partition(" ")[2]


Begin = Callable[..., AbstractContextManager["Caller"]]


@pytest.fixture(scope="module")
def sockets() -> Iterator[Path]:
    """A folder for sockets, whose paths must be short."""
    with tempfile.TemporaryDirectory(dir=private.temporary_folder()) as folder:
        yield Path(folder)


@contextmanager
def _jvm(java_tests: Command, sockets: Path) -> "Iterator[subprocess.Popen[str]]":
    command = java_tests("CallLines", [str(sockets)])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as jvm:
        try:
            yield jvm
        finally:
            jvm.kill()


@pytest.fixture(scope="module")
def shared(java_tests: Command, sockets: Path) -> Iterator[Caller]:
    """A JVM for all tests of this file."""
    with _jvm(java_tests, sockets) as jvm:
        yield Caller(jvm)
        assert jvm.stdin is not None
        jvm.stdin.close()
        assert jvm.wait(60) == 0


@pytest.fixture
def calling(shared: Caller, tmp_path: Path) -> Begin:
    @contextmanager
    def made(setup: bytes, words: Sequence[str] = WORKER, call_ms: int = 60_000, start_ms: int = 60_000) -> Iterator:
        shared.begin(setup, words, call_ms, start_ms, tmp_path / "setup")
        yield shared
        assert shared.line("end") == "ended"

    return made


def _answering(request: bytes) -> bytes:
    print("to the log, not into the answers")
    if request.startswith(b"die") and (request.endswith(b"!") or not os.path.exists(request[3:].decode())):
        if not request.endswith(b"!"):
            open(request[3:].decode(), "w").close()
        os._exit(9)
    if request == b"refuse":
        raise RefusedRow("never again: ä")
    return request[::-1]


def pickled(function: Callable[[bytes], bytes]) -> bytes:
    """Return a function by value, as one of a user's file is sent."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        made: bytes = cloudpickle.dumps(function)
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    return made


def test_a_process_answers_and_another_one_replaces_it_when_it_dies(calling: Begin, tmp_path: Path) -> None:
    with calling(pickled(_answering)) as caller:
        first, answer = caller.ask(b"abc")
        assert answer == b"cba"
        assert caller.ask(b"") == (first, b"")
        large = os.urandom(3_000_000)
        assert caller.ask(large) == (first, large[::-1])
        psutil.Process(first).kill()
        second, answer = caller.ask(b"after a kill")
        assert (second != first, answer) == (True, b"llik a retfa")
        request = f"die{tmp_path / 'once'}".encode()
        third, answer = caller.ask(request)
        assert (third != second, answer) == (True, request[::-1]), "it died in a call, and the next one answered it"
        assert caller.error(b"die!") == "FALKIRK_PYTHON_FAILED|it ended before it answered"
        assert "never again: ä" in caller.error(b"refuse")
        assert caller.ask(b"and on")[1] == b"no dna"


def test_tasks_use_a_process_one_after_the_other(calling: Begin, sockets: Path) -> None:
    with calling(pickled(_answering)) as caller:
        pid, _ = caller.ask(b"abc")
        assert caller.line("task") == "begun"
        assert caller.ask(b"abc") == (pid, b"cba")
        assert not list(sockets.iterdir()), "a socket has no name once it is connected"
    wait_until(lambda: not psutil.pid_exists(pid), 30, "an unused process ends")


def server_of(worker: int) -> psutil.Process:
    """Return the process that has forked a worker."""
    server = psutil.Process(worker).parent()
    assert server is not None
    return server


def test_no_process_outlives_the_jvm(java_tests: Command, sockets: Path, tmp_path: Path) -> None:
    with _jvm(java_tests, sockets) as jvm:
        caller = Caller(jvm)
        caller.begin(pickled(_answering), WORKER, 60_000, 60_000, tmp_path / "setup")
        pid, _ = caller.ask(b"abc")
        both = psutil.Process(pid), server_of(pid)
        jvm.kill()
        for each in both:
            wait_until(lambda each=each: not is_alive(each), 30, "its end")


def test_a_fork_server_that_dies_is_replaced_and_its_workers_end(calling: Begin) -> None:
    with calling(pickled(_answering)) as caller:
        first, spare = caller.ask(b"abc")[0], int(caller.line("spare"))
        server = server_of(first)
        assert server_of(spare) == server, "a fork server has all workers of a JVM"
        server.kill()
        for pid in (first, spare):
            wait_until(lambda pid=pid: not psutil.pid_exists(pid) or not is_alive(psutil.Process(pid)), 30, "its end")
        second, answer = caller.ask(b"abc")
        assert answer == b"cba"
        assert server_of(second) not in (server, psutil.Process())


def test_a_fork_server_that_stands_still_is_replaced(calling: Begin) -> None:
    with calling(pickled(_answering), start_ms=15_000) as caller:  # the second server has as long to start
        first, _ = caller.ask(b"abc")
        server = server_of(first)
        suspend(server)
        psutil.Process(first).kill()
        second, answer = caller.ask(b"abc")
        assert answer == b"cba"
        assert server_of(second) != server
        assert not is_alive(server)


def _drawn(request: bytes) -> bytes:
    import random

    import numpy as np

    return struct.pack(">dd", random.random(), np.random.random())


def test_each_worker_draws_other_random_numbers(calling: Begin) -> None:
    """Workers begin as copies of one process."""
    with calling(pickled(_drawn)) as caller:
        first, numbers = caller.ask(b"")
        psutil.Process(first).kill()
        second, others = caller.ask(b"")
        assert first != second
        assert not {*struct.unpack(">dd", numbers)} & {*struct.unpack(">dd", others)}


def test_a_new_process_gets_the_request_of_one_that_hangs(calling: Begin) -> None:
    """Others that wait for a task may hang for the same reason."""
    with calling(pickled(_answering), call_ms=3_000) as caller:
        first, spare = caller.ask(b"abc")[0], int(caller.line("spare"))
        assert first != spare
        for pid in (first, spare):
            suspend(psutil.Process(pid))
        third, answer = caller.ask(b"abc")
        assert (third not in (first, spare), answer) == (True, b"cba")
        os.kill(spare, signal.SIGKILL)


def _appending(request: bytes) -> bytes:
    """Append each record to the state of its key, and answer with both. A dot deletes the state, a dash keeps it."""
    size = struct.unpack_from(">i", request)[0]
    state, row = request[4 : 4 + max(0, size)], request[4 + max(0, size) :]
    answer = (b"none" if size < 0 else state) + b"<" + row
    if row == b"die":
        os._exit(9)
    if row in (b".", b"-"):
        return struct.pack(">i", -1 if row == b"." else -2) + answer
    return struct.pack(">i", len(state + row)) + state + row + answer


def test_each_key_has_a_state_outside_of_the_process(calling: Begin) -> None:
    with calling(pickled(_appending)) as caller:
        assert [caller.fold("k", 0, row) for row in (b"a", b"b", b"-", b"c")] == ["none<a", "a<b", "ab<-", "ab<c"]
        assert caller.fold("", 1, b"x") == "none<x", "null is a key, too"
        assert caller.fold("k", 0, b"") == "", "a bad record passes"
        assert "FALKIRK_PYTHON_FAILED" in caller.fold("k", 0, b"die")
        assert caller.fold("k", 0, b".") == "abc<.", "two processes have died, and the state is there"
        assert caller.fold("k", 0, b"a") == "none<a"
        assert caller.fold("", 1, b"y") == "x<y"
        assert caller.fold("k", 1, b"b") == "FALKIRK_CO_PARTITIONING|0|1|[k]"


def test_a_function_that_can_not_be_loaded_is_refused(calling: Begin) -> None:
    with calling(b"no pickle") as caller:
        assert caller.error(b"abc").startswith("FALKIRK_PYTHON_REFUSED|the function can't be loaded")


def test_a_machine_whose_python_can_not_run_the_function(calling: Begin, sockets: Path) -> None:
    """The program of executors. The driver has another version here, or there is no such command."""
    program = ["-c", "from falkirk.steps.live import on_executor; on_executor.main()", str(sockets / "executor")]
    with calling(b"x" * 3_000_000, ["env", f"{on_executor.DRIVER}=3.7", sys.executable, *program]) as caller:
        for _ in range(2):
            error = caller.error(b"abc")
            assert error.startswith("FALKIRK_PYTHON_UNSUITABLE|")
            assert error.endswith("and the driver has Python 3.7")
    error = caller.line("\t".join(["begin", "1", "1", str(Path(__file__)), "/no/python"]))
    assert error.startswith("FALKIRK_PYTHON_UNSUITABLE|Cannot run program")


def test_a_process_that_does_not_start_fails_the_task(calling: Begin) -> None:
    with calling(b"", [sys.executable, "-c", "raise SystemExit(3)"]) as caller:
        assert caller.error(b"abc") == "FALKIRK_PYTHON_FAILED|it ended before it was ready: code 3"


def test_an_answer_that_is_none_is_given_by_another_process(calling: Begin, tmp_path: Path) -> None:
    reasons = {
        "torn": "it ended before it answered", "size": "it wrote an answer of -5 bytes",
        "kind": "it wrote an answer of kind 7", "late": "it did not answer within 2000 ms",
    }  # fmt: skip
    with calling(b"", [*ODD, str(tmp_path / "done")], call_ms=2_000) as caller:
        for what, reason in reasons.items():
            assert caller.ask(what.encode())[1] == what.encode()
            assert caller.error(f"{what}!".encode()) == f"FALKIRK_PYTHON_FAILED|{reason}"
            assert caller.ask(b"and on")[1] == b"and on"


def test_an_answer_in_pieces_a_last_answer_and_a_slow_start(calling: Begin, tmp_path: Path) -> None:
    with calling(b"slow", [*ODD, str(tmp_path / "done")], start_ms=5_000) as caller:
        first, answer = caller.ask(b"slowly!")
        assert answer == b"slowly!"
        assert caller.ask(b"last!") == (first, b"last!")
        second, answer = caller.ask(b"more")
        assert (second != first, answer) == (True, b"more")


def _numbered(request: bytes) -> bytes:
    """Answer with the request: its first byte says what happens before. Once, if it has the path of a file."""
    what, file = request[:1], request[1:]
    if what in b"dh" and not os.path.exists(file):
        if file != b"!":
            open(file, "w").close()
        if what == b"d":
            os._exit(9)
        signal.pause()
    if what == b"r":
        raise RefusedRow("never again")
    return request


def test_many_rows_are_under_way_and_their_answers_have_their_order(calling: Begin, tmp_path: Path) -> None:
    """Processes die at several rows. Requests and answers do not fit into the buffers of a socket."""
    rows: list[bytes | None] = [f"x{i}".encode() for i in range(400)]
    rows[7::31] = [None] * len(rows[7::31])
    for i in (0, 1, 40, 200, 201, 399):
        rows[i] = f"d{tmp_path / str(i)}".encode()
    rows[100:103] = [b"x" + os.urandom(1_500_000), b"x", b"x" + os.urandom(2_000_000)]
    with calling(pickled(_numbered)) as caller:
        assert caller.rows(*rows) == rows
        assert caller.rows() == []


def test_answers_before_an_error_are_kept(calling: Begin, tmp_path: Path) -> None:
    before = [f"x{i}".encode() for i in range(30)]
    with calling(pickled(_numbered), call_ms=2_000) as caller:
        died, refused = "FALKIRK_PYTHON_FAILED|it ended before it answered", "FALKIRK_PYTHON_REFUSED|never again"
        assert caller.rows(*before, b"d!", *before * 6) == [*before, died], "a thread waits to hand out further rows"
        assert caller.rows(*before, b"r", b"x") == [*before, refused]
        assert caller.rows(*before, "fail", b"x") == [*before, "the iterator failed"]
        hangs = [*before, f"h{tmp_path / 'once'}".encode(), *before]
        assert caller.rows(*hangs) == hangs
        assert caller.rows(*before, b"h!", b"x") == [*before, "FALKIRK_PYTHON_FAILED|it did not answer within 2000 ms"]


def test_a_process_says_that_an_answer_is_its_last_one_while_others_are_under_way(
    calling: Begin, tmp_path: Path
) -> None:
    with calling(b"", [*ODD, str(tmp_path / "done")]) as caller:
        caller.send(b"x1", b"last!", b"x2", b"x3")
        assert [caller.following() for _ in range(2)] == [b"x1", b"last!"]
        caller.send(b"x4")
        assert [caller.following() for _ in range(3)] == [b"x2", b"x3", b"x4"]


def test_only_requests_of_a_process_that_failed_are_asked_one_by_one(calling: Begin, tmp_path: Path) -> None:
    """Later ones are no cause of its failure. Under load, there are always some, so a task would stay slow."""
    with calling(b"", [*ODD, str(tmp_path / "done")], call_ms=2_000) as caller:
        for cause, later in (("late", "torn"), ("torn2", "size")):
            caller.send(b"x1", cause.encode(), b"x2")
            assert caller.following() == b"x1"
            assert caller.following() == cause.encode(), "a process failed, and another one answers"
            caller.send(later.encode(), b"x3")
            assert [caller.following() for _ in range(2)] == [b"x2", later.encode()], "this one may fail once, too"
            caller.send(b"pair!", b"x4")
            assert [caller.following() for _ in range(3)] == [b"x3", b"pair!", b"x4"]
