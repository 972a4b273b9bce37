"""The Spark session: a new one with the settings that Falkirk needs, or the user's own, with its settings checked."""

import logging
import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from falkirk.declare.policy import Duration, duration_s
from falkirk.errors import SparkError
from falkirk.errors.conditions.spark_setup import SESSION_SETTINGS_MISSING, SESSION_SETTINGS_MISSING_TOKENS
from falkirk.errors.spark import JVM_ERRORS
from falkirk.kafka_client.connection import Connection
from falkirk.kafka_client.signing import KEY_PATTERN
from falkirk.platform import private
from falkirk.spark_setup import exposure, hadoop, objects, rule_times
from falkirk.spark_setup.archive import driver_class_path, options
from falkirk.spark_setup.cluster_plugin import CLUSTER_PLUGIN
from falkirk.spark_setup.few_calls import save_calls
from falkirk.spark_setup.jars import s3_jars
from falkirk.spark_setup.java import find_java
from falkirk.spark_setup.java_options import AVRO_LIMITS, LATE_SECOND_COMPILER, PINNED, QUICK_COMPILER
from falkirk.spark_setup.jvm import unseen
from falkirk.spark_setup.module import application_jars, jar_key, module_jar
from falkirk.spark_setup.secure import SECRET, hand_over, lacking, secure_settings, secure_value
from falkirk.spark_setup.submitted import JARS, PLUGINS, PY_FILES, choose_python, chooses_local_folders, merge_settings

log = logging.getLogger("falkirk")

_STATE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_LOCAL_FILES = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
_CONNECTOR = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
#: A class of Falkirk's Java module.
_MODULE = "org.falkirk.Header"

#: The setting with the way in which Spark reads times.
TIME_PARSER = "spark.sql.legacy.timeParserPolicy"
#: Settings without which an active session can't run a live region, each with the reason.
ESSENTIAL = {
    "spark.sql.streaming.stateStore.providerClass": (_STATE, "Real-time Mode keeps state in RocksDB"),
    "spark.sql.streaming.stateStore.checkpointFormatVersion": ("2", "a checkpoint must be restorable exactly"),
    "spark.speculation": ("false", "a second attempt of a task that writes ends its query"),
    TIME_PARSER: ("CORRECTED", "LEGACY reads other times than were written, and EXCEPTION ends a query"),
}
#: Settings whose default is the needed value.
_WELL_BY_DEFAULT = {"spark.speculation": "false", TIME_PARSER: "CORRECTED"}
#: The number of batches for which Spark keeps restorable states. A live region sets it for its query.
RETAIN = "spark.sql.streaming.minBatchesToRetain"
#: The number of batches without a history: after a failure, a query restores at most a few batches back.
SPARE_BATCHES = 100
#: The scheduling pool of live regions, in fairscheduler.xml.
LIVE_POOL = "falkirk-live"
#: The scheduling pool of batches.
BATCH_POOL = "falkirk-batch"
#: The scheduling pool of releases: a finished result does not wait for computations.
RELEASE_POOL = "falkirk-release"

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_BUILD = "Build the session with falkirk.spark_session(), or set these values when you build it."

#: A property with the servers from which Kafka's Java client may fetch tokens.
_TOKEN_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"

#: Reads topics, also records whose timestamps Spark's own source can't hold: see `KafkaSource.java`.
KAFKA_SOURCE = "org.falkirk.KafkaSource"

#: Default settings of a new Spark application, also under spark-submit. Explicit settings have priority.
_CONTEXT_SETTINGS = {
    # If a batch job shares the session, live regions get the next free slots, and wait for them without an error.
    "spark.scheduler.mode": "FAIR",
    "spark.scheduler.allocation.file": Path(__file__).with_name("fairscheduler.xml").as_uri(),
    "spark.scheduler.pipelinedGroup.slotCheck.enabled": "false",
    # A second attempt of a task refuses to write (falkirk/runtime/spark/attempts.py), so Spark need not try one.
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    # Spark writes a text of each plan for its user interface, each time it adapts the plan. The short form suffices.
    "spark.sql.ui.explainMode": "simple",
    # Over TCP, the message that ends a Python worker's input waits 40 ms for an acknowledgement, in each task.
    "spark.python.unix.domain.socket.enabled": "true",
    # A stopped or lost executor is noticed within seconds, because a live region on it gives no results meanwhile.
    "spark.executor.heartbeatInterval": "2s",
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "5s",
    # A task that runs out of memory fails without ending the JVM, since a file of a few megabytes may contain one line
    # of gigabytes. The code that meets the error decides (runtime/spark/epochs/failures.py). On a cluster, the tasks of
    # other regions would fail with the executor, and nobody could say which region is the cause.
    "spark.executor.killOnFatalError.depth": "0",
}
#: Further settings for a cluster. An executor ends itself when its driver has not answered for this many intervals
#: (recovery/ownership/executors.py). A local master does not get the setting. Its executor is in the driver's JVM, and
#: misses heartbeats while a busy machine still starts it.
_CLUSTER_SETTINGS = {"spark.executor.heartbeat.maxFailures": "10"}
_EXECUTOR_CLASS_PATH = "spark.executor.extraClassPath"
#: Further settings for executors in separate JVMs. Spark puts them before the user's own Java options.
_EXECUTOR_OPTIONS = "spark.executor.defaultJavaOptions"
_EXECUTOR_SETTINGS = {_EXECUTOR_OPTIONS: " ".join(PINNED)}


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingSetting:
    """A setting that a session lacks: its name, the needed value, the value found, and the reason."""

    name: str
    wanted: str
    found: str | None
    reason: str


