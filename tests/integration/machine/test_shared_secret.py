"""Spark takes the secret of `--secure` from the driver's credentials, and a master with other settings refuses it."""

import base64
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from falkirk.spark_setup import exposure
from falkirk.spark_setup.secure import ELSEWHERE, PROTECTION, SECRET, secure_settings

WORD = "0123456789abcdef0123456789abcdeF"
STANDALONE = "spark://127.0.0.1:7077"


@pytest.fixture
def jvm(spark: SparkSession) -> Iterator[Any]:
    """The driver's JVM, which gets its own secret back after the test."""
    found = cast(Any, spark)._jvm
    key, user = found.org.apache.spark.SecurityManager.SECRET_LOOKUP_KEY(), users(found)
    own = found.org.apache.hadoop.security.Credentials()
    own.addSecretKey(key, user.getCredentials().getSecretKey(key))
    yield found
    user.addCredentials(own)


def users(jvm: Any) -> Any:
    return jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file with a secret."""
    file = tmp_path / "cluster.secret"
    file.touch(mode=0o600)
    file.write_text(f"{WORD}\n")
    return file


def manager(jvm: Any, master: str, settings: dict[str, str]) -> Any:
    """Return Spark's manager of secrets, as a driver on this master has it."""
    conf = jvm.org.apache.spark.SparkConf(False)
    for name, value in (settings | {"spark.master": master}).items():
        conf.set(name, value)
    settings_of = getattr(getattr(jvm.org.apache.spark.internal.config, "package$"), "MODULE$")
    file = settings_of.AUTH_SECRET_FILE_DRIVER()  # as in SparkEnv
    return jvm.org.apache.spark.SecurityManager(conf, jvm.scala.Option.empty(), file)


def test_a_standalone_master_shares_the_secret_of_the_file(jvm: Any, secret: Path) -> None:
    jvm.org.falkirk.SharedSecret.use(str(secret))
    found = manager(jvm, STANDALONE, secure_settings(str(secret), STANDALONE, {}) | {SECRET: ELSEWHERE})
    found.initializeAuth()
    assert (found.getSecretKey(), found.isAuthenticationEnabled(), found.isEncryptionEnabled()) == (WORD, True, True)


def test_a_cluster_in_this_jvm_has_a_new_secret(jvm: Any) -> None:
    master, several = "local-cluster[1,1,1024]", set[str]()
    for _ in range(2):
        jvm.org.falkirk.SharedSecret.generate()
        found = manager(jvm, master, secure_settings("generated", master, {}) | {SECRET: ELSEWHERE})
        found.initializeAuth()
        several.add(found.getSecretKey())
    assert len(several) == 2
    assert {len(each) for each in several} == {64}


def test_spark_generates_the_secret_of_yarn(jvm: Any) -> None:
    before = users(jvm).getCredentials().getSecretKey(jvm.org.apache.spark.SecurityManager.SECRET_LOOKUP_KEY())
    found = manager(jvm, "yarn", secure_settings("generated", "yarn", {}))
    found.initializeAuth()
    assert len(found.getSecretKey()) == 64
    assert found.getSecretKey() != before.decode()


def test_spark_generates_the_secret_of_pods_or_reads_the_mounted_file(jvm: Any, secret: Path) -> None:
    """The credentials of this JVM hold its own session's secret, and those of a driver on Kubernetes hold none."""
    master = "k8s://https://a"
    new, read = (manager(jvm, master, secure_settings(value, master, {})) for value in ("generated", str(secret)))
    for each in (new, read):
        each.initializeAuth()
    field = new.getClass().getDeclaredField("secretKey")
    field.setAccessible(True)
    assert len(field.get(new)) == 64
    assert field.get(read) == base64.b64encode(secret.read_bytes()).decode()


@contextlib.contextmanager
def master_with(jvm: Any, settings: dict[str, str]) -> Iterator[int]:
    """Run a standalone master, and yield its port."""
    conf = jvm.org.apache.spark.SparkConf(False)
    for name, value in settings.items():
        conf.set(name, value)
    connections = jvm.org.apache.spark.deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, conf)._1()
    try:
        yield connections.address().port()
    finally:
        connections.shutdown()
        connections.awaitTermination()


def test_a_master_with_weaker_settings_is_noticed_at_once(jvm: Any, secret: Path) -> None:
    """The secret fits, and the cipher does not: Spark would be silent for a minute."""
    jvm.org.falkirk.SharedSecret.use(str(secret))
    ask = jvm.org.falkirk.SharedSecret.refusal
    ours = PROTECTION | dict.fromkeys(("spark.rpc.lookupTimeout", "spark.network.timeout"), "2s")
    with master_with(jvm, PROTECTION) as port:
        assert ask("127.0.0.1", port, ours) is None
        assert ask("127.0.0.1", port, ours | {exposure.AUTHENTICATE: "false"}) is not None
    with master_with(jvm, PROTECTION | {exposure.CIPHER: "AES/CTR/NoPadding"}) as port:
        assert ask("127.0.0.1", port, ours) is not None


def test_a_master_that_does_not_listen_or_says_nothing_is_spark_s_to_await(jvm: Any, secret: Path) -> None:
    """Spark tries again for a minute. An error that named a wrong secret would end the application."""
    jvm.org.falkirk.SharedSecret.use(str(secret))
    ask = jvm.org.falkirk.SharedSecret.refusal
    names = ("spark.rpc.lookupTimeout", "spark.network.timeout", "spark.network.auth.rpcTimeout")
    ours = PROTECTION | dict.fromkeys(names, "1s")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert ask("127.0.0.1", port, ours) is None
    assert ask("127.0.0.1", port, ours) is None
