"""A connection: how to reach the user's Kafka, checked when it is built, as options for both clients.

Spark's connector uses the Java client; everything else here uses librdkafka. The two name the same options differently.
The user's own options must be on an allow-list, since several would silently break exactly-once (a batch that expires,
a producer that is not idempotent). Secrets are stored so that nothing prints them.
"""

import base64
import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from falkirk.errors import DefinitionError
from falkirk.errors.conditions.clusters import CLUSTER_NAME_INVALID, CLUSTER_UNKNOWN
from falkirk.errors.location import SourceLocation, caller
from falkirk.kafka_client.options import ALLOWED, refuse
from falkirk.kafka_client.secret import Secret
from falkirk.theory.ids import cluster_of, topic_name

#: The DER form of PBES2's object identifier, 1.2.840.113549.1.5.13.
_PBES2 = bytes.fromhex("06092a864886f70d01050d")
_CLUSTER_NAME = re.compile("[A-Za-z0-9._-]{1,64}")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_TOKENS = "OAUTHBEARER"
_TOKEN_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a Kafka cluster.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        security_protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        sasl_mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.
        username, password: for SASL; with OAUTHBEARER the client's id and secret (OpenID Connect's client credentials).
            ``password="env:NAME"`` reads the environment variable at each use.
        token_url: the address of the server that issues tokens (OAUTHBEARER). scope: the scope of the tokens, if the
            server requires one.
        ca_location: PEM file of the authorities to trust, for brokers and for `token_url`; by default the system's own.
        key_location: PEM file with the client's private key (PKCS#8) and certificate chain, for mutual TLS.
        key_password: the password of an encrypted private key; ``"env:NAME"`` as above.
        extra: further client options by the Java client's names, from an allow-list.
        name: of the cluster, where a source reads from it. Falkirk then calls its topics ``topic@name``, otherwise
            ``topic@bootstrap``, and a home knows them by this. So with a name, the addresses may change.

    Raises: DefinitionError: `BOOTSTRAP_INVALID`, `CLUSTER_NAME_INVALID`, `SECURITY_PROTOCOL_UNKNOWN`,
        `SASL_MECHANISM_UNKNOWN`, `SECURITY_OPTION_MISSING`, `SECURITY_OPTION_UNUSED`, `TOKEN_URL_INVALID`,
        `SECRET_MISSING`, `FILE_UNREADABLE`, `KEY_FILE_UNSUITABLE`, `OPTION_IS_OURS`, `CLIENT_OPTION_REFUSED`,
        `CLIENT_OPTION_INVALID`.

    Files must be at the same path on every machine that runs Spark tasks.
    """

    bootstrap: str
    security_protocol: str = field(default="PLAINTEXT", kw_only=True)
    sasl_mechanism: str | None = field(default=None, kw_only=True)
    username: str | None = field(default=None, kw_only=True)
    password: Secret | str | None = field(default=None, kw_only=True)
    token_url: str | None = field(default=None, kw_only=True)
    scope: str | None = field(default=None, kw_only=True)
    ca_location: str | None = field(default=None, kw_only=True)
    key_location: str | None = field(default=None, kw_only=True)
    key_password: Secret | str | None = field(default=None, kw_only=True)
    extra: Mapping[str, str] = field(default_factory=dict, kw_only=True, hash=False)
    name: str | None = field(default=None, kw_only=True)
    where: SourceLocation = field(default_factory=caller, kw_only=True, compare=False, repr=False)
    #: The clusters of sources that are not on this one, by `label`: see `with_others`.
    others: Mapping[str, "Connection"] = field(init=False, default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        # This comes first, so that no later error can contain the plain text. The user's line may contain it too.
        object.__setattr__(self, "where", replace(self.where, text=""))
        for name in ("password", "key_password"):
            value = getattr(self, name)
            if isinstance(value, str):
                object.__setattr__(self, name, Secret(value))
        object.__setattr__(self, "extra", {name: str(value) for name, value in self.extra.items()})
        self._check_bootstrap()
        self._check_name()
        self._check_security()
        self._check_files()
        self._check_extra()

    @classmethod
    def of(cls, kafka: "str | Connection") -> "Connection":
        """Return `kafka` itself if it is a connection, otherwise a plain connection to that address."""
        return kafka if isinstance(kafka, Connection) else cls(kafka)

    @property
    def servers(self) -> frozenset[str]:
        """The addresses in `bootstrap`, in lower case. Two connections with a common one lead to the same cluster."""
        return frozenset(server.strip().lower() for server in self.bootstrap.split(","))

    @property
    def label(self) -> str:
        """How ids of topics and messages name the cluster."""
        return self.name or "".join(self.bootstrap.split())

    def with_others(self, others: Mapping[str, "Connection"]) -> "Connection":
        """Return the same connection, which also knows the clusters of distant sources. Args: others: by `label`."""
        found = copy.copy(self)
        object.__setattr__(found, "others", dict(others))
        return found

    def of_topic(self, topic: str) -> tuple["Connection", str]:
        """Return the connection to the cluster of a topic, and the topic's name there. This is the only place that
        chooses a cluster for a topic that is read.

        Args: topic: its id, as `LogId.at` makes it. Raises: LogError: `CLUSTER_UNKNOWN`.
        """
        name, cluster = topic_name(topic), cluster_of(topic)
        if not cluster:
            return self, name
        if cluster not in self.others:
            raise CLUSTER_UNKNOWN.error(where=self.where, topic=name, cluster=cluster)
        return self.others[cluster], name

    def spark_options(self) -> dict[str, str]:
        """Return the options for Spark's Kafka source and sink. They contain secrets: pass them only to Spark."""
        options = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.security_protocol,
            **self.extra,
        }
        if self.sasl_mechanism is not None:
            options["sasl.mechanism"] = self.sasl_mechanism
            module = _LOGIN_MODULES[self.sasl_mechanism]
            login = " ".join(f"{name}={_jaas(value)}" for name, value in self._login().items())
            options["sasl.jaas.config"] = f"{module} required {login};"
        if self.token_url is not None:
            options["sasl.oauthbearer.token.endpoint.url"] = self.token_url
            options["sasl.login.callback.handler.class"] = _TOKEN_LOGIN
        if self.ca_location is not None:
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca_location}
        if self.key_location is not None:
            options |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.key_location}
        if self.key_password is not None:
            options["ssl.key.password"] = _reveal(self.key_password)
        return {f"kafka.{name}": value for name, value in options.items()}

    def client_options(self) -> dict[str, Any]:
        """Return the options for a confluent-kafka client. They contain secrets: pass them only to a client."""
        options: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.security_protocol,
        }
        for name, value in self.extra.items():
            own = ALLOWED[name]
            if own is not None:
                options[own] = value
        if self.sasl_mechanism is not None:
            options["sasl.mechanism"] = self.sasl_mechanism
        if self.token_url is not None:
            options |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": self.token_url,
                "sasl.oauthbearer.client.id": self.username,
                "sasl.oauthbearer.client.secret": _reveal(self.password),
            }
            if self.scope is not None:
                options["sasl.oauthbearer.scope"] = self.scope
            if self.ca_location is not None:
                options["https.ca.location"] = self.ca_location
        elif self.sasl_mechanism is not None:
            options |= {"sasl.username": self.username, "sasl.password": _reveal(self.password)}
        if self.ca_location is not None:
            options["ssl.ca.location"] = self.ca_location
        if self.key_location is not None:
            options |= {"ssl.key.location": self.key_location, "ssl.certificate.location": self.key_location}
        if self.key_password is not None:
            options["ssl.key.password"] = _reveal(self.key_password)
        return options

    def _login(self) -> dict[str, str]:
        """Return the options of the Java client's login module."""
        name, secret = self.username or "", _reveal(self.password)
        if self.token_url is None:
            return {"username": name, "password": secret}
        credentials = {"clientId": name, "clientSecret": secret}
        if self.scope is not None:
            credentials["scope"] = self.scope
        if self.ca_location is not None:  # for the server that issues tokens; brokers have a separate option
            credentials |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca_location}
        return credentials

    def _check_bootstrap(self) -> None:
        for address in self.bootstrap.split(",") if isinstance(self.bootstrap, str) else ("",):
            host, _, port = address.strip().rpartition(":")
            if not host or not port.isascii() or not port.isdigit() or set("@/ ") & set(host):
                # The message omits the text: an address such as user:password@host:9092 is a common mistake.
                raise self._error(
                    "BOOTSTRAP_INVALID",
                    "the address of Kafka is not a list of host:port.",
                    'Write "broker-1:9092,broker-2:9092", and pass user and password as username= and password=.',
                )

    def _check_name(self) -> None:
        if self.name is not None and not (isinstance(self.name, str) and _CLUSTER_NAME.fullmatch(self.name)):
            raise CLUSTER_NAME_INVALID.error(where=self.where, name=self.name)

    def _check_security(self) -> None:
        if self.security_protocol not in _PROTOCOLS:
            raise self._error(
                "SECURITY_PROTOCOL_UNKNOWN",
                "Kafka does not know the given security_protocol.",
                f"Use one of {', '.join(_PROTOCOLS)}.",
            )
        sasl, tls = self.security_protocol.startswith("SASL_"), self.security_protocol.endswith("SSL")
        if self.sasl_mechanism is not None and self.sasl_mechanism not in _LOGIN_MODULES:
            raise self._error(
                "SASL_MECHANISM_UNKNOWN",
                "Falkirk does not support the given sasl_mechanism.",
                f"Use one of {', '.join(_LOGIN_MODULES)}.",
            )
        for name in ("sasl_mechanism", "username", "password"):
            self._check_given(name, needed=sasl, allowed=sasl)
        tokens = self.sasl_mechanism == _TOKENS
        self._check_given("token_url", needed=tokens, allowed=tokens)
        self._check_given("scope", needed=False, allowed=tokens)
        self._check_token_url()
        for name in ("ca_location", "key_location"):
            self._check_given(name, needed=False, allowed=tls)
        self._check_given("key_password", needed=False, allowed=self.key_location is not None)
        for name in ("password", "key_password"):
            secret = getattr(self, name)
            if secret is not None and not secret.is_set:
                raise self._error(
                    "SECRET_MISSING",
                    f"{name} is empty: {secret.origin} is empty or not set.",
                    "Set it before the start.",
                    option=name,
                )

    def _check_token_url(self) -> None:
        if self.token_url is None:
            return
        try:
            parts = urlsplit(self.token_url)
            fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
            fits = fits and not set(", \t\r\n") & set(self.token_url)  # a comma separates addresses in Java's list
        except ValueError:
            fits = False
        if not fits:
            raise self._error(
                "TOKEN_URL_INVALID",
                "token_url is not the address of a server that issues tokens.",
                'Write "https://login.example.com/oauth2/token", and pass id and secret as username= and password=.',
            )

    def _check_given(self, name: str, *, needed: bool, allowed: bool) -> None:
        given = getattr(self, name) is not None
        if needed and not given:
            raise self._error(
                "SECURITY_OPTION_MISSING",
                f"{_TOKENS if name == 'token_url' else self.security_protocol} needs {name}.",
                f"Pass {name}=… to the connection.",
                option=name,
            )
        if given and not allowed:
            raise self._error(
                "SECURITY_OPTION_UNUSED",
                f"{name} has no effect with {self.security_protocol} and the other given options.",
                "Leave it out, or choose the security_protocol (and key_location) that uses it.",
                option=name,
            )

    def _check_files(self) -> None:
        for name in ("ca_location", "key_location"):
            location = getattr(self, name)
            if location is None:
                continue
            try:
                text = Path(location).read_text(encoding="utf-8", errors="replace")
            except OSError as error:
                raise self._error(
                    "FILE_UNREADABLE",
                    f"{name} {location!r} cannot be read: {error.strerror}.",
                    "Check the path and the permissions.",
                    option=name,
                    path=location,
                ) from error
            fits = "-----BEGIN CERTIFICATE-----" in text
            if name == "key_location":
                fits = fits and _has_key(text, encrypted=self.key_password is not None)
            if not fits:
                raise self._unsuitable(name, location)

    def _unsuitable(self, name: str, location: str) -> DefinitionError:
        hint = "Name a file with PEM certificates."
        if name == "key_location":
            how = "-nocrypt" if self.key_password is None else "-v1 PBE-SHA1-3DES"
            hint = (
                "Name a file with the private key as PKCS#8, followed by its certificates: "
                f"openssl pkcs8 -topk8 {how} -in key.pem > client.pem; cat certificate.pem >> client.pem."
            )
        return self._error(
            "KEY_FILE_UNSUITABLE",
            f"{name} {location!r} does not contain what Kafka needs.",
            hint,
            option=name,
            path=location,
        )

    def _check_extra(self) -> None:
        for name, value in sorted(self.extra.items()):
            refusal = refuse(name, value)
            if refusal is not None:
                condition, message, hint = refusal
                raise self._error(condition, message, hint, option=name)

    def _error(self, condition: str, message: str, hint: str, **parameters: object) -> DefinitionError:
        return DefinitionError(condition, message, where=self.where, hint=hint, **parameters)


def _reveal(secret: Secret | str | None) -> str:
    assert isinstance(secret, Secret)
    return secret.reveal()


def _jaas(text: str) -> str:
    """Return `text` quoted for a JAAS configuration, which Kafka reads with Java's StreamTokenizer.

    StreamTokenizer knows C's escapes. A backslash escapes a quote or a backslash. A control character becomes its octal
    code, because a line break would end the string.
    """
    return '"' + "".join(f"\\{c}" if c in '"\\' else f"\\{ord(c):03o}" if ord(c) < 32 else c for c in text) + '"'


def _has_key(pem: str, *, encrypted: bool) -> bool:
    """Return whether a PEM text has a private key that both clients can read: PKCS#8 and, if encrypted, not PBES2.

    Kafka's Java client asks the JVM for an algorithm named PBES2, which JVMs don't have under that name.
    """
    kind = "ENCRYPTED PRIVATE KEY" if encrypted else "PRIVATE KEY"
    found = re.search(f"-----BEGIN {kind}-----(.*?)-----END {kind}-----", pem, re.DOTALL)
    if found is None:
        return False
    try:
        der = base64.b64decode("".join(found[1].split()), validate=True)
    except ValueError:
        return False
    return _PBES2 not in der[:64]
