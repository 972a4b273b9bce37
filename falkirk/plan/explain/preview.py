"""Preview: plans an application without running it, and asks a broker for partitions if there is one."""

from collections.abc import Iterable
from pathlib import Path

from falkirk.declare.application import Application
from falkirk.declare.clusters import with_clusters
from falkirk.errors import HomeError, LogError, StoreError
from falkirk.errors.conditions.declare import BROKER_MISSING
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.plan.explain.screen import Shown
from falkirk.plan.explain.why import IDENTITY_UNKNOWN
from falkirk.plan.objective import chosen_for, previewed
from falkirk.plan.patterns import shown_matches, with_topics
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from falkirk.plan.schemas import with_schemas
from falkirk.plan.slots import SPARE_SLOTS, RegionSlots, region_slots
from falkirk.plan.topics import notes_on_clocks
from falkirk.platform import locks
from falkirk.recovery.ownership.folder import attach_home
from falkirk.recovery.ownership.identity import IDENTITY_FILE, identity_of
from falkirk.spark_setup.spark import protection, spark_session
from falkirk.theory.ids import cluster_of
from falkirk.theory.objective import Measurements

#: The assumed number of partitions of a topic whose broker is not known or does not answer.
PARTITIONS_ASSUMED = 2
#: The broker must answer within this time.
BROKER_WAIT_S = 3.0


def preview(
    app: Application, *, kafka: str | None, home: Path | None, master: str | None, secure: str | None = None
) -> Shown:
    """Return the plan of an application as it would run. Args: secure: as of `spark_session`.

    Raises: DefinitionError, GuaranteeError: as `plan_application`. LogError: as `partitions_of`,
        `notes_on_clocks` and, for an application with patterns, `with_topics`.
    """
    session = spark_session(
        app.name, master=master or "local[2]", state_partitions=app.state_partitions, brief=True, shows_log=False,
        secure=secure,
    )  # fmt: skip
    own = Connection.of(kafka) if kafka else app.kafka
    connection = None if own is None else with_clusters(app, own)
    app = with_schemas(_with_topics(app, connection), home or app.home)
    planned = plan_application(app, session, _identity(home or app.home))
    known, unread = measurements_of(app, planned, home or app.home)
    plan = chosen_for(planned, lambda name: known.get(name, Measurements()), standby=False)
    objectives = tuple(text for region in plan.regions for text in previewed(region, known))
    partitions: dict[str, int] = {}
    notes: tuple[str, ...] = ()
    if connection is not None:
        topics = Topics(connection, timeout_s=BROKER_WAIT_S)
        partitions, notes = partitions_of(topics, _outside(plan), connection.bootstrap)
        if not notes:  # the broker knows all topics
            notes = notes_on_clocks(plan, topics)
    elif plan.regions:
        unnamed = "no broker is named (--kafka HOST:PORT)"
        notes = (f"{unnamed}, so {PARTITIONS_ASSUMED} partitions are assumed for each topic.",)
    notes = (*shown_matches(app), *notes, *unread, *protection(session))
    slots = _slots(plan, partitions)
    needed = sum(s.total for s in slots)
    available = session.sparkContext.defaultParallelism if master else needed + SPARE_SLOTS
    return Shown(
        plan=plan, slots=slots, available=available, is_provided=master is None, home=home or app.home,
        data=app.data, broker=None if connection is None else connection.bootstrap,
        notes=notes, objectives=objectives,
    )  # fmt: skip


def _with_topics(app: Application, connection: Connection | None) -> Application:
    """Return the application with the topics of its patterns, which only a broker knows.

    Raises: DefinitionError: `BROKER_MISSING`. LogError: as `with_topics`.
    """
    if connection is None:
        if app.patterns:
            raise BROKER_MISSING.error(app=app.name)
        return app
    return with_topics(app, lambda cluster: Topics(connection, timeout_s=BROKER_WAIT_S).names(cluster), connection)


