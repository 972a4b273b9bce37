"""One broker and one JVM with Spark for all workers of a test run, and folders that one of them makes.

The first worker that needs one starts it. A broker or a JVM in each worker would load, interpret and compile the same
code again, and idle brokers cost CPU time as well.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import psutil
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from falkirk.spark_setup import broker as local_broker
from falkirk.spark_setup.broker import Broker
from falkirk.spark_setup.few_calls import save_calls
from falkirk.spark_setup.submitted import choose_python
from tests.support import wait_until

#: How long the worker that has started the JVM waits for the others at the end of the run, in seconds. Each of them may
#: still have two of the longest tests.
END_S = 360.0


@contextmanager
def shared_broker(run: Path) -> Iterator[Broker]:
    """Use the broker of a run. Args: run: a folder that all workers of the run have in common."""
    folder, users = run / "broker", run / "broker-users"
    users.mkdir(exist_ok=True)
    me = users / str(os.getpid())
    with _locked(run / "broker-lock"):
        me.touch()
        broker = local_broker.start(folder, java_options=local_broker.SHORT_RUN)
    try:
        yield broker
    finally:
        with _locked(run / "broker-lock"):
            me.unlink()
            if not any(users.iterdir()):
                local_broker.stop(folder)


def made_once(run: Path, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that the first worker which needs it makes: whole, or not at all if `make` fails.

    Args: run: a folder that all workers of the run have in common. make: fills an empty folder.
    """
    folder, part = run / name, run / f"{name}-part"
    with _locked(run / f"{name}-lock"):
        if not folder.exists():
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            make(part)
            part.rename(folder)
    return folder


@contextmanager
def shared_session(run: Path, others: int, start: Callable[[], SparkSession]) -> Iterator[SparkSession]:
    """Use the JVM of a run, in a session with its own settings, views and functions.

    The worker that starts the JVM lets it listen at a port for each of the others, and ends it after their use. A
    worker that finds no such JVM, or no free port, starts one.

    Args: run: as above. others: the number of other workers. start: starts a JVM.
    """
    file, users = run / "spark-ports.json", run / "spark-users"
    users.mkdir(exist_ok=True)
    me = users / str(os.getpid())
    with _locked(run / "spark-lock"):
        owner, ports = json.loads(file.read_text()) if file.exists() else (0, [])
        if SparkContext._active_spark_context is not None:  # a test has started an application without the fixture
            session, owned = start(), True
        elif ports and psutil.pid_exists(owner):
            session, owned = _connect(*ports.pop()), False
            file.write_text(json.dumps((owner, ports)))
            me.touch()
        else:
            session, owned = start(), True
            file.write_text(json.dumps((os.getpid(), [_listen(session) for _ in range(others)])))
    try:
        yield session
    finally:
        if owned:
            wait_until(lambda: _is_unused(run, users, file), END_S, "the other workers")
            gateway = cast(Any, session.sparkContext)._gateway
            session.stop()
            gateway.proc.stdin.close()  # this ends the JVM, as the end of this process does
            gateway.proc.wait(60)
        else:
            me.unlink()


def _is_unused(run: Path, users: Path, file: Path) -> bool:
    """Return whether no other worker uses a JVM; then none may begin to."""
    with _locked(run / "spark-lock"):
        if any(psutil.pid_exists(int(user.name)) for user in users.iterdir()):
            return False
        file.unlink(missing_ok=True)
        return True


def _listen(session: SparkSession) -> tuple[int, str]:
    """Let a JVM listen for another Python process; return the port and the secret."""
    jvm = cast(Any, session)._jvm
    server = jvm.org.apache.spark.api.python.Py4JServer(session.sparkContext._jsc.sc().conf())
    jvm.SparkSession.clearActiveSession()  # the threads of the server would inherit it
    try:
        server.start()
    finally:
        jvm.SparkSession.setActiveSession(cast(Any, session)._jsparkSession)
    return server.getListeningPort(), server.secret()


def _connect(port: int, secret: str) -> SparkSession:
    """Return a new session in the JVM that listens at a port, and make it the session of this process."""
    choose_python({})
    os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    try:
        SparkContext._ensure_initialized()
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    jvm = cast(Any, SparkContext._jvm)
    running = jvm.org.apache.spark.SparkContext.getOrCreate()
    java = jvm.JavaSparkContext.fromSparkContext(running)
    context = SparkContext(gateway=SparkContext._gateway, jsc=java, conf=SparkConf(_jconf=running.conf()))
    classic = jvm.org.apache.spark.sql.classic.SparkSession
    session = SparkSession(context, classic.builder().sparkContext(running).getOrCreate().newSession())
    save_calls(session)
    return session


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with open(file, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
