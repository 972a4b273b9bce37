"""The port of data over a real S3-compatible server that is suspended, killed, slow, or has another key.

The clients have the product's own limits. FALKIRK_OBJECTS=s3proxy runs these tests, as `make test` has no such server.
"""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from falkirk.platform.object_data import WRITTEN, ObjectData, data_at
from tests.object_server import ObjectServer, is_chosen
from tests.objects import BUCKET, ObjectStore
from tests.support import outcome

pytestmark = pytest.mark.skipif(not is_chosen(), reason="only a real server can be killed: FALKIRK_OBJECTS=s3proxy")

CONTENT = "x" * 11_000_000
#: docs/how-to/object-store.md says after how long a request without an answer ends, in s. A large file has three parts.
REQUEST_S, READ_S, UPLOAD_S = 23.0, 26.0, 50.0


@pytest.fixture
def objects() -> Iterator[ObjectStore]:
    store = ObjectStore()
    yield store
    store.close()


@pytest.fixture
def server(objects: ObjectStore) -> ObjectServer:
    assert objects.server is not None
    return objects.server


@pytest.fixture
def direct(objects: ObjectStore, server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> ObjectData:
    """A folder whose client talks to the server without the proxy of the tests."""
    for name, value in {**objects.environment, "AWS_ENDPOINT_URL_S3": server.url}.items():
        monkeypatch.setenv(name, value)
    return data_at(f"s3a://{BUCKET}/shop")


@pytest.fixture
def proxied(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectData:
    """A folder whose client talks to the server through the proxy of the tests."""
    for name, value in objects.environment.items():
        monkeypatch.setenv(name, value)
    return data_at(f"s3a://{BUCKET}/shop")


class Uses:
    """Each use of the port, over an epoch and a file that are there before."""

    def __init__(self, data: ObjectData, folder: Path) -> None:
        self.data, self._folder = data, folder
        self.source = folder / "source"
        self.source.write_text(CONTENT)
        self.measured = (data / "copy").copy_from(self.source)
        for name in ("note.json", "old-1", "old-2"):
            (data / name).write_text("old")
        (data / "0-aa" / "part-0").write_text("rows")
        (data / "0-aa" / WRITTEN).write_text(json.dumps({"files": {"part-0": 4}}))
        (data / "0-aa").saved()
        self.manifest = (data / "0-aa").sync()

    def all(self, tag: str) -> dict[str, Callable[[], Any]]:
        """Return the uses by name; `tag` names what they write."""
        data = self.data
        return {
            "read": (data / "note.json").read_text,
            "write": lambda: (data / f"note-{tag}.json").write_text("new"),
            "check": lambda: (data / "0-aa").check(self.manifest),
            "exists": (data / "0-aa").exists,
            "children": data.children,
            "listed": data.listed,
            "delete": (data / "old-1").delete,
            "copy from": lambda: (data / f"copy-{tag}").copy_from(self.source),
            "copy to": lambda: (data / "copy").copy_to(self._folder / f"copy-{tag}", *self.measured),
        }

    def outcomes(self, tag: str) -> dict[str, tuple[Any, float]]:
        """Return the outcome of each use, all at the same time, with its seconds."""

        def one(use: Callable[[], Any]) -> tuple[Any, float]:
            began_s = time.monotonic()
            return outcome(use), time.monotonic() - began_s

        uses = self.all(tag)
        with ThreadPoolExecutor(len(uses)) as threads:
            return dict(zip(uses, threads.map(one, uses.values()), strict=True))

    def assert_all_work(self, tag: str) -> None:
        """Use everything, and compare the results."""
        found = self.outcomes(tag)
        bad = {name: got for name, (got, _) in found.items() if isinstance(got, str) and got.startswith("DATA_")}
        assert not bad
        assert found["read"][0] == "old"
        assert found["exists"][0] is True
        assert found["copy from"][0] == self.measured
        assert (self.data / f"note-{tag}.json").read_text() == "new"
        assert (self._folder / f"copy-{tag}").read_text() == CONTENT
        (self.data / f"copy-{tag}").copy_to(self._folder / f"back-{tag}", *self.measured)
        names = set(self.data.listed())
        assert {f"note-{tag}.json", f"copy-{tag}", "0-aa/part-0", "old-2"} <= names
        assert "old-1" not in names


def test_a_suspended_server_is_away_and_is_used_again(direct: ObjectData, server: ObjectServer, tmp_path: Path) -> None:
    """Its sockets stay open, so each request waits until its limit."""
    uses = Uses(direct, tmp_path)
    with server.suspended():
        found = uses.outcomes("lost")
    assert {got for got, _ in found.values()} == {"DATA_AWAY"}
    limits = dict.fromkeys(found, REQUEST_S) | {"copy to": READ_S, "copy from": UPLOAD_S}
    late = {name: (took_s, limits[name]) for name, (_, took_s) in found.items() if took_s > 2 * limits[name]}
    assert not late
    print({name: round(took_s, 1) for name, (_, took_s) in found.items()})
    uses.assert_all_work("again")


def test_a_killed_server_is_away_and_is_used_again(direct: ObjectData, server: ObjectServer, tmp_path: Path) -> None:
    """Objects that were written before kill -9 are there, and kept connections are replaced."""
    uses = Uses(direct, tmp_path)
    server.kill()
    assert {got for got, _ in uses.outcomes("lost").values()} == {"DATA_AWAY"}
    server.start()
    uses.assert_all_work("again")


@pytest.mark.parametrize(
    "which",
    [
        lambda method, path: method == "PUT" and "copy-" in path and "partNumber=2" in path,
        lambda method, path: method == "PUT" and "note-" in path,
        lambda method, path: method == "POST" and "uploadId=" in path,
        lambda method, path: method == "POST" and "uploads" in path,
        lambda method, path: method == "GET" and path.endswith("/copy"),
        lambda method, path: method == "DELETE",
    ],
    ids=["part", "object", "complete", "begin", "read", "delete"],
)
def test_a_server_that_is_killed_during_a_request_loses_nothing(
    objects: ObjectStore, proxied: ObjectData, tmp_path: Path, which: Callable[[str, str], bool]
) -> None:
    """It is killed with half of the request, and starts again. Other requests of that time may find it away."""
    uses, killed = Uses(proxied, tmp_path), list[str]()

    def fault(method: str, path: str) -> str:
        if killed or not which(method, path):
            return ""
        killed.append(path)
        return "crash"

    with objects.failing(fault):
        found = {name: got for name, (got, _) in uses.outcomes("cut").items()}
    assert len(killed) == 1
    assert {got for got in found.values() if isinstance(got, str)} <= {"old", "DATA_AWAY"}, found
    if found["copy from"] != "DATA_AWAY":
        (proxied / "copy-cut").copy_to(tmp_path / "first", *uses.measured)
    uses.assert_all_work("cut")
    (proxied / "0-aa").remove()
    for name in proxied.listed():
        assert not name.startswith("0-aa")
        (proxied / name).delete()
    assert proxied.listed() == [], "also nothing that the server has left"


def test_another_key_is_told_at_once(direct: ObjectData, server: ObjectServer, tmp_path: Path) -> None:
    """The clients sign with the key that they had. No wait mends that, so nothing is repeated."""
    uses = Uses(direct, tmp_path)
    server.kill()
    server.start(secret="other")
    found = uses.outcomes("lost")
    assert {got for got, _ in found.values()} == {"DATA_UNUSABLE"}, found
    server.kill()
    server.start(secret="secret")
    uses.assert_all_work("again")


def test_a_slow_server_is_waited_for(objects: ObjectStore, proxied: ObjectData, tmp_path: Path) -> None:
    uses = Uses(proxied, tmp_path)
    with objects.failing(lambda method, path: "slow"):
        uses.assert_all_work("slow")
