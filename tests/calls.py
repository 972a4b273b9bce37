"""Counts the calls from Python to the JVM, by the line of Falkirk or of the caller that makes them."""

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from py4j.java_gateway import GatewayClient

#: Folders of a line in the packages through which a call passes.
_PASSED = ("/py4j/", "/pyspark/", "/unittest/", "/contextlib.py", "/functools.py")
#: The first letter of a command that looks up a name. Each name is looked up once in a process.
_LOOKUP = "r"


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count the calls of this thread, without those that look up a name: the same program makes as many each time."""
    found, here, real = Counter[str](), threading.get_ident(), GatewayClient.send_command

    def send(client: GatewayClient, command: str, *arguments: Any, **options: Any) -> Any:
        if threading.get_ident() == here and command[0] != _LOOKUP:
            found[_line()] += 1
        return real(client, command, *arguments, **options)

    with mock.patch.object(GatewayClient, "send_command", send):
        yield found


def _line() -> str:
    frame = sys._getframe(2)
    while frame.f_back is not None and any(folder in frame.f_code.co_filename for folder in _PASSED):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
