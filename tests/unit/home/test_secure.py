"""One switch protects the connections of a cluster; the secret is in its file, and in no text or argument."""

import json
import logging
import socket
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from py4j.java_gateway import JavaClass, JavaPackage
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

import falkirk as fk
from falkirk import cli
from falkirk.errors import DefinitionError, FalkirkError, SparkError
from falkirk.runtime.supervision.coordinator import Coordinator
from falkirk.runtime.supervision.settings import HostSettings, RunSettings
from falkirk.runtime.supervision.start import application_session
from falkirk.spark_setup import exposure
from falkirk.spark_setup import secure as connections
from falkirk.spark_setup import spark as local_spark
from falkirk.spark_setup.secure import (
    ELSEWHERE,
    PROTECTION,
    SECRET,
    secure_option_value,
    secure_settings,
)
from falkirk.spark_setup.submitted import EXECUTOR_SECRET_FILE, spark_conf
from tests.unit.home.test_local_spark import WELL, FakeSession
from tests.unit.home.test_secret_files import WORD, written

STANDALONE = "spark://127.0.0.1:1"
#: The settings of a driver that uses a secret alone.
DRIVERS = PROTECTION | {exposure.TLS: "false"}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file with a secret."""
    return written(tmp_path / "cluster.secret", WORD)


@pytest.mark.parametrize("master", [STANDALONE, "local-cluster[2,1,1024]"])
def test_a_driver_that_shares_a_file(secret: Path, master: str) -> None:
    assert secure_settings(str(secret), master, {}) == DRIVERS


@pytest.mark.parametrize("master", ["yarn", "k8s://https://a", "local[4]", "local", "local-cluster[2,1,1024]"])
def test_a_secret_that_nobody_else_needs_is_generated(master: str) -> None:
    assert secure_settings("generated", master, {}) == DRIVERS


def test_the_pods_of_kubernetes_have_their_own_files() -> None:
    driver = f"{SECRET}.driver.file"
    found = secure_settings("/run/s", "k8s://https://a", {})
    assert found == {**DRIVERS, driver: "/run/s", EXECUTOR_SECRET_FILE: "/run/s"}
    (name, there), = spark_conf([f"{EXECUTOR_SECRET_FILE}=/etc/s"]).items()  # fmt: skip
    found = secure_settings("/run/s", "k8s://https://a", {name: there})
    assert (found[driver], found[EXECUTOR_SECRET_FILE]) == ("/run/s", "/etc/s")


@pytest.mark.parametrize(
    ("value", "master", "why"),
    [
        ("generated", STANDALONE, "must know the secret"),
        ("/run/s", "yarn", "Spark generates"),
        ("/run/s", "local[4]", "Spark generates"),
    ],
)
def test_a_switch_without_effect_is_refused(value: str, master: str, why: str) -> None:
    with pytest.raises(DefinitionError, match=why) as refused:
        secure_settings(value, master, {})
    assert refused.value.condition == "SECURE_UNSUITABLE"
    assert (refused.value.parameters["value"], refused.value.parameters["master"]) == (value, master)


@pytest.mark.parametrize("name", DRIVERS)
def test_a_setting_that_weakens_it_is_refused(name: str, secret: Path) -> None:
    """Regression: with TLS enabled besides, Spark used TLS alone, and without a trust store any certificate."""
    given = {name: DRIVERS[name].upper(), "spark.network.crypto.keyFactoryIterations": "9"}
    assert secure_settings(str(secret), STANDALONE, given)[name] == DRIVERS[name]
    with pytest.raises(DefinitionError) as refused:
        secure_settings(str(secret), STANDALONE, {name: "other"})
    assert refused.value.condition == "SECURE_CONTRADICTED"
    told = refused.value.parameters
    assert (told["name"], told["found"], told["wanted"]) == (name, "other", DRIVERS[name])


def test_a_second_secret_is_refused_and_not_quoted(secret: Path) -> None:
    with pytest.raises(DefinitionError) as refused:
        secure_settings(str(secret), STANDALONE, {SECRET: "hush"})
    assert refused.value.condition == "SECURE_CONTRADICTED"
    assert "must not be set with --secure" in str(refused.value)
    assert "hush" not in str(refused.value) + str(refused.value.parameters)


class Module(JavaClass):  # type: ignore[misc]
    """The class of the Java module, in a JVM that a test pretends to start."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.refusals: dict[tuple[str, int], str | None] = {}

    def use(self, path: str) -> None:
        self.calls.append(path)

    def generate(self) -> None:
        self.calls.append("generated")

    def refusal(self, host: str, port: int, settings: Mapping[str, str]) -> str | None:
        assert settings.items() >= PROTECTION.items()
        return self.refusals.get((host, port), "not this one")


