"""Exposure: reports how others can reach a Spark application under its settings, and which settings prevent that.

Spark's driver listens for calls, and on a cluster the executors do so too. Without `spark.authenticate`, Spark
deserializes a message before it checks the sender. Anyone who reaches the port can thus run code as the user. With a
local master, Spark generates a secret by itself, so Falkirk enables authentication by default. On a cluster all
machines must know the secret, so only the user can enable it (`falkirk run --secure`, secure.py), and Falkirk warns.
"""

import os
import re
from collections.abc import Callable, Mapping

AUTHENTICATE = "spark.authenticate"
#: The class of the streaming shuffle. Spark's own ignores `spark.authenticate` (docs/decisions/0044).
SHUFFLE, AUTHENTICATED_SHUFFLE = "spark.shuffle.manager.incremental", "org.falkirk.AuthenticatedShuffle"
#: Spark's encryption with keys from the secret.
ENCRYPT = "spark.network.crypto.enabled"
CIPHER, AUTHENTICATED_CIPHER = "spark.network.crypto.cipher", "AES/GCM/NoPadding"
FALLBACK = "spark.network.crypto.saslFallback"
#: TLS.
TLS = "spark.ssl.rpc.enabled"
#: Spark's own page, and whether it can end jobs.
_UI, _UI_ENDS_JOBS = "spark.ui.enabled", "spark.ui.killEnabled"
#: The variable with the address at which it listens; without it, on all interfaces.
_UI_ADDRESS = "SPARK_LOCAL_IP"
#: Masters for which Spark generates a secret; driver and executor are in one JVM.
_LOCAL = re.compile(r"local(\[[^\]]*\])?")
Setting = Callable[[str], str | None]
"""Returns a setting of a Spark application, by its name."""


def is_local(master: str) -> bool:
    """Return whether driver and executor are in one JVM."""
    return _LOCAL.fullmatch(master) is not None


def is_on_this_machine(master: str) -> bool:
    """Return whether all executors are on the driver's machine, in its JVM or, with local-cluster, in others."""
    return is_local(master) or master.startswith("local-cluster[")


def context_settings(master: str) -> dict[str, str]:
    """Return the default settings of a new application on this master."""
    return {SHUFFLE: AUTHENTICATED_SHUFFLE} | ({AUTHENTICATE: "true"} if is_local(master) else {})


def with_local_ui(settings: Mapping[str, str], master: str) -> dict[str, str]:
    """Return the settings of a new application. If Spark's own page is on, only this machine reaches it.

    The page has no password. Spark reads its address from the environment of the JVM alone, so this function changes
    the environment of this process, unless the user has set that address.
    """
    if settings.get(_UI, "").strip().lower() != "true" or not is_on_this_machine(master):
        return dict(settings)
    os.environ.setdefault(_UI_ADDRESS, "127.0.0.1")
    return {_UI_ENDS_JOBS: "false", **settings}


def warnings(setting: Setting, master: str) -> tuple[str, ...]:
    """Return the effects of others on an application: one sentence for each risk, with the setting that prevents it."""

    def is_on(name: str) -> bool:
        return (setting(name) or "").strip().lower() == "true"

    def is_on_by_default(name: str) -> bool:
        return (setting(name) or "").strip().lower() != "false"

    found = []
    if not is_on(AUTHENTICATE):
        remedy = f"set {AUTHENTICATE}=true" if is_local(master) else "start with --secure"
        found.append(f"anyone who reaches the ports of this Spark application can run code in it: {remedy}")
    elif setting(SHUFFLE) != AUTHENTICATED_SHUFFLE:
        found.append(
            "anyone who reaches the ports of the streaming shuffle can read records of keyed steps and stop them: set "
            f"{SHUFFLE}={AUTHENTICATED_SHUFFLE} when you build the session"
        )
    if is_local(master):
        return tuple(found)
    if not is_on(ENCRYPT) and not is_on(TLS):
        found.append(
            "passwords and records cross the network unencrypted between driver and executors: start with --secure, "
            f"or set {AUTHENTICATE}=true and {ENCRYPT}=true"
        )
    elif not is_on(TLS) and (setting(CIPHER) != AUTHENTICATED_CIPHER or is_on_by_default(FALLBACK)):
        found.append(
            "somebody between the machines can change encrypted data undetected, or switch the encryption off: start "
            f"with --secure, or set {CIPHER}={AUTHENTICATED_CIPHER} and {FALLBACK}=false on all machines"
        )
    return tuple(found)


def described(setting: Setting, master: str) -> tuple[str, ...]:
    """Return sentences on whether the connections between driver and executors are protected; none if it has none."""
    found = tuple(f"{text[0].upper()}{text[1:]}." for text in warnings(setting, master))
    if found or is_local(master):
        return found
    return ("The connections between driver and executors are authenticated and encrypted.",)
