"""Home: the folder of one application, with its locks, its identity and the processes that may write for it.

The lock refuses a second process, and the generation in the store refuses a former owner. Processes that outlived a
former run (a host, a JVM whose Python was killed, executors) still hold producers. So the next run kills them before it
reads any output, and finds them by their recorded identity: the first measure of the fence. It reaches only processes
on this machine; for others there is the claim (claim.py).
"""

import contextlib
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import psutil

from falkirk.errors import HomeError, StoreError
from falkirk.errors.conditions.ownership import (
    HOME_DAMAGED_PROCESSES,
    HOME_UNUSABLE_FOLDER,
    LEFTOVER_ALIVE_PROCESSES,
)
from falkirk.errors.conditions.platform import DATA_UNUSABLE
from falkirk.platform import locks, private, processes
from falkirk.platform.data import DataPath
from falkirk.platform.durable import write_atomically
from falkirk.platform.local_data import LocalData
from falkirk.platform.stored import parse_json
from falkirk.platform.times import seconds_since_boot
from falkirk.recovery.decision_store import Lease, Store
from falkirk.recovery.ownership.identity import identify
from falkirk.recovery.ownership.process_records import ProcessRecord, executors_of, kill_host

Value = TypeVar("Value")
#: The record of a standby, and how the name of its scratch folder begins.
STANDBY, SCRATCH = "standby.json", "falkirk-standby-"
#: A file in a home that has had an owner with a lease.
LEASED = "leased"
#: The time between two checks whether a killed process has ended.
_POLL_S = 0.05
#: After a takeover, a host on another machine that can reach the store or the broker ends within this time.
_ELSEWHERE_S = 5.0