class Driver:
    """The start of a driver: with which arguments its JVM, and with which settings its Spark application starts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, master: str, module: Any) -> None:
        self.arguments, self.settings, self.module = dict[str, str](), dict[str, str](), module
        builder: Any = SimpleNamespace()
        builder.appName = builder.master = lambda _: builder
        builder.config = lambda name, value: self.settings.update({name: value}) or builder  # type: ignore[func-returns-value]
        made: Any = FakeSession(WELL)
        made.sparkContext = made.context(master, getConf=lambda: SimpleNamespace(get=self.settings.get))
        builder.getOrCreate = lambda: made
        monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
        monkeypatch.setattr(SparkSession, "builder", builder)
        monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
        jvm = SimpleNamespace(org=SimpleNamespace(falkirk=SimpleNamespace(SharedSecret=module)))

        def start(conf: SparkConf) -> None:
            self.arguments.update(conf.getAll())
            SparkContext._jvm = jvm  # type: ignore[assignment]

        monkeypatch.setattr(SparkContext, "_jvm", None)  # another test of this process may have started one
        monkeypatch.setattr(SparkContext, "_ensure_initialized", start)
        launch = {"spark.jars": "ours.jar", "spark.ui.enabled": "false"}
        monkeypatch.setattr(local_spark, "_launch_settings", lambda master, data: launch)
        for name in ("application_jars", "module_jar", "jar_key"):
            monkeypatch.setattr(local_spark, name, lambda: "ours")
        monkeypatch.setattr(local_spark, "save_calls", lambda session: None)
        monkeypatch.setattr(local_spark.hadoop, "forget_defaults", lambda session: None)
        monkeypatch.setattr(local_spark.rule_times, "forget_rule_times", lambda session: None)


def test_the_driver_reads_the_file_itself(
    secret: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    driver = Driver(monkeypatch, STANDALONE, Module())
    local_spark.spark_session("shop", master=STANDALONE, secure=secret, conf={"spark.executor.cores": "2"})
    assert driver.module.calls == [str(secret)]
    assert driver.settings == driver.settings | PROTECTION | {SECRET: ELSEWHERE, "spark.executor.cores": "2"}
    assert driver.arguments == {name: value for name, value in driver.settings.items() if name != SECRET} | {
        "spark.master": STANDALONE, "spark.app.name": "shop",
    }  # fmt: skip
    assert WORD not in str((driver.settings, driver.arguments)) + caplog.text
    assert not [r for r in caplog.records if r.name == "falkirk" and r.levelno >= logging.WARNING], "open ports"


@pytest.mark.parametrize(
    ("master", "calls"), [("local-cluster[2,1,1024]", ["generated"]), ("yarn", []), ("local[2]", [])]
)
def test_who_generates_the_secret(monkeypatch: pytest.MonkeyPatch, master: str, calls: list[str]) -> None:
    driver = Driver(monkeypatch, master, Module())
    local_spark.spark_session("shop", master=master, secure="generated")
    assert driver.module.calls == calls
    assert driver.settings.get(SECRET) == (ELSEWHERE if calls else None)


def test_a_driver_without_our_jars_is_refused(secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under spark-submit without --jars. Spark would say that the secret is missing."""
    Driver(monkeypatch, STANDALONE, JavaPackage("org.falkirk.SharedSecret", None))
    with pytest.raises(SparkError, match=r"spark\.jars") as refused:
        local_spark.spark_session("shop", master=STANDALONE, secure=secret)
    assert refused.value.condition == "SESSION_SETTINGS_MISSING"


