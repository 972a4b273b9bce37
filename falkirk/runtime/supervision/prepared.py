"""Prepared: the first half of a host's start, which a standby does before it is needed.

A standby loads the application, starts Spark, plans, and warms the queries of its live regions up. Then it waits for a
second line of settings. With that line it takes charge as any new host does (process.py). Until then it knows the home
only by its path and identity: it opens neither the home nor its store, makes no claim, and writes no topic.
"""

import hashlib
import os
import queue
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from pyspark.find_spark_home import _find_spark_home

from falkirk.declare.load import broker_of, load_application
from falkirk.errors.conditions.supervision import SESSION_LOST_GONE
from falkirk.kafka_client.topics import Topics
from falkirk.plan.patterns import with_topics
from falkirk.plan.planner import plan_application
from falkirk.plan.schemas import Use, with_schemas
from falkirk.plan.slots import slots_to_have
from falkirk.platform.durable import write_atomically
from falkirk.recovery.ownership.identity import identity_of
from falkirk.runtime.spark.live.warming import Warming
from falkirk.runtime.supervision.settings import PLANNED, STATE, WARM, HostSettings
from falkirk.runtime.supervision.start import application_session
from falkirk.spark_setup.submitted import add_py_files

#: The time between two checks of a standby, while it warms up and after that.
_WARMING_S, _WAITING_S = 0.2, 2.0


class Prepared:
    """A loaded and planned application with a Spark session.

    Args: settings: of the standby. Attributes: app, session, plan. slots: those of the session.
    """

    def __init__(self, settings: HostSettings) -> None:
        began_s, self._settings = time.time(), settings
        add_py_files(settings.conf)
        app = load_application(Path(settings.file), leased=settings.leased)
        connection = broker_of(app, settings.kafka)
        topics = Topics(connection)
        self.app = with_schemas(with_topics(app, topics.names, connection), Path(settings.home), Use.STANDBY)
        self._files = digests(Path(settings.file), began_s)
        self.slots = slots_to_have(self.app, topics)
        self.session = application_session(self.app, settings.master, self.slots, settings.conf, secure=settings.secure)
        self.plan = plan_application(self.app, self.session, identity_of(Path(settings.home)))
        assert settings.standby is not None
        self._folder = Path(settings.standby)
        self._warming = Warming(self.plan, self.session, connection, self._folder)
        self._ends = threading.Thread(target=self._warming.stop, name="falkirk-warming", daemon=True)

    def await_settings(self, lines: "queue.SimpleQueue[str]", stopping: threading.Event) -> HostSettings | None:
        """Warm up until the settings of a host arrive, and return them. None: this standby is to end.

        Args: lines: further lines of standard input. Raises: SparkError: `SESSION_LOST`: the JVM died.
        """
        self._tell(PLANNED)
        self._warming.start(interrupted=lambda: stopping.is_set() or not lines.empty())
        pause_s = _WARMING_S
        while not stopping.is_set():
            try:
                line = lines.get(timeout=pause_s)
            except queue.Empty:
                self._require_jvm()
                if pause_s == _WARMING_S and self._warming.is_done():
                    self._warming.stop()
                    cast(Any, self.session)._jvm.System.gc()  # else it keeps the memory that only the start needed
                    pause_s = _WAITING_S
                    self._tell(WARM)
                continue
            self._require_jvm()
            self._ends.start()
            return HostSettings.of(line)
        return None

    def difference(self, settings: HostSettings) -> str:
        """Return the reason why a host with these settings can't use this; "" if it can."""
        mine = replace(self._settings, standby=None)
        now = replace(
            settings, generation=mine.generation, force=mine.force, failures=mine.failures, replaced=mine.replaced,
            died_at_s=mine.died_at_s,
        )  # fmt: skip
        if now != mine:
            return "it was started with other settings"
        changed = sorted(name for name, digest in self._files.items() if _digest(Path(name)) != digest)
        return f"changed since it was loaded: {', '.join(changed)}" if changed else ""

    def await_rest(self) -> None:
        """Wait until the queries that warm up have stopped, before others need their slots."""
        self._ends.join()

    def _require_jvm(self) -> None:
        if cast(Any, self.session).sparkContext._gateway.proc.poll() is not None:
            raise SESSION_LOST_GONE.error()

    def _tell(self, state: str) -> None:
        write_atomically(self._folder / STATE, state)


def digests(file: Path, began_s: float) -> dict[str, str]:
    """Return a digest of each file on which a host's work depends: the application's, those that it imports, Spark's.

    Args: file: the application's. Only modules in its folder count. began_s: when it was loaded. A file that was
        written after that gets a digest that it never has.
    """
    folder = file.resolve().parent
    loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    paths = {Path(name).resolve() for name in loaded if name}
    own = {path for path in paths if path.is_relative_to(folder) and "site-packages" not in path.parts}
    conf = Path(os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home()) / "conf")
    deciding = (file.resolve(), conf / "spark-defaults.conf", *own)
    return {str(path): _digest(path) if _changed_at_s(path) <= began_s else "" for path in deciding}


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "missing"


def _changed_at_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
