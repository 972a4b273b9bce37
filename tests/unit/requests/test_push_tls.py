"""Requests over TLS: the client's view, the files that are refused, and how a renewed certificate is loaded."""

import asyncio
import contextlib
import json
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import falkirk as fk
from falkirk.declare.tls import ReloadingContext
from falkirk.errors import MachineError
from falkirk.http_source import connections
from falkirk.http_source.connections import Connections
from falkirk.http_source.example import example_command
from falkirk.kafka_client.connection import Connection
from falkirk.recovery.ownership.credentials import publish_address
from falkirk.recovery.ownership.folder import Home, open_home
from falkirk.runtime.supervision.gateway import Gateway
from tests.unit.requests.test_push_server import turn

REQUEST = b"POST /queries HTTP/1.1\r\nHost: x\r\n\r\n"


def certificate(
    folder: Path, name: str, *options: str, names: str | None = "IP:127.0.0.1", common: str = ""
) -> tuple[Path, Path]:
    """Make a self-signed certificate. Args: names: its alternative names. common: its common name."""
    files = folder / f"{name}.pem", folder / f"{name}-key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2",
         "-subj", f"/CN={common or name}", "-out", files[0], "-keyout", files[1],
         *(() if names is None else ("-addext", f"subjectAltName={names}")), *(options or ("-nodes",))],
        check=True, capture_output=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    folder = tmp_path_factory.mktemp("certificates")
    made = {name: certificate(folder, name) for name in ("first", "second")}
    return made | {"locked": certificate(folder, "locked", "-passout", "pass:secret")}


@pytest.fixture
def opened(tmp_path: Path) -> Home:
    return open_home(tmp_path / "home", "shop")


def gateway(opened: Home, tls: fk.Tls | None, http: str = "127.0.0.1:0") -> tuple[Gateway, list[str]]:
    """Return a gateway that serves no running application, and the list of its messages."""
    app, said = fk.App("shop", http=http, http_token="secret", http_tls=tls), list[str]()
    app.source("queries", fk.Http("/queries", schema="id STRING"))
    return Gateway(app, Connection.of("127.0.0.1:1"), opened, said.append), said


def told(opened: Home) -> tuple[str, int]:
    kept = json.loads((opened.path / "http.json").read_text())
    return kept["url"], kept["port"]


def asked(port: int, trusted: Path | None) -> bytes:
    """Return the start of the response to a client that trusts one certificate; None: the client does not use TLS."""

    async def ask() -> bytes:
        trust = None if trusted is None else ssl.create_default_context(cafile=str(trusted))
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        writer.write(REQUEST)
        received = await reader.read(12)
        writer.close()
        with contextlib.suppress(OSError):  # the server may have left
            await writer.wait_closed()
        return received

    return asyncio.run(asyncio.wait_for(ask(), 30))


def test_requests_are_taken_by_tls_alone(files: dict[str, tuple[Path, Path]], opened: Home) -> None:
    made, said = gateway(opened, fk.Tls(*files["first"]), "0.0.0.0:0")
    with made:
        url, port = told(opened)
        assert url == f"https://0.0.0.0:{port}"
        assert asked(port, files["first"][0]) == b"HTTP/1.1 401"
        with pytest.raises(ssl.SSLCertVerificationError):
            asked(port, files["second"][0])
        assert asked(port, None) == b""
    assert not [line for line in said if "unencrypted" in line]


def test_a_renewed_certificate_is_taken_up_and_one_that_does_not_fit_is_not(
    files: dict[str, tuple[Path, Path]], opened: Home, tmp_path: Path
) -> None:
    used = tmp_path / "used.pem", tmp_path / "used-key.pem"

    def put(certificate: Path, key: Path) -> None:
        for source, target in zip((certificate, key), used, strict=True):
            (new := target.with_suffix(".new")).write_bytes(source.read_bytes())
            new.replace(target)

    put(*files["first"])
    made, said = gateway(opened, fk.Tls(*used))
    with made:
        _, port = told(opened)
        assert asked(port, files["first"][0])
        put(files["second"][0], files["first"][1])
        assert asked(port, files["first"][0]), "after only one file was replaced, the former certificate stays in use"
        assert [line for line in said if "the former one stays" in line]
        put(*files["second"])
        assert asked(port, files["second"][0]) == b"HTTP/1.1 401"


