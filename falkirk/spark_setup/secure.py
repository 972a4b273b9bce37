"""Secure: one switch that protects the connections between the driver of a Spark application and its executors.

It sets Spark's own protection: both ends of each connection prove that they know a secret, and encrypt all data with
keys that they derive from it. On a standalone master, the secret is in a file of the driver's user, and in the settings
of the other machines. On YARN and Kubernetes, Spark generates it. See docs/decisions/0111.

A secret in a setting would be an argument of the JVM, which all users of the machine can read. So the driver's JVM
reads the file itself (`SharedSecret.java`), and Python only checks it.
"""

import os
import re
import socket
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from falkirk.errors import MachineError
from falkirk.errors.conditions.spark_setup import (
    MASTER_REFUSED,
    SECRET_FILE_INVALID,
    SECURE_CONTRADICTED,
    SECURE_CONTRADICTED_SECRET,
    SECURE_UNSUITABLE,
)
from falkirk.spark_setup import exposure
from falkirk.spark_setup.submitted import EXECUTOR_SECRET_FILE

#: The value of the switch if nobody but Spark, or this process, knows the secret.
GENERATED = "generated"
#: The settings of the driver, and of the other machines of a standalone cluster.
PROTECTION = {
    exposure.AUTHENTICATE: "true",
    "spark.io.encryption.enabled": "true",
    exposure.ENCRYPT: "true",
    # Spark's default lets somebody between the machines change encrypted data undetected (CVE-2025-55039).
    exposure.CIPHER: exposure.AUTHENTICATED_CIPHER,
    "spark.network.crypto.authEngineVersion": "2",
    # By default, if both sides fail to agree on keys, they continue without encryption. Somebody in between can cause
    # such a failure.
    exposure.FALLBACK: "false",
}
#: The setting for a secret. On a standalone master Spark wants a value, but looks at the user's credentials first.
SECRET, ELSEWHERE = "spark.authenticate.secret", "in the credentials of the driver"
#: On Kubernetes, the file with the secret in the driver's container, or on its machine.
_DRIVER_FILE = f"{SECRET}.driver.file"
#: How many characters a secret has at least.
LENGTH_MIN, _SIZE_MAX = 32, 4096
#: The addresses in `spark://host:port,host:port`.
_STANDALONE = re.compile(r"(?:^spark://|(?<=,))([^,]+)")
#: How long a connection to a master may take, and how long its answer.
_REACHED_S, _ANSWERED = 5.0, "10s"
#: How often a master must refuse, and the pauses between. While a master stops or starts, connections to it close as
#: those do that it refuses.
_REFUSALS, _PAUSE_S = 3, 1.0
_PATIENCE = dict.fromkeys(
    ("spark.rpc.lookupTimeout", "spark.rpc.askTimeout", "spark.network.timeout", "spark.network.auth.rpcTimeout"),
    _ANSWERED,
)
#: Characters that mean themselves in spark-defaults.conf, where the other machines have the secret.
_TEXT = re.compile(r"[A-Za-z0-9+/=_.-]*")
_GROUP_READS, _OTHERS = 0o040, 0o077
_GIVE = "Give it to the user that runs the application."


def secure_value(value: str | Path, *, option: str = "--secure") -> str:
    """Return the switch with an absolute path, for a process in another folder.

    Raises: MachineError: `SECRET_FILE_INVALID`.
    """
    if str(value) == GENERATED:
        return GENERATED
    file = Path(value).absolute()
    _check_secret(file, option)
    return str(file)


def secure_option_value(
    secure: str | Path | None, master: str | None, conf: Mapping[str, str] | None = None
) -> str | None:
    """Return the switch of a command as `secure_value`, or None. Check it before anything starts.

    Args: master: None: a local one. conf: the user's settings. Raises: as `secure_value` and `secure_settings`.
    """
    if secure is None:
        return None
    value = secure_value(secure)
    secure_settings(value, master or "local", conf or {})
    return value


