"""A real YARN for tests: a ResourceManager and a NodeManager, each in its own process, with files in a folder.

It is for FALKIRK_YARN=1 alone: the first use downloads 93 MB into the cache of this machine. Its file system is
that of this machine, since all of its containers run here.
"""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import psutil
import pyspark

from falkirk.platform.free_ports import free_ports
from falkirk.spark_setup.java import find_java
from tests.object_server import server_jars
from tests.support import wait_until

_HERE = Path(__file__).parent
_UP_S = 240.0
_SERVERS = {
    "resourcemanager": "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager",
    "nodemanager": "org.apache.hadoop.yarn.server.nodemanager.NodeManager",
}
_JVM = (
    "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--add-opens=java.base/java.lang=ALL-UNNAMED",
)  # fmt: skip
_LOGGING = """log4j.rootLogger=INFO,out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.target=System.err
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c{1} %m%n
"""


def is_chosen() -> bool:
    """Return whether the environment chooses this server."""
    return os.environ.get("FALKIRK_YARN") == "1"


class YarnServer:
    """A running YARN of one node. Attributes: conf: the folder for HADOOP_CONF_DIR, of servers and clients."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="falkirk-yarn-"))
        self.conf, self._processes = self._folder / "conf", dict[str, subprocess.Popen[bytes]]()
        self.conf.mkdir()
        names = (
            "resourcemanager.address", "resourcemanager.scheduler.address", "resourcemanager.resource-tracker.address",
            "resourcemanager.admin.address", "resourcemanager.webapp.address", "nodemanager.address",
            "nodemanager.localizer.address", "nodemanager.webapp.address",
        )  # fmt: skip
        addresses = {
            f"yarn.{name}": f"127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)
        }
        self._web = addresses["yarn.resourcemanager.webapp.address"]
        self._write("core-site.xml", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(self._folder / "tmp")})
        self._write("yarn-site.xml", addresses | self._settings())
        (self.conf / "log4j.properties").write_text(_LOGGING)
        try:
            for name in _SERVERS:
                self.start(name)
        except BaseException:
            self.close()
            raise

    def _settings(self) -> dict[str, str]:
        scheduler = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
        return {
            "yarn.resourcemanager.scheduler.class": scheduler,  # the other one gives a tenth to application masters
            "yarn.scheduler.minimum-allocation-mb": "256",
            "yarn.nodemanager.resource.memory-mb": "8192",
            "yarn.nodemanager.resource.cpu-vcores": "32",
            "yarn.nodemanager.local-dirs": str(self._folder / "local"),
            "yarn.nodemanager.log-dirs": str(self.logs),
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.enable": "false",
            "yarn.nm.liveness-monitor.expiry-interval-ms": "10000",
            "yarn.resourcemanager.am.max-attempts": "1",
        }

    @property
    def logs(self) -> Path:
        """The folder with the output of containers."""
        return self._folder / "logs"

    @property
    def env(self) -> dict[str, str]:
        """The environment of a client."""
        return {"HADOOP_CONF_DIR": str(self.conf)}

    def start(self, name: str) -> None:
        """Start one of the two servers and wait for it. Args: name: ``resourcemanager`` or ``nodemanager``."""
        java = find_java().command
        home = Path(shutil.which(java) or java).resolve().parents[1]
        jars = map(str, server_jars(_HERE / "jars.sha256", _HERE / "ivy.xml"))
        command = [java, *_JVM, "-cp", ":".join([str(self.conf), *jars]), _SERVERS[name]]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, env={**os.environ, "JAVA_HOME": str(home)}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, cwd=self._folder,
            )  # fmt: skip
        wait_until(lambda: self._serves(name), _UP_S, lambda: f"{name}\n{self.log()}")

    def kill(self, name: str) -> None:
        """kill -9 of one of the two servers. Containers of a NodeManager outlive it."""
        self._processes[name].kill()
        self._processes[name].wait()

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs of executors."""
        return self._jvms("YarnCoarseGrainedExecutorBackend")

    def masters(self) -> list[psutil.Process]:
        """Return the JVMs of application masters: in cluster mode, the drivers."""
        return self._jvms(
            "org.apache.spark.deploy.yarn.ApplicationMaster", "org.apache.spark.deploy.yarn.ExecutorLauncher"
        )

    def _jvms(self, *mains: str) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
                line = process.cmdline()
                is_java = bool(line) and Path(line[0]).name == "java"
                if is_java and {*mains} & {*line} and str(self._folder) in process.cwd():
                    found.append(process)
        return found

    def applications(self) -> list[dict[str, Any]]:
        """Return what the ResourceManager tells of its applications."""
        return self._ask("apps").get("apps", {}).get("app", [])

    def log(self) -> str:
        """Return the ends of the output of both servers."""
        files = [self._folder / f"{name}.log" for name in _SERVERS]
        return "\n".join(file.read_text(errors="replace")[-3000:] for file in files if file.exists())

    def container_logs(self) -> str:
        """Return the output of all containers."""
        return "\n".join(f.read_text(errors="replace") for f in sorted(self.logs.glob("*/*/std*")))

    def close(self) -> None:
        """Kill all of it, and remove its folder."""
        for name in self._processes:
            self.kill(name)
        for process in self._jvms("YarnCoarseGrainedExecutorBackend") + self.masters():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        shutil.rmtree(self._folder)

    def _serves(self, name: str) -> bool:
        assert self._processes[name].poll() is None, self.log()
        with contextlib.suppress(OSError):
            running = self._ask("metrics")["clusterMetrics"]["activeNodes"]
            return name == "resourcemanager" or running == 1
        return False

    def _ask(self, what: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{self._web}/ws/v1/cluster/{what}", timeout=10) as answer:
            told: dict[str, Any] = json.load(answer)
        return {name: value or {} for name, value in told.items()}

    def _write(self, name: str, settings: dict[str, str]) -> None:
        lines = (f"<property><name>{k}</name><value>{escape(v)}</value></property>" for k, v in settings.items())
        (self.conf / name).write_text("<configuration>\n" + "\n".join(lines) + "\n</configuration>\n")


def spark_settings() -> dict[str, str]:
    """Return the settings by which containers use the jars of this machine, in place of copies."""
    return {"spark.yarn.jars": f"local:{Path(pyspark.__file__).parent}/jars/*"}
