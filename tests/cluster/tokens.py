"""A token server over https, for clients that know their secret (OpenID Connect, client credentials)."""

import base64
import json
import ssl
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

AUDIENCE, KEY_ID = "kafka", "the-only-one"
_LASTS_S = 600


class TokenServer:
    """A token server.

    Args: key: a PEM file with an RSA key and its certificate, for https and to sign tokens.

    Attributes: url: where to request tokens. keys: a file with the public key for its signatures. given: the number of
    issued tokens.
    """

    def __init__(self, key: Path) -> None:
        self._key, self.given = key, 0
        #: The clients' secrets.
        self._clients: dict[str, str] = {}
        modulus = bytes.fromhex(_openssl("rsa", "-in", str(key), "-noout", "-modulus").decode().split("=")[1].strip())
        public = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": KEY_ID, "n": _coded(modulus), "e": "AQAB"}
        self.keys = key.with_name("keys.json")
        self.keys.write_text(json.dumps({"keys": [public]}))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}/token"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def add(self, client: str, secret: str) -> None:
        """Give tokens to a client."""
        self._clients[client] = secret

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                client = server._client(self.headers.get("Authorization", ""))
                known = client is not None and asked.get("grant_type") == ["client_credentials"]
                answer = server._give(client, asked) if client is not None and known else {"error": "invalid_client"}
                body = json.dumps(answer).encode()
                self.send_response(200 if known else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing: it would appear in the test's output."""

        return Handler

    def _client(self, authorization: str) -> str | None:
        kind, _, coded = authorization.partition(" ")
        if kind != "Basic":
            return None
        name, _, secret = base64.b64decode(coded).decode().partition(":")
        return name if self._clients.get(name) == secret else None

    def _give(self, client: str, asked: Mapping[str, list[str]]) -> dict[str, object]:
        now = int(time.time())
        head = {"alg": "RS256", "typ": "JWT", "kid": KEY_ID}
        claims = {
            "sub": client,
            "aud": AUDIENCE,
            "iat": now,
            "exp": now + _LASTS_S,
            "scope": asked.get("scope", [""])[0],
        }
        signed = ".".join(_coded(json.dumps(part).encode()) for part in (head, claims))
        signature = _openssl("dgst", "-sha256", "-sign", str(self._key), given=signed.encode())
        self.given += 1
        return {"access_token": f"{signed}.{_coded(signature)}", "token_type": "Bearer", "expires_in": _LASTS_S}


def _coded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _openssl(*arguments: str, given: bytes = b"") -> bytes:
    return subprocess.run(["openssl", *arguments], input=given, check=True, capture_output=True).stdout
