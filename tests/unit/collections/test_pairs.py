"""Many DataFrames are united in pairs: in their order, and each is analysed few times."""

from collections import Counter
from typing import Any

import pytest

from falkirk.steps.dataframes.pairs import united


@pytest.mark.parametrize("count", [1, 2, 3, 18, 64])
def test_frames_stay_in_order_and_each_is_in_few_unions(count: int) -> None:
    analysed: Counter[int] = Counter()

    def unite(one: Any, other: Any) -> Any:
        analysed.update([*one, *other])
        return (*one, *other)

    frames: Any = [(number,) for number in range(count)]
    assert united(frames, unite) == tuple(range(count))
    assert max(analysed.values(), default=0) <= (count - 1).bit_length()
