"""Expressions that may name columns of Falkirk's are found by their text, before Spark analyses them."""

from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.steps.dataframes.names import STAMP
from falkirk.steps.live import stamped


@pytest.mark.parametrize(
    ("text", "is_asked"),
    [
        ("upper(s)", False),
        ("IDENTIFIER('__fal' || 'kirk_stamp')", True),
        ("identifier  ('__fal' || 'kirk_stamp')", True),
        ("__FALKIRK_stamp.offset", True),
        ("struct(*)", True),
    ],
)
def test_spark_is_asked_about_an_expression_that_may_name_such_a_column(text: str, is_asked: bool) -> None:
    asked = list[Any]()

    def select(*columns: Any) -> Any:
        asked.append(columns)
        found = SimpleNamespace(size=lambda: 1, apply=lambda i: SimpleNamespace(name=lambda: STAMP))
        analyzed = SimpleNamespace(references=lambda: SimpleNamespace(toSeq=lambda: found))
        execution = SimpleNamespace(analyzed=lambda: analyzed)
        return SimpleNamespace(_jdf=SimpleNamespace(queryExecution=lambda: execution))

    frame: Any = SimpleNamespace(data=SimpleNamespace(select=select))
    column = SimpleNamespace(_jc=SimpleNamespace(toString=lambda: text))
    if is_asked:
        with pytest.raises(stamped._SeesOurs):
            stamped._refuse_ours(frame, [column])
    else:
        stamped._refuse_ours(frame, [column])
    assert len(asked) == is_asked
