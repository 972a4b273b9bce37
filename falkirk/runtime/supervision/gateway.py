"""Gateway: accepts requests over HTTP in the coordinator's process, so that clients outlive a dead Spark.

The host reports the gateway's needs in its status: the topics, the schemas of requests, and the positions
below which all results of requests are published.
"""

import asyncio
import contextlib
import errno
import resource
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from aiohttp import web
from pyspark.sql.types import StructType

from falkirk.declare.application import Application
from falkirk.declare.tls import ReloadingContext
from falkirk.errors.conditions.supervision import ADDRESS_TAKEN
from falkirk.http_source.bridge import Answers, KafkaBridge, Progress, Requests
from falkirk.http_source.connections import (
    ARRIVING_MAX,
    CONNECTIONS_MAX,
    HANDSHAKE_S,
    Connections,
    QuietLogger,
    crosses_in_clear,
)
from falkirk.http_source.errors import passing_error
from falkirk.http_source.example import example_command
from falkirk.http_source.server import Counter, web_application
from falkirk.http_source.service import RequestService
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.ownership.credentials import former_port, publish_address, token_of
from falkirk.recovery.ownership.folder import Home
from falkirk.runtime.spark.context import Storage
from falkirk.theory.offsets import offsets_from_json

#: At the stop, clients with a response have this long to receive it.
_CLOSE_S = 2.0
#: An idle connection is closed after this time, because each connection uses a descriptor of the process.
_IDLE_S = 30.0
#: asyncio needs this many steps of its loop to give a connection that it has just accepted to its protocol.
_ACCEPT_STEPS = 3


