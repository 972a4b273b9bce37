"""The options of `falkirk run` for Spark reach the settings of its session, beside Falkirk's own."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import falkirk as fk
from falkirk import cli
from falkirk.errors import DefinitionError
from falkirk.runtime.supervision import prepared
from falkirk.runtime.supervision.settings import HostSettings, RunSettings
from falkirk.spark_setup import spark as local_spark
from falkirk.spark_setup.cluster_plugin import CLUSTER_PLUGIN, reaches_driver
from falkirk.spark_setup.submitted import add_py_files, choose_python, merge_settings, spark_conf


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A jar and a Python file."""
    jar, code = tmp_path / "udf.jar", tmp_path / "lib" / "prices_of_kit.py"
    code.parent.mkdir()
    jar.touch()
    code.write_text("TEA = 3\n")
    return jar, code


def test_options_become_settings(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    jar, code = files
    monkeypatch.chdir(jar.parent)
    conf = spark_conf(
        ["spark.driver.memory=2g", "spark.x=a=b", "spark.jars=s3://bucket/first.jar"],
        jars="udf.jar,s3://bucket/second.jar", packages="a:b:1", py_files="lib/prices_of_kit.py",
    )  # fmt: skip
    assert conf == {
        "spark.driver.memory": "2g", "spark.x": "a=b", "spark.submit.pyFiles": str(code),
        "spark.jars": f"s3://bucket/first.jar,{jar},s3://bucket/second.jar", "spark.jars.packages": "a:b:1",
    }  # fmt: skip


@pytest.mark.parametrize("setting", ["memory=2g", "spark.x", "spark.master=local", "spark.app.name=x"])
def test_a_setting_that_can_not_be_used_is_named(setting: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        spark_conf([setting])
    assert refused.value.condition == "SPARK_OPTION_INVALID"
    assert setting in str(refused.value)


@pytest.mark.parametrize(
    "name", ["spark.authenticate.secret", "spark.ssl.keyPassword", "spark.hadoop.fs.s3a.access.key"]
)
def test_a_secret_does_not_go_through_the_arguments_of_a_command(name: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        spark_conf([f"{name}=not-this-one"])
    assert refused.value.condition == "SPARK_OPTION_INVALID"
    assert name in str(refused.value)
    assert "not-this-one" not in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for option in ("jars", "py_files"):
        with pytest.raises(DefinitionError, match=r"nothing\.jar.*no such file"):
            spark_conf(**{option: str(tmp_path / "nothing.jar")})


def test_lists_have_the_parts_of_both() -> None:
    ours = {
        "spark.jars": "a",
        "spark.driver.extraClassPath": "b",
        "spark.driver.extraJavaOptions": "-x",
        "spark.y": "1",
    }
    users = {
        "spark.jars": "c",
        "spark.driver.extraClassPath": "d",
        "spark.driver.extraJavaOptions": "-y",
        "spark.y": "2",
    }
    assert merge_settings(ours, users) == {
        "spark.jars": "a,c", "spark.driver.extraClassPath": f"b{os.pathsep}d",
        "spark.driver.extraJavaOptions": "-x -y", "spark.y": "2",
    }  # fmt: skip


def test_python_files_can_be_imported(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    add_py_files({"spark.submit.pyFiles": f"{files[1]},/x/lib.zip"})
    import prices_of_kit  # type: ignore[import-not-found]

    assert prices_of_kit.TEA == 3
    assert "/x/lib.zip" in sys.path


def test_the_command_passes_them_to_the_host(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, found = tmp_path / "shop.py", list[RunSettings]()
    file.write_text("import prices_of_kit\nimport falkirk as fk\napp = fk.App('shop', kafka='127.0.0.1:1')\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(cli, "run_in_terminal", lambda app, settings: found.append(settings))
    options = ["--conf", "spark.driver.memory=2g", "--jars", str(files[0]), "--py-files", str(files[1])]
    done = CliRunner().invoke(cli.main, ["run", str(file), *options])
    assert done.exit_code == 0, done.output
    host = HostSettings(
        coordinator=1, generation=1, file="", home="", kafka=None, master=None, create_topics=False, conf=found[0].conf
    )
    assert HostSettings.of(host.to_json()) == host
    assert host.conf["spark.driver.memory"] == "2g"
    assert host.conf["spark.jars"] == str(files[0])


@pytest.mark.parametrize(
    ("conf", "before", "python"),
    [
        ({"spark.pyspark.python": "/opt/python"}, "/usr/python", "/opt/python"),
        ({}, "/usr/python", "/usr/python"),
        ({}, "", sys.executable),
    ],
)
def test_the_python_of_executors(
    conf: dict[str, str], before: str, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", before)
    choose_python(conf)
    assert os.environ["PYSPARK_PYTHON"] == python


@pytest.mark.parametrize(
    ("master", "plugins", "reaches"),
    [
        ("local[4]", None, True),
        ("spark://there:7077", None, False),
        ("spark://there:7077", "com.shop.Meter, org.falkirk.ClusterPlugin", True),
    ],
)
def test_which_tasks_can_call_the_driver(master: str, plugins: str | None, reaches: bool) -> None:
    conf = {} if plugins is None else {"spark.plugins": plugins}
    session = SimpleNamespace(sparkContext=SimpleNamespace(master=master, getConf=lambda: conf))
    assert reaches_driver(session) is reaches


def test_the_users_plugins_stay_beside_ours() -> None:
    both = merge_settings({"spark.plugins": CLUSTER_PLUGIN}, {"spark.plugins": "com.shop.Meter"})
    assert both["spark.plugins"] == "org.falkirk.ClusterPlugin,com.shop.Meter"


class Builder:
    """A builder of sessions that records its settings."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.added: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *values: self

    def config(self, name: str, value: str) -> "Builder":
        """See SparkSession.Builder."""
        self.settings[name] = value
        return self

    def getOrCreate(self) -> Any:
        """See SparkSession.Builder."""
        return SimpleNamespace(sparkContext=SimpleNamespace(addPyFile=self.added.append))


def test_the_session_of_the_host_has_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    builder = Builder()
    monkeypatch.setattr(local_spark, "_present", lambda: None)
    monkeypatch.setattr(local_spark, "SparkSession", SimpleNamespace(builder=builder))
    for name in ("save_calls", "_limit_avro", "_warn"):
        monkeypatch.setattr(local_spark, name, lambda active: None)
    monkeypatch.setattr(local_spark.hadoop, "forget_defaults", lambda active: None)
    monkeypatch.setattr(local_spark.rule_times, "forget_rule_times", lambda active: None)
    monkeypatch.setattr(local_spark, "missing_settings", lambda active, data, secure: ())
    monkeypatch.setattr(
        local_spark, "_launch_settings", lambda master, data: {"spark.driver.extraClassPath": "ours.jar"}
    )
    conf = {"spark.driver.extraClassPath": "users.jar", "spark.driver.memory": "2g", "spark.submit.pyFiles": "a.py"}
    prepared.application_session(fk.App("shop"), None, 4, conf)
    assert builder.settings["spark.driver.memory"] == "2g"
    assert builder.settings["spark.driver.extraClassPath"] == f"ours.jar{os.pathsep}users.jar"
    assert builder.settings["spark.sql.session.timeZone"] == "UTC"
    assert builder.added == ["a.py"]
