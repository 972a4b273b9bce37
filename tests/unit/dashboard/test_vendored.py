"""The libraries of the page: each file is unchanged since its publication, has a licence, and is in a wheel."""

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "falkirk" / "user_tools" / "commands" / "dashboard" / "page"
VENDOR = PAGE / "vendor"
PACKAGES = {"preact", "htm", "@dagrejs/dagre", "uplot"}
#: Our own scripts and styles. A reader should be able to read all of it.
OURS_BYTES_MAX = 80_000


def vendored() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads((VENDOR / "vendored.json").read_text())
    return found


def test_each_file_is_as_it_was_published() -> None:
    files = {path.name for path in VENDOR.iterdir()} - {"vendored.json"}
    assert files == set(vendored())
    for name, about in vendored().items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == about["sha256"], name


def test_each_package_has_its_licence() -> None:
    assert {about["package"] for about in vendored().values()} == PACKAGES
    for package in PACKAGES:
        names = {name for name, about in vendored().items() if about["package"] == package}
        (licence,) = [name for name in names if name.endswith(".LICENSE")]
        assert vendored()[licence]["license"] in ("MIT", "Apache-2.0")
        assert len((VENDOR / licence).read_text()) > 500


def test_no_module_imports_from_elsewhere() -> None:
    """Browsers resolve only paths, and there is no build step."""
    for path in [*PAGE.glob("*.js"), *VENDOR.glob("*.*js")]:
        for line in path.read_text().splitlines():
            if line.startswith(("import ", "export ")) and ' from "' in line:
                target = line.rpartition(' from "')[2].partition('"')[0]
                assert target.startswith("./"), f"{path.name}: {line}"
                assert (path.parent / target).exists()


def test_our_own_part_is_small() -> None:
    assert sum(p.stat().st_size for p in PAGE.iterdir() if p.suffix in (".js", ".css", ".html")) < OURS_BYTES_MAX


def test_a_wheel_contains_the_page(tmp_path: Path) -> None:
    """It needs no Java: unit/java/test_wheel.py has wheels with the Java module."""
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT, env={**os.environ, "JAVA_HOME": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    wanted = {str(path.relative_to(ROOT)) for path in PAGE.rglob("*") if path.is_file()}
    assert wanted <= names
