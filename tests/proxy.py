"""A proxy in front of a PostgreSQL server, whose link a test can cut: no data passes, and no connection breaks."""

import contextlib
import select
import shutil
import socket
import tempfile
import threading
from pathlib import Path

from tests.postgres import Postgres

_BYTES = 1 << 16


class Proxy:
    """Listens on a Unix socket in its folder, and passes everything on to the server; a context manager that ends it.

    Attributes: folder: contains the socket; use it as `host` in a URL.
    """

    def __init__(self, server: Postgres) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="falkirk-proxy-"))
        name = f".s.PGSQL.{Postgres.PORT}"
        self._target, self._passes, self._ends = str(server.folder / name), threading.Event(), threading.Event()
        self._passes.set()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.folder / name))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Cut the link: from now on no data passes, and new connections get no answer."""
        self._passes.clear()

    def heal(self) -> None:
        """Undo the cut."""
        self._passes.set()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._passes.set()
        self._listener.close()
        shutil.rmtree(self.folder)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        self._passes.wait()
        server = socket.socket(socket.AF_UNIX)
        with client, server, contextlib.suppress(OSError):
            server.connect(self._target)
            others = {client: server, server: client}
            while not self._ends.is_set():
                ready, _, _ = select.select([*others], [], [], 0.2)
                for end in ready:
                    self._passes.wait()
                    if not (data := end.recv(_BYTES)):
                        return
                    self._passes.wait()
                    others[end].sendall(data)