def test_a_master_with_another_secret_is_named(secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark would be silent for a minute. A master that can't be reached yet is Spark's to await."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as closed:
        address, away = (each.getsockname() for each in (one, closed))
        closed.close()
        monkeypatch.setattr(connections, "_PAUSE_S", 0.0)
        master = "spark://" + ",".join(f"{host}:{port}" for host, port in (away, address))

        def start(refusals: dict[tuple[str, int], str | None]) -> None:
            Driver(monkeypatch, master, Module()).module.refusals = refusals
            local_spark.spark_session("shop", master=master, secure=secret)

        start({address: None})
        with pytest.raises(SparkError, match="not this one") as refused:
            start({away: None})
    assert refused.value.condition == "MASTER_REFUSED"
    assert str(secret) in refused.value.hint
    assert WORD not in repr(refused.value) + str(refused.value.parameters)
    start({})


@pytest.mark.parametrize("answers", [("closed", "closed", None), ("closed",)])
def test_a_master_that_restarts_does_not_refuse(
    secret: Path, monkeypatch: pytest.MonkeyPatch, answers: tuple[str | None, ...]
) -> None:
    """While it stops, it closes connections, as a master with another secret does."""
    monkeypatch.setattr(connections, "_PAUSE_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        master = f"spark://127.0.0.1:{server.getsockname()[1]}"

        def start(*answers: str | None) -> int:
            """Return how often a master with these answers was asked; after them, it does not listen."""
            asked, module = list[str | None](), Module()

            def refusal(host: str, port: int, settings: Mapping[str, str]) -> str | None:
                asked.append(answers[len(asked)])
                if len(asked) == len(answers):
                    server.close()
                return asked[-1]

            module.refusal = refusal  # type: ignore[method-assign]
            Driver(monkeypatch, master, module)
            local_spark.spark_session("shop", master=master, secure=secret)
            return len(asked)

        assert start(*answers) == len(answers)


def test_a_session_that_runs_can_not_be_protected_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def session(found: Mapping[str, str]) -> Any:
        active: Any = FakeSession(WELL)
        active.sparkContext = active.context("local[2]", getConf=lambda: SimpleNamespace(get=found.get))
        monkeypatch.setattr(local_spark, "_present", lambda: active)
        return active

    for name in ("application_jars", "module_jar", "jar_key"):
        monkeypatch.setattr(local_spark, name, lambda: "ours")
    active = session(PROTECTION)
    assert local_spark.spark_session("shop", secure="generated") is active
    for name, other in ((exposure.CIPHER, "AES/CTR/NoPadding"), (exposure.TLS, "true")):
        session(PROTECTION | {name: other})
        with pytest.raises(SparkError, match=name) as refused:
            local_spark.spark_session("shop", secure="generated")
        assert refused.value.condition == "SESSION_SETTINGS_MISSING"


def test_start_takes_a_file_with_a_session_on_a_cluster_only(secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`App.start` names no master, so a session that it makes is local."""
    app = fk.App("shop", kafka="127.0.0.1:1")
    Driver(monkeypatch, "local[32]", Module())
    with pytest.raises(DefinitionError, match=r"can't be used with the master local\[32\]") as refused:
        app.start(secure=secret)
    assert (refused.value.condition, refused.value.hint) == ("SECURE_UNSUITABLE", "Write generated.")
    active: Any = FakeSession(WELL)
    active.sparkContext = active.context("local[2]", getConf=lambda: SimpleNamespace(get=PROTECTION.get))
    monkeypatch.setattr(local_spark, "_present", lambda: active)
    assert application_session(app, None, 32, secure=secret) is active


def test_the_command_passes_the_path_to_the_host(secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, found = tmp_path / "shop.py", list[RunSettings]()
    file.write_text("import falkirk as fk\napp = fk.App('shop', kafka='127.0.0.1:1')\n")
    monkeypatch.setattr(cli, "run_in_terminal", lambda app, settings: found.append(settings))
    monkeypatch.chdir(tmp_path)
    run = ["run", "shop.py", "--master", STANDALONE, "--secure", secret.name]
    done = CliRunner().invoke(cli.main, run)
    assert done.exit_code == 0, done.output
    (settings,) = found
    assert settings.secure == str(secret)
    coordinator = Coordinator.__new__(Coordinator)
    coordinator._settings, coordinator._path, coordinator._force = settings, tmp_path, False
    coordinator._failures, coordinator._lease_s, coordinator._died_at_s = {}, None, None
    coordinator.standby = SimpleNamespace(is_certain=False)  # type: ignore[assignment]
    line = coordinator._host_settings(None).to_json()
    assert json.loads(line)["secure"] == str(secret)
    assert HostSettings.of(line).secure == str(secret)
    assert WORD not in line + done.output


@pytest.mark.parametrize(
    ("options", "condition"),
    [
        (["--master", STANDALONE, "--secure", "generated"], "SECURE_UNSUITABLE"),
        (["--secure", "cluster.secret"], "SECURE_UNSUITABLE"),
        (["--master", STANDALONE, "--secure", "none.secret"], "SECRET_FILE_INVALID"),
        (
            ["--master", STANDALONE, "--secure", "cluster.secret", "--conf", f"{exposure.ENCRYPT}=false"],
            "SECURE_CONTRADICTED",
        ),
    ],
)
@pytest.mark.usefixtures("secret")
def test_the_command_refuses_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], condition: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli.main, ["run", "not-read.py", *options])
    assert isinstance(done.exception, FalkirkError) or condition in done.output
    assert condition in done.output or getattr(done.exception, "condition", None) == condition
    assert WORD not in done.output


def test_without_the_switch_nothing_is_checked() -> None:
    assert secure_option_value(None, STANDALONE) is None


def test_a_plan_says_whether_the_connections_are_protected() -> None:
    ours = {exposure.SHUFFLE: exposure.AUTHENTICATED_SHUFFLE}
    (said,) = exposure.described({**PROTECTION, **ours}.get, STANDALONE)
    assert "authenticated and encrypted" in said
    one, other = exposure.described({}.get, STANDALONE)
    assert ("--secure" in one, "--secure" in other) == (True, True)
    assert ("security.md, A cluster" in one, "security.md, A cluster" in other) == (True, True)
    assert "security.md, Ports" in exposure.described({}.get, "local[4]")[0]
    assert exposure.described({exposure.AUTHENTICATE: "true", **ours}.get, "local[4]") == ()
