"""The port of data over a real HDFS whose parts stop and start. FALKIRK_HDFS=1 runs these tests.

`test_data_port.py` runs over it too.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from falkirk.errors import StoreError
from falkirk.platform.object_data import ObjectData, data_at
from falkirk.platform.web_hdfs import WebHdfs
from falkirk.platform.web_hdfs_files import PART_PREFIX
from tests.hdfs_server import HdfsServer, is_chosen
from tests.objects import ObjectStore
from tests.support import outcome, wait_until

pytestmark = pytest.mark.skipif(not is_chosen(), reason="it needs a real HDFS: FALKIRK_HDFS=1")

LARGE = b"x" * 5_000_000
WAIT_S = 60.0


@pytest.fixture(scope="module")
def objects() -> Iterator[ObjectStore]:
    store = ObjectStore()
    yield store
    store.close()


@pytest.fixture
def hdfs(objects: ObjectStore) -> HdfsServer:
    assert objects.hdfs is not None
    return objects.hdfs


@pytest.fixture
def data(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ObjectData:
    """A folder, through the settings and limits of the product."""
    for name, value in objects.environment.items():
        monkeypatch.setenv(name, value)
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)
    return data_at(f"{objects.root}/{name}")


def everywhere(data: ObjectData) -> list[str]:
    """Return all files, with those that are being written."""
    return [*data.sizes()]


@pytest.mark.parametrize("part", ["namenode", "datanode"])
def test_a_part_that_stops_is_away_and_nothing_is_lost(
    hdfs: HdfsServer, data: ObjectData, tmp_path: Path, part: str
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(LARGE)
    measured = (data / "copy").copy_from(source)
    (data / "0-aa" / "part-0").write_text("rows")
    manifest = (data / "0-aa").sync()
    with hdfs.without(part):
        for use in (
            (data / "0-aa" / "part-0").read_text, lambda: (data / "note").write_text("new"),
            lambda: (data / "other").copy_from(source), lambda: (data / "copy").copy_to(target, *measured),
            lambda: (data / "0-aa").check(manifest),
        ):  # fmt: skip
            assert outcome(use) == "DATA_AWAY"
        assert not target.exists()
    wait_until(lambda: outcome(lambda: (data / "0-aa").check(manifest)) != "DATA_AWAY", WAIT_S, "it to answer")
    assert outcome((data / "note").exists) is False
    wait_until(lambda: outcome(lambda: (data / "note").write_text("new")) != "DATA_AWAY", WAIT_S, "it to write")
    assert (data / "note").read_text() == "new"
    (data / "copy").copy_to(target, *measured)
    assert target.read_bytes() == LARGE


def test_a_namenode_in_safe_mode_is_away_for_writes(hdfs: HdfsServer, data: ObjectData) -> None:
    (data / "note").write_text("old")
    with hdfs.read_only():
        with pytest.raises(StoreError) as away:
            (data / "note").write_text("new")
        assert (away.value.condition, "SafeMode" in away.value.parameters["reason"]) == ("DATA_AWAY", True)
        assert outcome((data / "note").delete) == "DATA_AWAY"
        assert (data / "note").read_text() == "old"
    (data / "note").write_text("new")
    assert (data / "note").read_text() == "new"


def test_a_user_without_rights_and_a_wrong_port_are_told_at_once(
    objects: ObjectStore, hdfs: HdfsServer, data: ObjectData, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = data / "mine"
    (folder / "note").write_text("mine")
    client = WebHdfs([objects.url.partition("://")[2]], 5.0, 5.0)
    client.ask("PUT", "SETPERMISSION", urlsplit(str(folder)).path, permission="755")  # it had the rights of the root
    monkeypatch.setenv("HADOOP_USER_NAME", "stranger")
    for use in (lambda: (folder / "note").write_text("x"), (folder / "note").delete, folder.remove):
        before = len(objects.requests)
        assert outcome(use) == "DATA_UNUSABLE"
        assert len(objects.requests) - before <= 4, "it is not repeated"
    monkeypatch.delenv("HADOOP_USER_NAME")
    assert (folder / "note").read_text() == "mine"
    conf = Path(os.environ["HADOOP_CONF_DIR"]) / "hdfs-site.xml"
    good = conf.read_text()
    try:
        conf.write_text(good.replace(objects.url.rpartition(":")[2], str(hdfs.ports[0])))
        wrong = data_at(f"{objects.root}/x")
    finally:
        conf.write_text(good)
    assert outcome(wrong.exists) == "DATA_UNUSABLE", "the port of Hadoop's own clients"


def test_a_namenode_knows_a_datanode_by_its_address_alone(hdfs: HdfsServer, data: ObjectData) -> None:
    """Otherwise nobody avoids one that has failed, and a dead one is named for ten minutes."""
    (data / "note").write_text("x")
    client = WebHdfs([f"127.0.0.1:{hdfs.ports[1]}"], 5.0, 5.0)
    ask = partial(client.ask, "GET", "OPEN", urlsplit(str(data / "note")).path, noredirect="true")
    named = urlsplit(ask()["Location"]).netloc
    client._shun(named)
    with pytest.raises(OSError, match="contain this block"):  # there is no other one
        ask(excludedatanodes=",".join(client._shunned))
    assert urlsplit(ask(excludedatanodes=named)["Location"]).netloc == named, "it ignores names"


@pytest.mark.parametrize("after", range(1, 7))
def test_a_writer_that_dies_leaves_its_name_free(objects: ObjectStore, data: ObjectData, after: int) -> None:
    """Each request of a write is the last one that arrives. Readers find the old file or the new one."""
    note = data / "note"
    note.write_text("old" * 1000)
    left = [after]

    def fault(method: str, path: str) -> str:
        left[0] -= 1
        return "half" if left[0] < 0 else ""

    with objects.failing(fault):
        found = outcome(lambda: note.write_text("new" * 1000))
    assert note.read_text() in ({"old" * 1000, "new" * 1000} if found == "DATA_AWAY" else {"new" * 1000})
    assert all(PART_PREFIX in name for name in everywhere(data) if name != "note"), "the rest is garbage to collect"
    data.remove()
    assert everywhere(data) == []


def test_a_rename_that_arrives_late_replaces_nothing(
    objects: ObjectStore, data: ObjectData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The namenode gets the renames of a writer that has given up after another content has been written."""
    held, done, go_on, application = list[str](), list[str](), threading.Event(), objects._application

    def counted(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        try:
            return application(environ, start)
        finally:
            done.append(environ["QUERY_STRING"])

    def fault(method: str, path: str) -> str:
        if "RENAME" in path:
            held.append(path.partition("?")[2])
            go_on.wait(WAIT_S)
        return ""

    monkeypatch.setattr(objects, "_application", counted)
    with objects.failing(fault):
        impatient = objects.data(data.name, request_timeout=2.0) / "note"  # time enough for all other requests
        assert outcome(lambda: impatient.write_text("first")) == "DATA_AWAY"
    assert len(held) >= 3
    (data / "note").write_text("second")
    go_on.set()
    wait_until(lambda: set(held) <= set(done), WAIT_S, "the late requests")
    assert (data / "note").read_text() == "second"
    assert everywhere(data) == ["note"]


def test_a_file_is_whole_or_not_there_after_a_crash_of_the_server(
    hdfs: HdfsServer, data: ObjectData, tmp_path: Path
) -> None:
    """Kill -9 of the namenode and the datanode while files are written."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(LARGE)
    measured = (data / "first").copy_from(source)
    written = ["first"]

    def write() -> None:
        while outcome(lambda: (data / f"{len(written)}").copy_from(source)) == measured:
            written.append(str(len(written)))

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        wait_until(lambda: len(written) > 2, WAIT_S, "some files")
        hdfs.crash()
        writing.result()
    wait_until(lambda: outcome((data / "first").exists) is True, WAIT_S, "it to answer")
    names = [name for name in everywhere(data) if PART_PREFIX not in name]
    assert set(written) <= set(names)
    for name in names:
        copy = partial((data / name).copy_to, target, *measured)
        wait_until(lambda copy=copy: outcome(copy) != "DATA_AWAY", WAIT_S, "it to answer")  # type: ignore[misc]
        assert target.read_bytes() == LARGE
        target.unlink()
