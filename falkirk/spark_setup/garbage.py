"""Garbage: tells the JVM in batches which of its objects Python no longer uses.

PySpark makes an object in the JVM for each DataFrame, column and list. When Python deletes its reference, py4j sends a
command to the JVM from a separate thread: 40 % of all commands while Falkirk builds a plan or an epoch. Here, one
command carries all objects of a tenth of a second.
"""

import contextlib
import threading
import time
import weakref
from collections import deque
from typing import Any, cast

from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession

from falkirk.errors.spark import JVM_ERRORS

#: How long an object in the JVM may outlive its reference in Python, in seconds.
_PAUSE_S = 0.1


class JvmGarbage:
    """Takes the place of py4j's queue of objects to forget.

    Args: client: py4j's, of one JVM. gateway: in that JVM. forget: the method of the Java module.

    Attributes: has_ended: the JVM has ended, or its gateway closed. py4j's own queue then gets the objects.
    """

    def __init__(self, client: Any, gateway: Any, forget: Any) -> None:
        self._ids: deque[str] = deque()
        self._former, self._gateway, self._forget = client.finalizer_deque, gateway, forget
        self._client = weakref.ref(client)
        self.has_ended = False
        threading.Thread(target=self._run, name="falkirk-garbage", daemon=True).start()

    def appendleft(self, task: Any) -> None:
        """Take in an object, as py4j calls it: from any thread, at any moment, so without a lock."""
        if isinstance(task, tuple) and not self.has_ended:
            self._ids.append(task[1])
        else:  # py4j's end of all work, or objects after it
            self._former.appendleft(task)
            self.has_ended = True

    def send(self) -> int:
        """Let the JVM forget all objects that were taken in; return their number. Raises: Py4JError, OSError."""
        ids = []
        with contextlib.suppress(IndexError):
            while True:
                ids.append(self._ids.popleft())
        if ids:
            self._forget(self._gateway, " ".join(ids))
        return len(ids)

    def _run(self) -> None:
        while not self.has_ended and self._client() is not None:
            time.sleep(_PAUSE_S)
            try:
                self.send()
            except JVM_ERRORS:  # the JVM has ended, and with it its objects
                self.has_ended = True


def collect_in_batches(session: SparkSession) -> None:
    """Let this process send the JVM its garbage in batches, if the session has the Java module."""
    gateway = cast(Any, session.sparkContext)._gateway
    client = gateway._gateway_client
    module = cast(Any, session)._jvm.org.falkirk.Released
    if isinstance(module, JavaClass) and isinstance(getattr(client, "finalizer_deque", None), deque):
        client.finalizer_deque = JvmGarbage(client, gateway.java_gateway_server.getGateway(), module.forget)
