"""Audit: looks up security advisories about Falkirk's dependencies: Python packages, JVM packages, pyspark's jars.

The audit needs the network, which may be absent, so `make test` does not run it. Exit code 0: there are no advisories.
1: there are some. 2: nothing is known of some packages, because the database did not answer.
"""

import json
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PACKAGES = Path(__file__).with_name("jvm_packages.txt")
SERVICE = "https://api.osv.dev/v1/querybatch"
_TIMEOUT_S = 30.0
Ask = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
"""Takes queries of the OSV API, and returns a result for each."""


def ask_osv(queries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Query the public database of advisories. Raises: OSError."""
    body = json.dumps({"queries": queries}).encode()
    request = urllib.request.Request(SERVICE, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
        return list(json.load(answer)["results"])


def jvm_advisories(packages: Sequence[str], ask: Ask = ask_osv) -> dict[str, list[str]]:
    """Return the advisories by package URL, for packages with any. Raises: OSError: there was no answer."""
    results = ask([{"package": {"purl": package}} for package in packages])
    if len(results) != len(packages):
        raise OSError(f"{len(packages)} questions have {len(results)} answers")
    found = {p: sorted(v["id"] for v in result.get("vulns", ())) for p, result in zip(packages, results, strict=True)}
    return {package: advisories for package, advisories in found.items() if advisories}


def packages_of_pyspark() -> list[str]:
    """Return the package URLs of pyspark's own jars, for jars that contain their coordinates."""
    import pyspark

    found = []
    for jar in sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar")):
        with zipfile.ZipFile(jar) as content:
            for name in content.namelist():
                if name.startswith("META-INF/maven/") and name.endswith("/pom.properties"):
                    lines = content.read(name).decode(errors="replace").splitlines()
                    said = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
                    if f"{said.get('artifactId')}-{said.get('version')}.jar" == jar.name:  # skip bundled jars
                        found.append(f"pkg:maven/{said['groupId']}/{said['artifactId']}@{said['version']}")
    return found


def python_advisories(report: dict[str, Any]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the advisories by package, and the packages of which nothing is known. Args: report: of pip-audit.

    pip-audit calls a package of which its service knows nothing no vulnerability, and exits with 0.
    """
    found, unknown = {}, []
    for package in report["dependencies"]:
        if "skip_reason" in package:
            unknown.append(str(package["name"]))
        elif ids := sorted(each["id"] for each in package["vulns"]):
            found[f"{package['name']} {package['version']}"] = ids
    return found, sorted(unknown)


def ask_pip_audit() -> dict[str, Any]:
    """Return pip-audit's report of this environment. Raises: OSError: it is not installed, or nobody answers."""
    command = [sys.executable, "-m", "pip_audit", "--skip-editable", "--progress-spinner", "off", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise OSError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no answer") from error
    return report


def audit_python(ask: Callable[[], dict[str, Any]] = ask_pip_audit) -> int:
    """Print the known advisories of the Python packages; return the exit code."""
    try:
        known, unknown = python_advisories(ask())
    except OSError as error:
        print(f"Advisories of the Python packages are not known: {error}")
        return 2
    print(f"Advisories of the Python packages: {len(known)} have some; of {len(unknown)} nothing is known.")
    for package, advisories in known.items():
        print(f"  {package}: {', '.join(advisories)}")
    unknown = [name for name in unknown if name != "falkirk"]
    if unknown:
        print(f"  not known: {', '.join(unknown)}")
    return 2 if unknown else 1 if known else 0


def main() -> None:
    """Print the known advisories."""
    code = 0
    for whose, packages in (
        ("of Falkirk's JVM dependencies", PACKAGES.read_text().split()),
        ("of the jars that pyspark brings", packages_of_pyspark()),
    ):
        try:
            known = jvm_advisories(packages)
        except OSError as error:
            print(f"Advisories {whose} are unknown: {error}")
            code = 2
            continue
        print(f"Advisories {whose}: {len(known)} of {len(packages)} packages have some.")
        for package, advisories in known.items():
            print(f"  {package}: {', '.join(advisories)}")
        code = max(code, 1 if known else 0)
    sys.exit(max(code, audit_python()))


if __name__ == "__main__":
    main()
