"""Missing settings of a user's session are reported with the needed value, the value found and the reason."""

import contextlib
import os
import re
import subprocess
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from falkirk.errors import SparkError
from falkirk.kafka_client.connection import Connection
from falkirk.spark_setup import objects
from falkirk.spark_setup import spark as local_spark
from falkirk.spark_setup.java import find_java
from falkirk.spark_setup.java_options import AVRO_LIMITS, PINNED, QUICK_COMPILER
from falkirk.spark_setup.jvm import unseen
from falkirk.spark_setup.secure import PROTECTION
from falkirk.spark_setup.spark import ESSENTIAL, kafka_options, missing_settings, session_settings, spark_session

WELL = {name: value for name, (value, _) in ESSENTIAL.items()}
#: Settings whose default is the needed value.
SPECULATION, TIMES = "spark.speculation", "spark.sql.legacy.timeParserPolicy"
TRUSTING = {"spark.ssl.rpc.enabled": "true", "spark.ssl.trustStore": "/etc/trusted.jks"}
NAMED = [name for name in ESSENTIAL if name not in (SPECULATION, TIMES)]


class FakeSession:
    """A session with the given settings, with or without the Kafka connector and a Java module (its key) in its JVM.

    Attributes: environment: of the JVM. place: of paths without a scheme. hadoop: what was set in it. sources: of more.
    """

    environment: Mapping[str, str] = {}
    place = "file:///"

    def __init__(self, settings: dict[str, str], *, connector: bool = True, module: str | None = "ours") -> None:
        self.settings = dict(settings)
        self.conf = SimpleNamespace(get=lambda name, default: self.settings.get(name, default), set=self.set)
        utils = SimpleNamespace(classForName=self.find_class)
        spark = SimpleNamespace(util=SimpleNamespace(Utils=utils))
        self.properties: dict[str, str] = {}
        properties = {"getProperty": self.properties.get, "setProperty": self.properties.__setitem__}
        system = SimpleNamespace(**properties, getenv=self.environment.get)
        self._jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(spark=spark)), System=system)
        self._there = {local_spark._CONNECTOR: connector, local_spark._MODULE: module is not None}
        self._there[objects.FILE_SYSTEM] = False
        self._package = SimpleNamespace(getImplementationVersion=lambda: module)
        self.hadoop, self.sources = dict[str, str](), dict[str, list[str]]()
        self.sparkContext = self.context("local[2]")

    def context(self, master: str, **more: Any) -> Any:
        found = {"set": self.hadoop.__setitem__, "getPropertySources": self.sources.get}
        hadoop = SimpleNamespace(get=lambda name, default: self.place, **found)
        return SimpleNamespace(master=master, _jsc=SimpleNamespace(hadoopConfiguration=lambda: hadoop), **more)

    def set(self, name: str, value: str) -> None:
        self.settings[name] = value

    def find_class(self, name: str, initialize: bool, sparks_own: bool) -> Any:
        if self._there[name]:
            return SimpleNamespace(getPackage=lambda: self._package)
        raise Py4JJavaError("not found", SimpleNamespace(_target_id="o1", _gateway_client=None))


@pytest.fixture(autouse=True)
def no_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_spark, "application_jars", lambda: ("connector.jar", "falkirk-java-ours.jar"))
    monkeypatch.setattr(local_spark, "module_jar", lambda: "falkirk-java-ours.jar")
    monkeypatch.setattr(local_spark, "jar_key", lambda: "ours")


def lacks(fake: Any) -> dict[str, tuple[str, str | None]]:
    """Return the missing settings as name: (wanted, found)."""
    return {m.name: (m.wanted, m.found) for m in missing_settings(fake)}


def test_a_session_with_everything_lacks_nothing() -> None:
    assert lacks(FakeSession(WELL)) == {}


