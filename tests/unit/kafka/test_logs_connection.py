"""A connection: which options it refuses, which it gives to each client, and that its secrets are never shown."""

import base64
import copy
import dataclasses
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falkirk.errors import DefinitionError
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.options import ALLOWED

SASL: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "username": "ann",
    "password": "open-sesame",
}
#: Long and unusual enough not to occur in a message by chance.
secrets = st.text(min_size=12).map(lambda text: f"s3cr3t{text}")


def pem(kind: str, content: bytes = b"0123456789") -> str:
    return f"-----BEGIN {kind}-----\n{base64.b64encode(content).decode()}\n-----END {kind}-----\n"


def refusal(*args: Any, **options: Any) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        Connection(*args, **options)
    return caught.value


def test_the_smallest_connection_is_an_address() -> None:
    connection = Connection.of("one:9092,two:9092")
    assert connection.spark_options() == {
        "kafka.bootstrap.servers": "one:9092,two:9092",
        "kafka.security.protocol": "PLAINTEXT",
    }
    assert connection.client_options() == {
        "bootstrap.servers": "one:9092,two:9092",
        "security.protocol": "PLAINTEXT",
    }
    assert Connection.of(connection) is connection


@pytest.mark.parametrize(
    "bootstrap",
    ["", "host", "host:", ":9092", "host:port", "ann:open-sesame@host:9092", "a:1,,b:2", "http://a:1"],
)
def test_an_address_is_host_and_port_and_is_not_repeated_in_the_error(bootstrap: str) -> None:
    error = refusal(bootstrap)
    assert error.condition == "BOOTSTRAP_INVALID"
    assert "open-sesame" not in str(error)


