"""Identities of homes whose data are in an object store: the database decides, and a file beside the data agrees."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sql

import falkirk as fk
from falkirk.errors import StoreError
from falkirk.errors.conditions.platform import DATA_AWAY, DATA_UNUSABLE
from falkirk.plan.shape import Shape
from falkirk.platform import object_data
from falkirk.platform.data import DataPath
from falkirk.platform.local_data import LocalData
from falkirk.recovery.decision_store.homes import known_home
from falkirk.recovery.ownership.folder import data_folder, waiting_home
from falkirk.recovery.ownership.identity import IDENTITY_FILE, identify
from falkirk.recovery.ownership.lease import await_home, refuse_leased
from falkirk.recovery.protocol.layout import Layout
from falkirk.user_tools.commands.history.application import recorded_shape
from falkirk.user_tools.commands.owners import OwnerReader
from falkirk.user_tools.commands.running import home_of, home_to_read
from falkirk.user_tools.commands.status import see
from tests.postgres import Postgres
from tests.support import outcome

SHAPE = Shape(layout=Layout(stages={}, partitions={}, held={}), regions=(), batches=(), processors={"seen": ("seen",)})


@pytest.fixture
def data(tmp_path: Path, tag: str) -> LocalData:
    """A folder in place of an object store: the identity needs only files that are written and read."""
    (tmp_path / tag).mkdir()
    return LocalData(tmp_path / tag)


def machine(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir(exist_ok=True)
    return tmp_path / name


def test_all_machines_get_one_identity(tmp_path: Path, postgres: Postgres, data: LocalData) -> None:
    folders = [machine(tmp_path, f"machine-{i}") for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda folder: identify(folder, "shop", postgres.url(), data), folders))
    assert len(found) == 1
    assert json.loads((data / IDENTITY_FILE).read_text())["identity"] == found.pop()


def test_another_application_or_place_is_refused(tmp_path: Path, postgres: Postgres, data: LocalData) -> None:
    first = machine(tmp_path, "first")
    identify(first, "shop", postgres.url(), data)
    other, second = LocalData(tmp_path / "other"), machine(tmp_path, "second")
    assert outcome(lambda: identify(second, "bank", postgres.url(), data)) == "HOME_OF_ANOTHER"
    assert outcome(lambda: identify(first, "shop", postgres.url(), other)) == "HOME_STORE_CHANGED"
    assert outcome(lambda: identify(first, "shop", postgres.url())) == "HOME_STORE_CHANGED"
    on_disk = machine(tmp_path, "on-disk")
    identify(on_disk, "shop", postgres.url())
    assert outcome(lambda: identify(on_disk, "shop", postgres.url(), data)) == "HOME_STORE_CHANGED"


def test_another_database_is_refused(tmp_path: Path, postgres: Postgres, data: LocalData) -> None:
    """It has no epochs, so a home with it would delete the data of the first one as garbage."""
    (data / IDENTITY_FILE).write_text(json.dumps({"identity": "deadbeef"}))
    folder = machine(tmp_path, "first")
    assert outcome(lambda: identify(folder, "shop", postgres.url(), data)) == "HOME_STORE_CHANGED"
    assert not (folder / IDENTITY_FILE).exists()


def test_a_damaged_file_is_refused(tmp_path: Path, postgres: Postgres, data: LocalData) -> None:
    (data / IDENTITY_FILE).write_text("{")
    assert outcome(lambda: identify(machine(tmp_path, "a"), "shop", postgres.url(), data)) == "HOME_DAMAGED"


def test_the_first_application_at_a_place_stays(postgres: Postgres, tag: str) -> None:
    place = f"s3a://bucket/{tag}"
    assert known_home(postgres.url(), place, "shop", "aaaaaaaa") == ("shop", "aaaaaaaa")
    assert known_home(postgres.url(), place, "bank", "bbbbbbbb") == ("shop", "aaaaaaaa")
    engine = sql.create_engine(postgres.url().replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as db:
        query = sql.text("SELECT count(*) FROM falkirk_homes.homes WHERE place = :place")
        assert db.execute(query, {"place": place}).scalar() == 1
    engine.dispose()


def test_an_owner_without_a_lease_respects_one(
    tmp_path: Path, postgres: Postgres, data: LocalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_data, "data_at", lambda address: data)
    first, second, url = tmp_path / "first", tmp_path / "second", postgres.url()
    refuse_leased(second, "shop", url, str(data))
    owner = await_home(first, "shop", url, lasts_s=10.0, pause=lambda s: False, say=print, data=str(data))
    assert owner is not None
    monkeypatch.setattr("falkirk.recovery.ownership.lease.is_renewed", lambda store: store.lease().is_kept)
    with owner:
        assert outcome(lambda: refuse_leased(second, "shop", url, str(data))) == "HOME_IN_USE"
        owner.store.release_lease()
    refuse_leased(second, "shop", url, str(data))


def test_a_process_that_waits_waits_for_an_object_store_too(
    tmp_path: Path, postgres: Postgres, data: LocalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, said = list[str](), list[str]()

    def away_once(address: str) -> DataPath:
        tries.append(address)
        if len(tries) == 1:
            raise DATA_AWAY.error(where=address, reason="a test")
        return data

    monkeypatch.setattr(object_data, "data_at", away_once)
    owner = await_home(
        tmp_path / "home", "shop", postgres.url(), lasts_s=10.0, pause=lambda s: False, say=said.append, data=str(data)
    )
    assert owner is not None
    assert "does not answer: a test" in said[0]
    owner.close()
    assert len(tries) == 2
    with waiting_home(tmp_path / "home", "shop", postgres.url(), str(data)) as again:
        assert again.identity == owner.identity


def test_a_process_that_waits_does_not_wait_for_rights(
    tmp_path: Path, postgres: Postgres, data: LocalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(address: str) -> DataPath:
        raise DATA_UNUSABLE.error(where=address, reason="a test")

    def wait() -> object:
        where, url = str(data), postgres.url()
        return await_home(tmp_path / "home", "shop", url, lasts_s=10.0, pause=lambda s: False, say=print, data=where)

    monkeypatch.setattr(object_data, "data_at", refused)
    assert outcome(wait) == "DATA_UNUSABLE"


def test_a_python_without_a_client_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "falkirk.platform.object_data", None)
    with pytest.raises(StoreError) as refused:
        data_folder(tmp_path, "s3a://bucket/shop")
    assert (refused.value.condition, "pyarrow" in str(refused.value)) == ("DATA_UNUSABLE", True)


def test_commands_work_on_a_machine_without_a_folder(
    tmp_path: Path, postgres: Postgres, data: LocalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_data, "data_at", lambda address: data)
    app = fk.App("shop", home="s3a://bucket/shop", store=postgres.url())
    here, there = tmp_path / "here", tmp_path / "there"
    for command in (home_of, home_to_read):
        assert outcome(lambda command=command: command(app, here).__enter__()) == "NEVER_RAN"
    with OwnerReader(app, here) as reader:
        assert reader.read() is None
    assert not here.exists()
    assert data.children() == [], "a command begins no home"
    owner = await_home(there, "shop", app.store, lasts_s=10.0, pause=lambda s: False, say=print, data=app.data)
    assert owner is not None
    with owner:
        SHAPE.write(owner.data)
        with home_to_read(app, here) as (held, runs):
            assert (held.identity, runs) == (owner.identity, False)
            assert recorded_shape(held.data) == SHAPE
        with OwnerReader(app, here) as reader:
            seen = see(app, here, reader)
        assert (seen.runs, seen.is_elsewhere) == (False, True)
        assert "runs on another machine" in seen.line
        owner.store.release_lease()
        with OwnerReader(app, here) as reader:
            seen = see(app, here, reader)
        assert (seen.is_elsewhere, seen.line) == (False, "shop: does not run")
