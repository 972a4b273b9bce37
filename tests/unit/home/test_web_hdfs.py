"""A client of HDFS over HTTP, with servers of the test: whom it asks next, and which answers it does not believe."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from falkirk.platform import web_hdfs
from falkirk.platform.hadoop_site import web_addresses
from falkirk.platform.object_data import ObjectData, data_at
from falkirk.platform.web_hdfs import HdfsRefusedError, WebHdfs
from falkirk.platform.web_hdfs_files import hdfs_system
from falkirk.spark_setup.doctor import check_machine
from tests.support import outcome

Answer = tuple[int, bytes]
FOUND: Answer = (200, json.dumps({"FileStatus": {"type": "FILE", "length": 10, "pathSuffix": ""}}).encode())


def failed(kind: str, status: int = 403) -> Answer:
    """Return an answer with an error of Hadoop's."""
    return status, json.dumps({"RemoteException": {"exception": kind, "message": "said"}}).encode()


class Server:
    """An HTTP server. Args: answer: from the operation and the query. Attributes: asked: the operations."""

    def __init__(self, answer: Callable[[str, dict[str, list[str]]], Answer], host: str = "127.0.0.1") -> None:
        self.asked, asked = list[str](), lambda name: self.asked.append(name)

        class Handler(BaseHTTPRequestHandler):
            def do(self) -> None:
                query = parse_qs(urlsplit(self.path).query)
                asked(query["op"][0])
                status, content = answer(query["op"][0], query)
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_DELETE = do

            def log_message(self, *_: Any) -> None:
                """Write nothing."""

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self.address = f"{host}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers = list[Server]()

    def begin(answer: Callable[[str, dict[str, list[str]]], Answer], host: str = "127.0.0.1") -> Server:
        servers.append(Server(answer, host))
        return servers[-1]

    yield begin
    for server in servers:
        server.close()


def client(*servers: Server) -> WebHdfs:
    return WebHdfs([server.address for server in servers], 2.0, 2.0)


def test_a_namenode_in_standby_lets_the_client_ask_the_other_one(serve: Callable[..., Server]) -> None:
    standby, active = serve(lambda *_: failed("StandbyException")), serve(lambda *_: FOUND)
    both = client(standby, active)
    for _ in range(2):
        assert both.ask("GET", "GETFILESTATUS", "/shop")["FileStatus"]["length"] == 10
    assert (len(standby.asked), len(active.asked)) == (1, 2), "the active one is asked first from then on"
    active.close()
    with pytest.raises(ConnectionError) as away:
        both.ask("GET", "GETFILESTATUS", "/shop")
    assert active.address in str(away.value)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((401, b""), HdfsRefusedError), (failed("AccessControlException"), HdfsRefusedError),
        ((404, b"It looks like you are making an HTTP request to a Hadoop IPC port."), HdfsRefusedError),
        (failed("FileNotFoundException", 404), FileNotFoundError), (failed("SafeModeException"), OSError),
        ((503, b"busy"), ConnectionError), (failed("RetriableException"), ConnectionError),
    ],
)  # fmt: skip
def test_an_error_is_missing_refused_or_passes(
    serve: Callable[..., Server], answer: Answer, error: type[OSError]
) -> None:
    with pytest.raises(error) as met:
        client(serve(lambda *_: answer)).ask("GET", "GETFILESTATUS", "/shop")
    assert isinstance(met.value, HdfsRefusedError) == (error is HdfsRefusedError)
    assert isinstance(met.value, FileNotFoundError) == (error is FileNotFoundError)


def test_a_datanode_that_fails_is_avoided_if_there_is_another_one(serve: Callable[..., Server]) -> None:
    """A namenode names a datanode by its host name and its HTTP port, and knows it by its IP address alone."""
    good = serve(lambda *_: (200, b"0123456789"), "127.0.0.2")
    bad = serve(lambda *_: (200, b"01234"))  # it ends before the end
    others = [good]

    def answer(operation: str, query: dict[str, list[str]]) -> Answer:
        if operation != "OPEN":
            return FOUND
        avoided = query.get("excludedatanodes", [""])[0].split(",")
        found = next((each for each in (bad, *others) if each.address.partition(":")[0] not in avoided), None)
        if found is None:
            return failed("IOException")
        name = found.address.replace("127.0.0.1", "localhost")
        return 200, json.dumps({"Location": f"http://{name}/x?op=OPEN"}).encode()

    names = client(serve(answer))
    data = ObjectData(hdfs_system(names), "hdfs", "name/shop") / "note"
    assert data.read_text() == "0123456789"
    assert (len(bad.asked), len(good.asked)) == (1, 1)
    others.clear()
    names._shunned["127.0.0.1"] = names._shunned["127.0.0.2"] = web_hdfs.time.monotonic() + 60
    assert outcome(data.read_text) == "DATA_AWAY", "the only one is asked again, and its answer is not believed"
    assert len(bad.asked) > 1


def site(folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    each = (f"<property><name>{n}</name><value>{v}</value></property>" for n, v in settings.items())
    (folder / "hdfs-site.xml").write_text(f"<configuration>{''.join(each)}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(folder))


def test_the_http_address_comes_from_the_files_of_hadoop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    assert web_addresses("namenode:8020") == ("namenode:9870",)
    site(tmp_path, monkeypatch, **{"dfs.namenode.http-address": "0.0.0.0:50070"})
    assert web_addresses("namenode:8020") == ("namenode:50070",)
    named = {
        "dfs.ha.namenodes.company": "a, b", "dfs.namenode.http-address.company.a": "one:1234",
        "dfs.namenode.rpc-address.company.b": "two:8020",
    }  # fmt: skip
    site(tmp_path, monkeypatch, **named)
    assert web_addresses("company") == ("one:1234", "two:9870")
    (tmp_path / "hdfs-site.xml").write_text("<configuration>")
    assert outcome(lambda: data_at("hdfs://company/shop")) == "DATA_UNUSABLE"


@pytest.mark.parametrize(("answer", "ok"), [(failed("FileNotFoundException", 404), True), ((401, b""), False)])
def test_the_doctor_tells_whether_a_home_can_be_read(
    serve: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, ok: bool
) -> None:
    port = serve(lambda *_: answer).address.rpartition(":")[2]
    site(tmp_path, monkeypatch, **{"dfs.namenode.http-address": f"0.0.0.0:{port}"})
    found = next(each for each in check_machine(home="hdfs://127.0.0.1:8020/shop") if each.name == "home")
    assert found.ok == ok
    assert ("Kerberos" in found.detail) == (not ok)
