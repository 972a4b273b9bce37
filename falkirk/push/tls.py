"""Tls: the certificate and the key with which requests are taken, as declared by the user, and checked at the start.

With it the token and the requests cross a network encrypted. A client that checks the certificate also does not send
its token to another process that has taken the port.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from falkirk.errors import MachineError
from falkirk.location import SourceLocation, caller

_OTHERS = 0o007


@dataclass(frozen=True, slots=True)
class Tls:
    """The certificate of the address at which `Http` sources take requests: clients then use https.

    Args:
        certificate: a PEM file with the certificate, and behind it those of the authorities between it and the root.
        key: a PEM file with the private key, without a password; left out, it is in the file of the certificate.
    """

    certificate: str | Path
    key: str | Path | None = None
    where: SourceLocation = field(default_factory=caller, compare=False)

    @property
    def key_file(self) -> Path:
        """Where the private key is."""
        return Path(self.key or self.certificate)

    def context(self) -> ssl.SSLContext:
        """Return what encrypts connections of clients, by TLS 1.2 or newer.

        Raises: MachineError: `FILE_UNREADABLE`, `CERTIFICATE_UNSUITABLE`, with the path and the reason.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        for file in (Path(self.certificate), self.key_file):
            try:
                file.read_bytes()
            except OSError as error:
                raise MachineError(
                    "FILE_UNREADABLE",
                    f"{file} cannot be read: {error.strerror}.",
                    where=self.where,
                    hint="Check the path and its permissions.",
                    path=str(file),
                ) from error
        encrypted = False

        def password() -> str:  # without it OpenSSL asks at the terminal
            nonlocal encrypted
            encrypted = True
            return ""

        try:
            context.load_cert_chain(self.certificate, self.key_file, password)
        except (ssl.SSLError, ValueError, OSError) as error:
            reason = "the key has a password" if encrypted else getattr(error, "reason", None) or str(error)
            raise MachineError(
                "CERTIFICATE_UNSUITABLE",
                f"{self.certificate} and {self.key_file} are no certificate with its key: {reason}.",
                where=self.where,
                hint="Both are PEM files; the key has no password and is the one that the certificate was made for.",
                certificate=str(self.certificate),
                key=str(self.key_file),
                reason=reason,
            ) from error

    def key_is_open(self) -> bool:
        """Tell whether every user of the machine may read the key."""
        return bool(self.key_file.stat().st_mode & _OTHERS)


class Renewed:
    """A context that takes new files up: certificates expire, and an application runs for longer.

    Args: say: takes one line for the user when new files can't be used; those from before then stay in use.
    Raises: as `Tls.context`.
    """

    def __init__(self, tls: Tls, say: Callable[[str], None]) -> None:
        self.context = tls.context()
        self._tls, self._say = tls, say
        self._seen = self._version()

    def look(self) -> None:
        """Take the files up if they have changed. Connections that there are keep what they began with."""
        found = self._version()
        if found == self._seen:
            return
        self._seen = found
        try:
            self._tls.context()  # on one of its own: a half of new files leaves this one as it is
            self._tls._load(self.context)
        except MachineError as error:
            self._say(f"the new certificate can't be used, the former one stays in use: {error}")

    def _version(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_version(file) for file in (Path(self._tls.certificate), self._tls.key_file))


def _version(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
