"""Connections are shut down at their deadlines, by one thread for all of them."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from falkirk.recovery.decision_store.deadlines import DEADLINES, Deadlines
from tests.postgres import Postgres
from tests.stores import Place

LONG_S = 60.0
#: A block that does nothing ends within this time on a busy machine, too.
IN_TIME_S = 1.0


def threads() -> set[int | None]:
    """Return the threads that end connections."""
    return {thread.ident for thread in threading.enumerate() if thread.name == "falkirk-deadlines"}


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two connected sockets; a read at the second one ends once the first one is shut down."""
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        theirs.settimeout(20)
        yield ours, theirs


def test_a_block_that_takes_too_long_loses_its_connection_whatever_came_before_it(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    other, its_end = socket.socketpair()
    with closing(other), closing(its_end):
        with DEADLINES.ending_after(LONG_S, other.fileno()), DEADLINES.ending_after(0.01, ours.fileno()):
            assert theirs.recv(1) == b""
        its_end.setblocking(False)
        with pytest.raises(BlockingIOError):  # the other one is open
            its_end.recv(1)


def test_a_block_that_ends_in_time_keeps_its_connection(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    other, its_end = socket.socketpair()
    with closing(other), closing(its_end):
        its_end.settimeout(20)
        with DEADLINES.ending_after(IN_TIME_S, ours.fileno()):
            pass
        with DEADLINES.ending_after(IN_TIME_S, other.fileno()):
            assert its_end.recv(1) == b""  # by then the first deadline has passed, too
    ours.send(b"x")
    assert theirs.recv(1) == b"x"


def test_a_block_may_close_its_connection(pair: tuple[socket.socket, socket.socket]) -> None:
    """psycopg does so after an error. Another socket may get the same number then, and stays open."""
    ours, later = socket.socketpair()
    ends = ours.fileno(), pair[0].fileno()
    with closing(later), DEADLINES.ending_after(IN_TIME_S, ends[0]), DEADLINES.ending_after(IN_TIME_S, ends[1]):
        number = ours.detach()
        os.close(number)
        other, its_end = socket.socketpair()
        with closing(other), closing(its_end):
            assert number in (other.fileno(), its_end.fileno())
            assert pair[1].recv(1) == b""  # by then the first deadline has passed, too
            for end in (other, its_end):
                end.setblocking(False)
                with pytest.raises(BlockingIOError):
                    end.recv(1)


def test_a_thread_that_did_not_start_is_started_by_the_next_block(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, the later blocks only notified it, so none of them ever ended."""
    ours, theirs = pair
    deadlines, start, refusals = Deadlines(), threading.Thread.start, [RuntimeError("can't start new thread")]

    def started(thread: threading.Thread) -> None:
        if refusals:
            raise refusals.pop()
        thread.name = "of this test"  # `threads` counts those of the process
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", started)
    with pytest.raises(RuntimeError, match="new thread"), deadlines.ending_after(0.01, ours.fileno()):
        pass
    with deadlines.ending_after(0.01, ours.fileno()):
        assert theirs.recv(1) == b""


def test_a_descriptor_that_is_no_socket_is_not_kept_open() -> None:
    ours, theirs = os.pipe()
    free = os.dup(ours)
    os.close(free)
    with pytest.raises(OSError, match="socket"), DEADLINES.ending_after(LONG_S, ours):
        pass
    assert os.dup(theirs) == free, "the number is free again"
    for number in (free, ours, theirs):
        os.close(number)


def test_transactions_of_a_store_start_one_thread(
    postgres: Postgres, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, each started two: 0.83 instead of 0.25 ms of CPU time for one that writes nothing."""
    names, start = list[str](), threading.Thread.start

    def started(thread: threading.Thread) -> None:
        names.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", started)
    with closing(Place(where=postgres.url(), identity=tag).open()) as store:
        for _ in range(20):
            store.await_writers()
            store.region_names()
    assert len(threads()) == 1
    assert names in ([], ["falkirk-deadlines"])


#: Python 3.12 and later warn of a fork beside a thread, which this test needs.
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_process_has_a_thread_of_its_own(postgres: Postgres, tag: str) -> None:
    with closing(Place(where=postgres.url(), identity=tag).open()) as store:
        assert len(threads()) == 1
        store.region_names()
    child = os.fork()
    if not child:
        status = 1
        try:
            before = threads()
            with closing(Place(where=postgres.url(), identity=tag).open()) as store:
                store.region_names()
            status = 0 if not before and len(threads()) == 1 else 1
        finally:  # after an error, the child would run the other tests, too
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