def spark_session(
    application: str,
    *,
    master: str = "local[8]",
    buffer_timeout: Duration = "1 ms",
    state_partitions: int = 2,
    settings: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
    data: str | None = None,
    brief: bool = False,
    shows_log: bool = True,
    secure: str | Path | None = None,
) -> SparkSession:
    """Return the active session, or a new one that can run live regions.

    Args:
        master: for a new session; with `spark-submit`, the master that it has named is used.
        buffer_timeout: how long a record may wait for others in a shuffle; becomes whole milliseconds, at least 1.
        state_partitions: the number of state partitions of each keyed step.
        settings: further Spark settings of a new session.
        conf: those that the user has given on the command line: see submitted.py.
        data: the address of the home's data, if they are in an object store.
        brief: the session is for a command that runs for seconds. Its JVM compiles code quickly and once, which halves
            the CPU time of a plan.
        shows_log: whether the standard error of a new JVM is shown. Commands that only look at an application
            show their own errors instead.
        secure: authenticate and encrypt the connections between driver and executors: a file with the secret that the
            machines of a standalone cluster know, or ``"generated"`` where Spark generates one.
    Raises: SparkError: `SESSION_SETTINGS_MISSING`, with the list; `MASTER_REFUSED`. MachineError: no Java, or no
        dependencies; `SECRET_FILE_INVALID`. DefinitionError: `SECURE_UNSUITABLE`, `SECURE_CONTRADICTED`.
    """
    secure = None if secure is None else secure_value(secure, option="secure=")
    active = _present()
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if active is None and not submitted:
        choose_python(conf or {})
    wanted = session_settings(buffer_timeout=buffer_timeout, state_partitions=state_partitions)
    if active is None:
        builder = SparkSession.builder.appName(application)
        if not submitted:
            builder = builder.master(master)
            wanted = {**_launch_settings(master, data), **wanted}
            if brief:
                wanted[_JAVA_OPTIONS] = f"{wanted.get(_JAVA_OPTIONS, '')} {QUICK_COMPILER}"
        given = _submitted_with() if submitted else {}
        chosen = given.get("spark.master", master)
        context = _CONTEXT_SETTINGS | exposure.context_settings(chosen) | hadoop.local_paths(chosen, data)
        context |= {} if exposure.is_local(chosen) else _EXECUTOR_SETTINGS | _CLUSTER_SETTINGS
        context |= {} if data is None else objects.settings(data)
        wanted = {name: value for name, value in context.items() if name not in given} | wanted
        if secure is not None:
            given.pop(SECRET, None)  # of spark-defaults.conf; Spark uses the one of `secure`
            wanted |= secure_settings(secure, chosen, {**given, **(settings or {}), **(conf or {})})
        built = merge_settings({**wanted, **(settings or {})}, conf or {})
        if exposure.has_ui({**given, **built}.get):
            built = {name: value for name, value in exposure.HARMLESS_UI.items() if name not in given} | built
        built.pop(PY_FILES, None)
        with nullcontext() if shows_log else unseen(), exposure.local_ui({**given, **built}.get, chosen):
            if secure is not None:
                built = _with_secret(secure, chosen, application, built)
            for name, value in built.items():
                builder = builder.config(name, value)
            active = builder.getOrCreate()
        for path in filter(None, (conf or {}).get(PY_FILES, "").split(",")):
            active.sparkContext.addPyFile(path)
        save_calls(active)
        hadoop.forget_defaults(active)
        rule_times.forget_rule_times(active)
        _warn(active)
    else:
        active.conf.set("spark.sql.shuffle.partitions", str(state_partitions))
        if data is not None:
            objects.prepare_session(active, data)
    _limit_avro(active)
    missing = missing_settings(active, data, secure=secure)
    if missing:
        raise unsuitable_session(missing, _BUILD)
    return active


