"""One switch protects the connections of a cluster; the secret is in its file, and in no text or argument."""

import json
import logging
import os
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

from falkirk import cli
from falkirk.errors import DefinitionError, FalkirkError, MachineError, SparkError
from falkirk.runtime.supervision.coordinator import Coordinator
from falkirk.runtime.supervision.settings import HostSettings, RunSettings
from falkirk.spark_setup import doctor, exposure
from falkirk.spark_setup import spark as local_spark
from falkirk.spark_setup.secure import (
    ELSEWHERE,
    PROTECTION,
    SECRET,
    lacking,
    secure_option_value,
    secure_settings,
    secure_value,
)
from falkirk.spark_setup.submitted import EXECUTOR_SECRET_FILE, defaults, spark_conf
from tests.unit.home.test_local_spark import WELL, FakeSession

WORD = "0123456789abcdef0123456789abcdeF"
STANDALONE = "spark://127.0.0.1:1"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file with a secret."""
    return written(tmp_path / "cluster.secret", WORD)


def written(file: Path, text: str, mode: int = 0o600) -> Path:
    file.touch(mode=0o600)
    file.write_text(text)
    file.chmod(mode)
    return file


def test_a_file_with_a_secret_is_named_by_its_path(secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(secret.parent)
    assert secure_value(secret.name) == str(secret)
    assert secure_value("generated") == "generated"
    written(secret, f"{WORD}\n")
    assert secure_value(secret) == str(secret), "the last line of a file ends"


@pytest.mark.parametrize(
    ("text", "mode", "why", "advice"),
    [
        (WORD, 0o640, "other users can open it", "chmod 600"),
        (WORD, 0o604, "other users can open it", "chmod 600"),
        (WORD[1:], 0o600, "at least 32", "openssl rand"),
        (f"{WORD}\n{WORD}", 0o600, "one line", "openssl rand"),
        (f"{WORD}\\u0041", 0o600, "letters, digits", "openssl rand"),
        (f"{WORD}ß", 0o600, "letters, digits", "openssl rand"),
        (WORD * 200, 0o600, "one line", "openssl rand"),
        ("", 0o600, "at least 32", "openssl rand"),
    ],
)
def test_a_file_that_protects_nothing_is_refused_and_not_quoted(
    tmp_path: Path, text: str, mode: int, why: str, advice: str
) -> None:
    file = written(tmp_path / "cluster.secret", text, mode)
    with pytest.raises(MachineError, match=why) as refused:
        secure_value(file)
    assert refused.value.condition == "SECRET_FILE_INVALID"
    assert refused.value.parameters["path"] == str(file)
    assert advice in refused.value.hint
    assert text[:31] not in repr(refused.value) + str(refused.value.parameters) or not text


def test_no_file_is_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, why in ((tmp_path / "nothing", "no such file"), (tmp_path, "not a file")):
        with pytest.raises(MachineError, match=why):
            secure_value(path)
    theirs = written(tmp_path / "theirs", WORD)
    monkeypatch.setattr(os, "geteuid", lambda: theirs.stat().st_uid + 1)
    if theirs.stat().st_uid:
        with pytest.raises(MachineError, match="belongs to user"):
            secure_value(theirs)


@pytest.mark.parametrize("master", [STANDALONE, "local-cluster[2,1,1024]"])
def test_a_driver_that_shares_a_file(secret: Path, master: str) -> None:
    assert secure_settings(str(secret), master, {}) == PROTECTION


@pytest.mark.parametrize("master", ["yarn", "k8s://https://a", "local[4]", "local", "local-cluster[2,1,1024]"])
def test_a_secret_that_nobody_else_needs_is_generated(master: str) -> None:
    assert secure_settings("generated", master, {}) == PROTECTION


def test_the_pods_of_kubernetes_have_their_own_files() -> None:
    driver = f"{SECRET}.driver.file"
    found = secure_settings("/run/s", "k8s://https://a", {})
    assert found == {**PROTECTION, driver: "/run/s", EXECUTOR_SECRET_FILE: "/run/s"}
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


@pytest.mark.parametrize("name", PROTECTION)
def test_a_setting_that_weakens_it_is_refused(name: str, secret: Path) -> None:
    given = {name: PROTECTION[name].upper(), "spark.network.crypto.keyFactoryIterations": "9"}
    assert secure_settings(str(secret), STANDALONE, given)[name] == PROTECTION[name]
    with pytest.raises(DefinitionError) as refused:
        secure_settings(str(secret), STANDALONE, {name: "other"})
    assert refused.value.condition == "SECURE_CONTRADICTED"
    told = refused.value.parameters
    assert (told["name"], told["found"], told["wanted"]) == (name, "other", PROTECTION[name])


def test_a_second_secret_is_refused_and_not_quoted(secret: Path) -> None:
    with pytest.raises(DefinitionError) as refused:
        secure_settings(str(secret), STANDALONE, {SECRET: "hush"})
    assert refused.value.condition == "SECURE_CONTRADICTED"
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
        made.sparkContext = SimpleNamespace(master=master, getConf=lambda: SimpleNamespace(get=self.settings.get))
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
        monkeypatch.setattr(local_spark, "_launch_settings", lambda master, data: {"spark.jars": "ours.jar"})
        for name in ("application_jars", "module_jar", "jar_key"):
            monkeypatch.setattr(local_spark, name, lambda: "ours")
        monkeypatch.setattr(local_spark, "save_calls", lambda session: None)
        monkeypatch.setattr(local_spark.hadoop, "forget_defaults", lambda session: None)


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


def test_a_session_that_runs_can_not_be_protected_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def session(found: Mapping[str, str]) -> Any:
        active: Any = FakeSession(WELL)
        active.sparkContext = SimpleNamespace(getConf=lambda: SimpleNamespace(get=found.get))
        monkeypatch.setattr(local_spark, "_present", lambda: active)
        return active

    for name in ("application_jars", "module_jar", "jar_key"):
        monkeypatch.setattr(local_spark, name, lambda: "ours")
    active = session(PROTECTION)
    assert local_spark.spark_session("shop", secure="generated") is active
    session(PROTECTION | {exposure.CIPHER: "AES/CTR/NoPadding"})
    with pytest.raises(SparkError, match=exposure.CIPHER) as refused:
        local_spark.spark_session("shop", secure="generated")
    assert refused.value.condition == "SESSION_SETTINGS_MISSING"


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
    assert exposure.described({exposure.AUTHENTICATE: "true", **ours}.get, "local[4]") == ()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with Spark's defaults."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return tmp_path / "spark-defaults.conf"


def test_the_doctor_checks_the_file_with_the_secret(secret: Path, machine: Path) -> None:
    assert list(doctor._protection(None)) == []
    (good,) = doctor._protection(str(secret))
    assert (good.name, good.ok) == ("secret", True)
    secret.chmod(0o644)
    (bad,) = doctor._protection(str(secret))
    assert not bad.ok
    assert "other users" in bad.detail
    assert WORD not in str((good, bad))


def test_the_doctor_compares_the_settings_of_a_machine(machine: Path) -> None:
    lines = [f"{SECRET} {WORD}", *(f"{name} {value}" for name, value in PROTECTION.items())]
    written(machine, "\n".join(lines))
    (same,) = doctor._protection(None)
    assert (same.ok, same.is_advice) == (True, False)
    written(machine, "\n".join(["# a comment", "", "spark.authenticate=true", f"{SECRET} = {WORD}"]), 0o644)
    assert defaults() == {"spark.authenticate": "true", SECRET: WORD}
    shared, differs = doctor._protection(None)
    assert not shared.ok
    assert (differs.ok, differs.is_advice) == (True, True)
    assert exposure.CIPHER in differs.fix
    assert exposure.AUTHENTICATE not in differs.fix
    assert WORD not in str((same, shared, differs))
    assert lacking(defaults().get).keys() == PROTECTION.keys() - {exposure.AUTHENTICATE}
