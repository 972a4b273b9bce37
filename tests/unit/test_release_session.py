"""A cluster that tries tasks again would release results twice: it is refused."""

from typing import Any

import pytest

from falkirk.errors import SparkError
from falkirk.regions.copying import check_session

TASK, STAGE = "spark.task.maxFailures", "spark.stage.maxConsecutiveAttempts"


class _Session:
    """As much of a Spark session as is looked at."""

    def __init__(self, master: str, settings: dict[str, str]) -> None:
        self.sparkContext, self.master, self._settings = self, master, settings

    def getConf(self) -> dict[str, str]:
        return self._settings


@pytest.mark.parametrize(
    ("settings", "lacks"),
    [({}, TASK), ({TASK: "4", STAGE: "1"}, TASK), ({TASK: "1"}, STAGE), ({TASK: "1", STAGE: "1"}, None)],
)
def test_a_cluster_that_tries_again_is_refused(settings: dict[str, str], lacks: str | None) -> None:
    cluster: Any = _Session("spark://cluster:7077", settings)
    if lacks is None:
        check_session(cluster)
        return
    with pytest.raises(SparkError) as refused:
        check_session(cluster)
    assert (refused.value.condition, refused.value.parameters["setting"]) == ("SESSION_SETTINGS_MISSING", lacks)


def test_on_one_machine_spark_tries_nothing_again() -> None:
    on_one_machine: Any = _Session("local[4]", {})
    check_session(on_one_machine)


@pytest.mark.parametrize(
    ("master", "settings", "lacks"),
    [
        ("local[4,8]", {}, TASK),
        ("local[*, 2]", {}, TASK),
        ("local[4]", {"spark.speculation": "true"}, "spark.speculation"),
    ],
)
def test_one_machine_that_is_told_to_try_again_is_refused(master: str, settings: dict[str, str], lacks: str) -> None:
    session: Any = _Session(master, settings)
    with pytest.raises(SparkError) as refused:
        check_session(session)
    assert (refused.value.condition, refused.value.parameters["setting"]) == ("SESSION_SETTINGS_MISSING", lacks)