def test_speculation_is_refused_and_need_not_be_switched_off() -> None:
    assert lacks(FakeSession(WELL | {SPECULATION: "true"})) == {SPECULATION: ("false", "true")}
    assert lacks(FakeSession({name: WELL[name] for name in NAMED})) == {}


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("found", [None, "other"])
def test_an_essential_setting_that_is_missing_or_other_is_named(name: str, found: str | None) -> None:
    settings = {k: v for k, v in WELL.items() if k != name} | ({} if found is None else {name: found})
    assert lacks(FakeSession(settings)) == {name: (WELL[name], found)}


def test_a_class_path_without_the_connector_is_named() -> None:
    assert lacks(FakeSession(WELL, connector=False)) == {"spark.jars": ("connector.jar,falkirk-java-ours.jar", None)}


@pytest.mark.parametrize("found", [None, "of another version"])
def test_a_class_path_without_the_java_module_or_with_another_one_is_named(found: str | None) -> None:
    (missing,) = missing_settings(FakeSession(WELL, module=found))  # type: ignore[arg-type]
    assert (missing.name, missing.wanted, missing.found) == ("spark.jars", "falkirk-java-ours.jar", found)


def test_a_class_path_without_the_client_of_object_stores_is_named_if_the_home_needs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_spark, "s3_jars", lambda: ("hadoop-aws.jar",))
    active: Any = FakeSession(WELL)
    (missing,) = missing_settings(active, "s3a://shop/home")
    assert (missing.name, missing.wanted) == ("spark.jars", "hadoop-aws.jar")
    assert "s3a://shop/home" in missing.reason
    active._there[objects.FILE_SYSTEM] = True
    assert missing_settings(active, "s3a://shop/home") == ()


