"""Places of homes: a folder, or an address in an object store with a database for the decisions."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

import falkirk as fk
from falkirk.cli import main
from falkirk.declare.place import local_home
from falkirk.errors import DefinitionError
from falkirk.plan import mechanisms
from tests.support import outcome

STORE = "postgresql://user:secret@database/falkirk"


@pytest.mark.parametrize(
    "home",
    [
        "s3a://bucket/shop",
        "s3a://my.bucket-2/a/b_c/shop/",
        "hdfs://namenode:8020/shop",
        "hdfs://Cluster-1/user/a.b/shop/",
    ],
)
def test_data_are_at_the_address_and_files_of_the_machine_in_a_folder(home: str) -> None:
    app = fk.App("shop", home=home, store=STORE)
    assert (app.home, app.data) == (Path(".falkirk/shop"), home.rstrip("/"))


def test_outputs_are_fenced_unless_the_application_decides_otherwise() -> None:
    """The owner of this home holds a lease. A former owner may be suspended on another machine."""
    home = "s3a://bucket/shop"
    found = [
        fk.App("shop", home=home, store=STORE, transactional=transactional).transactional
        for transactional in (None, False, True)
    ]
    assert found == [True, False, True]
    assert fk.App("shop").transactional is None


@pytest.mark.parametrize("home", [None, "folder", Path("folder")])
def test_a_folder_holds_its_data(home: str | Path | None) -> None:
    app = fk.App("shop", home=home)
    assert (app.home, app.data) == (Path(home or ".falkirk/shop"), None)


@pytest.mark.parametrize(
    "home",
    [
        "s3://bucket/shop", "gs://bucket/shop", "s3a://bucket", "s3a://bucket/", "s3a:///shop",
        "hdfs:///shop", "hdfs://name:8020", "hdfs://user@name/shop", "hdfs://name/a*b", "webhdfs://name/shop",
        "s3a://bucket/a//b", "s3a://bucket/../shop", "s3a://bucket/shop*", "s3a://user:password@bucket/shop", "s3a://bucket/shop?x=1",
    ],
)  # fmt: skip
def test_other_addresses_are_refused(home: str) -> None:
    assert outcome(lambda: fk.App("shop", home=home, store=STORE)) == "HOME_PLACE_INVALID"


@pytest.mark.parametrize("store", [None, "sqlite:///decisions.db", "decisions.db", "mysql://database/falkirk"])
def test_its_decisions_must_be_in_postgresql(store: str | None) -> None:
    with pytest.raises(DefinitionError) as refused:
        fk.App("shop", home="s3a://bucket/shop", store=store)
    assert refused.value.condition == "HOME_NEEDS_DATABASE"
    assert "test_home_place.py" in str(refused.value)


def test_an_option_names_a_folder_of_this_machine(tmp_path: Path) -> None:
    assert local_home(str(tmp_path)) == tmp_path
    assert outcome(lambda: local_home("s3a://bucket/shop")) == "HOME_PLACE_INVALID"
    done = CliRunner().invoke(main, ["logs", "--home", "s3a://bucket/shop", "shop.py"])
    assert done.exit_code != 0
    assert "can't be the home" in f"{done.output}{done.exception}"


@pytest.mark.parametrize(
    ("home", "on_cluster", "refused"),
    [
        ("hdfs://name/shop", True, True), ("hdfs://name/shop", False, False), ("s3a://bucket/shop", True, False),
        ("folder", True, False),
    ],
)  # fmt: skip
def test_live_regions_on_a_cluster_have_no_home_in_an_hdfs(
    monkeypatch: pytest.MonkeyPatch, home: str, on_cluster: bool, refused: bool
) -> None:
    """Their executors would write states under their final names, and a reader could meet a part of one."""
    monkeypatch.setattr(mechanisms, "writes_elsewhere", lambda session: on_cluster)
    app = fk.App("shop", home=home, store=STORE)
    region: Any = SimpleNamespace(name="counts", where="shop.py:7")
    found = outcome(lambda: mechanisms.check_home(app, cast(Any, None), region))
    assert found == ("HOME_REFUSES_CLUSTER" if refused else None)
