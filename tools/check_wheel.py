"""Checks the built wheel in an empty virtual environment: follows the first ten minutes of the tutorial to their end.

    python tools/check_wheel.py [--python PYTHON] [--empty-cache]

It builds the wheel of this checkout, and runs each command on the page: it installs the wheel with its dependencies
from the registry, makes a project, runs it with a local broker and the dashboard, sends orders, kills the Spark
application, sees on the page's stream that the regions run again, and runs the tests. Nothing of this checkout is on
the path. The cache of this run is a temporary folder, so the check uses no broker of the user's. The JVM dependencies
are copied from the user's cache unless `--empty-cache` is given.
"""

import argparse
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
PAGE = ROOT / "docs" / "tutorial.md"
#: How long the broker and Spark may take to start.
PATIENCE_S = 300.0
#: The time after which a stream of the page that has ended is opened again.
PAUSE_S = 1.0
#: The page's stream is silent for less than this time.
SILENT_S = 30.0


def say(text: str) -> None:
    """Print a line with the seconds since the start."""
    print(f"{time.monotonic() - BEGAN_S:5.0f} s  {text}", flush=True)


def ran(*command: str | Path, cwd: Path, env: dict[str, str]) -> str:
    """Run a command to its end, and return its output. Ends this check if the command fails."""
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def main() -> None:
    """Do it all, in a temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the Python of the environment")
    parser.add_argument("--empty-cache", action="store_true", help="download the JVM dependencies")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="falkirk-wheel-check-") as scratch:
        check(Path(scratch), options.python, with_jars=not options.empty_cache)


def check(scratch: Path, python: str, *, with_jars: bool) -> None:
    """Build, install, and follow the first steps of a new user."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FALKIRK", "VIRTUAL"))}
    build = plain | {"FALKIRK_BUILD_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    ran(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", scratch / "dist", cwd=ROOT, env=build)
    (wheel,) = (scratch / "dist").glob("falkirk-*.whl")
    say(f"built {wheel.name}, {wheel.stat().st_size:,} bytes")
    cache = scratch / "cache"
    if with_jars:
        from falkirk.spark_setup.cache import cache_home

        cache.mkdir(mode=0o700)
        if (cache_home() / "jars").is_dir():
            shutil.copytree(cache_home() / "jars", cache / "jars")
    Tutorial(scratch, wheel, python, plain | {"FALKIRK_CACHE": str(cache)}).follow()
    print("the wheel works")


def section() -> str:
    """Return the part of the tutorial that is checked."""
    return PAGE.read_text().partition("\n## Ten minutes")[2].partition("\n## ")[0]


def commands() -> Iterator[list[str]]:
    """Yield the indented lines of that part, block by block: commands, or what one of them prints."""
    text = re.sub(r"^```.*?^```$", "", section(), flags=re.MULTILINE | re.DOTALL)
    for block in re.findall(r"(?:^ {4}.*\n)+", text, re.MULTILINE):
        yield [line[4:] for line in block.splitlines()]