def _with_secret(secure: str, master: str, application: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Give the driver its secret; return the settings with which it starts. Raises: `SESSION_SETTINGS_MISSING`."""
    built = hand_over(secure, master, application, settings)
    if built is None:
        reason = "the list must contain the Java module of this Falkirk"
        raise unsuitable_session((_missing_jars(application_jars(), None, reason),), _BUILD)
    return built


def _limit_avro(active: SparkSession) -> None:
    """Set Avro's limits in a JVM that was started without them, if its classes are not loaded yet."""
    system: Any = cast(Any, active)._jvm.System
    for name, value in AVRO_LIMITS.items():
        if system.getProperty(name) is None:
            system.setProperty(name, value)


def unsuitable_session(missing: tuple[MissingSetting, ...], hint: str) -> SparkError:
    """Return the error for a session that lacks settings of live regions."""
    lacks = "; ".join(f"{m.name} must be {m.wanted} ({m.reason}), it is {m.found}" for m in missing)
    return SESSION_SETTINGS_MISSING.error(missing=missing, lacks=lacks, advice=hint)


def _submitted_with() -> dict[str, str]:
    """Return the settings given to spark-submit, from the JVM to which PySpark connects at its first context."""
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def exposed(active: SparkSession) -> tuple[str, ...]:
    """Return the effects that others can have on the application, one sentence each with a remedy."""
    setting, master = active.sparkContext.getConf().get, active.sparkContext.master or ""
    address = cast(Any, active)._jvm.System.getenv(exposure.UI_ADDRESS)
    return exposure.warnings(setting, master) + exposure.ui_warnings(setting, master, address)


def protection(active: SparkSession) -> tuple[str, ...]:
    """Return sentences on whether the connections between driver and executors are protected; none if it has none."""
    return exposure.described(active.sparkContext.getConf().get, active.sparkContext.master or "")


def _warn(active: SparkSession) -> None:
    """Log the effects that others can have on the application, once at its start."""
    for warning in exposed(active):
        log.warning("%s", warning)


def _present() -> SparkSession | None:
    """Return this process's session, or None. Ignore the additional sessions of a region or a user.

    PySpark calls such a session active once it has created rows in it.
    """
    if SparkSession.getActiveSession() is None:
        return None
    return SparkSession.builder.getOrCreate()


def session_settings(*, buffer_timeout: Duration, state_partitions: int) -> dict[str, str]:
    """Return the SQL settings of a session for live regions; they can also be given to spark-submit."""
    wait_ms = max(1, round(duration_s(buffer_timeout) * 1000))
    return {
        **{name: value for name, (value, _) in ESSENTIAL.items() if name not in _WELL_BY_DEFAULT},
        TIME_PARSER: ESSENTIAL[TIME_PARSER][0],
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": str(wait_ms),
        "spark.sql.shuffle.partitions": str(state_partitions),
        "spark.sql.session.timeZone": "UTC",
        RETAIN: str(SPARE_BATCHES),
        "spark.sql.streaming.realTimeMode.minBatchDuration": "1000ms",
        "spark.sql.adaptive.enabled": "false",
        # Otherwise PySpark makes thirteen additional JVM calls for each call, to name the line in Spark's errors.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.redaction.string.regex": KEY_PATTERN,  # in plans that Spark prints
    }


def _launch_settings(master: str, data: str | None = None) -> dict[str, str]:
    """Return the settings that must be known before the JVM starts."""
    log4j = f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')}"
    more = s3_jars() if objects.needs_jars(data) else ()
    # Falkirk's jars are included: a class archive covers the JVM's own class path, but not jars from spark.jars.
    # The Java module comes after the jars that the archive covers, so the archive fits every module.
    class_path = os.pathsep.join(map(str, (*driver_class_path(), module_jar(), *more)))
    archived = options("spark", find_java())
    settings = {
        "spark.driver.extraClassPath": class_path,
        _JAVA_OPTIONS: " ".join([log4j, *PINNED, *LATE_SECOND_COMPILER, *archived]),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if not exposure.is_local(master):  # executors are separate JVMs
        settings[PLUGINS] = CLUSTER_PLUGIN
        if exposure.is_on_this_machine(master):  # they find the driver's jars and archive
            settings |= {_EXECUTOR_CLASS_PATH: class_path, _EXECUTOR_OPTIONS: " ".join([*PINNED, *archived])}
        else:
            settings[JARS] = ",".join(map(str, (*application_jars(), *more)))
    if exposure.is_on_this_machine(master):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        # On a cluster the folder may not exist; executors have their own temporary folders.
        settings["spark.python.unix.domain.socket.dir"] = str(private.temporary_folder())
        if not chooses_local_folders():  # Spark lets others read what shuffles write, unless the umask forbids it
            settings["spark.local.dir"] = settings["spark.python.unix.domain.socket.dir"]
        settings |= {} if data is None else {objects.BUFFERS: str(private.temporary_folder() / "uploads")}
        settings["spark.python.daemon.module"] = "falkirk.spark_setup.workers"
        # Hadoop's local file system forks chmod for every committed file, which takes most of the pause at a
        # checkpoint.
        settings |= {
            "spark.hadoop.fs.file.impl": _LOCAL_FILES,
            "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
        }
    return settings


def missing_settings(
    active: SparkSession, data: str | None = None, *, secure: str | None = None
) -> tuple[MissingSetting, ...]:
    """Return the settings that a session lacks.

    Args: data: the address of data in an object store. secure: as of `secure_value`.
    """
    missing = []
    if secure is not None:
        found_of = active.sparkContext.getConf().get
        for name, wanted in lacking(found_of).items():
            missing.append(MissingSetting(name=name, wanted=wanted, found=found_of(name), reason="for secure="))
    for name, (wanted, reason) in ESSENTIAL.items():
        found = active.conf.get(name, _WELL_BY_DEFAULT.get(name))
        if found != wanted:
            missing.append(MissingSetting(name=name, wanted=wanted, found=found, reason=reason))
    if _class(active, _CONNECTOR) is None:
        missing.append(_missing_jars(application_jars(), None, "the list must contain Spark's Kafka connector"))
    else:
        version = _module_key(active)
        if version != jar_key():
            missing.append(
                _missing_jars((module_jar(),), version, "the list must contain the Java module of this Falkirk")
            )
    if place := hadoop.other_place(active, data):
        name, wanted, found = place
        missing.append(MissingSetting(name=name, wanted=wanted, found=found, reason="Falkirk's paths have no scheme"))
    if objects.needs_jars(data) and _class(active, objects.FILE_SYSTEM) is None:
        missing.append(_missing_jars(s3_jars(), None, f"the home {data} is in an object store"))
    return tuple(missing)


def _missing_jars(jars: tuple[Path, ...], found: str | None, reason: str) -> MissingSetting:
    return MissingSetting(name="spark.jars", wanted=",".join(map(str, jars)), found=found, reason=reason)


def _module_key(active: SparkSession) -> str | None:
    """Return the key of the Java module on the driver's class path, or None."""
    found = _class(active, _MODULE)
    version = None if found is None else found.getPackage().getImplementationVersion()
    return version if isinstance(version, str) else None


def _class(active: SparkSession, name: str) -> Any:
    """Return a Java class of a session, or None."""
    from py4j.protocol import Py4JJavaError

    jvm = active._jvm
    assert jvm is not None
    try:
        return jvm.org.apache.spark.util.Utils.classForName(name, False, False)
    except Py4JJavaError:
        return None


def kafka_options(session: SparkSession, connection: Connection) -> dict[str, str]:
    """Return the options of Spark's Kafka source and sink; they contain secrets.

    Kafka's Java client fetches tokens only from addresses in a property of its JVM. This function sets the property in
    this JVM.

    Raises: SparkError: `SESSION_SETTINGS_MISSING`: executors are separate JVMs, and their property lacks the address.
    """
    if connection.token_url is not None:
        jvm = cast(Any, session)._jvm
        listed = str(jvm.System.getProperty(_TOKEN_URLS, "")).split(",")
        if connection.token_url not in listed:
            jvm.System.setProperty(_TOKEN_URLS, ",".join([*filter(None, listed), connection.token_url]))
        _tell_executors(session, f"-D{_TOKEN_URLS}=", connection.token_url)
    return connection.spark_options()


def _tell_executors(session: SparkSession, option: str, url: str) -> None:
    """Refuse a cluster whose executors were started without the address of the token server."""
    name = "spark.executor.extraJavaOptions"
    given = session.sparkContext.getConf().get(name) or ""
    several = [word.removeprefix(option).split(",") for word in given.split() if word.startswith(option)]
    if writes_elsewhere(session) and not any(url in urls for urls in several):
        missing = MissingSetting(name=name, wanted=f"{option}{url}", found=given or None, reason="for OAUTHBEARER")
        raise SESSION_SETTINGS_MISSING_TOKENS.error(missing=(missing,), url=url, name=name, option=option)


def writes_elsewhere(session: SparkSession) -> bool:
    """Return whether producers may remain in other JVMs, where this process can't flush them."""
    return not exposure.is_local(session.sparkContext.master or "")


def cancel_jobs(session: SparkSession, group: str) -> None:
    """Cancel the running jobs of a group and those about to start, because they might write."""
    try:
        session.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(group)
    except JVM_ERRORS as error:  # the JVM is dead, and so are its jobs
        log.warning("cancelling the jobs of %s failed: %s", group, error)
