"""Preview: plans an application without running it, and asks a broker for partitions if there is one."""

from pathlib import Path

from falkirk.declare.application import Application
from falkirk.errors import LogError
from falkirk.home.folder import identity_of
from falkirk.kafka.connection import Connection
from falkirk.kafka.topics import Topics
from falkirk.local.spark import session as spark_session
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from falkirk.plan.shown.screen import Shown
from falkirk.plan.shown.why import IDENTITY_UNKNOWN
from falkirk.plan.slots import SPARE_SLOTS, RegionSlots, region_slots

#: The assumed number of partitions of a topic whose broker is not known or does not answer.
PARTITIONS_ASSUMED = 2


def preview(app: Application, *, kafka: str | None, home: Path | None, master: str | None) -> Shown:
    """Return the plan of an application as it would run.

    Raises: DefinitionError, GuaranteeError: as `plan_application`.
    """
    session = spark_session(
        app.name, master=master or "local[2]", state_partitions=app.state_partitions, brief=True, shows_log=False
    )
    plan = plan_application(app, session, _identity(home or app.home))
    connection = Connection.of(kafka) if kafka else app.kafka
    slots = _slots(plan, Topics(connection, timeout_s=3.0) if connection else None)
    needed = sum(s.total for s in slots)
    available = session.sparkContext.defaultParallelism if master else needed + SPARE_SLOTS
    assumed = f"no broker is named, so {PARTITIONS_ASSUMED} partitions are assumed for each topic."
    return Shown(
        plan=plan, slots=slots, available=available, is_provided=master is None, home=home or app.home,
        broker=None if connection is None else connection.bootstrap,
        notes=(assumed,) if connection is None and plan.regions else (),
    )  # fmt: skip


def _identity(home: Path) -> str:
    """Return the home's identity, which is part of internal topics' names, or a placeholder before its first run."""
    try:
        return identity_of(home)
    except (OSError, ValueError, KeyError):
        return IDENTITY_UNKNOWN


def _slots(plan: Plan, topics: Topics | None) -> tuple[RegionSlots, ...]:
    found = []
    requests = {push.topic.topic for push in plan.push}
    for region in plan.regions:
        ours = region.reads_hop or region.source.topic.topic in requests
        partitions = plan.state_partitions if ours else PARTITIONS_ASSUMED
        if topics is not None and not ours:
            try:
                partitions = topics.facts(region.source.topic.topic).partitions
            except LogError:
                partitions = PARTITIONS_ASSUMED
        found.append(region_slots(region, partitions, plan.state_partitions))
    return tuple(found)
