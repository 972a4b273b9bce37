"""Executor program: a fork server of row workers on an executor, or the reason why its Python can't be one.

It is the main program of the archive that Spark brings to executors (`spark_setup/shipped.py`). Nobody knows their
Python, so the code before the check of its version must run in each Python 3.

Environment: DRIVER: the version of the driver's Python. Argument: the folder for sockets, which is deleted at the end.
"""

import os
import shutil
import socket
import struct
import sys

#: The environment variable with the version of the driver's Python.
DRIVER = "FALKIRK_DRIVER_PYTHON"
_SIZE, _PID = struct.Struct(">i"), struct.Struct(">q")
#: Kinds of answers, as in `row_worker.py`.
_ANSWER, _UNSUITABLE = b"\0", b"\3"


def main() -> None:
    """Run until stdin ends, as it does when the JVM of the executor ends."""
    reason = _reason()
    try:
        if reason:
            _refuse(reason)
        else:
            _serve()
    finally:  # the JVM can't delete it after a kill
        shutil.rmtree(sys.argv[-1], ignore_errors=True)


def _reason() -> str:
    """Return why this Python can't run functions of the driver, or an empty text."""
    own, driver = "{}.{}".format(*sys.version_info[:2]), os.environ[DRIVER]
    if own != driver:
        return f"{sys.executable} is Python {own}, and the driver has Python {driver}"
    try:
        from falkirk.steps.live import row_worker, udf_worker  # noqa: F401
    except Exception as error:
        return f"{sys.executable} can't import what a worker needs: {type(error).__name__}: {error}"
    return ""


def _serve() -> None:
    from functools import partial

    from falkirk.steps.live import row_worker

    row_worker.main(partial(row_worker.serve, missing=row_worker.UNSUITABLE))


def _refuse(reason: str) -> None:
    """Answer each request for a worker with the reason why there is none."""
    with open(0, "rb", buffering=0, closefd=False) as addresses:
        for line in addresses:
            try:
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.connect(line.rstrip(b"\n"))
                    connection.sendall(_message(_ANSWER, _PID.pack(os.getpid())))
                    setup = connection.makefile("rb")
                    setup.read(_SIZE.unpack(setup.read(_SIZE.size))[0])
                    connection.sendall(_message(_UNSUITABLE, reason.encode()))
            except (OSError, struct.error):  # the JVM waits no longer
                pass


def _message(kind: bytes, answer: bytes) -> bytes:
    return _SIZE.pack(len(kind) + len(answer)) + kind + answer


if __name__ == "__main__":
    main()
