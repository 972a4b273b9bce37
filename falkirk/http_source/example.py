"""The command that shows a user how to send a request: with TLS, it must fit the names of the certificate."""

import contextlib
import shlex
import ssl
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from falkirk.declare.address import host_in_url

#: Addresses of the machine itself for those that mean all of its addresses. A certificate never has the latter.
_ITSELF = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_LOCAL_NAMES = ("127.0.0.1", "localhost", "::1")
#: A handshake in memory needs two rounds with TLS 1.3, and three with TLS 1.2.
_ROUNDS = 4


def example_command(
    token: str, host: str, port: int, path: str, body: str, *, served: ssl.SSLContext | None, certificate: Path | None
) -> str:
    """Return a shell command that sends a request from this machine.

    Args: token: a shell expression for it. host: the address that accepts requests. body: of the request. served: the
        TLS context of that address; None: it has no TLS. certificate: its file.
    """
    address = _ITSELF.get(host, host)
    name, options = address, ""
    if served is not None and certificate is not None:
        # OSError: the file is just being renewed. ValueError: of Python's `ssl`. No start fails because of an example.
        with contextlib.suppress(OSError, ValueError):
            name, options = _fitting(served, certificate, address, port)
    scheme = "http" if served is None else "https"
    url = f"{scheme}://{host_in_url(name)}:{port}{path}"
    return f'echo "Authorization: Bearer {token}" | curl -H @- {options}-d {shlex.quote(body)} {shlex.quote(url)}'


def _fitting(served: ssl.SSLContext, certificate: Path, address: str, port: int) -> tuple[str, str]:
    """Return a name of the certificate under which this machine reaches the address, and curl's options for it."""
    shown, options = _presented(served, ssl.create_default_context()), ""
    if shown is None:  # the machine does not trust the authority, so the client must name the certificate
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trust.load_verify_locations(certificate)
        shown, options = _presented(served, trust), f"--cacert {shlex.quote(str(certificate))} "
    names = list(_names(shown or {}))
    # An address that means all of them is reached by each local name.
    reached = [address, *(_LOCAL_NAMES if address in _LOCAL_NAMES else ())]
    for name in reached:
        if name in names:
            return name, options
    if not names:  # an expired certificate, for example: curl then says what is wrong with it
        return address, options
    return names[0], f"{options}--connect-to {names[0]}:{port}:{host_in_url(address)}:{port} "


def _presented(served: ssl.SSLContext, trust: ssl.SSLContext) -> dict[str, Any] | None:
    """Return the certificate that a client with this trust gets; None: it refuses the certificate.

    The handshake happens in memory. Python's `ssl` shows a certificate only to a client that has verified it.
    """
    trust.check_hostname = False
    trust.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as curl does: a certificate in the file is trusted by itself
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trust.wrap_bio(to_client, to_server)
    server = served.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_ROUNDS):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return None
    return client.getpeercert()


def _names(shown: dict[str, Any]) -> Iterator[str]:
    """Return the names and addresses of a certificate, as clients compare them."""
    alternatives = [(kind, str(value)) for kind, value in shown.get("subjectAltName", ())]
    if not alternatives:  # then curl compares the common name
        alternatives = [("DNS", value) for part in shown.get("subject", ()) for k, value in part if k == "commonName"]
    for kind, value in alternatives:
        if kind == "DNS":
            yield value.replace("*", "any", 1)
        elif kind == "IP Address":
            with contextlib.suppress(ValueError):  # a malformed one: Python shows it as <invalid>
                yield str(ip_address(value.strip()))
