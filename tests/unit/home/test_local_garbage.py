"""Garbage of the JVM is sent in batches, and py4j's own queue gets everything else."""

from collections import deque
from typing import Any

from py4j.protocol import Py4JNetworkError

from falkirk.spark_setup.garbage import JvmGarbage
from tests.support import wait_until

OBJECTS = 1000


class Client:
    """Stands for py4j's client of a JVM."""

    def __init__(self) -> None:
        self.finalizer_deque: deque[Any] = deque()


def test_a_batch_has_each_object_once() -> None:
    client, batches = Client(), list[str]()
    garbage = JvmGarbage(client, "gateway", lambda gateway, ids: batches.append(ids))
    for number in range(OBJECTS):
        garbage.appendleft((client, f"o{number}"))
    wait_until(lambda: len(" ".join(batches).split()) >= OBJECTS, 10, "all objects")
    assert sorted(" ".join(batches).split()) == sorted(f"o{number}" for number in range(OBJECTS))
    assert len(batches) < OBJECTS / 100
    assert not client.finalizer_deque


def test_the_end_of_the_gateway_ends_it() -> None:
    client, sent = Client(), list[str]()
    garbage = JvmGarbage(client, "gateway", lambda gateway, ids: sent.append(ids))
    garbage.appendleft("end")
    garbage.appendleft((client, "late"))
    assert [*client.finalizer_deque] == [(client, "late"), "end"]
    assert (garbage.send(), sent) == (0, [])


def test_after_an_error_py4j_goes_on() -> None:
    """Its own worker ignores errors of a JVM that has ended."""

    def fail(gateway: object, ids: str) -> None:
        raise Py4JNetworkError

    client = Client()
    garbage = JvmGarbage(client, "gateway", fail)
    garbage.appendleft((client, "lost"))
    wait_until(lambda: garbage.has_ended, 10, "the error")
    garbage.appendleft((client, "late"))
    assert [*client.finalizer_deque] == [(client, "late")]