@pytest.mark.parametrize(("endpoint", "secure"), [("http://objects:9000", "false"), ("https://objects", "true")])
def test_spark_asks_the_server_of_the_environment(monkeypatch: pytest.MonkeyPatch, endpoint: str, secure: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    found = {name.removeprefix("spark.hadoop.fs.s3a."): value for name, value in objects.settings("s3a://b/h").items()}
    named = "endpoint", "connection.ssl.enabled", "path.style.access", "endpoint.region"
    assert [found[name] for name in named] == [endpoint, secure, "true", "eu-central-1"]
    assert "hush" not in str(found), "Spark shows its settings"
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    assert "spark.hadoop.fs.s3a.endpoint" not in objects.settings("s3a://b/h")


def test_an_hdfs_needs_no_settings_of_object_stores() -> None:
    assert not [name for name in objects.settings("hdfs://name/h") if "s3a" in name]
    assert not objects.needs_jars("hdfs://name/h")


def there_is(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make it this process's session; PySpark's active session is another one."""
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: FakeSession({}))
    monkeypatch.setattr(SparkSession, "builder", SimpleNamespace(getOrCreate=lambda: session))


def test_an_active_session_is_used_and_given_what_can_be_set_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    active: Any = FakeSession(WELL)
    there_is(active, monkeypatch)
    given: Any = spark_session("application", state_partitions=3)
    assert given is active
    assert active.properties == AVRO_LIMITS
    assert active.settings["spark.sql.shuffle.partitions"] == "3"


def test_an_active_session_that_lacks_something_is_refused_with_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    there_is(FakeSession({}, connector=False), monkeypatch)
    with pytest.raises(SparkError) as caught:
        spark_session("application")
    assert caught.value.condition == "SESSION_SETTINGS_MISSING"
    missing: Any = caught.value.parameters["missing"]
    assert {m.name for m in missing} == {*NAMED, "spark.jars"}
    assert all(m.name in str(caught.value) and m.reason in str(caught.value) for m in missing)


@pytest.mark.parametrize(
    ("given", "wait_ms"), [("1 ms", "1"), ("0.2 ms", "1"), ("5 ms", "5"), (0.02, "20"), ("1 second", "1000")]
)
def test_the_buffer_timeout_becomes_whole_milliseconds(given: str | float, wait_ms: str) -> None:
    settings = session_settings(buffer_timeout=given, state_partitions=2)
    assert settings["spark.shuffle.streaming.networkBufferMaxWaitTimeMs"] == wait_ms


def test_a_session_that_is_built_with_our_settings_lacks_none() -> None:
    assert lacks(FakeSession(session_settings(buffer_timeout="1 ms", state_partitions=2))) == {}


def started(
    monkeypatch: pytest.MonkeyPatch, master: str, launch: Mapping[str, str] = {}, *,
    environment: dict[str, str] | None = None, submitted: Mapping[str, str] | None = None, **options: Any,
) -> dict[str, str]:  # fmt: skip
    """Return the settings with which a new application on this master starts.

    Args: launch: those before the JVM. environment: gets the variables with which it starts. submitted: the settings
        that spark-submit was given.
    """
    built: dict[str, str] = {}
    builder: Any = SimpleNamespace()
    builder.appName = builder.master = lambda _: builder
    builder.config = lambda name, value: built.update({name: value}) or builder  # type: ignore[func-returns-value]
    made: Any = FakeSession(WELL)
    now = lambda name: {**(submitted or {}), **built}.get(name)  # noqa: E731
    made.sparkContext = made.context(master, getConf=lambda: SimpleNamespace(get=now))

    def start() -> Any:
        (environment if environment is not None else {}).update(os.environ)
        return made

    builder.getOrCreate = start
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkSession, "builder", builder)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    if submitted is not None:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
        monkeypatch.setattr(local_spark, "_submitted_with", lambda: dict(submitted))
    monkeypatch.setattr(local_spark, "_launch_settings", lambda master, data: {"spark.ui.enabled": "false", **launch})
    monkeypatch.setattr(local_spark, "save_calls", lambda session: None)
    monkeypatch.setattr(local_spark.hadoop, "forget_defaults", lambda session: None)
    monkeypatch.setattr(local_spark.rule_times, "forget_rule_times", lambda session: None)
    spark_session("application", master=master, **options)
    return built


def test_a_session_for_seconds_compiles_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    name, option = "spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1"
    assert option in started(monkeypatch, "local[4]", brief=True)[name].split()
    assert option not in started(monkeypatch, "local[4]").get(name, "").split()


def test_what_a_new_jvm_writes_is_seen_only_if_it_does_not_start(capfd: pytest.CaptureFixture[str]) -> None:
    with unseen():
        os.write(2, b"WARNING: Using incubator modules")
    os.write(2, b"seen")
    assert capfd.readouterr().err == "seen"
    with contextlib.suppress(OSError), unseen():
        os.write(2, b"Error: could not create the Java Virtual Machine")
        raise OSError
    assert capfd.readouterr().err == "Error: could not create the Java Virtual Machine"


@pytest.mark.parametrize("master", ["spark://a:7077", "yarn", "local-cluster[2,1,1024]", "local[4]"])
def test_executors_have_the_language_and_encoding_of_the_driver(monkeypatch: pytest.MonkeyPatch, master: str) -> None:
    options = started(monkeypatch, master).get("spark.executor.defaultJavaOptions", "").split()
    assert options == ([] if master == "local[4]" else [*PINNED])


def test_a_jvm_with_one_compiler_has_room_for_the_code_of_many_tests() -> None:
    """48 MiB are full after a minute of tests with the kit. The JVM then compiles nothing more, and the tests crawl."""
    command = [find_java().command, *QUICK_COMPILER.split(), "-XX:+PrintFlagsFinal", "-version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (room,) = re.findall(r"\bReservedCodeCacheSize\s*=\s*(\d+)", told)
    assert int(room) >= 200 << 20


def test_executors_on_this_machine_use_the_archive_and_the_jars_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """On other machines there may be none at the same path, and the user's own class path counts."""
    archived = ("-XX:SharedArchiveFile=spark.jsa",)
    monkeypatch.setattr(local_spark, "options", lambda kind, java: archived)
    launch = local_spark._launch_settings
    masters = ("local-cluster[2,1,1024]", "spark://a:7077")
    here, elsewhere = (started(monkeypatch, master, launch(master)) for master in masters)
    path, options, given = "extraClassPath", "spark.executor.defaultJavaOptions", "spark.jars"
    assert here[f"spark.executor.{path}"] == here[f"spark.driver.{path}"]
    assert here[options].split() == [*PINNED, *archived]
    assert given not in here
    assert f"spark.executor.{path}" not in elsewhere
    assert elsewhere[options].split() == [*PINNED]
    assert elsewhere[given].split(",") == [str(jar) for jar in local_spark.application_jars()]
    assert str(local_spark.module_jar()) in here[f"spark.executor.{path}"].split(os.pathsep)


@pytest.mark.parametrize(
    ("master", "found"),
    [("spark://a:7077", "10"), ("yarn", "10"), ("local-cluster[2,1,1024]", "10"), ("local[4]", None), ("local", None)],
)
def test_executors_of_a_cluster_end_themselves_and_a_local_one_is_the_driver(
    monkeypatch: pytest.MonkeyPatch, master: str, found: str | None
) -> None:
    built = started(monkeypatch, master)
    assert built.get("spark.executor.heartbeat.maxFailures") == found
    # By default a task that runs out of memory ends its JVM. That is the driver's where there is no other, and on a
    # cluster the tasks of other regions would fail with it.
    assert built["spark.executor.killOnFatalError.depth"] == "0"


@pytest.mark.parametrize(
    ("master", "given", "found", "told"),
    [
        ("local[4]", {}, "true", []),
        ("local", {}, "true", []),
        ("local[*,3]", {}, "true", []),
        ("local[4]", {"spark.authenticate": "false"}, "false", ["run code"]),
        ("local[4]", {"spark.shuffle.manager.incremental": "streaming"}, "true", ["streaming shuffle"]),
        ("local-cluster[2,1,1024]", {}, None, ["run code", "unencrypted"]),
        ("spark://a:7077", {}, None, ["run code", "unencrypted"]),
        ("spark://a:7077", {"spark.authenticate": "true"}, "true", ["unencrypted"]),
        ("yarn", {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}, "true", ["undetected"]),
        ("yarn", {**PROTECTION, "spark.network.crypto.saslFallback": "true"}, "true", ["undetected"]),
        ("yarn", PROTECTION, "true", []),
        ("k8s://https://a", {"spark.authenticate": "true", "spark.ssl.rpc.enabled": "true"}, "true", ["certificate"]),
        ("k8s://https://a", {**PROTECTION, "spark.ssl.rpc.enabled": "true"}, "true", ["certificate"]),
        ("k8s://https://a", {**PROTECTION, **TRUSTING}, "true", []),
    ],
)
def test_calls_are_authenticated_where_spark_makes_up_a_secret_and_warned_of_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    master: str,
    given: dict[str, str],
    found: str | None,
    told: list[str],
) -> None:
    """Regression: any process that reached the driver's port could call it."""
    assert started(monkeypatch, master, settings=given).get("spark.authenticate") == found
    lines = [record.getMessage() for record in caplog.records if record.name == "falkirk"]
    assert len(lines) == len(told)
    assert all(what in line for what, line in zip(told, lines, strict=True))


@pytest.mark.parametrize(
    ("master", "given", "before", "address", "ends_jobs"),
    [
        ("local[4]", {}, None, None, None),
        ("local[4]", {"spark.ui.enabled": "true"}, None, "127.0.0.1", "false"),
        ("local-cluster[2,1,1024]", {"spark.ui.enabled": "true"}, None, "127.0.0.1", "false"),
        ("local[4]", {"spark.ui.enabled": "true", "spark.ui.killEnabled": "true"}, None, "127.0.0.1", "true"),
        ("local[4]", {"spark.ui.enabled": "true"}, "10.0.0.7", "10.0.0.7", "false"),
        ("yarn", {"spark.ui.enabled": "true"}, None, None, "false"),
    ],
)
def test_sparks_own_page_is_off_and_otherwise_on_loopback(
    monkeypatch: pytest.MonkeyPatch, master: str, given: dict[str, str], before: str | None, address: str | None,
    ends_jobs: str | None,
) -> None:  # fmt: skip
    """Spark's page has no password, and by default it listens on all interfaces."""
    monkeypatch.setenv("SPARK_LOCAL_IP", before or "")
    if before is None:
        monkeypatch.delenv("SPARK_LOCAL_IP")
    environment = dict[str, str]()
    built = started(monkeypatch, master, {"spark.ui.enabled": "false"}, environment=environment, conf=given)
    assert built["spark.ui.enabled"] == given.get("spark.ui.enabled", "false")
    assert environment.get("SPARK_LOCAL_IP") == address
    assert os.environ.get("SPARK_LOCAL_IP") == before, "processes that start later keep theirs"
    assert built.get("spark.ui.killEnabled") == ends_jobs


@pytest.mark.parametrize(
    ("master", "given", "address", "ends_jobs", "is_told"),
    [
        ("local[4]", {}, None, "false", True),
        ("local[4]", {}, "127.0.0.1", "false", False),
        ("local[4]", {"spark.ui.enabled": "false"}, None, None, False),
        ("local[4]", {"spark.ui.enabled": "true", "spark.ui.killEnabled": "true"}, None, None, True),
        ("yarn", {}, None, "false", False),
    ],
)
def test_sparks_own_page_under_spark_submit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, master: str, given: dict[str, str],
    address: str | None, ends_jobs: str | None, *, is_told: bool,
) -> None:  # fmt: skip
    """Regression: there it is on by default, and its JVM has begun, so the page was open and could end jobs."""
    monkeypatch.setattr(FakeSession, "environment", {} if address is None else {"SPARK_LOCAL_IP": address})
    built = started(monkeypatch, master, submitted={"spark.master": master, **given})
    assert built.get("spark.ui.killEnabled") == ends_jobs, "what the user gives has priority"
    assert "spark.ui.enabled" not in built
    assert ("Spark's own page" in caplog.text) is is_told


