"""A wire between a store and its PostgreSQL server that breaks at a chosen message, and may deliver it later."""

import contextlib
import socket
import threading
from pathlib import Path
from typing import Literal

#: The fate of the message at which the wire breaks. It is lost. Or the server answers it before the wire breaks, and
#: the store never gets the answer. Or it is on its way until `deliver`.
Fate = Literal["lost", "answered", "late"]


class Wire:
    """A socket between the store and its server that breaks once, at the first message with these bytes.

    Attributes: broke: it has met that message.
    """

    def __init__(self, server: Path, folder: Path) -> None:
        self._server = server / ".s.PGSQL.5432"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._breaks_at, self._fate = b"", "lost"
        self._delivers = threading.Event()
        self.broke = False
        threading.Thread(target=self._accept, daemon=True).start()

    def break_at(self, message: bytes, fate: Fate) -> None:
        """Break at the next message with these bytes."""
        self._delivers.clear()
        self._fate, self.broke, self._breaks_at = fate, False, message

    def deliver(self) -> None:
        """Let a late message arrive at the server, whose answer goes nowhere."""
        self._delivers.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self._server))
                link = (client, server, threading.Event(), threading.Event())
                threading.Thread(target=self._send, args=link, daemon=True).start()
                threading.Thread(target=self._answer, args=link, daemon=True).start()

    def _send(
        self, client: socket.socket, server: socket.socket, cut: threading.Event, answered: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if self._breaks_at and self._breaks_at in data:
                    self._breaks_at, self.broke = b"", True
                    cut.set()
                    if self._fate == "late":
                        client.shutdown(socket.SHUT_RDWR)
                        self._delivers.wait(60)
                    if self._fate != "lost":
                        server.sendall(data)
                        answered.wait(10)
                    break
                server.sendall(data)
        for end in (client, server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)  # closing alone would wait for the other thread
            end.close()

    def _answer(
        self, client: socket.socket, server: socket.socket, cut: threading.Event, answered: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if cut.is_set():
                    answered.set()  # but the store never gets the answer
                    break
                client.sendall(data)

    def close(self) -> None:
        """Stop listening."""
        self._delivers.set()
        self._listener.close()