def measurements_of(app: Application, plan: Plan, home: Path) -> tuple[dict[str, Measurements], tuple[str, ...]]:
    """Return what a home has measured about the regions with an objective, and a note if it can't be read.

    Nothing is measured before the first run. This takes no lock, so the application may run.
    """
    names = [region.name for region in plan.regions if region.has_objective]
    if not names or not all((home / name).exists() for name in (IDENTITY_FILE, locks.OWNER)):
        return {}, ()
    try:
        with attach_home(home, app.name, app.store, app.data) as held:
            return {name: held.store.measurements(name) for name in names}, ()
    except (HomeError, StoreError) as error:
        return {}, (f"the measurements of the home can't be read ({error.condition}), so guesses take their place.",)


def _identity(home: Path) -> str:
    """Return the home's identity, which is part of internal topics' names, or a placeholder before its first run."""
    try:
        return identity_of(home)
    except (OSError, ValueError, KeyError):
        return IDENTITY_UNKNOWN


def partitions_of(topics: Topics, names: Iterable[str], broker: str) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the number of partitions of each topic that the broker knows, and a note about the other topics.

    A broker that does not answer is asked only once, because each question waits for its time-out. The login is tried
    even without `names`: a plan of requests or batches must not hide a wrong password until the start.

    A broker that accepts the login, but refuses to list its topics, is asked about each topic.

    Raises: LogError: `ACCESS_REFUSED`: the broker refuses the user itself, or its certificate is not trusted. No other
        condition: without an answer, the plan is still right but for the numbers of partitions.
    """
    known: dict[str, int] = {}
    notes: list[str] = []
    names = list(names)
    try:
        topics.await_broker(BROKER_WAIT_S)
    except LogError as error:
        if error.condition == "ACCESS_REFUSED":
            raise
        if error.condition == "BROKER_AWAY":
            assumed = f", so {PARTITIONS_ASSUMED} partitions are assumed for each topic" if names else ""
            return {}, (f"{broker} does not answer{assumed}.",)
        notes.append(f"{broker} does not list its topics ({error.condition}).")
    for name in names:
        try:
            known[name] = topics.facts(name).partitions
        except LogError as error:
            if error.condition == "BROKER_AWAY" and (cluster := cluster_of(name)):
                notes.append(f"{cluster} does not answer, so {PARTITIONS_ASSUMED} partitions are assumed for {name}.")
                continue
            if error.condition == "BROKER_AWAY":
                rest = "each topic" if name == names[0] else "the other topics"
                notes.append(f"{broker} does not answer, so {PARTITIONS_ASSUMED} partitions are assumed for {rest}.")
                break
            missing = error.condition == "TOPIC_MISSING"
            why = "does not exist yet" if missing else f"can't be read ({error.condition})"
            notes.append(f"topic {name} {why}, so {PARTITIONS_ASSUMED} partitions are assumed.")
    return known, tuple(notes)


def _outside(plan: Plan) -> list[str]:
    """Return the topics of users that live regions read. Falkirk itself creates the other ones."""
    own = {push.topic.topic for push in plan.push} | _clocks(plan)
    read = [source.topic.topic for region in plan.regions for source in region.sources if not source.is_hop]
    return [topic for topic in dict.fromkeys(read) if topic not in own]


def _clocks(plan: Plan) -> set[str]:
    """Return the topics of clocks. Each has one partition."""
    return {clock.topic for clock in plan.clocks}


def _slots(plan: Plan, partitions: dict[str, int]) -> tuple[RegionSlots, ...]:
    found, asked = [], {*_outside(plan), *_clocks(plan)}
    partitions = partitions | dict.fromkeys(_clocks(plan), 1)
    for region in plan.regions:
        count = 0
        for source in region.sources:
            topic = source.topic.topic
            count += partitions.get(topic, PARTITIONS_ASSUMED) if topic in asked else plan.state_partitions
        found.append(region_slots(region, count, plan.state_partitions))
    return tuple(found)
