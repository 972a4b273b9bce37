"""An object store for tests, with faults on request: moto's S3 server in a thread of the test process.

With FALKIRK_OBJECTS=s3proxy it is a real server in its own process instead, behind a proxy in the test process. Both
answer as S3 does; the faults come before and behind them, as in a network. With FALKIRK_HDFS=1 it is a real HDFS, whose
requests over HTTP pass the proxy.
"""

import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from moto.server import DomainDispatcherApplication, create_backend_app
from pyarrow.fs import AwsStandardS3RetryStrategy, FileSystem, S3FileSystem
from werkzeug.serving import WSGIRequestHandler, make_server

from falkirk.platform.object_clients import few_checksums
from falkirk.platform.object_data import ObjectData
from falkirk.platform.web_hdfs import WebHdfs
from falkirk.platform.web_hdfs_files import hdfs_system
from tests import hdfs_server
from tests.hdfs_server import HdfsServer
from tests.object_server import ObjectServer, is_chosen
from tests.object_server.forward import Forwarding, ForwardingHdfs

BUCKET, KEY, SECRET, REGION = "shop", "key", "secret", "us-east-1"
#: Decides the fault of a request, from its method and its path with the query: "refuse" answers 503 without doing it,
#: "repeat" does it and then answers 503 (so the client does it twice), "cut" closes without an answer, "half" does so
#: in the middle of an upload, "stall" does it when the client has given up and asks again, "slow" after SLOW_S,
#: "deny" answers 403, "crash" kills the server in the middle of an upload and starts it again; "" is none.
Fault = Callable[[str, str], str]
#: A stalled request waits for its repetition for so long at most.
STALL_S = 60.0
SLOW_S = 1.0
#: Without a prefix, as S3 writes it: the client of pyarrow reads names of elements as they stand.
ElementTree.register_namespace("", "http://s3.amazonaws.com/doc/2006-03-01/")


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        """Write nothing."""

    def connection_dropped(self, error: BaseException, environ: Any = None) -> None:
        """Close the connection. Otherwise the client would wait for an answer until its timeout."""
        self.close_connection = True


