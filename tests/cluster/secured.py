"""A broker that requires TLS and SASL and enforces ACLs.

One listener requires a client's certificate and a user's password, another requires a token. A third, open listener is
for the tests, which create users and topics there.
"""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # they are public all the same
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from falkirk.platform.free_ports import free_ports
from falkirk.spark_setup import broker as local_broker
from falkirk.spark_setup.broker import Broker
from tests.cluster.tokens import AUDIENCE, TokenServer
from tests.support import wait_until

PASSWORD = 'of "quotes", \\ and spaces'


@dataclass(frozen=True, kw_only=True)
class Secured:
    """A running broker.

    Attributes: open: the tests' address. by_password, by_token: the application's addresses. tokens: the token server.
    ca, client: PEM files.
    """

    open: Broker
    by_password: str
    by_token: str
    tokens: TokenServer
    ca: Path
    client: Path

    @cached_property
    def admin(self) -> AdminClient:
        """A client with all rights."""
        return AdminClient({"bootstrap.servers": self.open.bootstrap})

    def add_user(self, user: str) -> None:
        """Let a user log in with SCRAM-SHA-512, and get tokens."""
        self.tokens.add(user, PASSWORD)
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        wanted = UserScramCredentialUpsertion(user, info, PASSWORD.encode())
        for future in self.admin.alter_user_scram_credentials([wanted]).values():
            future.result(30)
        wait_until(lambda: self._knows(user), 30, f"the broker to know {user}")

    def allow_all(self, rights: list[AclBinding]) -> None:
        """Give rights, all at once, and wait until the broker knows them: it answers before it does."""
        for future in self.admin.create_acls(rights).values() if rights else ():
            future.result(30)
        wait_until(lambda: {*rights} <= self._rights(), 30, "the broker to know the rights")

    def _knows(self, user: str) -> bool:
        try:
            return bool(self.admin.describe_user_scram_credentials([user])[user].result(30))
        except KafkaException:
            return False

    def _rights(self) -> set[AclBinding]:
        every = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        return {*self.admin.describe_acls(every).result(30)}


def right_of(kind: ResourceType, name: str, operation: AclOperation, *, prefix: bool, user: str) -> AclBinding:
    """Return a right of a user. Args: prefix: to all with this prefix."""
    pattern = ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


@contextlib.contextmanager
def secured(folder: Path) -> Iterator[Secured]:
    """Run such a broker in a folder, with new authorities and keys."""
    folder.mkdir(parents=True)
    ca, server, client = _keys(folder)
    data = folder / "broker"
    data.mkdir()
    plain, controller, tls, token = free_ports(4)
    # A restarted broker keeps its recorded ports. This record makes them known before the first start.
    former = Broker(folder=str(data), pid=0, began="never", port=plain, controller_port=controller)
    (data / "broker.json").write_text(json.dumps(asdict(former)))
    names = f"PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{tls},TOKENS://127.0.0.1:{token}"
    bearer = "org.apache.kafka.common.security.oauthbearer"
    tokens = TokenServer(server)
    keys = tokens.keys.as_uri()
    settings = {
        "listeners": f"{names},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": names,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,TOKENS:SASL_SSL",
        "listener.name.tokens.ssl.client.auth": "none",
        "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.tokens.oauthbearer.sasl.jaas.config": f"{bearer}.OAuthBearerLoginModule required;",
        "listener.name.tokens.oauthbearer.sasl.server.callback.handler.class": (
            f"{bearer}.OAuthBearerValidatorCallbackHandler"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": keys,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
        "ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    options = (*local_broker.SHORT_RUN, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}")
    with tokens:
        broker = local_broker.start(data, settings=settings, java_options=options)
        try:
            assert broker.port == plain, "another process took the port"
            by_password, by_token = f"127.0.0.1:{tls}", f"127.0.0.1:{token}"
            yield Secured(open=broker, by_password=by_password, by_token=by_token, tokens=tokens, ca=ca, client=client)
        finally:
            local_broker.stop(data)


def _keys(folder: Path) -> tuple[Path, Path, Path]:
    """Make an authority, and a key with its certificate for the broker and for clients; return their PEM files."""
    ca, ca_key = folder / "ca.pem", folder / "ca.key"
    _openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=falkirk-tests",
             "-keyout", ca_key, "-out", ca)  # fmt: skip
    made = []
    for name, alternative in (("server", "IP:127.0.0.1"), ("client", "DNS:client")):
        key, request, certificate = (folder / f"{name}.{kind}" for kind in ("key", "csr", "crt"))
        _openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request,
                 "-addext", f"subjectAltName={alternative}")  # fmt: skip
        _openssl("x509", "-req", "-days", "2", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial",
                 "-copy_extensions", "copy", "-out", certificate)  # fmt: skip
        both = folder / f"{name}.pem"
        both.write_text(key.read_text() + certificate.read_text())
        made.append(both)
    return ca, made[0], made[1]


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