TOKENS = "https://login.example.com/token"
TOLD = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="


def asks_for_tokens(master: str, executors: str | None) -> tuple[Any, dict[str, str]]:
    """Return a session on this master, and its JVM's properties. Args: executors: the Java options of the executors."""
    properties: dict[str, str] = {}
    made: Any = FakeSession(WELL)
    made._jvm = SimpleNamespace(
        System=SimpleNamespace(
            getProperty=properties.get, setProperty=lambda name, value: properties.update({name: value})
        )
    )
    made.sparkContext = SimpleNamespace(master=master, getConf=lambda: SimpleNamespace(get=lambda name: executors))
    return made, properties


def by_token(url: str = TOKENS) -> Connection:
    return Connection(
        "broker:9093", security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", username="me", password="secret",
        token_url=url,
    )  # fmt: skip


def test_a_server_of_tokens_is_allowed_beside_those_that_are() -> None:
    made, properties = asks_for_tokens("local[4]", None)
    for url in (TOKENS, "https://other.example.com/token", TOKENS):
        kafka_options(made, by_token(url))
    assert list(properties.values()) == [f"{TOKENS},https://other.example.com/token"]


@pytest.mark.parametrize("executors", [None, "-Xss4m", f"{TOLD}https://other.example.com/token"])
def test_executors_that_may_not_fetch_tokens_are_refused(executors: str | None) -> None:
    made, _ = asks_for_tokens("spark://a:7077", executors)
    with pytest.raises(SparkError) as caught:
        kafka_options(made, by_token())
    assert caught.value.condition == "SESSION_SETTINGS_MISSING"
    (missing,) = caught.value.parameters["missing"]  # type: ignore[misc]
    assert (missing.name, missing.wanted) == ("spark.executor.extraJavaOptions", f"{TOLD}{TOKENS}")
    assert missing.found == executors


def test_executors_that_list_the_server_of_tokens_are_taken() -> None:
    made, _ = asks_for_tokens("spark://a:7077", f"-Xss4m {TOLD}https://other.example.com/token,{TOKENS}")
    kafka_options(made, by_token())