class Home:
    """The folder of one application. Use `open_home`; it is a context manager that releases the lock.

    Attributes: path. application: its name. identity: 8 hexadecimal digits, in the header of every record that it
        publishes.
    """

    def __init__(
        self, path: Path, application: str, identity: str, lock: int, store: str | None, generation: int | None = None,
        clock: Callable[[], float] = time.time, data: DataPath | None = None,
    ) -> None:  # fmt: skip
        # Absolute, because the JVM resolves a relative path against its own working directory.
        self.path, self.application, self.identity = path.absolute(), application, identity
        self._lock = lock
        #: Whether old data may be deleted. A host that starts forbids it until all outputs have been compared with the
        #: records. They may be an older copy, and the right one names these files. Meanwhile these stay: files without
        #: a record, old states and results, records of hops and clocks and old HTTP requests. No input is acknowledged.
        self.may_delete = True
        #: Whether the lock of an owner by a lease still has to be taken, or to name this process.
        self._is_unnamed, self._naming = False, threading.Lock()
        #: The machine and the generation of a former owner whose lease was over: it may still hold locks.
        self.replaced: tuple[str, int] | None = None
        #: When the lease of this process began, as of `seconds_since_boot`; None: it has none.
        self.leased_s: float | None = None
        # Regions that have run depend on recorded decisions. With an empty store, they would start from the beginning.
        #: The place of the data. Shared: it is in an object store, so all machines of the application see it.
        self.data: DataPath = LocalData(self.path) if data is None else data
        self.is_shared = data is not None
        has_run = (self.path / "regions").is_dir() if data is None else bool((data / "regions").children())
        place = self.path / "decisions.db" if store is None else store
        self.store = Store(place, identity=identity, clock=clock, must_exist=has_run, generation=generation)

    def take_charge(self) -> None:
        """Become the owner, and refuse all writes of former owners. Only the holder of the lock may call this.

        Raises: StoreError.
        """
        self._beside_orphan(lambda: self.store.take_charge(this_process()))
        self.store.signing_key()  # if it is older than all decisions, all records are signed

    def take_lease(self, seen: Lease | None, lasts_s: float, key: str = "") -> bool:
        """Become the owner if the lease is still `seen` and its lock does not forbid it; return whether this succeeded.

        The lock of an owner protects it unless its lease is over. Then it may be suspended, or on a machine that was
        cut off. If its process is on this machine, it is killed, because it would end itself in any case. That comes
        first: it may be suspended within a write, and nobody else can write to SQLite meanwhile. Else this process
        replaces the file of the lock. A lock that another process holds, such as a command, forbids a takeover.

        Args: seen: the lease that has stood still for its length, was released, or None: of a home without an owner.
            key: as of `LeaseStore.note_waiting`.
        """
        if not locks.is_present(self._lock, self.path, locks.OWNER):
            os.close(self._lock)
            self._lock = locks.open_lock(self.path, locks.OWNER)
        is_over = seen is not None and seen.is_kept
        is_former = seen is not None and is_over and locks.said(self._lock) == str(seen.pid)
        if not locks.take_soon(self._lock) and not is_former:
            return False  # for example, a command that changes the home holds it
        pid, began_s = os.getpid(), None
        try:
            if seen is not None and is_over and self.store.lease() == seen:
                self._end_former(seen)
            began_s = self._beside_orphan(lambda: self.store.take_lease(
                this_process(), seen, lasts_s, machine=processes.machine(), pid=pid, began=processes.began(pid),
                key=key, clock=seconds_since_boot,
            ))  # fmt: skip
        finally:
            if began_s is None:  # another process that waits may take over
                locks.free(self._lock)
        if began_s is None:
            return False
        self.leased_s = began_s
        self.replaced = None if seen is None or not is_over else (seen.machine, seen.generation)
        with contextlib.suppress(OSError):  # a full disk; the store says who owns the home
            (self.path / LEASED).touch(mode=0o600)
        self._is_unnamed = True
        self.name_owner()
        self.store.signing_key()
        return True

    def name_owner(self) -> None:
        """Take the lock of an owner by a lease, and write this process into it, unless that is done.

        It fails on a full disk, so each renewal calls this. The lock tells waiting processes whom they may end.
        """
        with self._naming, contextlib.suppress(OSError):
            if not self._is_unnamed:
                return
            if locks.take_soon(self._lock):
                locks.write_holder(self._lock, str(os.getpid()))
            else:
                former, self._lock = self._lock, locks.replace(self.path, locks.OWNER, str(os.getpid()))
                os.close(former)
            self._is_unnamed = False

    def _end_former(self, former: Lease) -> None:
        """Kill the process of a former owner and what it has started, if it is on this machine."""
        if former.machine != processes.machine() or former.pid == os.getpid():
            return  # it is this one if the store did not confirm that it took the lease, and it waited again
        if (process := processes.find_process(former.pid, former.began)) is not None:
            processes.kill_tree(process, _ELSEWHERE_S)

    def _beside_orphan(self, write: Callable[[], Value]) -> Value:
        """Write as the next owner. If the store does not answer, kill the host of the last owner, and write again.

        Its coordinator may be dead, and it may be suspended within a write, as above.
        """
        try:
            return write()
        except StoreError as error:
            if error.condition != "STORE_AWAY" or error.certainty == "maybe" or not self._end_orphan():
                raise
        return write()

    def _end_orphan(self) -> bool:
        """Kill the host of the last owner if it is on this machine; return whether it has ended by that."""
        lock, until_s, killed = locks.open_lock(self.path, locks.HOST), time.monotonic() + _ELSEWHERE_S, False
        try:
            while not locks.take_soon(lock):
                if (kill_host(lock) is None and not killed) or time.monotonic() > until_s:
                    return False
                killed = True
        finally:
            os.close(lock)
        return killed

    def checkpoint(self, region: str) -> Path:
        """Return the folder of a region's Spark checkpoint."""
        return self.path / "regions" / region

    def data_of(self, region: str) -> DataPath:
        """Return the folder of a batch's epochs."""
        return self.data / "regions" / region

    def record_processes(self, records: "tuple[ProcessRecord, ...]", spark_applications: "tuple[str, ...]") -> None:
        """Record, durably, the processes that may write for this home, and their Spark applications."""
        content = {"processes": [asdict(r) for r in records], "spark_applications": list(spark_applications)}
        write_atomically(self.path / "processes.json", json.dumps(content, indent=1))

    def kill_leftovers(
        self, *, spare_pid: int | None = None, spare_application: str | None = None, timeout_s: float = 20.0
    ) -> tuple[ProcessRecord, ...]:
        """Kill all remaining processes of a former run, including stopped ones; return those that were found.

        Args: spare_pid, spare_application: the JVM and Spark application that this process continues to use, as a
            notebook does. Producers that linger there are flushed instead (falkirk/runtime/spark/fence.py). A
            coordinator spares its standby.
        Raises: HomeError: `LEFTOVER_ALIVE` if one survives, for example a process of another user; `HOME_DAMAGED`.
        """
        hosts = self._kill_former_host(timeout_s)  # first, because it may start others
        hosts += self._kill_standby(spare_pid, timeout_s)
        file = self.path / "processes.json"
        if not file.exists():
            return hosts
        try:
            content = parse_json(file.read_text())
            records = [ProcessRecord(**entry) for entry in content["processes"]]
            spark_applications = list(content["spark_applications"])
        except (ValueError, KeyError, TypeError) as error:
            raise HOME_DAMAGED_PROCESSES.error(where=file) from error
        found = [(r, p) for r in records if (p := r.find()) is not None and p.pid not in (os.getpid(), spare_pid)]
        known = {p.pid for _, p in found}
        found += [
            (r, p)
            for r, p in executors_of([a for a in spark_applications if a != spare_application])
            if p.pid not in known
        ]
        for _, process in found:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                process.kill()
        _, alive = psutil.wait_procs([p for _, p in found], timeout=timeout_s)
        alive = [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
        if alive:
            raise self._left_alive([p.pid for p in alive])
        file.unlink()
        return (*hosts, *(r for r, _ in found))

    def _kill_former_host(self, timeout_s: float) -> tuple[ProcessRecord, ...]:
        """Kill the host that still holds the host's lock, and wait until the lock is free."""
        lock = locks.open_lock(self.path, locks.HOST)
        killed: dict[int, ProcessRecord] = {}
        began_s = time.monotonic()
        try:
            deadline = began_s + timeout_s
            while not locks.try_lock(lock):
                if (record := kill_host(lock)) is not None:
                    killed[record.pid] = record
                if self.replaced is not None and not killed and time.monotonic() > began_s + _ELSEWHERE_S:
                    # Suspended on another machine, or on a dead one whose locks the file server still keeps.
                    os.close(locks.replace(self.path, locks.HOST, ""))
                    break
                if time.monotonic() > deadline:
                    raise self._left_alive(list(killed))
                time.sleep(_POLL_S)
        finally:
            os.close(lock)
        return tuple(killed.values())

    def record_standby(self, record: ProcessRecord, folder: Path) -> None:
        """Record, durably, a standby and its scratch folder. It may not write for this home."""
        content = {"process": asdict(record), "folder": str(folder)}
        write_atomically(self.path / STANDBY, json.dumps(content, indent=1))

    def forget_standby(self) -> None:
        """Delete the record of a standby that has ended."""
        (self.path / STANDBY).unlink(missing_ok=True)

    def _kill_standby(self, spare_pid: int | None, timeout_s: float) -> tuple[ProcessRecord, ...]:
        """Kill the standby of a former run with its JVM, unless it is to be spared, and delete its scratch folder."""
        killed: tuple[ProcessRecord, ...] = ()
        try:
            content = parse_json((self.path / STANDBY).read_text())
            record, folder = ProcessRecord(**content["process"]), Path(content["folder"])
        except FileNotFoundError:
            return ()
        except (ValueError, KeyError, TypeError):  # it writes nothing, and ends because its coordinator has ended
            self.forget_standby()
            return ()
        if record.pid == spare_pid:
            return ()
        if (process := record.find()) is not None:
            if alive := processes.kill_tree(process, timeout_s):
                raise self._left_alive(alive)
            killed = (record,)
        if folder.name.startswith(SCRATCH):
            shutil.rmtree(folder, ignore_errors=True)
        self.forget_standby()
        return killed

    def _left_alive(self, pids: list[int]) -> HomeError:
        named = f"process {pids[0]}" if pids else "a process"
        return LEFTOVER_ALIVE_PROCESSES.error(where=self.path, pids=pids, named=named)

    def forget_processes(self) -> None:
        """Delete the record of processes: none of them writes for this home any more."""
        (self.path / "processes.json").unlink(missing_ok=True)

    def close(self) -> None:
        """Release the lock and the store."""
        self.store.close()
        with self._naming:  # the keeper of the lease may still renew
            self._is_unnamed = False
            os.close(self._lock)

    def __enter__(self) -> "Home":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_home(
    path: Path, application: str, store: str | None = None, *, data: str | None = None, visits: bool = False,
    clock: Callable[[], float] = time.time,
) -> Home:  # fmt: skip
    """Open or create the home of an application, take its lock, and become its owner.

    Args: store: the URL of the database with its decisions; None: a file in the home. data: the address of its data in
        an object store; None: they are in the home. visits: do not become the owner,
        so that an owner that uses the same store elsewhere can continue. clock: as of `Store`.
    Raises: HomeError: `HOME_IN_USE` (a second copy), `HOME_OF_ANOTHER` (application), `HOME_DAMAGED`, `HOME_VERSION`,
        `HOME_STORE_CHANGED`, `HOME_UNUSABLE` (the folder can't be made or written). MachineError:
        `FOLDER_NOT_OURS`. StoreError.
    """
    try:
        private.make(path)
        says = locks.visitor(os.getpid()) if visits else str(os.getpid())
        home = _opened(path, application, store, locks.hold(path, locks.OWNER, says), None, data, clock)
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        if not visits:
            home.take_charge()
    except BaseException:
        home.close()
        raise
    return home


def waiting_home(path: Path, application: str, store: str | None = None, data: str | None = None) -> Home:
    """Open or create a home without its lock, for a process that waits. `Home.take_lease` makes it the owner.

    Args, raises: as `open_home`, except for the lock.
    """
    try:
        private.make(path)
        return _opened(path, application, store, locks.open_lock(path, locks.OWNER), None, data)
    except OSError as error:
        raise _unusable(path, error) from error


def attach_home(path: Path, application: str, store: str | None = None, data: str | None = None) -> Home:
    """Open the home of a running application, to read it or to send it a request.

    Args, raises: as `open_home`, except for the lock.
    """
    if path.exists():
        private.require_ours(path)
    return _opened(path, application, store, os.open(path / locks.OWNER, os.O_RDONLY | os.O_CLOEXEC), None, data)


def host_home(path: Path, application: str, store: str | None, generation: int, data: str | None = None) -> Home:
    """Open the home for the host, holding the host's lock.

    Args: generation: the generation of the coordinator that started this host. Others, raises: as `open_home`.
    """
    record = ProcessRecord.of(os.getpid(), "host")
    lock = locks.hold(path, locks.HOST, json.dumps(asdict(record)))
    return _opened(path, application, store, lock, generation, data)


def _opened(
    path: Path, application: str, store: str | None, lock: int, generation: int | None, data: str | None,
    clock: Callable[[], float] = time.time,
) -> Home:  # fmt: skip
    try:
        place = None if data is None else data_folder(path, data)
        identity = identify(path, application, store, place)
        return Home(path, application, identity, lock, store, generation, clock, place)
    except BaseException:
        os.close(lock)
        raise


def data_folder(path: Path, address: str | None) -> DataPath:
    """Return the place of a home's data: its folder, or its address in an object store.

    Raises: StoreError: as `data_at`; `DATA_UNUSABLE`: pyarrow is missing, or was built without a client for S3.
    """
    if address is None:
        return LocalData(path)
    try:
        from falkirk.platform.object_data import data_at  # it loads pyarrow
    except ImportError as error:
        reason = f"Python lacks a client ({error}); install pyarrow from PyPI"
        raise DATA_UNUSABLE.error(where=address, reason=reason) from error

    return data_at(address)


def _unusable(path: Path, error: OSError) -> HomeError:
    return HOME_UNUSABLE_FOLDER.error(where=path, reason=error.strerror)


def this_process() -> str:
    """Return a description of this process for users."""
    return f"process {os.getpid()} on {socket.gethostname()}"
