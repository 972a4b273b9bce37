"""The visits of the dashboard to a real home: it stays open, unless another one takes its place."""

import shutil
import threading
from pathlib import Path

import pytest

import falkirk as fk
from falkirk.declare.load import broker_of
from falkirk.errors import HomeError
from falkirk.recovery.ownership.folder import open_home
from falkirk.recovery.ownership.identity import IDENTITY_FILE
from falkirk.user_tools.commands.dashboard.visits import HomeVisits
from tests.unit.dashboard.conftest import Stage


def visits_of(stage: Stage) -> HomeVisits:
    """Return visits to the home of a stage, in which an application has run."""
    stage.plan()
    app = fk.App("shop", kafka="127.0.0.1:1", home=stage.home)
    return HomeVisits(app, stage.home, broker_of(app, None))


def test_a_home_is_open_until_the_end_or_until_it_is_made_anew(stage: Stage) -> None:
    visits = visits_of(stage)
    open_home(stage.home, "shop").close()
    with visits.visit() as one:
        pass
    with visits.visit() as other:
        assert other.place is one.place
    shutil.rmtree(stage.home)
    stage.home.mkdir()
    stage.plan()
    open_home(stage.home, "shop").close()
    with visits.visit() as anew:
        assert anew.place is not one.place
        assert anew.place.home.identity != one.place.home.identity
    assert visits.close(1.0)
    with visits.visit() as after:
        assert after.place is not anew.place
    assert visits.close(1.0)


def test_a_visit_keeps_others_and_the_end_away(stage: Stage) -> None:
    visits, found = visits_of(stage), list[bool]()
    open_home(stage.home, "shop").close()
    with visits.visit():
        thread = threading.Thread(target=lambda: found.append(visits.close(0.05)))
        thread.start()
        thread.join()
    assert found == [False]
    assert visits.close(1.0)


@pytest.mark.parametrize("identity", [None, "", "{}"])
def test_in_a_home_without_an_identity_no_application_has_run(stage: Stage, identity: str | None) -> None:
    visits = visits_of(stage)
    if identity is not None:
        (stage.home / IDENTITY_FILE).write_text(identity)
    with pytest.raises(HomeError) as refused, visits.visit():
        pass
    assert refused.value.condition == "NEVER_RAN"


def test_without_a_shape_no_application_has_run(tmp_path: Path) -> None:
    app = fk.App("shop", kafka="127.0.0.1:1", home=tmp_path)
    with pytest.raises(HomeError) as refused, HomeVisits(app, tmp_path, broker_of(app, None)).visit():
        pass
    assert refused.value.condition == "NEVER_RAN"
