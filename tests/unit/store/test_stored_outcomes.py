"""The outcome of a task of an iteration, in the home: it is stored as JSON, so that reading it runs no code."""

import ast
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import falkirk
from falkirk.errors import HomeError
from falkirk.steps.differential.graph import LoopGraph
from falkirk.steps.differential.schedule import Rounds
from falkirk.steps.differential.single_task import SingleTask, TaskOutcome

PACKAGE = Path(falkirk.__file__).parent
names = st.text(max_size=5)
files = st.lists(names, max_size=3).map(tuple)
traces = st.dictionaries(st.tuples(names, names), files, max_size=3)
times = st.lists(st.integers(0, 9), max_size=3).map(tuple)
waiting = st.tuples(names, names, times)
outcomes = st.builds(
    TaskOutcome,
    count=st.integers(0, 1_000),
    is_little=st.booleans(),
    traces=traces,
    merged=traces,
    pending=st.dictionaries(waiting, files, max_size=3),
    left=st.dictionaries(waiting, files, max_size=3),
    rounds=st.dictionaries(names, st.builds(Rounds, count=st.integers(0, 9), converged=st.booleans()), max_size=3),
    cut_short=st.dictionaries(waiting, st.integers(0, 2**64 - 1), max_size=3),
)


@given(outcomes)
def test_an_outcome_is_read_as_it_was_written(outcome: TaskOutcome) -> None:
    assert TaskOutcome.parse(outcome.text()) == outcome


def task(folder: Path) -> SingleTask:
    """Return a task of which only the folder matters."""
    nothing: dict[Any, Any] = {}
    return SingleTask(
        graph=LoopGraph.__new__(LoopGraph), rest=None, entered=frozenset(), traces=nothing, pending=nothing,
        rounds=nothing, cut_short=nothing, folder=str(folder), partitions=1, most=1,
    )  # fmt: skip


class _Attack:
    """An object that runs a command when it is unpickled."""

    def __init__(self, made: Path) -> None:
        self._made = made

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._made),)


def test_reading_what_another_user_has_put_there_runs_nothing(tmp_path: Path) -> None:
    """Before, `outcome.pickle` was loaded: anybody who could write to a shared home could run code in the driver."""
    made = tmp_path / "made by the attack"
    for name in ("outcome.pickle", "outcome.json"):
        (tmp_path / name).write_bytes(pickle.dumps(_Attack(made)))
    with pytest.raises(HomeError) as told:
        task(tmp_path).outcome()
    assert told.value.condition == "STATE_DAMAGED"
    assert not made.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"count": "x"}', '{"count": 1, "is_little": true}', "7"])
def test_what_is_no_outcome_is_a_damaged_state(tmp_path: Path, text: str) -> None:
    (tmp_path / "outcome.json").write_text(text)
    with pytest.raises(HomeError) as told:
        task(tmp_path).outcome()
    assert told.value.condition == "STATE_DAMAGED"


def test_nothing_that_is_stored_is_unpickled() -> None:
    """Two modules unpickle: the checker its own temporary files, in a folder that only its user may enter; a worker for
    UDFs what the process that started it sends, which is stored nowhere."""
    unpickling = {"pickle", "shelve", "marshal", "dill", "joblib"}
    found = set()
    for path, text in ((path, path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))):
        if not any(name in text for name in unpickling):
            continue  # parsing the other files takes 2 s of CPU time
        for node in ast.walk(ast.parse(text)):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if unpickling & {m.partition(".")[0] for m in modules}:
                found.add(str(path.relative_to(PACKAGE)))
    assert found == {"checker/spill.py", "steps/live/udf_worker.py"}
