"""Random files of a home, random file names and random user input: each is read, or refused with a Falkirk error.

Each property lists all allowed outcomes. Anything else is an exception that would end the process.
"""

import contextlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from hypothesis import example, given, settings
from hypothesis import strategies as st

import falkirk as fk
from falkirk.declare.address import as_address
from falkirk.declare.policy import duration_s
from falkirk.errors.location import SourceLocation
from falkirk.kafka_client.connection import Connection
from falkirk.plan.shape import read_shape
from falkirk.recovery.decision_store.values import DamagedValue, load, load_positions
from falkirk.recovery.ownership.credentials import former_port
from falkirk.recovery.ownership.executors import _read as read_executors
from falkirk.recovery.ownership.folder import open_home
from falkirk.runtime.spark.epochs.files import FileLog
from falkirk.runtime.spark.live.checkpoint import damage
from falkirk.runtime.spark.sinks.folder import FolderTarget
from falkirk.runtime.supervision.coordinator import read_status
from falkirk.spark_setup.broker import status as broker_status
from tests.strategies import DEEP, HUGE, documents, examples, objects, values
from tests.support import outcome
from tests.unit.kafka.test_folder_sinks import proofs

WHERE = SourceLocation(file="shop.py", line=1)
quick = settings(max_examples=examples(25), deadline=None)


# -- files ------------------------------------------------------------------------------------------------------------


class Decisions:
    """A store that accepts each decision as JSON, as the real one does."""

    def decisions(self, kind: str, name: str) -> tuple[()]:
        return ()

    def decision(self, kind: str, name: str, number: int) -> None:
        return None

    def record_decision(self, kind: str, name: str, number: int, content: Any) -> None:
        json.dumps(content).encode()

    def require_charge(self) -> None:
        """Accept every caller."""


file_names = st.binary(min_size=1, max_size=20).map(lambda raw: raw.replace(b"/", b"").replace(b"\0", b"")).filter(
    lambda raw: raw not in (b"", b".", b"..")
)  # fmt: skip


