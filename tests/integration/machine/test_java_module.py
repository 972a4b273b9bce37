"""The Java module is on the class path of the driver and of executors; a session without it is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from falkirk.errors import SparkError
from falkirk.spark_setup import archive, module
from falkirk.spark_setup import spark as local_spark
from falkirk.spark_setup.archive import archive_entry, archive_file, options
from falkirk.spark_setup.java import find_java
from falkirk.spark_setup.spark import missing_settings, spark_session

#: Calls a class of the module in tasks.
CALL = "reflect('org.falkirk.Stamp', 'decode', concat('0.1.', id)) stamp"
ROOT = Path(__file__).parents[3]

ON_EXECUTORS = f"""
from falkirk.spark_setup.spark import spark_session
spark = spark_session("executors", master="local-cluster[1,2,1024]")
print(sorted(row.stamp for row in spark.range(3).selectExpr("{CALL}").collect()))
"""

OWN_SESSION = """
import sys
from pyspark.sql import SparkSession
from falkirk.errors import SparkError
from falkirk.spark_setup.jars import spark_jars
from falkirk.spark_setup.spark import spark_session, session_settings

jars = [*map(str, spark_jars()), *sys.argv[1:]]
builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(jars))
builder = builder.config("spark.ui.enabled", "false")
for name, value in session_settings(buffer_timeout="1 ms", state_partitions=2).items():
    builder = builder.config(name, value)
builder.getOrCreate()
try:
    print(spark_session("own").range(1).count())
except SparkError as error:
    (missing,) = error.parameters["missing"]
    print(error.condition, missing.name, missing.wanted, missing.found)
"""


def printed(program: str, *arguments: str) -> str:
    """Return the last line that a program prints in a separate process."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


def test_the_driver_and_its_tasks_have_the_module(spark: SparkSession) -> None:
    found = spark.range(3).selectExpr(CALL).collect()
    assert sorted(row.stamp for row in found) == ["0.1.0", "0.1.1", "0.1.2"]
    assert spark._jvm.org.falkirk.Stamp.decode("0.1.2").offset() == 2  # type: ignore[union-attr, operator]


@pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
def test_executors_have_the_module() -> None:
    """All tests of `make test-cluster` run tasks with the module in executors."""
    assert printed(ON_EXECUTORS) == "['0.1.0', '0.1.1', '0.1.2']"


@pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
def test_a_session_of_the_users_own_with_the_module_is_used() -> None:
    assert printed(OWN_SESSION, str(module.module_jar())) == "1"


def test_a_session_with_the_module_is_used(spark: SparkSession) -> None:
    """It is the active session of this process. In the soak, a user's program makes one in a separate JVM."""
    assert spark_session("own") is spark
    assert spark.range(1).selectExpr(CALL).count() == 1


@pytest.mark.skipif("FALKIRK_STRIKES" not in os.environ, reason="a soak: it runs with FALKIRK_STRIKES alone")
def test_a_session_of_the_users_own_without_the_module_is_refused() -> None:
    assert printed(OWN_SESSION) == f"SESSION_SETTINGS_MISSING spark.jars {module.module_jar()} None"


def test_a_session_without_the_module_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark doesn't find the class. In the soak, a separate JVM has a class path without it."""
    monkeypatch.setattr(local_spark, "_MODULE", "org.falkirk.Absent")
    with pytest.raises(SparkError) as caught:
        spark_session("own")
    assert caught.value.condition == "SESSION_SETTINGS_MISSING"
    (missing,) = caught.value.parameters["missing"]
    assert (missing.name, missing.wanted, missing.found) == ("spark.jars", str(module.module_jar()), None)


def test_a_session_with_an_older_module_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, older = module.module_jar(), module.jar_key()
    assert missing_settings(spark) == ()
    monkeypatch.setattr(local_spark, "jar_key", lambda: "newer")
    (missing,) = missing_settings(spark)
    assert (missing.name, missing.wanted, missing.found) == ("spark.jars", str(ours), older)


def test_the_archive_of_this_machine_fits_every_module(tmp_path: Path) -> None:
    """The module follows the jars that the archive covers. If it came first, no class would come from the archive."""
    java = find_java()
    assert archive_file(archive_entry(java), "spark").is_file(), (
        "this machine has no class archives: run `falkirk setup`"
    )

    def shared(*class_path: Path) -> int:
        loaded = tmp_path / "loaded.txt"
        subprocess.run(
            [
                java.command, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *options("spark", java),
                f"-Xlog:class+load:file={loaded}",
                "-cp", os.pathsep.join(map(str, class_path)), "org.apache.spark.deploy.SparkSubmit", "--version",
            ],
            capture_output=True, check=True,
        )  # fmt: skip
        return loaded.read_text().count("shared objects file (top)")

    other = tmp_path / "other.jar"
    other.write_bytes(module.module_jar().read_bytes() + b"more")
    covered = archive.driver_class_path()
    counts = [shared(*covered), shared(*covered, module.module_jar()), shared(*covered, other)]
    # Threads that start beside the main one load a few classes more in some runs.
    assert min(counts) > 0.95 * max(counts) > 300, counts
    assert shared(module.module_jar(), *covered) == 0
