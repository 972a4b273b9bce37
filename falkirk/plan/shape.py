"""Shape: describes an application in its home, so that commands need neither its planning nor Spark."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from falkirk.errors.conditions.plan import HOME_DAMAGED_SHAPE, REGION_UNKNOWN
from falkirk.kafka_client.topics import Topics
from falkirk.plan.plan import Plan
from falkirk.plan.region import BatchLogs, RegionLogs
from falkirk.plan.unit import UnitLogs
from falkirk.platform.data import DataPath
from falkirk.platform.local_data import LocalData
from falkirk.platform.stored import parse_json
from falkirk.recovery.protocol.layout import Layout, Stage, TimeDomain
from falkirk.theory.ids import LogId, LogKind

_FILE = "shape.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Args: regions, batches: upstream first. processors: the names of the processors of each region."""

    layout: Layout
    regions: tuple[RegionLogs, ...]
    batches: tuple[BatchLogs, ...]
    processors: dict[str, tuple[str, ...]]

    @property
    def units(self) -> tuple[UnitLogs, ...]:
        """The regions and batches, upstream first."""
        return (*self.regions, *self.batches)

    @property
    def dead_letters(self) -> dict[str, LogId]:
        """The topics of dead letters, by the names of their units."""
        return {unit.name: unit.dead_letters for unit in self.units if unit.dead_letters is not None}

    @property
    def full_history(self) -> tuple[str, ...]:
        """The processors whose history is never collected."""
        return tuple(batch.name for batch in self.batches if batch.full_history)

    def region_of(self, name: str) -> str | None:
        """Return the region with that name, or the last one that runs the processor with that name."""
        if name in self.layout.stages:
            return name
        return next((r for r, names in reversed(self.processors.items()) if name in names), None)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all regions and processors."""
        processors = [p for names in self.processors.values() for p in names]
        return tuple(dict.fromkeys([*self.layout.stages, *processors]))

    def require_region(self, name: str) -> str:
        """Return `region_of(name)`. Raises: DefinitionError: `REGION_UNKNOWN`."""
        region = self.region_of(name)
        if region is None:
            raise REGION_UNKNOWN.error(region=name, names=", ".join(self.names))
        return region

    def write(self, home: Path | DataPath) -> None:
        """Write it into a home, or to the place of its data."""
        content = {
            "stages": [asdict(stage) for stage in self.layout.stages.values()],
            "partitions": dict(self.layout.partitions),
            "held": dict(self.layout.held),
            "regions": [asdict(r) | {"where": str(r.where)} for r in self.regions],
            "batches": [asdict(b) for b in self.batches],
            "processors": self.processors,
        }
        place = LocalData(home) if isinstance(home, Path) else home
        (place / _FILE).write_text(json.dumps(content, indent=1))


def planned_shape(plan: Plan, topics: Topics) -> Shape:
    """Return the shape of a planned application whose topics exist.

    Raises: LogError.
    """
    return Shape(
        layout=layout_of(plan, lambda topic: topics.facts(topic).partitions),
        regions=tuple(region.logs() for region in plan.regions),
        batches=tuple(batch.logs() for batch in plan.batches),
        processors={unit.name: unit.processors for unit in plan.units},
    )


def layout_of(plan: Plan, partitions_of: Callable[[str], int]) -> Layout:
    """Return a planned application as a graph for the theory. Args: partitions_of: counts a topic's partitions."""
    logs = {log for unit in plan.units for log in unit.tracked}
    return Layout(
        stages={unit.name: unit.stage() for unit in plan.units},
        partitions={log: partitions_of(log) if log.kind is LogKind.TOPIC else 1 for log in sorted(logs)},
        held={unit.writes: unit.held_for for unit in plan.units if unit.held_for is not None},
    )


def read_shape(home: Path | DataPath) -> Shape | None:
    """Return the shape of the application that ran in a home, or None if none did.

    Args: home: its folder, or the place of its data.
    Raises: HomeError: `HOME_DAMAGED`. StoreError: `DATA_AWAY`, `DATA_UNUSABLE`.
    """
    file = home / _FILE
    try:
        content = parse_json(file.read_text())
        stages = [
            Stage(
                **{
                    **s,
                    "inputs": _logs(s["inputs"]),
                    "output": LogId(s["output"]),
                    "views": _logs(s["views"]),
                    "times": TimeDomain(s["times"]),
                }
            )
            for s in content["stages"]
        ]
        logs = ("source", "output", "dead_letters")
        regions = [{**r, **{k: LogId(r[k]) for k in logs if r.get(k) is not None}} for r in content["regions"]]
        return Shape(
            layout=Layout(
                stages={s.name: s for s in stages},
                partitions={LogId(log): number for log, number in content["partitions"].items()},
                held={LogId(log): sink for log, sink in content["held"].items()},
            ),
            regions=tuple(map(_region_logs, regions)),
            batches=tuple(map(_batch_logs, content.get("batches", ()))),
            processors={name: tuple(names) for name, names in content["processors"].items()},
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise HOME_DAMAGED_SHAPE.error(where=file) from error


def _logs(names: Iterable[str]) -> tuple[LogId, ...]:
    return tuple(LogId(name) for name in names)


def _region_logs(content: dict[str, Any]) -> RegionLogs:
    keyed_by = content.get("keyed_by")
    keyed = None if keyed_by is None else tuple(map(str, keyed_by))
    # Earlier versions had one join at most, and wrote its right source, or null.
    joined = content.get("joined") or ()
    logs = {
        "joined": _logs((joined,) if isinstance(joined, str) else joined),
        "others": _logs(content.get("others", ())),
        "views": _logs(content.get("views", ())),
    }
    texts = {name: tuple(content.get(name, ())) for name in ("steps", "chain")}
    return RegionLogs(**{**content, **logs, **texts, "keyed_by": keyed})


def _batch_logs(content: dict[str, Any]) -> BatchLogs:
    dead_letters = content.get("dead_letters")
    logs = {
        "log": LogId(content["log"]),
        "topics": _logs(content.get("topics", ())),
        "files": _logs(content.get("files", ())),
        "dead_letters": None if dead_letters is None else LogId(dead_letters),
    }
    return BatchLogs(**{**content, **logs, "sinks": tuple(content.get("sinks", ()))})
