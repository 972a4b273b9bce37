"""The doctor: checks, before a run, the parts of this machine that a run needs."""

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from ipaddress import ip_address

import psutil

from falkirk.errors import FalkirkError
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.spark_setup import archive, broker, jars, module
from falkirk.spark_setup.java import find_java
from falkirk.spark_setup.secure import GENERATED, LENGTH_MIN, PROTECTION, SECRET, lacking, secure_value
from falkirk.spark_setup.submitted import defaults, defaults_file

_DISK_MIN_BYTES = 1 << 30
_INTERNET = (socket.AF_INET, socket.AF_INET6)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check: whether it passed, what was found, and how to fix a failure.

    Args: is_advice: `fix` is recommended, though the check passed.
    """

    name: str
    ok: bool
    detail: str
    fix: str = ""
    is_advice: bool = False


def check_machine(
    kafka: str | None = None, *, secure: str | None = None, home: str | None = None
) -> tuple[CheckResult, ...]:
    """Check everything that a run needs, without downloading or starting anything.

    Args: kafka: a broker to check. secure: the value of `falkirk run --secure` to check. home: the address of a home
        in an object store or an HDFS, to check whether it can be read.
    """
    found = [
        CheckResult(
            name="Python",
            ok=sys.version_info >= (3, 11),
            detail=sys.version.split()[0],
            fix="Use Python 3.11 or newer.",
        ),
        _java(),
        CheckResult(
            name="PySpark",
            ok=version("pyspark").startswith("4.3."),
            detail=version("pyspark"),
            fix="Install pyspark 4.3: Real-time Mode differs between versions.",
        ),
        _dependencies(),
        _connector(),
        _module(),
        _archives(),
        _local_broker(),
        CheckResult(name="CPU cores", ok=True, detail=f"{os.cpu_count()}"),
        _disk(),
        _ports(),
        *_protection(secure),
    ]
    if kafka is not None:
        found.append(_broker(kafka))
    if home is not None:
        found.append(_home(home))
    return tuple(found)


def _java() -> CheckResult:
    try:
        java = find_java()
    except FalkirkError as error:
        return CheckResult(name="Java", ok=False, detail=error.message, fix=error.hint)
    return CheckResult(name="Java", ok=True, detail=f"{java.version} ({java.command})")


def _dependencies() -> CheckResult:
    place = jars.jars_entry()
    there = [kind for kind in jars.JAR_KINDS if (place / kind).is_dir()]
    if not there:
        return CheckResult(name="JVM dependencies", ok=True, detail="not downloaded yet; the first run downloads them")
    lacking = [jar for kind in there for jar in jars.absent(kind, place / kind)]
    other = [jar for kind in there for jar in jars.altered(kind, place / kind)]
    lacks = f", without {', '.join(lacking)}" if lacking else ""
    later = [kind for kind in jars.JAR_KINDS if kind not in there]
    return CheckResult(
        name="JVM dependencies",
        ok=not lacking and not other,
        detail=f"in {place}{lacks}"
        + (f"; not the original files: {', '.join(other)}" if other else "")
        + (f"; not downloaded before they are needed: {', '.join(later)}" if later else ""),
        fix="Remove that folder; the next run downloads them again.",
    )


def _connector() -> CheckResult:
    """Report a connector of another version than Spark's: each is released with one Spark."""
    spark, found = version("pyspark"), jars.connector_version()
    differs = found != spark
    return CheckResult(
        name="Kafka connector",
        ok=True,
        detail=f"{found}, and Spark is {spark}" if differs else found,
        fix="Falkirk is tested with this connector on this Spark. If you pin another pyspark, test your application "
        "with a broker first: `falkirk run --local`."
        if differs
        else "",
        is_advice=differs,
    )


def _module() -> CheckResult:
    name = "Java module"
    try:
        found = module.find_jar()
        stale = module.PACKAGED.is_dir() and found.origin == "compiled"
    except FalkirkError as error:
        return CheckResult(name=name, ok=False, detail=error.message, fix=error.hint)
    unfit = " (the prebuilt jar of this installation does not fit its Spark or its sources)" if stale else ""
    if found.ok:
        return CheckResult(
            name=name, ok=True, detail=f"{found.origin}, {found.jar}, {jars.sha256(found.jar)[:16]}{unfit}"
        )
    if not found.jar.parent.is_dir():
        return CheckResult(
            name=name, ok=True, detail=f"not compiled yet; `falkirk setup` or the first run does it{unfit}"
        )
    return CheckResult(
        name=name,
        ok=False,
        detail=f"{found.jar} is missing or damaged",
        fix="Run `falkirk setup` to compile it again. The next run does it, too.",
    )