def response_to_command(said: list[str]) -> dict[str, Any]:
    """Run the command that the gateway printed, as a user would: with the token and the fields of the request."""
    (command,) = (line for message in said for line in message.splitlines() if "curl" in line)
    command = command.replace("Bearer TOKEN", "Bearer secret").replace(", …", "")
    done = subprocess.run(["sh", "-c", f"{command} --silent --show-error"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (command, done.stderr)
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("http", ["0.0.0.0:0", "127.0.0.1:0", "localhost:0"])
@pytest.mark.parametrize(
    ("names", "common"),
    [
        ("IP:127.0.0.1", "desk"),
        ("DNS:localhost,IP:10.1.2.3", "desk"),
        ("DNS:desk.example.com,DNS:other.example.com", "desk"),
        ("DNS:*.example.com", "desk"),
        (None, "desk.example.com"),
    ],
)
def test_the_printed_command_sends_a_request(
    opened: Home, tmp_path: Path, http: str, names: str | None, common: str
) -> None:
    made, said = gateway(opened, fk.Tls(*certificate(tmp_path, "it's", names=names, common=common)), http)
    with made:
        assert response_to_command(said)["condition"] == "NOT_READY", "it runs no application"


def test_the_printed_command_names_no_certificate_that_the_machine_trusts(
    files: dict[str, tuple[Path, Path]], opened: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(files["first"][0]))
    monkeypatch.setenv("CURL_CA_BUNDLE", str(files["first"][0]))  # curl prefers it
    made, said = gateway(opened, fk.Tls(*files["first"]), "0.0.0.0:0")
    with made:
        assert response_to_command(said)["condition"] == "NOT_READY"
    assert not any("--cacert" in line for line in said)


def test_a_command_for_a_certificate_that_no_client_accepts_is_still_printed(opened: Home, tmp_path: Path) -> None:
    unfit = certificate(tmp_path, "unfit", "-nodes", "-addext", "extendedKeyUsage=clientAuth")
    made, said = gateway(opened, fk.Tls(*unfit), "0.0.0.0:0")
    with made:
        assert any(f"--cacert {unfit[0]}" in line and "https://127.0.0.1:" in line for line in said)


@pytest.mark.parametrize("others", [b"", b"\x82\tlocalhost"])
def test_an_address_of_the_certificate_that_is_malformed_is_left_out(
    opened: Home, tmp_path: Path, others: bytes
) -> None:
    """It has five bytes, and Python shows it as `<invalid>`. Args: others: names in ASN.1."""
    names = others + b"\x87\5\1\2\3\4\5"
    odd = certificate(tmp_path, "odd", names=f"DER:{bytes([0x30, len(names), *names]).hex(':')}")
    made, said = gateway(opened, fk.Tls(*odd), "0.0.0.0:0")
    with made:
        name = "localhost" if others else "127.0.0.1"
        assert any(f"--cacert {odd[0]}" in line and f"https://{name}:" in line for line in said)


def test_a_command_is_printed_while_the_certificate_is_being_renewed(
    files: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    served, half = fk.Tls(*files["first"]).context(), tmp_path / "half.pem"
    half.write_bytes(files["first"][0].read_bytes()[:100])
    for file in (half, tmp_path / "none.pem"):
        command = example_command("TOKEN", "0.0.0.0", 1, "/queries", "{}", served=served, certificate=file)
        assert command.endswith("-d '{}' https://127.0.0.1:1/queries")


def test_a_start_that_fails_after_its_thread_began_stops_the_thread(opened: Home) -> None:
    app = fk.App("shop", http="127.0.0.1:0", http_token="secret")
    app.source("queries", fk.Http("/queries", schema="id STRING"))

    def broken(line: str) -> None:
        raise OSError("nobody reads the lines any more")

    with pytest.raises(OSError, match="nobody reads"):
        Gateway(app, Connection.of("127.0.0.1:1"), opened, broken).__enter__()
    assert not [thread for thread in threading.enumerate() if thread.name == "falkirk-gateway"]
    with pytest.raises(ConnectionRefusedError):
        asked(told(opened)[1], None)


def test_an_address_of_ipv6_has_brackets_in_each_url(tmp_path: Path) -> None:
    command = example_command("TOKEN", "::", 1, "/queries", "{}", served=None, certificate=None)
    assert command.endswith("'http://[::1]:1/queries'")
    assert publish_address(tmp_path, "::1", 1) == "http://[::1]:1"


def test_the_command_without_tls_reaches_an_address_that_means_all(opened: Home) -> None:
    made, said = gateway(opened, None, "0.0.0.0:0")
    with made:
        assert response_to_command(said)["condition"] == "NOT_READY"
    assert any("http://127.0.0.1:" in line for line in said)


@pytest.mark.parametrize(
    ("certificate", "key", "condition"),
    [
        ("first", "second", "CERTIFICATE_UNSUITABLE"),
        ("locked", "locked", "CERTIFICATE_UNSUITABLE"),
        ("none", "first", "FILE_UNREADABLE"),
        ("first", "none", "FILE_UNREADABLE"),
        ("text", "first", "CERTIFICATE_UNSUITABLE"),
        ("first", "text", "CERTIFICATE_UNSUITABLE"),
    ],
)
def test_files_that_do_not_fit_are_refused_at_the_start(
    files: dict[str, tuple[Path, Path]], opened: Home, tmp_path: Path, certificate: str, key: str, condition: str
) -> None:
    (tmp_path / "text").write_text("no certificate")
    known = files | {"text": (tmp_path / "text",) * 2, "none": (tmp_path / "none",) * 2}
    made, _ = gateway(opened, fk.Tls(known[certificate][0], known[key][1]))
    with pytest.raises(MachineError) as error:
        made.__enter__()
    assert error.value.condition == condition
    assert not (opened.path / "http.json").exists()


def test_a_key_with_a_password_is_named_and_nobody_is_asked_for_it(files: dict[str, tuple[Path, Path]]) -> None:
    with pytest.raises(MachineError) as error:
        fk.Tls(*files["locked"]).context()
    assert error.value.parameters["reason"] == "the key has a password"


def test_a_key_that_every_user_may_read_is_told(files: dict[str, tuple[Path, Path]], opened: Home) -> None:
    key = files["first"][1]
    for mode, warns in ((0o600, False), (0o644, True)):
        key.chmod(mode)
        made, said = gateway(opened, fk.Tls(*files["first"]))
        with made:
            assert any(f"the key {key}" in line for line in said) is warns
    key.chmod(0o600)


def test_a_certificate_and_its_key_may_be_in_one_file(files: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(b"".join(file.read_bytes() for file in files["first"]))
    assert ReloadingContext(fk.Tls(both), print).context.get_ca_certs() == []


def test_connections_that_are_not_encrypted_are_bounded_and_cut_off(
    files: dict[str, tuple[Path, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The web server sees a connection only after the TLS handshake, so its own limit does not cover earlier ones."""
    monkeypatch.setattr(connections, "HANDSHAKE_S", 3.0)

    async def run() -> None:
        runner = web.AppRunner(web.Application())
        await runner.setup()
        assert runner.server is not None
        listening = await asyncio.get_running_loop().create_server(
            Connections(runner.server, set(), arriving_most=5), "127.0.0.1", 0,
            ssl=fk.Tls(*files["first"]).context(), ssl_handshake_timeout=3.0,
        )  # fmt: skip
        port = listening.sockets[0].getsockname()[1]
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        ends = [asyncio.ensure_future(reader.read()) for reader, _ in silent]
        while sum(end.done() for end in ends) < 7:
            await turn()
        assert sum(end.done() for end in ends) == 7, "there is room for 5 connections"
        await asyncio.wait(ends)
        trust = ssl.create_default_context(cafile=str(files["first"][0]))
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        writer.write(REQUEST)
        assert (await reader.read(12)) == b"HTTP/1.1 404", "idle connections were closed"
        for _, each in [*silent, (reader, writer)]:
            each.close()
        listening.close()
        await runner.cleanup()

    asyncio.run(asyncio.wait_for(run(), 60))
