"""Settings: those of a run, and the message of the coordinator to its new host. They need no Spark."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

#: The file of a home with the counts of failures, if no coordinator passes them on: see counts.py.
COUNTS_FILE = "failures.json"
#: The file in a standby's scratch folder that has its progress, and the contents of this file. Before, it is of no use.
STATE, PLANNED, WARM = "state", "planned", "warm"
#: The file of a home with the plan of its last start.
PLAN = "plan.json"
#: The exit code of a standby that has failed, or no longer fits: its coordinator starts a host without it.
EXIT_UNUSABLE = 5
#: The exit code of a host that has processed its input in a run with `--once`.
EXIT_OVER = 6
#: A host that shows nothing for this time, in seconds, hangs, and its coordinator replaces it.
SILENT_S = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The settings of a run: file, broker, home and Spark master. None: as the file declares.

    Args: force: recover once even if published results depend on a damaged checkpoint. metrics: where to serve them,
        ``"[host:]port"``; None: nowhere. dashboard: the same for the dashboard; empty: at its usual port. standby: keep
        a second Spark application ready; None: if the machine has memory for it. conf: Spark settings of the user's
        own. once: process the input from before the start, and end; then a standby is kept only if wanted.
        lease_s: wait while another process runs the application, and hold a lease of this length; None: no lease.
        secure: as of `secure_value`; None: Spark's settings decide. It has the path of a secret, and not the secret.
    """

    file: Path
    kafka: str | None = None
    home: Path | None = None
    master: str | None = None
    create_topics: bool = False
    force: bool = False
    metrics: str | None = None
    dashboard: str | None = None
    standby: bool | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    once: bool = False
    lease_s: float | None = None
    secure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """The settings that the coordinator gives its host, as JSON in the first line of standard input.

    Args: coordinator: its process id. generation: the home's generation, which the host's writes name. failures: the
        counts of the host before it. standby: the scratch folder of a host that first waits for a second line of
        settings, with which it takes charge (`standby.py`). leased: its coordinator holds a lease, so another machine
        may take over. replaced: as of `Home`. keeps_standby: the coordinator is told to keep a standby. died_at_s: when
        the host before it died, if one did. Others: as `RunSettings`.
    """

    coordinator: int
    generation: int
    file: str
    home: str
    kafka: str | None
    master: str | None
    create_topics: bool
    force: bool = False
    failures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    standby: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    once: bool = False
    leased: bool = False
    keeps_standby: bool = False
    died_at_s: float | None = None
    replaced: tuple[str, int] | None = None
    secure: str | None = None

    def to_json(self) -> str:
        """Return the settings as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, line: str) -> "HostSettings":
        """Return the settings of a line."""
        content = json.loads(line)
        found = content.get("replaced")
        return cls(**content | {"replaced": None if found is None else tuple(found)})
