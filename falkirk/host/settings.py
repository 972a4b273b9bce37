"""Settings: the message of the coordinator to its new host. It needs no Spark, so the coordinator starts quickly."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

#: The file of a home with the counts of failures, if no coordinator passes them on: see counts.py.
COUNTS_FILE = "failures.json"
#: The file in a standby's scratch folder that has its progress, and the contents of this file. Before, it is of no use.
STATE, PLANNED, WARM = "state", "planned", "warm"
#: The exit code of a standby that has failed, or no longer fits: its coordinator starts a host without it.
EXIT_UNUSABLE = 5
#: The exit code of a host that has processed its input in a run with `--once`.
EXIT_OVER = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """The settings that the coordinator gives its host, as JSON in the first line of standard input.

    Args: coordinator: its process id. generation: the home's generation, which the host's writes name. failures: the
        counts of the host before it. standby: the scratch folder of a host that first waits for a second line of
        settings, with which it takes charge (falkirk/host/standby.py). Others: as `RunSettings`.
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

    def to_json(self) -> str:
        """Return the settings as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, line: str) -> "HostSettings":
        """Return the settings of a line."""
        return cls(**json.loads(line))
