"""Checks the built wheel in an empty virtual environment: `falkirk init shop`, its test, and a run with a local broker.

    python tools/check_wheel.py [--python PYTHON] [--empty-cache]

It builds the wheel of this checkout, installs it with its dependencies from the registry, and follows the README of the
new project: nothing of this checkout is on the path. The cache of this run is a temporary folder, so the check uses no
broker of the user's. The JVM dependencies are copied from the user's cache unless `--empty-cache` is given.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
#: The results of the two orders that the project sends: each item's count when it is sold.
RESULTS = [
    '{"item":"tea","sold":1,"customer":"ann"}',
    '{"item":"milk","sold":1,"customer":"ann"}',
    '{"item":"tea","sold":2,"customer":"bob"}',
]
#: How long the broker and Spark may take to start.
PATIENCE_S = 300.0


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
    ran(python, "-m", "venv", scratch / "env", cwd=scratch, env=plain)
    tools = scratch / "env" / "bin"
    ran(tools / "python", "-m", "pip", "install", "--quiet", wheel, "pytest", cwd=scratch, env=plain)
    env = plain | {"FALKIRK_CACHE": str(cache), "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    found = ran(
        tools / "python", "-c", "import falkirk, sys; print(falkirk.__file__, sys.version)", cwd=scratch, env=env
    )
    assert found.startswith(str(scratch)), found
    say(f"installed into an empty environment: {found.strip().partition(' ')[2]}")
    ran(tools / "falkirk", "init", "shop", cwd=scratch, env=env)
    project = scratch / "shop"
    say(f"falkirk init: {', '.join(sorted(path.name for path in project.iterdir()))}")
    say(ran(tools / "pytest", "-q", cwd=project, env=env).strip().splitlines()[-1])
    run_with_broker(tools, project, env)
    print("the wheel works")


def run_with_broker(tools: Path, project: Path, env: dict[str, str]) -> None:
    """Run the project with a local broker, send orders, and compare the results."""
    log = project / "run.log"
    with open(log, "wb") as output:
        running = subprocess.Popen(
            [tools / "falkirk", "run", "shop.py", "--local"], cwd=project, env=env, stdout=output, stderr=output
        )
    try:
        broker = await_broker(tools, project, env, running, log)
        say(f"falkirk run --local: broker at {broker}")
        printed = ran(tools / "python", "send.py", broker, cwd=project, env=env).split()
        if sorted(printed) != sorted(RESULTS):
            sys.exit(f"the results are\n{printed}\n{log.read_text()[-5000:]}")
        say("the results of two orders are right")
        running.send_signal(signal.SIGINT)
        if running.wait(60):
            sys.exit(f"falkirk run ended with {running.returncode}:\n{log.read_text()[-5000:]}")
    finally:
        running.kill()
        running.wait()
        ran(tools / "falkirk", "kafka", "stop", cwd=project, env=env)


def await_broker(tools: Path, project: Path, env: dict[str, str], running: "subprocess.Popen[bytes]", log: Path) -> str:
    """Return the address of the broker once the application runs."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if running.poll() is not None:
            sys.exit(f"falkirk run ended with {running.returncode}:\n{log.read_text()[-5000:]}")
        shown = subprocess.run([tools / "falkirk", "status", "shop.py"], cwd=project, env=env, capture_output=True)
        if shown.returncode == 0 and b"running" in shown.stdout:
            return ran(tools / "falkirk", "kafka", "status", cwd=project, env=env).split()[0]
        time.sleep(2)
    sys.exit(f"the application does not run after {PATIENCE_S:.0f} s:\n{log.read_text()[-5000:]}")


if __name__ == "__main__":
    BEGAN_S = time.monotonic()
    main()
