"""The start of a host up to its first write, for a host in its own process and for one in the user's process."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from falkirk.declare.application import Application
from falkirk.home.folder import Home, ProcessRecord
from falkirk.host.failures import Failures
from falkirk.host.host import Host
from falkirk.host.measurements import Launch
from falkirk.kafka.connection import Connection
from falkirk.local.spark import session as spark_session
from falkirk.plan.objective import chosen_for
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from falkirk.plan.schemas import Use, with_schemas
from falkirk.plan.slots import RegionSlots, check_slots, slots_needed
from falkirk.plan.topics import notes_on_clocks, prepare_topics
from falkirk.runtime.context import Context
from falkirk.system.traced import Recorder, step

log = logging.getLogger("falkirk")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedHost:
    """A host that has not started. Args: slots: those that its regions need. available: those of the session."""

    host: Host
    slots: tuple[RegionSlots, ...]
    available: int


def application_session(
    app: Application, master: str | None, slots: int, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the Spark session of an application.

    Args: slots: the number for a local master, if no master is named. conf: the user's settings.
    """
    return spark_session(
        app.name,
        master=master or f"local[{slots}]",
        buffer_timeout=app.buffer_timeout,
        state_partitions=app.state_partitions,
        conf=conf,
        data=app.data,
    )


def plan_for_start(
    app: Application, session: SparkSession, home: Home, *, planned: Plan | None = None, keeps_standby: bool = False
) -> Plan:
    """Return the plan with which a host starts. Its intervals fit the recovery objectives and the measurements.

    Args: planned: the plan that a standby has made; None: make one. keeps_standby: as of `Launch`.
    """
    with step("plan"):
        if planned is None:
            planned = plan_application(with_schemas(app, home.path, Use.START), session, home.identity)
        return chosen_for(planned, home.store.measurements, standby=keeps_standby)


def prepare_host(
    plan: Plan, app: Application, session: SparkSession, connection: Connection, home: Home, *, create_topics: bool,
    is_once: bool, launch: Launch, failures: Failures, recorder: Recorder,
    say: Callable[[str], None] = log.info, warn: Callable[[str], None] = log.warning,
) -> PreparedHost:  # fmt: skip
    """Prepare the topics, check the slots, and return the host. It has written nothing into topics yet.

    Args: create_topics: create missing topics. is_once, launch, failures, say: as of `Host`. warn: receives one line
        about each topic whose clock differs.
    """
    context = Context(
        session=session, connection=connection, home=home, state_partitions=app.state_partitions,
        transactional=plan.transactional, recorder=recorder,
    )  # fmt: skip
    with step("topics"):
        prepare_topics(plan, context.topics, create_missing=create_topics)
    for note in notes_on_clocks(plan, context.topics):
        warn(note)
    slots = slots_needed(plan, context.topics)
    available = check_slots(slots, session)
    host = Host(plan, context, history=app.history, say=say, failures=failures, is_once=is_once, launch=launch)
    return PreparedHost(host=host, slots=slots, available=available)


def record_processes(home: Home, session: Any) -> None:
    """Record this process's JVM and Spark application, which the next run must end before it reads outputs."""
    home.record_processes((ProcessRecord.of(jvm_pid(session), "jvm"),), (session.sparkContext.applicationId,))


def jvm_pid(session: Any) -> int:
    """Return the process id of a session's JVM."""
    return int(session._jvm.java.lang.ProcessHandle.current().pid())
