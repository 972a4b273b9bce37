"""Tls: the certificate and key for requests over HTTPS, as declared by the user, and checked at the start.

With TLS, the token and the requests cross a network encrypted. A client that checks the certificate also does not send
its token to another process that has taken the port.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from falkirk.errors import MachineError
from falkirk.errors.conditions.declare import CERTIFICATE_UNSUITABLE, FILE_UNREADABLE
from falkirk.errors.location import SourceLocation, caller

_OTHERS = 0o007


@dataclass(frozen=True, slots=True)
class Tls:
    """The certificate of the address that accepts requests for `Http` sources; clients then use https.

    Args:
        certificate: a PEM file with the certificate, followed by those of the intermediate authorities.
        key: a PEM file with the private key, without a password; None: the key is in the file of the certificate.
    """

    certificate: str | Path
    key: str | Path | None = None
    where: SourceLocation = field(default_factory=caller, compare=False)

    @property
    def key_file(self) -> Path:
        """The file with the private key."""
        return Path(self.key or self.certificate)

    def context(self) -> ssl.SSLContext:
        """Return the context that encrypts connections of clients, with TLS 1.2 or newer.

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
                raise FILE_UNREADABLE.error(where=self.where, path=str(file), reason=error.strerror) from error
        encrypted = False

        def password() -> str:  # without this function OpenSSL asks at the terminal
            nonlocal encrypted
            encrypted = True
            return ""

        try:
            context.load_cert_chain(self.certificate, self.key_file, password)
        except (ssl.SSLError, ValueError, OSError) as error:
            reason = "the key has a password" if encrypted else getattr(error, "reason", None) or str(error)
            raise CERTIFICATE_UNSUITABLE.error(
                where=self.where,
                certificate=str(self.certificate),
                key=str(self.key_file),
                reason=reason,
            ) from error

    def key_is_open(self) -> bool:
        """Return whether every user of the machine may read the key."""
        return bool(self.key_file.stat().st_mode & _OTHERS)


class ReloadingContext:
    """A TLS context that reloads its files when they change, because certificates expire while an application runs.

    Args: say: takes one line for the user if new files can't be used; the former certificate then stays in use.
    Raises: as `Tls.context`.
    """

    def __init__(self, tls: Tls, say: Callable[[str], None]) -> None:
        self.context = tls.context()
        self._tls, self._say = tls, say
        self._seen = self._version()

    def reload(self) -> None:
        """Reload the files if they have changed. Open connections keep their certificate."""
        found = self._version()
        if found == self._seen:
            return
        self._seen = found
        try:
            self._tls.context()  # test with a new context, so that a half-written pair does not damage this one
            self._tls._load(self.context)
        except MachineError as error:
            self._say(f"the new certificate can't be used, so the former one stays in use: {error}")

    def _version(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_version(file) for file in (Path(self._tls.certificate), self._tls.key_file))


def _version(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
