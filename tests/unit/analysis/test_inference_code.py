"""The digest of a Python function: equal in every process, and different if any code that it runs differs."""

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from pyspark import cloudpickle

from falkirk.errors import DefinitionError
from falkirk.errors.location import SourceLocation
from falkirk.steps.static_analysis.code import function_digest
from tests.unit.digested import CASES, HELPERS, PROGRAM


def made(source: str, **values: Any) -> Callable[..., Any]:
    """Return the function that the source text of a module defines."""
    space: dict[str, Any] = {"__name__": "__falkirk__", **values}
    exec(compile(source, "program.py", "exec"), space)
    found: Callable[..., Any] = space["function"]
    return found


def variants(source: str) -> list[str]:
    """Return the texts for the alternatives of a text with `ONE|OTHER`."""
    before, _, rest = source.partition("«")
    inner, _, after = rest.partition("»")
    return [f"{before}{each}{after}" for each in inner.split("|")]


@pytest.fixture
def helpers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Write the user's own modules, and remove the imported ones."""
    numbers = itertools.count()

    def write(text: str) -> None:
        folder = tmp_path / str(next(numbers))
        (folder / "apart").mkdir(parents=True)
        for name in ("helpers", "apart/inner"):
            (folder / f"{name}.py").write_text(text)
        (folder / "apart" / "__init__.py").write_text("from .inner import compute\n")
        monkeypatch.syspath_prepend(folder)
        forget()

    def forget() -> None:
        for name in ("helpers", "apart", "apart.inner"):
            sys.modules.pop(name, None)

    yield write
    forget()


@pytest.mark.parametrize("case", CASES)
def test_it_is_another_when_anything_is_that_it_goes_by(case: str) -> None:
    one, other = (function_digest(made(text)) for text in variants(CASES[case]))
    assert one != other
    assert one == function_digest(made(variants(CASES[case])[0]))


@pytest.mark.parametrize("case", HELPERS)
@pytest.mark.parametrize("changed", ["return x * «2|3»", "return TABLE[«0|1»] + x", "return inside(x) + «1|2»"])
def test_it_is_another_when_the_users_own_modules_are(
    case: str, changed: str, helpers: Callable[[str], None]
) -> None:  # fmt: skip
    digests = []
    for text in (variants(changed) * 2)[:3]:
        helpers(f"TABLE = (1, 2)\ndef inside(x):\n    return x\ndef compute(x):\n    {text}\n")
        digests.append(function_digest(made(HELPERS[case])))
    assert digests[0] != digests[1]
    assert digests[0] == digests[2]


def test_what_it_does_not_reach_of_a_module_is_not_in_it(helpers: Callable[[str], None]) -> None:
    digests = []
    for number in (1, 2):
        helpers(f"import threading\ndef compute(x):\n    return x\ndef another(x):\n    return x + {number}\n")
        digests.append(function_digest(made("import helpers\ndef function(x):\n    return helpers.compute(x)")))
    assert digests[0] == digests[1]


def test_a_module_of_which_names_are_computed_counts_as_a_whole(helpers: Callable[[str], None]) -> None:
    digests = []
    for number in (1, 2):
        helpers(f"def compute_all(x):\n    return x + {number}\n")
        source = "import helpers\ndef function(x):\n    return getattr(helpers, 'compute' + '_' + x)(x)"
        digests.append(function_digest(made(source)))
    assert digests[0] != digests[1]


def test_exceptions_that_are_caught_elsewhere_are_another_function() -> None:
    source = "def function(x):\n    try:\n        return int(x)\n    except ValueError:\n        return 0"
    function = made(source)
    assert isinstance(function, FunctionType)
    code = function.__code__.replace(co_exceptiontable=b"")
    assert function_digest(function) != function_digest(FunctionType(code, function.__globals__, "function"))


def test_lines_comments_and_places_are_not_in_it() -> None:
    source = "def function(x):\n    return x + 1"
    assert function_digest(made(source)) == function_digest(made("\n\n" + source.replace("\n", "  # adds\n")))


