"""The start of a host up to its first write, for a host in its own process and for one in the user's process.

The order is one for both: the topics of patterns, the claim on the home, the session, the plan, the topics, the host.
The claim comes before the plan, because planning takes seconds and writes into the home.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from falkirk.declare.application import Application
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.topics import Topics
from falkirk.plan.objective import chosen_for
from falkirk.plan.patterns import with_topics
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from falkirk.plan.schemas import Use, with_schemas
from falkirk.plan.slots import RegionSlots, check_slots, slots_needed
from falkirk.plan.topics import notes_on_clocks, prepare_topics, refuse_shared_on_same_cluster
from falkirk.platform.traced import Recorder, step
from falkirk.recovery.ownership.claim import Claim
from falkirk.recovery.ownership.folder import Home
from falkirk.recovery.ownership.process_records import ProcessRecord
from falkirk.runtime.spark.context import Context
from falkirk.runtime.supervision.failures import Failures
from falkirk.runtime.supervision.host import Host
from falkirk.runtime.supervision.measurements import Launch
from falkirk.spark_setup.spark import spark_session

log = logging.getLogger("falkirk")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssembledHost:
    """A host that has not started. It has written nothing into topics yet, and may not until `claim.await_former`.

    Args: claim, session, plan: with which it starts. slots: those that its regions need. available: those of the
        session.
    """

    host: Host
    claim: Claim
    session: SparkSession
    plan: Plan
    slots: tuple[RegionSlots, ...]
    available: int


def application_session(
    app: Application, master: str | None, slots: int, conf: Mapping[str, str] | None = None, *,
    secure: str | Path | None = None,
) -> SparkSession:  # fmt: skip
    """Return the Spark session of an application.

    Args: slots: the number for a local master, if no master is named. conf: the user's settings. secure: as of
        `spark_session`.
    """
    return spark_session(
        app.name,
        master=master or f"local[{slots}]",
        buffer_timeout=app.buffer_timeout,
        state_partitions=app.state_partitions,
        conf=conf,
        data=app.data,
        secure=secure,
    )


def assemble_host(
    app: Application, connection: Connection, home: Home, session_of: Callable[[Application], SparkSession], *,
    create_topics: bool, is_once: bool, launch: Launch, failures: Failures, recorder: Recorder,
    on_claim: Callable[[Claim], object], planned: Plan | None = None,
    say: Callable[[str], None] = log.info, warn: Callable[[str], None] = log.warning,
) -> AssembledHost:  # fmt: skip
    """Claim the home, plan the application, prepare its topics, check the slots, and return the host.

    Args: home: open, and without processes of a former run. session_of: returns the session for an application whose
        topics are known. create_topics: create missing topics. is_once, launch, failures, say: as of `Host`. on_claim:
        receives the claim as soon as there is one. planned: the plan that a standby has made; None: make one. warn:
        receives one line about each topic whose clock differs.
    """
    if planned is None:
        app = with_topics(app, lambda cluster: Topics(connection).names(cluster), connection)
    claim = Claim(connection, home)
    on_claim(claim)
    session = session_of(app)
    record_processes(home, session)
    plan = _plan(app, session, home, planned, launch)
    context = Context(
        session=session, connection=connection, home=home, state_partitions=app.state_partitions,
        transactional=plan.transactional, recorder=recorder,
    )  # fmt: skip
    with step("topics"):
        prepare_topics(plan, context.topics, create_missing=create_topics)
        refuse_shared_on_same_cluster(plan, context.topics)
    for note in notes_on_clocks(plan, context.topics):
        warn(note)
    slots = slots_needed(plan, context.topics)
    available = check_slots(slots, session)
    host = Host(plan, context, history=app.history, say=say, failures=failures, is_once=is_once, launch=launch)
    return AssembledHost(host=host, claim=claim, session=session, plan=plan, slots=slots, available=available)


def _plan(app: Application, session: SparkSession, home: Home, planned: Plan | None, launch: Launch) -> Plan:
    """Return the plan with which a host starts. Its intervals fit the recovery objectives and the measurements."""
    with step("plan"):
        if planned is None:
            planned = plan_application(with_schemas(app, home.path, Use.START), session, home.identity)
        return chosen_for(planned, home.store.measurements, standby=launch.keeps_standby)


def record_processes(home: Home, session: Any) -> None:
    """Record this process's JVM and Spark application, which the next run must end before it reads outputs."""
    home.record_processes((ProcessRecord.of(jvm_pid(session), "jvm"),), (session.sparkContext.applicationId,))


def jvm_pid(session: Any) -> int:
    """Return the process id of a session's JVM."""
    return int(session._jvm.java.lang.ProcessHandle.current().pid())