class ObjectStore:
    """A running S3 server with one bucket.

    Attributes: url: of the server. requests: those that arrived, as method and path with query. server: the process of
        a real server; None: moto. hdfs: a real HDFS in place of both.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.fault: Fault = lambda method, path: ""
        #: Keys that listings do not show.
        self.unlisted: Callable[[str], bool] = lambda key: False
        #: Whether requests with a checksum after their content get 400, as from servers that do not know it.
        self.knows_checksums = True
        self._arrived = threading.Condition()
        self.hdfs = HdfsServer() if hdfs_server.is_chosen() else None
        self.server = ObjectServer(KEY, SECRET) if is_chosen() and self.hdfs is None else None
        self._application = self._served()
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=_Quiet)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self._conf = tempfile.TemporaryDirectory(prefix="falkirk-hadoop-")
        if self.hdfs is None:
            self.system(allow_bucket_creation=True).create_dir(BUCKET)
        else:
            for file, name, value in (
                ("hdfs-site.xml", "dfs.namenode.http-address", f"127.0.0.1:{self._server.server_port}"),
                ("core-site.xml", "fs.defaultFS", self.hdfs.address),
            ):
                site = f"<property><name>{name}</name><value>{value}</value></property>"
                (Path(self._conf.name) / file).write_text(f"<configuration>{site}</configuration>")

    def _served(self) -> Callable[..., Iterable[bytes]]:
        if self.hdfs is not None:
            return ForwardingHdfs(self.hdfs, lambda: self._server.server_port)
        return DomainDispatcherApplication(create_backend_app) if self.server is None else Forwarding(self.server)

    @property
    def environment(self) -> dict[str, str]:
        """The variables from which clients take the address and the credentials."""
        if self.hdfs is not None:
            return {"HADOOP_CONF_DIR": self._conf.name}  # the JVM of other tests has another user than this environment
        return {
            "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL_S3": self.url,
        }  # fmt: skip

    @property
    def root(self) -> str:
        """The address of the bucket, or of a folder in the HDFS."""
        return f"s3a://{BUCKET}" if self.hdfs is None else f"{self.hdfs.address}/{hdfs_server.FOLDER}"

    def data(self, name: str, **more: Any) -> ObjectData:
        """Return a folder, with a client of its own, as in another process. Args: more: of the client."""
        scheme, _, key = f"{self.root}/{name}".partition("://")
        return ObjectData(self.system(**more), scheme, key)

    def system(self, **more: Any) -> FileSystem:
        """Return a client."""
        if self.hdfs is not None:
            return hdfs_system(WebHdfs([self.url.partition("://")[2]], more.get("request_timeout", 5.0), 5.0), 2)
        with few_checksums():
            return S3FileSystem(
                endpoint_override=self.url, access_key=KEY, secret_key=SECRET, region=REGION,
                allow_delayed_open=True, retry_strategy=AwsStandardS3RetryStrategy(max_attempts=2),
                **{"request_timeout": 5.0, **more},
            )  # fmt: skip

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        """Give requests faults in the block."""
        self.fault = fault
        try:
            yield
        finally:
            self.fault = lambda method, path: ""

    @contextmanager
    def lagging(self, unlisted: Callable[[str], bool]) -> Iterator[None]:
        """Leave keys out of listings in the block."""
        self.unlisted = unlisted
        try:
            yield
        finally:
            self.unlisted = lambda key: False

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._conf.cleanup()
        for server in (self.server, self.hdfs):
            if server is not None:
                server.close()

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        query = environ.get("QUERY_STRING", "")
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"] + (f"?{query}" if query else "")
        request = method, path
        with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()
        fault = self.fault(method, path)
        if not self.knows_checksums and "HTTP_X_AMZ_TRAILER" in environ:
            fault = "unknown"
        if fault == "crash":
            assert isinstance(self._application, Forwarding), "only a real server can be killed"
            self._application.crash(environ)
        if fault == "half" and isinstance(self._application, ForwardingHdfs):
            self._application.cut(environ)  # the datanode has the first half then
        if fault in ("refuse", "cut", "half", "deny", "unknown"):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0) // (2 if fault == "half" else 1))
            return self._refused(start, fault)
        if fault == "slow":
            threading.Event().wait(SLOW_S)
        if fault == "stall":
            with self._arrived:
                times = self.requests.count(request)
                self._arrived.wait_for(lambda: self.requests.count(request) > times, STALL_S)
        if fault == "repeat":
            list(self._application(environ, lambda *answer: None))
            return self._refused(start, fault)
        if "list-type=2" not in query:
            return self._application(environ, start)  # type: ignore[no-any-return]
        return self._listing(environ, start)

    def _refused(self, start: Callable[..., Any], fault: str) -> Iterable[bytes]:
        if fault in ("cut", "half"):
            raise ConnectionAbortedError("the connection was cut, as a test asked")
        if fault == "deny" and self.hdfs is not None:
            start("403 Forbidden", [("Content-Type", "application/json")])
            return [b'{"RemoteException": {"exception": "AccessControlException", "message": "Permission denied"}}']
        if fault == "deny":
            start("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"]
        if fault == "unknown":
            start("400 Bad Request", [])
            return [b""]
        # After SlowDown, Spark's client would send a request every other second for a while.
        start("503 Service Unavailable", [("Content-Type", "application/xml")])
        return [b"<Error><Code>ServiceUnavailable</Code><Message>a fault of a test</Message></Error>"]

    def _listing(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        told: list[Any] = []
        body = b"".join(self._application(environ, lambda status, headers, *more: told.extend((status, headers))))
        try:
            tree = ElementTree.fromstring(body)
        except ElementTree.ParseError:
            start(*told)
            return [body]
        for each in [e for e in tree if e.tag.endswith("Contents")]:
            key = next(str(e.text) for e in each if e.tag.endswith("Key"))
            if self.unlisted(key):
                tree.remove(each)
        body = ElementTree.tostring(tree)
        start(told[0], [(n, v if n.lower() != "content-length" else str(len(body))) for n, v in told[1]])
        return [body]