@pytest.mark.parametrize(
    ("options", "condition", "option"),
    [
        ({"security_protocol": "TLS"}, "SECURITY_PROTOCOL_UNKNOWN", None),
        ({**SASL, "sasl_mechanism": "GSSAPI"}, "SASL_MECHANISM_UNKNOWN", None),
        ({**SASL, "sasl_mechanism": None}, "SECURITY_OPTION_MISSING", "sasl_mechanism"),
        ({**SASL, "username": None}, "SECURITY_OPTION_MISSING", "username"),
        ({**SASL, "password": None}, "SECURITY_OPTION_MISSING", "password"),
        ({**SASL, "security_protocol": "PLAINTEXT"}, "SECURITY_OPTION_UNUSED", "sasl_mechanism"),
        ({"password": "open-sesame"}, "SECURITY_OPTION_UNUSED", "password"),
        ({"ca_location": "ca.pem"}, "SECURITY_OPTION_UNUSED", "ca_location"),
        (
            {"security_protocol": "SSL", "key_password": "open-sesame"},
            "SECURITY_OPTION_UNUSED",
            "key_password",
        ),
        ({**SASL, "password": ""}, "SECRET_MISSING", "password"),
        ({**SASL, "password": "env:FALKIRK_NOT_SET"}, "SECRET_MISSING", "password"),
        ({"security_protocol": "SSL", "ca_location": "no/such.pem"}, "FILE_UNREADABLE", "ca_location"),
        ({"extra": {"acks": "1"}}, "OPTION_IS_OURS", "acks"),
        ({"extra": {"delivery.timeout.ms": "5000"}}, "OPTION_IS_OURS", "delivery.timeout.ms"),
        ({"extra": {"enable.idempotence": "false"}}, "OPTION_IS_OURS", "enable.idempotence"),
        ({"extra": {"client.id": "mine"}}, "OPTION_IS_OURS", "client.id"),
        ({"extra": {"sasl.password": "open-sesame"}}, "CLIENT_OPTION_REFUSED", "sasl.password"),
        ({"extra": {"debug": "all"}}, "CLIENT_OPTION_REFUSED", "debug"),
        ({"extra": {"request.timeout.ms": "soon"}}, "CLIENT_OPTION_INVALID", "request.timeout.ms"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options: dict[str, Any], condition: str, option: str | None) -> None:
    error = refusal("host:9092", **options)
    assert (error.condition, error.parameters.get("option")) == (condition, option)
    assert "open-sesame" not in str(error)


def test_extra_options_go_to_each_client_by_its_own_name() -> None:
    connection = Connection("host:9092", extra={"request.timeout.ms": "4000", "linger.ms": "3"})
    assert connection.spark_options()["kafka.request.timeout.ms"] == "4000"
    assert connection.spark_options()["kafka.linger.ms"] == "3"
    client = connection.client_options()
    assert client["socket.timeout.ms"] == "4000"
    assert not {"request.timeout.ms", "linger.ms"} & client.keys()


@pytest.mark.parametrize("option", sorted(ALLOWED))
def test_every_allowed_option_can_be_given(option: str) -> None:
    value = "10000" if option.endswith((".ms", ".size")) else "x"
    assert Connection("host:9092", extra={option: value}).spark_options()[f"kafka.{option}"] == value


def test_a_password_is_quoted_for_jaas() -> None:
    connection = Connection("host:9092", **{**SASL, "sasl_mechanism": "PLAIN", "password": 'a"b\\c\nd;'})
    assert connection.spark_options()["kafka.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        r'username="ann" password="a\"b\\c\012d;";'
    )
    assert connection.client_options()["sasl.password"] == 'a"b\\c\nd;'


@given(password=secrets, user=st.text(min_size=1))
def test_any_password_comes_back_from_jaas_as_kafka_reads_it(password: str, user: str) -> None:
    options = Connection("host:9092", **{**SASL, "password": password, "username": user}).spark_options()
    read = _strings_of_jaas(options["kafka.sasl.jaas.config"])
    assert read == [user, password]


def _strings_of_jaas(text: str) -> list[str]:
    """Parse quoted strings by the rules of Java's StreamTokenizer."""
    found, i = [], 0
    while (i := text.find('"', i)) >= 0:
        i, letters = i + 1, []
        while text[i] != '"':
            assert text[i] not in "\r\n", "a line break would end the string"
            if text[i] != "\\":
                letters.append(text[i])
                i += 1
            elif text[i + 1] in "01234567":
                letters.append(chr(int(text[i + 1 : i + 4], 8)))
                i += 4
            else:
                assert text[i + 1] in '"\\'
                letters.append(text[i + 1])
                i += 2
        found.append("".join(letters))
        i += 1
    return found


def test_files_are_read_when_the_connection_is_built(tmp_path: Path) -> None:
    authorities, key = tmp_path / "ca.pem", tmp_path / "client.pem"
    authorities.write_text(pem("CERTIFICATE"))
    key.write_text(pem("PRIVATE KEY") + pem("CERTIFICATE"))
    connection = Connection("host:9092", security_protocol="SSL", ca_location=str(authorities), key_location=str(key))
    assert connection.spark_options() == {
        "kafka.bootstrap.servers": "host:9092",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(authorities),
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.location": str(key),
    }
    assert connection.client_options()["ssl.certificate.location"] == str(key)


PBES2 = bytes.fromhex("3082052d305706092a864886f70d01050d")


@pytest.mark.parametrize(
    ("text", "password"),
    [
        ("", None),
        (pem("CERTIFICATE"), None),
        (pem("PRIVATE KEY"), None),
        (pem("RSA PRIVATE KEY") + pem("CERTIFICATE"), None),
        (pem("ENCRYPTED PRIVATE KEY") + pem("CERTIFICATE"), None),
        (pem("PRIVATE KEY") + pem("CERTIFICATE"), "open-sesame"),
        (pem("ENCRYPTED PRIVATE KEY", PBES2) + pem("CERTIFICATE"), "open-sesame"),
        ("-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n" + pem("CERTIFICATE"), None),
    ],
)
def test_a_key_file_that_one_client_could_not_read_is_refused(tmp_path: Path, text: str, password: str | None) -> None:
    key = tmp_path / "client.pem"
    key.write_text(text)
    error = refusal("host:9092", security_protocol="SSL", key_location=str(key), key_password=password)
    assert error.condition == "KEY_FILE_UNSUITABLE"


def test_an_encrypted_key_is_taken_with_its_password(tmp_path: Path) -> None:
    key = tmp_path / "client.pem"
    key.write_text(pem("ENCRYPTED PRIVATE KEY") + pem("CERTIFICATE"))
    connection = Connection("h:1", security_protocol="SSL", key_location=str(key), key_password="open-sesame")
    assert connection.spark_options()["kafka.ssl.key.password"] == "open-sesame"
    assert connection.client_options()["ssl.key.password"] == "open-sesame"


def test_a_secret_from_the_environment_is_read_when_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALKIRK_TEST_SECRET", "first")
    connection = Connection("host:9092", **{**SASL, "password": "env:FALKIRK_TEST_SECRET"})
    elsewhere = pickle.loads(pickle.dumps(connection))
    monkeypatch.setenv("FALKIRK_TEST_SECRET", "second")
    assert connection.client_options()["sasl.password"] == "second"
    assert elsewhere == connection
    assert elsewhere.client_options()["sasl.password"] == "second"
    monkeypatch.delenv("FALKIRK_TEST_SECRET")
    with pytest.raises(DefinitionError) as caught:
        connection.spark_options()
    assert caught.value.condition == "SECRET_MISSING"


@given(secret=secrets)
def test_a_secret_is_never_shown(secret: str) -> None:
    connection = Connection("host:9092", **{**SASL, "password": secret})
    shown: list[Callable[[], object]] = [
        lambda: connection,
        lambda: str(connection),
        lambda: dataclasses.asdict(connection),
        lambda: copy.deepcopy(connection),
        lambda: vars(Connection),
        lambda: connection.where,
    ]
    assert not [text for show in shown if secret in (text := repr(show()))]


@given(secret=secrets)
def test_a_secret_is_never_in_a_pickle(secret: str) -> None:
    connection = Connection("host:9092", **{**SASL, "password": secret})
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(DefinitionError) as caught:
            pickle.dumps(connection, protocol)
        assert caught.value.condition == "SECRET_NOT_PICKLED"
        assert secret not in repr(caught.value.args) + repr(caught.value.parameters)


@given(
    secret=secrets,
    wrong=st.fixed_dictionaries(
        {},
        optional={
            "security_protocol": st.sampled_from(["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "nonsense"]),
            "sasl_mechanism": st.sampled_from([None, "PLAIN", "nonsense"]),
            "username": st.none(),
            "key_location": st.just("no/such.pem"),
            "extra": st.dictionaries(st.sampled_from(["acks", "sasl.password", "linger.ms"]), st.just("x")),
        },
    ),
    place=st.sampled_from(["password", "key_password", "security_protocol", "sasl_mechanism", "bootstrap", "extra"]),
)
def test_a_secret_is_never_in_an_error(secret: str, wrong: dict[str, Any], place: str) -> None:
    options = {"bootstrap": "host:9092", **SASL, **wrong}
    options[place] = {"linger.ms": secret} if place == "extra" else secret
    try:
        connection = Connection(**options)
    except DefinitionError as error:
        shown = f"{error}{error!r}{error.parameters}{error.where!r}{error.__cause__!r}"
    else:
        shown = repr(connection)
    assert secret not in shown


TOKENS: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "username": "shop",
    "password": "open-sesame",
    "token_url": "https://login.example.com/oauth2/token",
}


def test_both_clients_are_told_where_tokens_are_to_be_had(tmp_path: Path) -> None:
    authorities = tmp_path / "ca.pem"
    authorities.write_text(pem("CERTIFICATE"))
    connection = Connection("host:9093", **TOKENS, scope="kafka", ca_location=str(authorities))
    assert connection.spark_options() == {
        "kafka.bootstrap.servers": "host:9093",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'clientId="shop" clientSecret="open-sesame" scope="kafka" '
            f'ssl.truststore.type="PEM" ssl.truststore.location="{authorities}";'
        ),
        "kafka.sasl.oauthbearer.token.endpoint.url": TOKENS["token_url"],
        "kafka.sasl.login.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        ),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(authorities),
    }
    assert connection.client_options() == {
        "bootstrap.servers": "host:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": TOKENS["token_url"],
        "sasl.oauthbearer.client.id": "shop",
        "sasl.oauthbearer.client.secret": "open-sesame",
        "sasl.oauthbearer.scope": "kafka",
        "https.ca.location": str(authorities),
        "ssl.ca.location": str(authorities),
    }


@pytest.mark.parametrize(
    ("options", "condition", "option"),
    [
        ({**TOKENS, "token_url": None}, "SECURITY_OPTION_MISSING", "token_url"),
        ({**TOKENS, "username": None}, "SECURITY_OPTION_MISSING", "username"),
        ({**SASL, "token_url": TOKENS["token_url"]}, "SECURITY_OPTION_UNUSED", "token_url"),
        ({**SASL, "scope": "kafka"}, "SECURITY_OPTION_UNUSED", "scope"),
    ],
)
def test_a_server_of_tokens_goes_with_oauthbearer_alone(options: dict[str, Any], condition: str, option: str) -> None:
    error = refusal("host:9093", **options)
    assert error.condition == condition
    assert error.parameters["option"] == option


@pytest.mark.parametrize(
    "url",
    ["login.example.com/token", "file:///etc/passwd", "https://", "https://ann:open-sesame@login/token",
     "https://a/token,https://b/token", "https://a/to ken", "https://[a/token", "https://a/token\n"],
)  # fmt: skip
def test_a_server_of_tokens_has_one_address_and_it_is_not_repeated_in_the_error(url: str) -> None:
    error = refusal("host:9093", **{**TOKENS, "token_url": url})
    assert error.condition == "TOKEN_URL_INVALID"
    assert "open-sesame" not in str(error)