class Gateway:
    """The push sources of one application; does nothing if there are none. A context manager that stops at its end.

    Args: say: takes one line for the user at each event.
    """

    def __init__(self, app: Application, connection: Connection, home: Home, say: Callable[[str], None]) -> None:
        self._app, self._connection, self._home, self._say = app, connection, home, say
        self._bridges: dict[str, KafkaBridge] = {}
        self._counters: dict[str, Counter] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._renewed: ReloadingContext | None = None

    def __enter__(self) -> "Gateway":
        """Accept connections from now on; requests are refused until the application runs.

        Raises: MachineError: `ADDRESS_TAKEN`, `FILE_UNREADABLE`, `CERTIFICATE_UNSUITABLE`. HomeError, DefinitionError:
            there is no token.
        """
        if self._app.pushed:
            try:
                self._start()
            except BaseException:  # then nobody calls `__exit__`, and the thread may accept connections already
                self.stop()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self) -> None:
        token, shown = token_of(self._home.path, self._app.http_token)
        tls = self._app.http_tls
        self._renewed = None if tls is None else ReloadingContext(tls, self._say)
        ready: Future[tuple[str, int]] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(token, ready)), name="falkirk-gateway", daemon=True
        )
        self._thread.start()
        url, port = ready.result()
        if tls is None and crosses_in_clear(self._app.http[0]):
            self._say(
                f"requests to {self._app.http[0]}, and their token, cross the network unencrypted: others can read "
                'them. Set http_tls=fk.Tls("certificate.pem", "key.pem"), or accept requests at "127.0.0.1:PORT" '
                "behind a proxy with TLS"
            )
        if tls is not None and tls.key_is_open():
            self._say(f"every user of this machine may read the key {tls.key_file}. Run: chmod o= {tls.key_file}")
        for name, http in self._app.pushed.items():
            command = example_command(
                shown, self._app.http[0], port, http.path, f'{{"{http.id}": "1", …}}',
                served=None if self._renewed is None else self._renewed.context,
                certificate=None if tls is None else Path(tls.certificate),
            )  # fmt: skip
            self._say(
                f"{name}: requests are accepted at {url}{http.path}, for example "
                f"(write the other fields in place of …):\n{command}"
            )

    def update(self, status: dict[str, Any]) -> None:
        """Use the status that the host has published."""
        for facts in status.get("push", ()):
            name, bridge = facts["source"], self._bridges.get(facts["source"])
            counter = self._counters.get(name)
            if counter is None:
                continue  # the application's file has changed since the coordinator read it
            counter.schema = StructType.fromJson(facts["schema"])
            if bridge is None:
                bridge = self._bridges[name] = self._bridge(counter, facts["topic"], facts["answers"])
            if "accepted" in facts:
                bridge.update(
                    Progress(
                        accepted=offsets_from_json(facts["accepted"]),
                        acknowledged=offsets_from_json(facts["acknowledged"]),
                    )
                )

    def _bridge(self, counter: Counter, topic: str, answers: str | None) -> KafkaBridge:
        assert self._loop is not None
        service, window_s = counter.service, counter.http.window_s
        bridge = KafkaBridge(
            self._connection, self._requests(topic), self._answers(answers), window_s, service, self._loop
        )  # fmt: skip
        bridge.start()
        return bridge

    def _requests(self, topic: str) -> Requests:
        place = Storage(home=self._home, connection=self._connection)
        note = partial(place.note_foreign, topic, refuse=False)
        return Requests(topic=topic, key=place.signing_key.of(topic, "requests"), on_foreign=note)

    def _answers(self, topic: str | None) -> Answers | None:
        if topic is None:
            return None
        place = Storage(home=self._home, connection=self._connection)
        note = partial(place.note_foreign, topic, refuse=False)
        return Answers(topic=topic, verifier=partial(place.verifier, topic), on_foreign=note)

    def stop(self) -> None:
        """Refuse new requests, ask all waiting clients to retry later, and stop. A second call does nothing."""
        thread, self._thread = self._thread, None
        if thread is None or self._loop is None or self._stopping is None:
            return
        self._soon(self._close)
        for bridge in self._bridges.values():
            bridge.stop()
        self._soon(self._close)  # a bridge that was just starting may have opened the service again
        self._soon(self._stopping.set)
        thread.join()

    def _soon(self, call: Callable[[], None]) -> None:
        """Have the gateway's thread make a call, if it has not ended by an error."""
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def _close(self) -> None:
        for counter in self._counters.values():
            counter.service.close(passing_error("BEING_STOPPED", "the application is stopping.", retry_after_s=10))

    # -- in the gateway's thread --------------------------------------------------------------------------------------

    async def _run(self, token: str, ready: "Future[tuple[str, int]]") -> None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the default is often 1,024
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        for name, http in self._app.pushed.items():
            # The bridge exists before the service opens, and a closed service sends nothing.
            service = RequestService(lambda entry, value, name=name: self._bridges[name].send(entry, value))  # type: ignore[misc]
            self._counters[name] = Counter(http=http, service=service)
        by_path = {counter.http.path: counter for counter in self._counters.values()}
        busy: set[object] = set()
        runner = web.AppRunner(
            web_application(by_path, token, busy), handler_cancellation=True, access_log=None,
            shutdown_timeout=_CLOSE_S, keepalive_timeout=_IDLE_S, logger=QuietLogger(),
        )  # fmt: skip
        listening: asyncio.Server | None = None
        try:
            await runner.setup()
            assert runner.server is not None
            reload = None if self._renewed is None else self._renewed.reload
            factory = Connections(runner.server, busy, _connections_max(most), reload, _arriving_max(most))
            listening = await self._bind(factory)
            scheme = "http" if self._renewed is None else "https"
            port = listening.sockets[0].getsockname()[1]
            ready.set_result((publish_address(self._home.path, self._app.http[0], port, scheme=scheme), port))
            await self._stopping.wait()
        except Exception as error:
            if ready.done():  # nobody waits for it any more
                self._say(f"requests are no longer accepted: {type(error).__name__}: {error}")
                raise
            ready.set_exception(error)
        finally:
            if listening is not None:
                await _end(listening)
            await runner.cleanup()  # closes the connections

    async def _bind(self, connections: Connections) -> asyncio.Server:
        assert self._loop is not None
        host, port = self._app.http
        encrypted: dict[str, Any] = {}
        if self._renewed is not None:
            encrypted = {"ssl": self._renewed.context, "ssl_handshake_timeout": HANDSHAKE_S}
        if port == 0 and (former := former_port(self._home.path)):
            try:
                return await self._loop.create_server(connections, host, former, **encrypted)
            except OSError:  # another process has the port: use any free one
                self._say(
                    f"port {former} of the former run is in use by another process, which receives the tokens of "
                    "clients that still use this port. Give clients the new address, and then replace the token"
                )
        try:
            return await self._loop.create_server(connections, host, port, **encrypted)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            raise ADDRESS_TAKEN.error(
                host=host, port=port, reason="it is in use" if taken else error.strerror
            ) from error


async def _end(listening: asyncio.Server) -> None:
    """Accept no more connections, and then close the server.

    A connection that asyncio accepts just before its server is closed fails in asyncio, and stays open.
    """
    loop = asyncio.get_running_loop()
    for each in listening.sockets:
        loop.remove_reader(each.fileno())
    for _ in range(_ACCEPT_STEPS):
        await asyncio.sleep(0)
    listening.close()


def _connections_max(descriptors: int) -> int:
    """Return how many clients may be connected.

    Args: descriptors: how many files this process may have open.
    """
    return CONNECTIONS_MAX if descriptors == resource.RLIM_INFINITY else min(CONNECTIONS_MAX, descriptors // 2)


def _arriving_max(descriptors: int) -> int:
    """Return how many connections may be unencrypted at a time.

    Args: descriptors: as for `_connections_max`.
    """
    return ARRIVING_MAX if descriptors == resource.RLIM_INFINITY else min(ARRIVING_MAX, descriptors // 4)
