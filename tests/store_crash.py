"""A program for tests: opens stores in children that are gone, without a word, before their k-th step.

A step is a statement or a commit. Reads from its input a JSON list of [where, identity, k]; prints each child's exit
code: GONE where it came to its k-th step, 0 where it opened the store before.
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
    """Open a store; return how many steps that took. End this process before one of them, if asked to.

    Steps of other threads are not its own: what an earlier test has left running may use a store, too.
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
    """Do what the input says."""
    sql.create_engine("postgresql+psycopg://")  # imports the driver, so that not each child does
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
