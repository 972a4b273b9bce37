"""What a Python function does, as a text: the same in every process, another when the function is another."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

from falkirk.plan.inference.code import text_of

SOURCE = """
import math
TABLE = {"a": %d}
def helper(x):
    return TABLE["a"] + x
def function(x, by=%d):
    return [math.floor(y) for y in (helper(x), by) if y in {"p", "q", "r", 1, 2.5}]
"""


def made(table: int, by: int) -> Callable[..., Any]:
    space: dict[str, Any] = {}
    exec(SOURCE % (table, by), space)
    found: Callable[..., Any] = space["function"]
    return found


def test_it_is_another_when_anything_is_that_it_goes_by() -> None:
    assert text_of(made(1, 2)) == text_of(made(1, 2))
    assert len({text_of(made(table, by)) for table in (1, 2) for by in (1, 2)}) == 4
    one, other = (lambda bound: lambda x: x + bound)(1), (lambda bound: lambda x: x + bound)(2)
    assert text_of(one) != text_of(other)
    assert text_of(lambda x: x + 1) != text_of(lambda x: x - 1)


def test_it_is_another_when_one_of_many_helpers_is() -> None:
    def of(last: int) -> Callable[..., Any]:
        numbers = [*range(9), last]
        source = [f"def g{i}(x):\n    return h{i}(x)\ndef h{i}(x):\n    return x + {n}" for i, n in enumerate(numbers)]
        space: dict[str, Any] = {}
        exec("\n".join([*source, f"def function(x):\n    return {' + '.join(f'g{i}(x)' for i in range(10))}"]), space)
        found: Callable[..., Any] = space["function"]
        return found

    assert text_of(of(9)) == text_of(of(9))
    assert text_of(of(9)) != text_of(of(10))


def test_it_is_the_same_in_every_process() -> None:
    program = f"from falkirk.plan.inference.code import text_of\n{SOURCE % (1, 2)}\nprint(text_of(function))"
    texts = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            check=True, capture_output=True, text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(texts) == 1


def test_what_calls_itself_comes_to_an_end() -> None:
    def around(x: int) -> int:
        return around(x - 1) if x else 0

    assert text_of(around)
