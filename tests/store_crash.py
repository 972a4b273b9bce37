"""A program for tests: opens stores in child processes, and ends each child without warning before its k-th step.

A step is a statement or a commit. The program reads a JSON list of [where, identity, k], and prints each child's exit
code: GONE if the child reached its k-th step, 0 if it opened the store first.
"""

import json
import os
import sys
import threading
from typing import Any

import sqlalchemy as sql

from tests.stores import Place

GONE = 9


def count_steps(place: Place, gone_before: int | None = None) -> int:
    """Open a store; return the number of steps. If `gone_before` is given, end this process before that step.

    Steps of other threads are not counted: threads of an earlier test may also use a store.
    """
    steps, mine = 0, threading.get_ident()

    def step(*_: Any) -> None:
        nonlocal steps
        if threading.get_ident() != mine:
            return
        steps += 1
        if steps == gone_before:
            os._exit(GONE)

    events = ("before_cursor_execute", "commit")
    for event in events:
        sql.event.listen(sql.Engine, event, step)
    try:
        place.open().close()
    finally:
        for event in events:
            sql.event.remove(sql.Engine, event, step)
    return steps


def main() -> None:
    """Execute the list in the input."""
    sql.create_engine("postgresql+psycopg://")  # import the driver once, before the fork
    codes = []
    for where, identity, gone_before in json.load(sys.stdin):
        child = os.fork()
        if child == 0:
            try:
                count_steps(Place(where=where, identity=identity), gone_before)
            except BaseException:
                os._exit(1)
            os._exit(0)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(json.dumps(codes))


if __name__ == "__main__":
    main()
