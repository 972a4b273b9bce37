"""PySpark is imported from files; Spark's zip is used only if the same PySpark is not installed as files."""

from pathlib import Path

import pytest

from falkirk.local.workers import prefer_compiled


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a PySpark, which is the running one."""
    package = tmp_path / "installed" / "pyspark"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setenv("SPARK_HOME", str(package))
    return package.parent


def test_the_zip_is_left_out_where_the_files_are(installed: Path) -> None:
    zipped = "somewhere/python/lib/pyspark.zip"
    assert prefer_compiled([zipped, "another.zip", str(installed)]) == ["another.zip", str(installed)]


def test_the_zip_stays_where_there_are_no_files(installed: Path) -> None:
    path = ["somewhere/pyspark.zip", "another.zip"]
    assert prefer_compiled(path) == path


@pytest.mark.parametrize("home", ["elsewhere", None])
def test_the_zip_stays_where_another_spark_runs(
    installed: Path, monkeypatch: pytest.MonkeyPatch, home: str | None
) -> None:
    if home is None:
        monkeypatch.delenv("SPARK_HOME")
    else:
        monkeypatch.setenv("SPARK_HOME", home)
    path = ["somewhere/pyspark.zip", str(installed)]
    assert prefer_compiled(path) == path
