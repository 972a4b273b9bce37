"""Exposure: reports how others can reach a Spark application under its settings, and which settings prevent that.

Spark's driver listens for calls, and on a cluster the executors do so too. Without `spark.authenticate`, Spark
deserializes a message before it checks the sender. Anyone who reaches the port can thus run code as the user. With a
local master, Spark generates a secret by itself, so Falkirk enables authentication by default. On a cluster all
machines must know the secret, so only the user can enable it (`falkirk run --secure`, secure.py), and Falkirk warns.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

AUTHENTICATE = "spark.authenticate"
#: The class of the streaming shuffle. Spark's own ignores `spark.authenticate` (docs/decisions/0044).
SHUFFLE, AUTHENTICATED_SHUFFLE = "spark.shuffle.manager.incremental", "org.falkirk.AuthenticatedShuffle"
#: Spark's encryption with keys from the secret.
ENCRYPT = "spark.network.crypto.enabled"
CIPHER, AUTHENTICATED_CIPHER = "spark.network.crypto.cipher", "AES/GCM/NoPadding"
FALLBACK = "spark.network.crypto.saslFallback"
#: TLS.
TLS = "spark.ssl.rpc.enabled"
#: Settings of which one says which certificates are trusted. Without any, Spark accepts every certificate.
_TRUSTED = tuple(f"spark.ssl.{part}{name}" for part in ("rpc.", "") for name in ("trustStore", "certChain"))
#: Spark's own page. It has no password.
_UI = "spark.ui.enabled"
#: The settings with which the page only shows.
HARMLESS_UI = {"spark.ui.killEnabled": "false"}
#: The variable with the address at which the page listens; without it, on all interfaces.
UI_ADDRESS = "SPARK_LOCAL_IP"
_LOOPBACK = "127.0.0.1"
#: The sections of docs/how-to/security.md with advice.
_PORTS, _CLUSTER = "docs/how-to/security.md, Ports", "docs/how-to/security.md, A cluster"
#: Masters for which Spark generates a secret; driver and executor are in one JVM.
_LOCAL = re.compile(r"local(\[[^\]]*\])?")
Setting = Callable[[str], str | None]
"""Returns a setting of a Spark application, by its name."""


def is_local(master: str) -> bool:
    """Return whether driver and executor are in one JVM."""
    return _LOCAL.fullmatch(master) is not None


def is_yarn(master: str) -> bool:
    """Return whether YARN starts the executors."""
    return master == "yarn"


def is_on_this_machine(master: str) -> bool:
    """Return whether all executors are on the driver's machine, in its JVM or, with local-cluster, in others."""
    return is_local(master) or master.startswith("local-cluster[")


def context_settings(master: str) -> dict[str, str]:
    """Return the default settings of a new application on this master."""
    settings = {SHUFFLE: AUTHENTICATED_SHUFFLE} | ({AUTHENTICATE: "true"} if is_local(master) else {})
    # The folder of a container of YARN has too long a path for a Unix socket. A worker's connection over TCP begins
    # with a secret.
    return settings | ({"spark.python.unix.domain.socket.enabled": "false"} if is_yarn(master) else {})


def has_ui(setting: Setting) -> bool:
    """Return whether Spark's own page is on, as it is by default."""
    return is_on(setting, _UI, default=True)


@contextmanager
def local_ui(setting: Setting, master: str) -> Iterator[None]:
    """If Spark's own page is on and the executors are on this machine, only this machine reaches the page.

    Spark reads the address from the environment of its JVM alone. So a JVM must start in this block, which changes the
    environment of this process meanwhile, unless the user has set that address.
    """
    if os.environ.get(UI_ADDRESS) or not has_ui(setting) or not is_on_this_machine(master):
        yield
        return
    os.environ[UI_ADDRESS] = _LOOPBACK
    try:
        yield
    finally:
        del os.environ[UI_ADDRESS]


def ui_warnings(setting: Setting, master: str, address: str | None) -> tuple[str, ...]:
    """Return a sentence if others reach Spark's own page though no other machine takes part in the application.

    Args: address: `UI_ADDRESS` in the environment of the JVM.
    """
    if address or not has_ui(setting) or not is_on_this_machine(master):
        return ()
    return (
        f"anyone who reaches the port of Spark's own page can read it: set {_UI}=false, or the environment variable "
        f"{UI_ADDRESS}={_LOOPBACK} before the JVM starts ({_PORTS})",
    )


def is_on(setting: Setting, name: str, *, default: bool = False) -> bool:
    """Return whether a setting is true."""
    return (setting(name) or str(default)).strip().lower() == "true"


def warnings(setting: Setting, master: str) -> tuple[str, ...]:
    """Return the effects of others on an application: one sentence for each risk, with the setting that prevents it."""
    found, section = [], _PORTS if is_local(master) else _CLUSTER
    if not is_on(setting, AUTHENTICATE):
        remedy = f"set {AUTHENTICATE}=true" if is_local(master) else "start with --secure"
        found.append(f"anyone who reaches the ports of this Spark application can run code in it: {remedy} ({section})")
    elif setting(SHUFFLE) != AUTHENTICATED_SHUFFLE:
        found.append(
            "anyone who reaches the ports of the streaming shuffle can read records of keyed steps and stop them: set "
            f"{SHUFFLE}={AUTHENTICATED_SHUFFLE} when you build the session ({_PORTS})"
        )
    if is_local(master):
        return tuple(found)
    uses_tls = is_on(setting, TLS)
    if not is_on(setting, ENCRYPT) and not uses_tls:
        found.append(
            "passwords and records cross the network unencrypted between driver and executors: start with --secure, "
            f"or set {AUTHENTICATE}=true and {ENCRYPT}=true ({section})"
        )
    elif uses_tls and not any(map(setting, _TRUSTED)):
        found.append(
            "somebody between the machines can read and change the data, because Spark accepts every certificate: "
            f"start with --secure, or set {_TRUSTED[0]} ({section})"
        )
    elif not uses_tls and (setting(CIPHER) != AUTHENTICATED_CIPHER or is_on(setting, FALLBACK, default=True)):
        found.append(
            "somebody between the machines can change encrypted data undetected, or switch the encryption off: start "
            f"with --secure, or set {CIPHER}={AUTHENTICATED_CIPHER} and {FALLBACK}=false on all machines ({section})"
        )
    return tuple(found)


def described(setting: Setting, master: str) -> tuple[str, ...]:
    """Return sentences on whether the connections between driver and executors are protected; none if it has none."""
    found = tuple(f"{text[0].upper()}{text[1:]}." for text in warnings(setting, master))
    if found or is_local(master):
        return found
    return ("The connections between driver and executors are authenticated and encrypted.",)