def test_a_version_of_what_it_names_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from falkirk.steps.static_analysis import owned

    source = "import numpy as np\ndef function(x):\n    return np.tanh(x)"
    before = function_digest(made(source))
    monkeypatch.setattr(owned, "version", lambda name: "0.0.0")
    owned.version_of.cache_clear()
    try:
        assert function_digest(made(source)) != before
    finally:
        owned.version_of.cache_clear()


def test_it_is_another_when_one_of_many_helpers_is() -> None:
    def of(last: int) -> Callable[..., Any]:
        numbers = [*range(9), last]
        source = [f"def g{i}(x):\n    return h{i}(x)\ndef h{i}(x):\n    return x + {n}" for i, n in enumerate(numbers)]
        return made("\n".join([*source, f"def function(x):\n    return {' + '.join(f'g{i}(x)' for i in range(10))}"]))

    assert function_digest(of(9)) == function_digest(of(9))
    assert function_digest(of(9)) != function_digest(of(10))


def test_a_long_chain_of_helpers_is_followed_to_its_end() -> None:
    def of(last: int) -> Callable[..., Any]:
        chain = "\n".join(f"def h{i}(x):\n    return h{i + 1}(x)" for i in range(1000))
        return made(f"{chain}\ndef h1000(x):\n    return x + {last}\ndef function(x):\n    return h0(x)")

    assert function_digest(of(1)) == function_digest(of(1))
    assert function_digest(of(1)) != function_digest(of(2))


def test_it_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Hash seeds, folders, orders of sets, compiled files, and functions that were pickled before must not matter."""
    found = []
    for number, seed in enumerate(("1", "2", "2")):
        folder = tmp_path / f"place{number}"
        folder.mkdir()
        (folder / "helpers.py").write_text("NAMES = {'p', 'q', 'r', 's'}\ndef compute(x):\n    return x in NAMES\n")
        (folder / "program.py").write_text(PROGRAM)
        for _ in range(1 + (number == 2)):  # the second pass uses a compiled file
            ran = subprocess.run(
                [sys.executable, "program.py", str(number)], cwd=folder, check=True, capture_output=True, text=True,
                env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(p for p in sys.path if p)},
            )  # fmt: skip
        found.append(json.loads(ran.stdout))
    assert found[0] == found[1] == found[2]
    plain = {name: digest for name, digest in found[0].items() if not name.startswith("pickled ")}
    assert len(set(plain.values())) == len(plain)


UNREADABLE = {
    "a generator": ("G = (i for i in range(3))\ndef function(x):\n    return next(G) + x", "G"),
    "a file": ("import os\nLOG = open(os.devnull)\ndef function(x):\n    return LOG.read() + x", "LOG"),
    "within an object": (
        "class Holder:\n    pass\nH = Holder()\nH.rows = iter(map(len, open('/dev/null')))\n"
        "def function(x):\n    return H.rows", "H.rows",
    ),
    "in a closure": ("def around():\n    g = (i for i in ())\n    return lambda x: g\nfunction = around()", "g"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_told_is_refused_with_the_line(case: str) -> None:
    source, name = UNREADABLE[case]
    with pytest.raises(DefinitionError) as refused:
        function_digest(made(source))
    assert refused.value.condition == "FUNCTION_UNREADABLE"
    assert str(refused.value.parameters["name"]).startswith(name)
    assert isinstance(refused.value.where, SourceLocation)
    assert refused.value.where.file == "program.py"


def test_a_lock_says_nothing() -> None:
    source = "def function(x):\n    with LOCK:\n        return x"
    assert function_digest(made(source, LOCK=threading.Lock())) == function_digest(made(source, LOCK=threading.Lock()))


def test_a_cache_is_not_in_it() -> None:
    function = made("import functools\n@functools.lru_cache\ndef function(x):\n    return x + 1")
    before = function_digest(function)
    function(1)
    assert function_digest(function) == before


def test_what_calls_itself_comes_to_an_end() -> None:
    def around(x: int) -> int:
        return around(x - 1) if x else 0

    assert function_digest(around) == function_digest(cloudpickle.loads(cloudpickle.dumps(around)))  # type: ignore[no-untyped-call]
