"""Exposure: what of a Spark application others can reach, by its settings, and what closes it.

Spark's driver listens for calls, and so do executors on a cluster. Without `spark.authenticate` Spark deserializes what
anybody sends there, and only then looks at who sends it: whoever reaches the port can run code as the user. With a
local master Spark makes up a secret by itself, so it is on by default. On a cluster all machines must know the secret,
so only the user can switch it on, and we warn.
"""

import re
from collections.abc import Callable

AUTHENTICATE = "spark.authenticate"
#: Either of them encrypts calls between driver and executors.
_ENCRYPTING = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
#: The masters for which Spark makes up a secret, and everything is in one JVM.
_LOCAL = re.compile(r"local(\[[^\]]*\])?")
Setting = Callable[[str], str | None]
"""Returns a setting of a Spark application, by its name."""


def is_local(master: str) -> bool:
    """Tell whether driver and executor are one JVM."""
    return _LOCAL.fullmatch(master) is not None


def context_settings(master: str) -> dict[str, str]:
    """Return what a new application on that master is started with unless its user says otherwise."""
    return {AUTHENTICATE: "true"} if is_local(master) else {}


def warnings(setting: Setting, master: str) -> tuple[str, ...]:
    """Return what others can do to an application, one sentence each with what closes it."""

    def is_on(name: str) -> bool:
        return (setting(name) or "").strip().lower() == "true"

    found = []
    if not is_on(AUTHENTICATE):
        secret = "" if is_local(master) else ", and where the cluster asks for it spark.authenticate.secret"
        found.append(
            f"whoever reaches the ports of this Spark application can run code in it: set {AUTHENTICATE}=true{secret}"
        )
    if not is_local(master) and not any(map(is_on, _ENCRYPTING)):
        found.append(
            "passwords and records cross the network in clear between driver and executors: set "
            f"{AUTHENTICATE}=true and {_ENCRYPTING[0]}=true"
        )
    return tuple(found)