class Tutorial:
    """One reader of the tutorial. Args: env: the environment of the commands, without the one to be made."""

    def __init__(self, scratch: Path, wheel: Path, python: str, env: dict[str, str]) -> None:
        self.folder, self.wheel, self.python, self.env = scratch, wheel, python, env
        self.log = scratch / "run.log"
        self.running: subprocess.Popen[bytes] | None = None
        self.sending: subprocess.Popen[str] | None = None
        #: The output of the last command of the page.
        self.printed = ""

    def follow(self) -> None:
        """Run each command of the page."""
        try:
            for block in commands():
                if block[0].startswith("{") or block[0].startswith("120 orders"):
                    self.compare(block)
                    continue
                for line in block:
                    self.do(line)
                    say(f"$ {line}")
            assert self.running is not None, "the page runs an application"
            assert self.sending is not None, "and sends it orders"
            self.running.send_signal(signal.SIGINT)
            if self.running.wait(60):
                self.fail(f"falkirk run ended with {self.running.returncode}")
        finally:
            for process in (self.running, self.sending):
                if process is not None:
                    process.kill()
                    process.wait()
            if "PATH" in self.env and shutil.which("falkirk", path=self.env["PATH"]):  # else nothing was installed
                self.ran("falkirk", "kafka", "stop")

    def do(self, line: str) -> None:
        """Run one command of the page."""
        match line.split():
            case ["python3", "-m", "venv", name]:
                ran(self.python, "-m", "venv", self.folder / name, cwd=self.folder, env=self.env)
            case [".", path]:
                tools = (self.folder / path).parent
                self.env |= {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
            case ["pip", "install", "./falkirk", *others]:  # the wheel is of this checkout
                self.ran("python", "-m", "pip", "install", "--quiet", str(self.wheel), *others)
                found = self.ran("python", "-c", "import falkirk; print(falkirk.__file__)")
                assert str(self.folder) in found, found
            case ["cd", name]:
                self.folder /= name
            case ["falkirk", "run", *arguments]:
                with open(self.log, "wb") as output:
                    self.running = subprocess.Popen(
                        [self.tool("falkirk"), "run", *arguments], cwd=self.folder, env=self.env, stdout=output,
                        stderr=output,
                    )  # fmt: skip
                with contextlib.closing(self.shown()) as shown:
                    self.await_all("running", shown)
            case ["python", "send.py", "120"]:
                self.sending = subprocess.Popen(
                    [self.tool("python"), *line.split()[1:], *self.broker()], cwd=self.folder, env=self.env, text=True,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                )  # fmt: skip
                assert self.sending.stdout is not None
                for _ in range(20):  # results
                    self.sending.stdout.readline()
            case ["python", "send.py"]:
                self.printed = self.ran(*line.split(), *self.broker())
            case ["pkill", "-9", "-f", _]:
                self.kill()
            case ["falkirk", "init", _] | ["falkirk", "setup"]:
                self.ran(*line.split())
            case ["pytest"]:
                (code,) = re.findall(r"^```python\n# file: test_more.py\n(.*?)^```$", section(), re.M | re.S)
                (self.folder / "test_more.py").write_text(code)
                passed = self.ran("pytest", "-q").strip().splitlines()[-1]
                assert passed.startswith(re.findall(r"`(\d+ passed)`", section())[0]), passed
            case _:
                self.fail(f"this check does not know the command {line!r} of the page")

    def compare(self, block: list[str]) -> None:
        """Compare the output of the last command with the page."""
        if self.sending is not None:
            self.printed = self.sending.communicate(timeout=PATIENCE_S)[0].splitlines()[-1]
        if sorted(self.printed.splitlines()) != sorted(block):
            self.fail(f"the page says\n{block}, and this was printed:\n{self.printed}")
        say(f"printed: {self.printed.splitlines()[-1]}")

    def kill(self) -> None:
        """Kill each process that the page's command would kill, of this run alone, and see the page recover."""
        hosts = self.hosts()
        assert hosts, "there is a Spark application"
        with contextlib.closing(self.shown()) as shown:
            self.await_all("running", shown)  # so the stream is open, and no later state is missed
            for pid in hosts:
                os.kill(pid, signal.SIGKILL)
            self.await_all("starting", shown)
            self.await_all("running", shown)

    def hosts(self) -> list[int]:
        """Return the processes of Spark applications that this run has started."""
        import psutil

        assert self.running is not None
        below = psutil.Process(self.running.pid).children(recursive=True)
        return [p.pid for p in below if "falkirk.runtime.supervision.process" in p.cmdline()]

    def await_all(self, state: str, shown: Iterator[dict[str, str]]) -> None:
        """Wait until the page shows all regions in this state. Args: shown: see the method."""
        deadline = time.monotonic() + PATIENCE_S
        for states in shown:
            if states and set(states.values()) == {state}:
                say(f"the page: {states}")
                return
            if time.monotonic() > deadline:
                self.fail(f"the page does not show that all regions are {state}: {states}")

    def shown(self) -> Generator[dict[str, str]]:
        """Yield the state of each region whenever the page changes, and while it does not, every few seconds."""
        while True:
            if self.running is None or self.running.poll() is not None:
                self.fail("falkirk run has ended")
            # The page may not listen yet, or break the connection.
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException), self.stream() as stream:
                yield from states_of(stream)
            yield {}
            time.sleep(PAUSE_S)

    def stream(self) -> Any:
        """Open the stream of the page."""
        link = re.search(r"the dashboard is at (\S+); its token is in\s+(\S+)", self.log.read_text())
        if link is None:
            raise OSError("falkirk run has not named the page yet")
        headers = {"Authorization": f"Bearer {(self.folder / link[2]).read_text().strip()}"}
        return urllib.request.urlopen(
            urllib.request.Request(f"{link[1]}/api/stream", headers=headers), timeout=SILENT_S
        )

    def broker(self) -> list[str]:
        """Return the option of send.py that names the broker of this run."""
        return ["--broker", self.ran("falkirk", "kafka", "status").split()[0]]

    def ran(self, program: str, *arguments: str) -> str:
        """Run a program of the new environment to its end; return its output."""
        return ran(self.tool(program), *arguments, cwd=self.folder, env=self.env)

    def tool(self, program: str) -> str:
        """Return the path of a program in the environment of the page."""
        found = shutil.which(program, path=self.env["PATH"])
        assert found is not None, program
        return found

    def fail(self, reason: str) -> None:
        """End the check."""
        sys.exit(f"{reason}\n{self.log.read_text()[-5000:] if self.log.exists() else ''}")


def states_of(stream: Any) -> Iterator[dict[str, str]]:
    """Yield the states of the regions after each event in a stream of the page, and after each sign of life."""
    event, states = "", dict[str, str]()
    for line in stream:
        name, _, content = line.decode().strip().partition(": ")
        if name == "event":
            event = content
        elif name == "data" and event == "now":
            states = {name: region["state"] for name, region in json.loads(content)["units"].items()}
        if name in ("data", ""):
            yield states


if __name__ == "__main__":
    BEGAN_S = time.monotonic()
    main()
