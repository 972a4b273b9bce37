"""A consent to a rollback: which changes since the preview need another one."""

from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.errors import FalkirkError
from falkirk.user_tools.commands.dashboard.consent import CONSENT_S, Consented

SHOWN = Consented(checkpoints={"sales": 1, "hop": 4}, outside={"sales": 470}, at_s=1000.0)
SAME = {"sales": 1, "hop": 4}


def effect(checkpoints: dict[str, int], **outside: int) -> Any:
    moves = [SimpleNamespace(region=region, to=SimpleNamespace(number=to)) for region, to in checkpoints.items()]
    return SimpleNamespace(moves=moves, outside=outside)


@pytest.mark.parametrize(("number", "passed_s"), [(470, 0.0), (471, 5.0), (9000, CONSENT_S)])
def test_results_may_be_published_in_between(number: int, passed_s: float) -> None:
    SHOWN.require_same("3", effect(SAME, sales=number), 1000.0 + passed_s)


@pytest.mark.parametrize(
    ("now", "passed_s", "reason"),
    [
        (effect({"sales": 0, "hop": 4}, sales=470), 1.0, "regions go back to other checkpoints"),
        (effect({"sales": 1}, sales=470), 1.0, "regions go back to other checkpoints"),
        (effect({**SAME, "vouchers": 7}, sales=470), 1.0, "regions go back to other checkpoints"),
        (effect(SAME, sales=470, vouchers=1), 1.0, "it makes 1 published results in vouchers invalid, and not 0"),
        (effect(SAME, sales=469), 1.0, "it makes 469 published results in sales invalid, and not 470"),
        (effect(SAME), 1.0, "it makes 0 published results in sales invalid, and not 470"),
        (effect(SAME, sales=471), CONSENT_S + 1, "the number of published results is more than 120 s old"),
        (effect(SAME, sales=471), -1.0, "the number of published results is more than 120 s old"),
    ],
)
def test_any_other_change_needs_another_consent(now: Any, passed_s: float, reason: str) -> None:
    with pytest.raises(FalkirkError) as refused:
        SHOWN.require_same("3", now, 1000.0 + passed_s)
    assert refused.value.condition == "PREVIEW_OUTDATED"
    assert refused.value.parameters == {"cut": "3", "reason": reason}


def test_a_rollback_that_contradicts_nothing_may_be_confirmed_late() -> None:
    shown = Consented(checkpoints=SAME, outside={}, at_s=1000.0)
    shown.require_same("3", effect(SAME), 1000.0 + 10 * CONSENT_S)
