"""Homes, caches and socket folders are private: no other user can enter them or choose their contents."""

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import falkirk as fk
from falkirk import cli
from falkirk.declare.endpoints import Files
from falkirk.errors import MachineError
from falkirk.platform import private
from falkirk.recovery.decision_store import Store
from falkirk.recovery.ownership.folder import attach_home, open_home
from falkirk.runtime.spark.sinks.folder import FolderTarget
from falkirk.spark_setup import jars
from falkirk.spark_setup.spark import _launch_settings
from tests.unit.hostile.test_random_files import Decisions
from tests.unit.kafka.test_folder_sinks import proofs


@pytest.fixture(autouse=True)
def shell() -> Iterator[None]:
    """The umask of a usual shell, which lets everybody read new files."""
    former = os.umask(0o022)
    yield
    os.umask(former)


def rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the owner of a folder to another user."""
    if os.getuid() == 0:
        os.chown(path, 12_345, -1)
    else:
        monkeypatch.setattr(private.os, "geteuid", lambda: os.getuid() + 1)


def test_a_home_is_entered_by_its_user_alone(home: Path) -> None:
    """Before, it was 0755: others could read decisions and states, and hold its lock."""
    with open_home(home, "shop"):
        assert rights(home) == 0o700
        assert rights(home / "lock") == 0o600
        assert rights(home / "decisions.db") == 0o600


def test_a_home_of_before_is_closed_to_others(home: Path) -> None:
    home.mkdir(mode=0o755)
    with open_home(home, "shop"):
        assert rights(home) == 0o700


def test_a_home_of_another_user_is_not_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner could add decisions, or a file that is loaded."""
    with open_home(home, "shop"):
        pass
    give_away(home, monkeypatch)
    for opening in (open_home, attach_home):
        with pytest.raises(MachineError) as refused:
            opening(home, "shop")
        assert refused.value.condition == "FOLDER_NOT_OURS"
        assert refused.value.parameters["path"] == str(home)
        assert refused.value.parameters["owner"] != refused.value.parameters["user"]


def test_what_root_has_made_is_used_unless_anybody_may_write_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.stat(tmp_path)

    def seen(mode: int) -> os.stat_result:
        return os.stat_result((mode, *real[1:4], 0, *real[5:]))

    monkeypatch.setattr(private.os, "geteuid", lambda: 1_000)
    for mode in (0o755, 0o2775):
        monkeypatch.setattr(Path, "stat", lambda self, mode=mode: seen(stat.S_IFDIR | mode))
        private.require_ours(tmp_path)
    monkeypatch.setattr(Path, "stat", lambda self: seen(stat.S_IFDIR | 0o1777))
    with pytest.raises(MachineError):
        private.require_ours(tmp_path)


def test_a_store_elsewhere_is_private_too(tmp_path: Path) -> None:
    file = tmp_path / "decisions.db"
    Store(f"sqlite:///{file}", identity="deadbeef").close()
    assert rights(file) == 0o600
    file.chmod(0o644)  # as earlier versions left it
    store = Store(f"sqlite:///{file}", identity="deadbeef")
    store.record_decision("began", "x", 0, {})
    assert {p.name: rights(p) for p in tmp_path.iterdir()} == dict.fromkeys(
        (p.name for p in tmp_path.iterdir()), 0o600
    ), "the files beside it have its rights"
    store.close()


def test_a_cache_is_written_by_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Falkirk runs its contents."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("FALKIRK_CACHE", str(cache))
    monkeypatch.setattr(jars, "manifest", dict)
    jars.resolved("spark", lambda kind, folder: None)
    assert rights(cache) == 0o700
    cache.chmod(0o777)
    jars.resolved("spark", lambda kind, folder: None)
    assert rights(cache) == 0o755, "others can still read it"
    give_away(cache, monkeypatch)
    with pytest.raises(MachineError) as refused:
        jars.resolved("spark", lambda kind, folder: None)
    assert refused.value.condition == "FOLDER_NOT_OURS"


def test_sockets_of_python_workers_are_in_a_folder_of_their_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark puts them into the folder for temporary files, and asks for no password when somebody opens one."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path) if len(str(tmp_path)) < 40 else "/tmp")
    folder = Path(_launch_settings("local[2]")["spark.python.unix.domain.socket.dir"])
    assert folder.name == f"falkirk-{os.geteuid()}"
    assert rights(folder) == 0o700
    assert "spark.python.unix.domain.socket.dir" not in _launch_settings("spark://elsewhere:7077")


@pytest.mark.parametrize("squats", ["a link", "a folder of another user"])
def test_a_folder_for_sockets_that_somebody_else_has_made_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, squats: str
) -> None:
    base = Path(tempfile.mkdtemp(dir="/tmp"))
    monkeypatch.setattr(private.tempfile, "gettempdir", lambda: str(base))
    taken = base / f"falkirk-{os.geteuid()}"
    if squats == "a link":
        taken.symlink_to(tmp_path)
    else:
        taken.mkdir()
        if os.getuid() == 0:
            os.chown(taken, 12_345, -1)
        else:
            monkeypatch.setattr(private, "require_ours", _refuse)
    found = private.temporary_folder()
    assert found != taken
    assert found.resolve().parent != base
    assert rights(found) == 0o700


def _refuse(path: Path) -> os.stat_result:
    raise MachineError("FOLDER_NOT_OURS", "of somebody else")


def test_a_command_writes_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = tmp_path / "written"

    def load(file: Path) -> fk.App:
        written.touch()
        return fk.App("shop", home=tmp_path / "home")

    monkeypatch.setattr("falkirk.user_tools.commands.status.load_application", load)
    CliRunner().invoke(cli.main, ["status", "shop.py"])
    assert rights(written) == 0o600
    assert os.umask(0o022) == 0o022, "the caller's umask is restored"
    assert private.UMASK_VARIABLE not in os.environ


@pytest.mark.parametrize(("umask", "folder", "file"), [(0o022, 0o755, 0o644), (0o027, 0o750, 0o640)])
def test_what_a_sink_writes_has_the_rights_that_the_shell_gives(
    tmp_path: Path, umask: int, folder: int, file: int
) -> None:
    """Others can read it, as before."""
    os.umask(umask)
    out = tmp_path / "out"
    with private.entered():
        FolderTarget(Files(str(out), "json"), "deadbeef", proofs(Decisions())).visible()
        epoch = out / "epoch=0"
        epoch.mkdir()
        (epoch / "part.json").touch()
        assert rights(epoch / "part.json") == 0o600
        private.make_readable(epoch)
    assert (rights(out), rights(out / "_falkirk.json")) == (folder, file)
    assert (rights(epoch), rights(epoch / "part.json")) == (folder, file)
