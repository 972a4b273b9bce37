"""The command of a worker of pytest-xdist: hands its input and output to the nursery, which forks the worker.

It ends when the worker ends. If the nursery has ended, it becomes a worker that imports the tests itself, as
pytest-xdist's own command does. So do workers that replace others that died.
"""

import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as nursery:
    try:
        nursery.connect("\0" + sys.argv[1])
    except ConnectionRefusedError:
        os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
    socket.send_fds(nursery, [b"worker"], [0, 1, 2])
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):  # the ends of the pipes belong to the worker alone
        os.dup2(null, number)
    nursery.recv(1)