@quick
@given(st.lists(file_names, max_size=4, unique=True))
def test_a_file_of_any_name_is_read_or_reported(names: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text("{}")
        log = FileLog("orders", fk.Files(folder, "json", schema="n INT", where=WHERE), cast(Any, Decisions()))
        read = log.paths(0, log.end())
        hidden = [name for name in names if name.startswith((b".", b"_"))]
        assert len(read) + len(log.skipped) + len(hidden) == len(names)
        assert log.report().isprintable()


def home(content: bytes, file: str, read: Callable[[Path], Any]) -> Any:
    """Return the result of reading a home with such a file, or the condition of the error."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / file).parent.mkdir(parents=True, exist_ok=True)
        (path / file).write_bytes(content)
        return outcome(lambda: read(path))


@quick
@given(documents(objects("port", "url")))
@example(DEEP)
@example(b'{"port": 70000}')
@example(b'{"port": true}')
def test_a_former_port_is_one_or_none(content: bytes) -> None:
    assert 0 <= home(content, "http.json", former_port) < 65_536


@quick
@given(documents(objects("at_s", "regions", "push")))
@example(DEEP)
@example(b"[]")
@example(b'{"at_s": "x", "regions": 5}')
def test_a_status_is_one_or_none(content: bytes) -> None:
    found = home(content, "status.json", lambda path: read_status(path / "status.json"))
    if found is not None:
        assert isinstance(found["at_s"], float | int)
        assert all(isinstance(region["state"], str) for region in found["regions"])


DAMAGED = "HOME_DAMAGED"


@quick
@given(documents(objects("format", "application", "identity", "store")))
@example(DEEP)
def test_a_homes_own_file_is_read_or_damaged(content: bytes) -> None:
    def opened(path: Path) -> str:
        with open_home(path, "shop"):
            return "opened"

    assert home(content, "falkirk.json", opened) in ("opened", DAMAGED, "HOME_VERSION", "HOME_OF_ANOTHER")


@quick
@given(documents(objects("stages", "partitions", "held", "regions", "processors", "batches")))
@example(DEEP)
@example(b'{"stages": [], "partitions": {}, "held": {}, "regions": [], "processors": "x"}')
@example(b'{"stages": [], "partitions": {}, "held": {}, "regions": [], "processors": {}, "batches": 1}')
def test_a_shape_is_read_or_damaged(content: bytes) -> None:
    found = home(content, "shape.json", read_shape)
    assert found == DAMAGED or not isinstance(found, str)


@quick
@given(documents(objects("application", "silence_s", "addresses", "complete")))
@example(DEEP)
@example(b'{"application": "a", "silence_s": 1%s, "addresses": [], "complete": true}' % (b"0" * 400))
def test_what_is_known_of_executors_is_read_or_damaged(content: bytes) -> None:
    found = home(content, "executors.json", read_executors)
    assert found == DAMAGED or not isinstance(found, str)


@quick
@given(documents(objects("application", "upto")), st.lists(file_names, max_size=2))
@example(DEEP, [])
@example(b"[]", [])
@example(b'{"application": "me", "upto": "x"}', [])
@example(b'{"application": "me", "upto": 1}', [b"epoch=x"])
@example(b'{"application": "me", "upto": 1}', ["epoch=²".encode()])
def test_a_folder_that_is_written_is_known_or_refused(content: bytes, names: list[bytes]) -> None:
    def seen(path: Path) -> int:
        for name in names:
            Path(os.fsdecode(os.fsencode(path) + b"/" + name)).mkdir(exist_ok=True)
        target = FolderTarget(fk.Files(str(path), where=WHERE), "me", proofs(Decisions()))
        return max(target.visible(), target.delivered() or 0)

    found = home(content, "_falkirk.json", seen)
    assert found in ("FOLDER_OF_ANOTHER", "FOLDER_DAMAGED") or found >= 0


@quick
@given(documents(objects("stateUniqueIds")), documents(objects("events")))
@example(b"v1\n" + DEEP, b"v1\n{}\n" + DEEP)
@example(b'v1\n{"stateUniqueIds": {"0": 5}}', b'v1\n{}\n{"events": {"0": 1}}')
@example(b'v1\n{"stateUniqueIds": {"/": [["*"]]}}', b'v1\n{}\n{"events": {"0": 1}}')
@example(b'v1\n{"stateUniqueIds": {"0": [["\\u0000"]]}}', b'v1\n{}\n{"events": {"0": 1}}')
def test_a_checkpoint_is_whole_or_damaged(commit: bytes, offsets: bytes) -> None:
    def look(path: Path) -> str | None:
        (path / "offsets").mkdir()
        (path / "offsets" / "3").write_bytes(offsets)
        return damage(path, 3, "events")

    assert isinstance(home(commit, "commits/3", look), str | None)


@quick
@given(documents(values))
@example(DEEP)
def test_a_value_of_the_store_is_read_or_damaged(text: bytes) -> None:
    for read in (load, load_positions):
        with contextlib.suppress(DamagedValue):
            read(text)


@quick
@given(documents(objects("folder", "pid", "began", "port", "controller_port", "address")))
@example(DEEP)
@example(b'{"folder": 1, "pid": "x", "began": 0, "port": 1, "controller_port": 1}')
def test_a_record_of_the_local_broker_is_of_a_live_one_or_none(content: bytes) -> None:
    assert home(content, "broker.json", broker_status) is None


# -- what a user declares ---------------------------------------------------------------------------------------------


@quick
@given(values)
@example(HUGE)
def test_a_duration_is_one_or_refused(text: Any) -> None:
    with contextlib.suppress(fk.DefinitionError):
        assert duration_s(text) > 0


@quick
@given(values | st.from_regex(r"[\w.\[\]:-]{0,9}:\d{0,6}"))
def test_an_address_is_one_or_refused(text: Any) -> None:
    with contextlib.suppress(fk.DefinitionError):
        host, port = as_address(text, WHERE)
        assert host
        assert 0 <= port < 65_536


@quick
@given(values, st.dictionaries(st.text(max_size=5), values, max_size=2))
def test_a_connection_is_one_or_refused(text: Any, extra: dict[str, Any]) -> None:
    with contextlib.suppress(fk.DefinitionError):
        assert Connection.of(text).bootstrap
    with contextlib.suppress(fk.DefinitionError):
        assert Connection("a:1", extra=extra)


@quick
@given(st.sampled_from(["path", "topic", "folder", "name"]), values)
def test_names_are_taken_or_refused(kind: str, name: Any) -> None:
    make: dict[str, Callable[[], object]] = {
        "path": lambda: fk.Http(name, schema="id STRING", where=WHERE),
        "topic": lambda: fk.Kafka(name, schema="id STRING", where=WHERE),
        "folder": lambda: fk.Files(name, schema="id STRING", where=WHERE),
        "name": lambda: fk.App(name, kafka="a:1"),
    }
    with contextlib.suppress(fk.DefinitionError):
        assert make[kind]() is not None
