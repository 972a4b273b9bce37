"""The outcome of a task of an iteration is JSON, and no module unpickles what is stored: that could run code."""

import ast
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import falkirk
from falkirk.steps.differential.schedule import Rounds
from falkirk.steps.differential.single_task import TaskOutcome

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
    written=st.dictionaries(names, st.lists(st.integers(0, 2**40), max_size=2), max_size=3),
)


@given(outcomes)
def test_an_outcome_is_read_as_it_was_written(outcome: TaskOutcome) -> None:
    assert TaskOutcome.parse(outcome.text()) == outcome


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
