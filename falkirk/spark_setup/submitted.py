"""Submitted: Spark settings, jars and Python files of the user's own, as `spark-submit` takes them."""

import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from falkirk.errors.conditions.spark_setup import SPARK_OPTION_INVALID

#: The setting with the plugins of Spark.
PLUGINS = "spark.plugins"
#: The command of Python on executors. Only spark-submit reads this setting; PySpark reads the environment.
PYTHON = "spark.pyspark.python"
#: The settings with the user's files: jars, the coordinates of packages, and Python files.
JARS, PACKAGES, PY_FILES = "spark.jars", "spark.jars.packages", "spark.submit.pyFiles"
#: The settings that Falkirk sets too, and the separators of their parts. The user's parts come after Falkirk's.
_JOINED = {
    JARS: ",",
    "spark.driver.extraClassPath": os.pathsep,
    "spark.executor.extraClassPath": os.pathsep,
    "spark.driver.extraJavaOptions": " ",
    PLUGINS: ",",
}
#: Settings that an option of `falkirk run` or the application decides.
_ELSEWHERE = {
    "spark.master": "--master",
    "spark.app.name": "the name of the application",
    "spark.sql.shuffle.partitions": "state_partitions of the application",
}
#: A line of spark-defaults.conf.
_DEFAULT = re.compile(r"(spark\.[^\s=:]+)(?:\s*[=:]\s*|\s+)(.*)")
#: The file with the secret in the containers of executors, on Kubernetes. A path is no secret.
EXECUTOR_SECRET_FILE = "spark.authenticate.secret.executor.file"
#: Names of settings that Spark itself does not show (spark.redaction.regex).
_SECRET = re.compile(r"(?i)secret|password|token|access[.]?key")


def spark_conf(
    settings: Iterable[str] = (), *, jars: str | None = None, packages: str | None = None, py_files: str | None = None
) -> dict[str, str]:
    """Return the settings that these options of a command line mean.

    Args: settings: each ``NAME=VALUE``. jars, py_files: files, separated by commas. packages: Maven coordinates,
        separated by commas.
    Raises: DefinitionError: `SPARK_OPTION_INVALID`.
    """
    found: dict[str, str] = {}
    for text in settings:
        name, is_there, value = text.partition("=")
        if not is_there or not name.startswith("spark."):
            raise SPARK_OPTION_INVALID.error(
                option=f"--conf {text}", reason="it is not spark.NAME=VALUE", advice="Write --conf spark.NAME=VALUE."
            )
        if name in _ELSEWHERE:
            raise SPARK_OPTION_INVALID.error(
                option=f"--conf {text}", reason="Falkirk sets it", advice=f"Change it by {_ELSEWHERE[name]}."
            )
        refuse_secrets([name])
        found[name] = value
    for name, option, listed in ((JARS, "--jars", jars), (PY_FILES, "--py-files", py_files)):
        if listed:
            paths = [found[name]] if found.get(name) else []
            found[name] = ",".join([*paths, *(_absolute(path, option) for path in listed.split(","))])
    if packages:
        found[PACKAGES] = ",".join(filter(None, (found.get(PACKAGES), packages)))
    return found


def refuse_secrets(names: Iterable[str]) -> None:
    """Check that no setting is a secret: settings are arguments of the JVM. Raises: DefinitionError."""
    for name in filter(_SECRET.search, (name for name in names if name != EXECUTOR_SECRET_FILE)):
        raise SPARK_OPTION_INVALID.error(
            option=f"--conf {name}",
            reason="other users of this machine can read the arguments of a command",
            advice="Put it into spark-defaults.conf, in the folder that SPARK_CONF_DIR names.",
        )


def _absolute(path: str, option: str) -> str:
    if "://" in path:
        return path
    if not Path(path).is_file():
        raise SPARK_OPTION_INVALID.error(
            option=f"{option} {path}", reason="there is no such file", advice="Name files that exist, or their URLs."
        )
    return str(Path(path).resolve())


def merge_settings(ours: Mapping[str, str], users: Mapping[str, str]) -> dict[str, str]:
    """Return settings with the user's. Lists, such as of jars, have the parts of both; of others the user's count."""
    found = {**ours, **users}
    for name, separator in _JOINED.items():
        parts = [settings[name] for settings in (ours, users) if settings.get(name)]
        if parts:
            found[name] = separator.join(parts)
    return found


def choose_python(conf: Mapping[str, str]) -> None:
    """Name the command of Python on executors, as spark-submit does: the setting, the environment, or this Python."""
    os.environ["PYSPARK_PYTHON"] = conf.get(PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable


def add_py_files(conf: Mapping[str, str]) -> None:
    """Make the user's Python files importable in this process, as Spark does in its workers."""
    for path in filter(None, conf.get(PY_FILES, "").split(",")):
        place = str(Path(path).parent) if path.endswith(".py") else path
        if place not in sys.path:
            sys.path.insert(1, place)


def defaults_file() -> Path:
    """Return the path of spark-defaults.conf, which need not exist."""
    from pyspark.find_spark_home import _find_spark_home  # commands load this module without Spark

    return Path(os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home()) / "conf") / "spark-defaults.conf"


def defaults() -> dict[str, str]:
    """Return the settings in spark-defaults.conf."""
    file = defaults_file()
    lines = file.read_text(errors="replace").splitlines() if file.is_file() else []
    found = (_DEFAULT.fullmatch(line.strip()) for line in lines)
    return {line[1]: line[2].strip() for line in found if line is not None}


def chooses_local_folders() -> bool:
    """Return whether the user has chosen the folders for Spark's temporary files."""
    return "spark.local.dir" in defaults() or bool(os.environ.get("SPARK_LOCAL_DIRS"))
