"""PySpark is imported from files; Spark's zip is used only if the same PySpark is not installed as files."""

import sys
import zipfile
from importlib import invalidate_caches
from importlib.machinery import PathFinder
from pathlib import Path
from zipimport import zipimporter

import pytest

from falkirk.spark_setup.workers import forget_archives, prefer_compiled, without_jars


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


def test_jars_of_spark_are_left_out_and_others_stay(installed: Path) -> None:
    jars = installed / "pyspark" / "jars"
    assert without_jars([str(jars / "spark-core.jar"), "mine.jar", str(jars), "a.zip"]) == [
        "mine.jar",
        str(jars),
        "a.zip",
    ]


def test_the_list_of_an_archive_that_is_not_used_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, unused = tmp_path / "used.zip", tmp_path / "unused.jar"
    monkeypatch.setattr(sys, "path", [str(used), str(unused), *sys.path])
    monkeypatch.setattr(sys, "path_importer_cache", dict(sys.path_importer_cache))
    for archive in (used, unused):
        with zipfile.ZipFile(archive, "w") as files:
            files.writestr(f"{archive.stem}_package/", "")
            files.writestr(f"{archive.stem}_package/inner/__init__.py", "")
    for package in ("used_package", "unused_package"):
        spec = PathFinder.find_spec(package)  # as `org` in a jar: a folder without modules of its own
        assert spec is not None
        assert spec.submodule_search_locations is not None
        assert PathFinder.find_spec(f"{package}.inner", [*spec.submodule_search_locations])
    read = list[str]()
    monkeypatch.setattr(zipimporter, "invalidate_caches", lambda finder: read.append(finder.archive))
    invalidate_caches()
    assert set(read) == {str(used), str(unused)}
    sys.path.remove(str(unused))
    forget_archives()
    read.clear()
    invalidate_caches()
    assert set(read) == {str(used)}