def _archives() -> CheckResult:
    name = "class archives"
    try:
        java = find_java()
        place = archive.archive_entry(java) if (jars.jars_entry() / "spark").is_dir() else None
    except FalkirkError:
        return CheckResult(name=name, ok=True, detail="none, since Java or the JVM dependencies are missing")
    if place is None or not place.is_dir():
        return CheckResult(name=name, ok=True, detail="none, so JVMs start more slowly; `falkirk setup` makes them")
    bad = archive.damaged_kinds(place)
    return CheckResult(
        name=name,
        ok=not bad,
        detail=f"in {place}" + (f", damaged: {', '.join(bad)}" if bad else ""),
        fix="JVMs start more slowly. Remove that folder, and run `falkirk setup` to make them again.",
    )


def _local_broker() -> CheckResult:
    running = broker.status()
    if running is None:
        return CheckResult(
            name="local broker", ok=True, detail="not running (`falkirk kafka start` or --local starts it)"
        )
    return CheckResult(
        name="local broker",
        ok=running.answers(),
        detail=f"{running.bootstrap}, pid {running.pid}",
        fix="The broker does not answer. Run `falkirk kafka stop`, and then start it again.",
    )


def _disk() -> CheckResult:
    free = shutil.disk_usage(os.getcwd()).free
    return CheckResult(
        name="disk",
        ok=free > _DISK_MIN_BYTES,
        detail=f"{free / (1 << 30):.0f} GiB free here",
        fix="Checkpoints need space. Free some space, or set another home.",
    )


def _ports() -> CheckResult:
    """Report the ports of a run that other machines can reach, because no Spark setting closes them."""
    shared = others_reach()
    if not shared:
        return CheckResult(name="ports", ok=True, detail="other machines can't reach this one")
    return CheckResult(
        name="ports",
        ok=True,
        detail="Spark's streaming shuffle, which each keyed step of a live region uses, listens on all interfaces, "
        f"also at {', '.join(shared)}. A caller must know the application's secret (spark.authenticate)",
        fix="You can close the ports of this user's processes to other machines with a firewall, a network namespace "
        "or systemd: docs/how-to/security.md, Ports.",
        is_advice=True,
    )


def _protection(secure: str | None) -> Iterator[CheckResult]:
    """Check the secret of a cluster's driver, and the settings of its machines in spark-defaults.conf."""
    if secure is not None:
        try:
            value = secure_value(secure)
        except FalkirkError as error:
            yield CheckResult(name="secret", ok=False, detail=error.message, fix=error.hint)
        else:
            known = "Spark generates it" if value == GENERATED else f"{value}: long enough, closed to other users"
            yield CheckResult(name="secret", ok=True, detail=known)
    file, found = defaults_file(), defaults()
    if SECRET in found and file.stat().st_mode & 0o077:
        yield CheckResult(
            name="secret", ok=False, detail=f"other users can open {file}, which has one", fix=f"Run: chmod 600 {file}"
        )
    other = lacking(found.get)
    if len(found.get(SECRET, "")) < LENGTH_MIN:
        other[SECRET] = f"a secret of at least {LENGTH_MIN} characters"
    if other and any(name in found for name in (SECRET, *PROTECTION)):
        yield CheckResult(
            name="connections on a cluster", ok=True,
            detail=f"{file} is not as --secure needs it on the machines of a standalone cluster",
            fix=f"Set {', '.join(map('='.join, other.items()))}: docs/how-to/security.md, A cluster.",
            is_advice=True,
        )  # fmt: skip
    elif not other:
        yield CheckResult(
            name="connections on a cluster", ok=True, detail=f"{file} has the settings that --secure needs"
        )


def others_reach() -> tuple[str, ...]:
    """Return the addresses at which other machines can reach this one."""
    found = (a.address for addresses in psutil.net_if_addrs().values() for a in addresses if a.family in _INTERNET)
    plain = {address.partition("%")[0] for address in found}
    return tuple(sorted(address for address in plain if not ip_address(address).is_loopback))


def _broker(kafka: str) -> CheckResult:
    try:
        Topics(Connection.of(kafka)).await_broker(5.0)
    except FalkirkError as error:
        return CheckResult(name="broker", ok=False, detail=error.message, fix=error.hint)
    return CheckResult(name="broker", ok=True, detail=f"{kafka} answers")


def _home(address: str) -> CheckResult:
    from falkirk.platform.object_data import data_at  # it loads pyarrow

    try:
        begun = (data_at(address) / "falkirk.json").exists()
    except FalkirkError as error:
        return CheckResult(name="home", ok=False, detail=error.message, fix=error.hint)
    return CheckResult(name="home", ok=True, detail=f"{address} answers, and has {'a' if begun else 'no'} home")