def secure_settings(secure: str, master: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a driver that the switch means.

    Args: secure: as of `secure_value`. given: the user's settings.
    Raises: DefinitionError: `SECURE_UNSUITABLE`, `SECURE_CONTRADICTED`.
    """
    _check_master(secure, master)
    if SECRET in given:  # its value is not quoted
        raise SECURE_CONTRADICTED_SECRET.error(name=SECRET)
    found = PROTECTION | {exposure.TLS: "false"}
    if _is_kubernetes(master) and secure != GENERATED:
        found |= {_DRIVER_FILE: secure, EXECUTOR_SECRET_FILE: given.get(EXECUTOR_SECRET_FILE, secure)}
    for name, wanted in found.items():
        if given.get(name, wanted).strip().lower() != wanted.lower():
            raise SECURE_CONTRADICTED.error(name=name, found=given[name], wanted=wanted)
    return found


def needs_secret(master: str) -> bool:
    """Return whether Spark expects the secret from the driver, because it can't pass its own to the executors."""
    return not exposure.is_local(master) and not exposure.is_yarn(master) and not _is_kubernetes(master)


def hand_over(secure: str, master: str, name: str, settings: Mapping[str, str]) -> dict[str, str] | None:
    """Start the JVM of a driver, unless it runs, and give it the secret; return the settings of the application.

    None: the JVM runs without Falkirk's Java module.

    Args: secure: as of `secure_value`. name: of the application. settings: all of them.
    Raises: SparkError: `MASTER_REFUSED`: the master has another secret, or other settings.
    """
    from py4j.java_gateway import JavaClass
    from pyspark import SparkConf, SparkContext

    if not needs_secret(master):
        return dict(settings)
    conf = SparkConf().setMaster(master).setAppName(name).setAll(list(settings.items()))
    SparkContext._ensure_initialized(conf=conf)
    module = cast(Any, SparkContext._jvm).org.falkirk.SharedSecret
    if not isinstance(module, JavaClass):
        return None
    if secure == GENERATED:
        module.generate()
    else:
        module.use(secure)
        _require_answer(module, secure, master)
    return {**settings, SECRET: ELSEWHERE}


def _require_answer(module: Any, secure: str, master: str) -> None:
    """Check that a standalone master knows the secret, unless none of its addresses can be reached: Spark then waits.

    Raises: SparkError: `MASTER_REFUSED`.
    """
    for attempt in range(_REFUSALS):
        time.sleep(_PAUSE_S if attempt else 0.0)
        reasons = _refusals(module, secure, master)
        if not reasons or None in reasons:
            return
    raise MASTER_REFUSED.error(master=master, reason="; ".join(filter(None, reasons)), file=secure)


def _refusals(module: Any, secure: str, master: str) -> list[str | None]:
    """Return why each address of a master that can be reached refuses the connection. None: it does not."""
    reasons = []
    for address in _STANDALONE.findall(master):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _REACHED_S).close()
        except (OSError, ValueError):
            continue
        reasons.append(module.refusal(host, int(port), PROTECTION | _PATIENCE))
    return reasons


def lacking(setting: exposure.Setting) -> dict[str, str]:
    """Return the settings of the switch that others lack, with the needed values."""
    found = {name: value for name, value in PROTECTION.items() if (setting(name) or "").lower() != value.lower()}
    # With both kinds of encryption Spark uses TLS alone, and it may have a certificate that anybody can make.
    if exposure.is_on(setting, exposure.TLS):
        found[exposure.TLS] = "false"
    return found


def _check_master(secret: str, master: str) -> None:
    if secret == GENERATED:
        if needs_secret(master) and not exposure.is_on_this_machine(master):
            raise SECURE_UNSUITABLE.error(
                value=secret, master=master, reason="its machines must know the secret, too",
                advice="Name a file with the secret that is in spark-defaults.conf of these machines.",
            )  # fmt: skip
    elif exposure.is_local(master) or exposure.is_yarn(master):
        raise SECURE_UNSUITABLE.error(
            value=secret, master=master, reason="Spark generates the secret there", advice=f"Write {GENERATED}."
        )


def _is_kubernetes(master: str) -> bool:
    return master.startswith("k8s")


def _check_secret(file: Path, option: str) -> None:
    """Check that a file holds a secret that only its user can read. No error quotes the content."""
    new = f"Create one: (umask 077; openssl rand -hex {LENGTH_MIN} > FILE)."
    content = _read_private(file, option, new)
    text = content.decode("latin-1").strip()
    if len(text) < LENGTH_MIN or len(content) > _SIZE_MAX or not _TEXT.fullmatch(text):
        reason = f"a secret has at least {LENGTH_MIN} characters, in one line: letters, digits, and + / = _ . -"
        raise _refusal(option, file, reason, new)


def _read_private(file: Path, option: str, new: str) -> bytes:
    """Return the content of a file that other users can't read. Args: new: how to create such a file."""
    try:
        found = file.stat()
        if not stat.S_ISREG(found.st_mode):
            raise _refusal(option, file, "it is not a file", new)
        if found.st_uid not in (os.geteuid(), 0):
            raise _refusal(option, file, f"it belongs to user {found.st_uid}", _GIVE)
        if found.st_mode & _OTHERS and not _is_mounted(found):
            advice = f"Run: chmod 600 {file}"
            if found.st_uid != os.geteuid():
                advice = "Give it the mode 0440 and a group of this user (Kubernetes: defaultMode and fsGroup)."
            raise _refusal(option, file, "other users can open it", advice)
        return file.read_bytes()
    except FileNotFoundError:
        raise _refusal(option, file, "there is no such file", new) from None
    except PermissionError:
        raise _refusal(option, file, f"user {os.geteuid()} can't read it", _GIVE) from None


def _is_mounted(found: os.stat_result) -> bool:
    """Return whether a file is root's and only one group of this process reads it, as Kubernetes mounts a secret."""
    groups = {os.getegid(), *os.getgroups()}
    return found.st_uid != os.geteuid() and found.st_gid in groups and found.st_mode & _OTHERS == _GROUP_READS


def _refusal(option: str, file: Path, reason: str, advice: str) -> MachineError:
    return SECRET_FILE_INVALID.error(option=option, path=str(file), reason=reason, advice=advice)
