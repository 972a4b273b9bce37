"""Settings: what the coordinator tells its host. It needs no Spark, so the coordinator starts quickly."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

#: The file of a home with the counts of failures, if no coordinator passes them on: see counts.py.
COUNTS_FILE = "failures.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """The settings that the coordinator gives its host, as JSON in the first line of standard input.

    Args: coordinator: its process id. generation: the home's generation, which the host's writes name. failures: the
        counts of the host before it. Others: as `RunSettings`.
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

    def to_json(self) -> str:
        """Return the settings as one line."""
        return json.dumps(asdict(self))
