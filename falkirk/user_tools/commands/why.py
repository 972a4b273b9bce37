"""The command why: where a result comes from, as a tree that ends at the records and files of the users."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from rich.text import Text
from rich.tree import Tree

from falkirk.declare.load import broker_of, load_application
from falkirk.plan.patterns import with_recorded_topics
from falkirk.plan.requests import bound
from falkirk.platform.times import when
from falkirk.runtime.spark.context import Storage
from falkirk.user_tools.commands.epoch_records import epoch_records
from falkirk.user_tools.commands.history.application import recorded_shape
from falkirk.user_tools.commands.history.unchanged import read_unchanged
from falkirk.user_tools.commands.made_of import MadeOf
from falkirk.user_tools.commands.options import json_option
from falkirk.user_tools.commands.origins import Origins
from falkirk.user_tools.commands.printing import output
from falkirk.user_tools.commands.records import TopicRecords, place_of_text, record_time, shortened
from falkirk.user_tools.commands.run import count_text
from falkirk.user_tools.commands.running import home_to_read, local_broker, of_application
from falkirk.user_tools.commands.shown_values import ShownValues
from falkirk.user_tools.commands.spark_state import own_spark
from falkirk.user_tools.commands.written import writers_of

_Values = Mapping[str, Any]
#: So many characters of a key and of a value are shown, however wide the terminal; and of a value at least so many.
_KEY_MAX, _VALUE_MAX, _VALUE_MIN = 40, 400, 12
#: The width of a level of the tree.
_INDENT = 4


@click.command()
@of_application
@click.argument("record", metavar="TOPIC/PARTITION@OFFSET|BATCH@EPOCH")
@click.option(
    "-n", "--limit", type=click.IntRange(min=0), default=20, show_default=True,
    help="List at most this many records of the same key, and of each input of an epoch.",
)  # fmt: skip
@click.option(
    "--look", type=click.IntRange(min=0), default=10_000, show_default=True,
    help="Search at most this many records of each partition of an input, and at most 128 MiB of an input.",
)  # fmt: skip
@click.option(
    "--recompute/--no-recompute", default=True, show_default=True,
    help="Compute an aggregate again to find its records. This starts Spark, which takes some seconds.",
)  # fmt: skip
@json_option
def why(
    file: Path, broker: str | None, local: bool, home: Path | None, record: str, limit: int, look: int,
    recompute: bool, as_json_: bool,
) -> None:  # fmt: skip
    """Show where a result of FILE's application comes from.

    An example is `falkirk why shop.py sales/0@17`: the record at offset 17 of partition 0 of the topic `sales`. TOPIC
    is a topic that the application writes, the name of a sink, or `sink:NAME`. The answer names the input
    records with their places, through the topics between regions and the epochs of batches, back to your own topics and
    files. It also names the steps, and the checkpoint or epoch that covers the result.

    BATCH@EPOCH asks for all results of an epoch, such as those in the folder `epoch=0000000003` of a sink.

    A result of an aggregation is computed again, from the records of its topics that are still there. The command lists
    the newest records that made it, counts the others, and says whether they give the same result. With --no-recompute,
    or if the steps can't be computed again, it lists the earlier records with the key of the result.

    It works on a running and on a stopped application, and changes nothing.
    """
    app = load_application(file)
    connection, at = broker_of(app, local_broker() if local else broker), place_of_text(record)
    with home_to_read(app, home) as (held, _):
        shape = recorded_shape(held.data)
        place = Storage(home=held, connection=connection)
        known = with_recorded_topics(app, held.store)
        named = bound(known, held.identity)
        text, writers = ShownValues(named, shape.layout.held).text, writers_of(named, shape)

        def explain() -> dict[str, Any]:
            records = TopicRecords(place, text, epoch_records(named, writers, place))
            made_of = MadeOf(known, place, records, look=look, session=session) if recompute else None
            return Origins(named, shape, place, records, limit=limit, look=look, made_of=made_of).explain(at)

        with own_spark(known) as session:
            # The application may roll back meanwhile. The checkpoints of the answer must not be from before and after.
            found = read_unchanged(held.store, explain)
    if as_json_:
        click.echo(json.dumps(found, indent=1))
    else:
        out = output()
        out.print(origin_tree(found, out.width), soft_wrap=True)


def origin_tree(found: _Values, width: int) -> Tree:
    """Return a result, or an epoch, with its origin as a tree. Args: width: of a line."""
    if found["record"] is None:
        origin = found["origin"]
        tree = Tree(Text(f"{origin['unit']}@{origin['epoch']['number']}", "bold"), guide_style="dim")
    else:
        tree = Tree(_record(found, width, is_result=True), guide_style="dim")
    _add_origin(tree, found, width - _INDENT)
    return tree


def _add_origin(tree: Tree, found: _Values, width: int) -> None:
    if found["origin"] is not None:
        _add_unit(tree, found["origin"], width)


def _add_unit(tree: Tree, origin: _Values, width: int) -> None:
    lines = [shortened(line, width) for line in _TOLD[origin["kind"]](origin)]
    below = tree.add(Text.assemble((lines[0], "yellow"), *(f"\n{line}" for line in lines[1:])))
    for each in origin.get("inputs", ()):
        _add_record(below, each, width - _INDENT)
    made = origin.get("made_of")
    if made is not None:
        part = below.add(Text(shortened(_made_of(made), width - _INDENT)))
        for each in made["records"]:
            _add_record(part, each, width - 2 * _INDENT, is_alike=True)
        for line in _checked(made):
            below.add(Text(shortened(line, width - _INDENT), "" if made["agrees"] else "yellow"))
    if origin.get("not_recomputed"):
        below.add(Text(shortened(f"not computed again: {origin['not_recomputed']}", width - _INDENT)))
    same = origin.get("same_key")
    if same is not None:
        part = below.add(Text(shortened(_same_key(same), width - _INDENT)))
        for each in same["records"]:
            _add_record(part, each, width - 2 * _INDENT, is_alike=True)
    for read in origin.get("reads", ()):
        part = below.add(Text(shortened(_read(read), width - _INDENT)))
        for each in read.get("records", ()):
            _add_record(part, each, width - 2 * _INDENT)
        for each in read.get("origins", ()):
            _add_unit(part, each, width - 2 * _INDENT)


def _add_record(tree: Tree, found: _Values, width: int, *, is_alike: bool = False) -> None:
    """Add an input record. Args: is_alike: it has the same units as the first record, which are not repeated."""
    below = tree.add(_record(found, width, is_result=False))
    if not is_alike:
        _add_origin(below, found, width - _INDENT)
        return
    for each in (found["origin"] or {}).get("inputs", ()):
        _add_record(below, each, width - _INDENT, is_alike=True)


def _record(found: _Values, width: int, *, is_result: bool) -> Text:
    record = found["record"]
    place = f"{record['topic']}/{record['partition']}@{record['offset']}"
    if found["missing"] is not None:
        return Text(shortened(f"{place}  is not there: {found['missing']}", width))
    parts = [record_time(record["timestamp_ms"])]
    if record["key"] is not None:
        parts.append(f"key {shortened(record['key'], _KEY_MAX)}")
    parts += ["made invalid by a rollback or a later incarnation"] if record["void"] else []
    parts += [f"foreign: {found['foreign']}"] if "foreign" in found else []
    rest = "".join(f"  {part}" for part in parts)
    room = width if is_result else width - len(place) - len(rest) - 2
    value = shortened(record["value"], max(_VALUE_MIN, min(room, _VALUE_MAX)))
    style = "bold" if is_result else "cyan" if found["origin"] is None else ""
    return Text.assemble((place, style), rest, "\n" if is_result else "  ", value)


def _copy(origin: _Values) -> Iterator[str]:
    yield f"copied from the held log of {origin['unit']}, after a checkpoint covered it"


def _live(origin: _Values) -> Iterator[str]:
    run, checkpoint = origin["incarnation"], origin["checkpoint"]
    what = "a dead letter of live region" if origin["dead_letter"] else "live region"
    since = f", since {when(run['opened_at_s'])}" if run["opened_at_s"] is not None else ""
    part = f"; result {'.'.join(map(str, origin['part']))} of its input record" if origin["part"] else ""
    yield f"{what} {origin['unit']}, incarnation {run['number']}{since}{part}"
    if checkpoint is None:
        yield "no checkpoint covers it yet"
    else:
        before = " or an older one, which was deleted" if checkpoint["is_oldest"] else ""
        at = "" if checkpoint["made_at_s"] is None else f", made {when(checkpoint['made_at_s'])}"
        yield f"covered by checkpoint {checkpoint['number']}{at}{before}"
    yield from _code(origin)


def _batch(origin: _Values) -> Iterator[str]:
    epoch = origin["epoch"]
    row = "" if origin.get("row") is None else f", row {origin['row']}"
    rows = f"; the epoch has {count_text(epoch['rows'], 'result')}" if epoch.get("made_at_s") is not None else ""
    what = "a dead letter of batch" if origin.get("dead_letter") else "batch"
    yield f"{what} {origin['unit']}, epoch {epoch['number']}{row}{rows}"
    if epoch.get("decided_at_s"):
        made = "not complete yet" if epoch["made_at_s"] is None else f"complete {when(epoch['made_at_s'])}"
        yield f"its input was fixed {when(epoch['decided_at_s'])}; {made}"
    if origin["rounds"]:
        yield f"its loops {origin['rounds']}"
    if (state := origin["state"]) is not None:
        saved = state["saved_at_epoch"]
        where = "" if saved == state["after_epoch"] else " (not saved)" if saved is None else f" (last saved: {saved})"
        yield f"it has read the state after epoch {state['after_epoch']}{where}"
    if origin["note"]:
        yield origin["note"]
    yield from _code(origin)


def _code(origin: _Values) -> Iterator[str]:
    lines = [f"{p['name']}: {p['declared'] or 'not declared in this file'}" for p in origin["processors"]]
    yield from lines
    declared = {p["declared"] for p in origin["processors"]}
    yield from (f"  {step}" for step in origin.get("steps", ()) if step not in declared)


def _key_text(found: _Values) -> str:
    pairs = zip(found["columns"], found["values"], strict=True)
    return ", ".join(f"{column}={shortened(json.dumps(value), _KEY_MAX)}" for column, value in pairs) or "any key"


def _made_of(made: _Values) -> str:
    number, listed = made["count"], len(made["records"])
    rows = "" if made["rows"] == number else f" ({count_text(made['rows'], 'row')})"
    window = "" if made["window"] is None else f" and a time from {made['window'][0]} to before {made['window'][1]}"
    which = f"; the newest {listed:,}" if listed < number else ""
    notes = [f"{made['looked_at']:,} looked at", *([made["note"]] if made["note"] else [])]
    return f"made of {count_text(number, 'record')}{rows} with {_key_text(made)}{window}{which} ({'; '.join(notes)}):"


def _checked(made: _Values) -> Iterator[str]:
    """Yield whether the records give the result, and how many were not read."""
    if (before := made["before"]) is not None:
        yield f"checkpoint {before['checkpoint']} has the state after {before['records']:,} of these records"
    lost = [f"{count_text(made['deleted'], 'record')} of its inputs were deleted"] if made["deleted"] else []
    lost += [f"{made['not_looked_at']:,} older ones were not read: see --look"] if made["not_looked_at"] else []
    if made["agrees"]:
        yield "computed again from these records, the result is the same"
        yield from (f"{each}, and are not part of it" for each in lost)
    elif made["agrees"] is None:
        yield "; ".join(["the result can't be compared with these records", *lost])
    elif lost:
        yield f"the records that are left don't give this result: {'; '.join(lost)}"
    else:
        yield f"these records don't give this result, but {json.dumps(made['results'])}"


def _same_key(same: _Values) -> str:
    if same["columns"] is None:
        return f"earlier records of its key are not listed: {same['note']}"
    key = _key_text(same)
    number, whole = len(same["records"]), "all" if same["has_all"] else "the last"
    sentence = f"{whole} {count_text(number, 'earlier record')}" if number else "no earlier records"
    if number == 1 and same["has_all"]:
        sentence = "the only earlier record"
    notes = ["records that a filter drops are listed too"] if same["filters"] and number else []
    notes += [same["note"]] if same["note"] else []
    looked = f"{same['looked_at']:,} looked at"
    return f"{sentence} with {key} ({'; '.join([looked, *notes])})"


def _read(read: _Values) -> str:
    if read["kind"] == "view":
        view, epochs = _name(read["log"]), [f"{number}" for number in read["epochs"]]
        if read["epoch"] is not None:
            return f"read the view of {view}: its epoch {read['epoch']}"
        return f"read the view of {view}: its epoch {', '.join(epochs[:-1])} or {epochs[-1]}"
    if read["kind"] == "epochs":
        first, last = read["epochs"]
        return f"read {_range(first, last, 'epoch')} of {_name(read['log'])}"
    if read["kind"] == "files":
        more = f" and {read['count'] - len(read['files']):,} more" if read["count"] > len(read["files"]) else ""
        folder = read["folder"] or _name(read["log"])
        return f"read {count_text(read['count'], 'file')} of {folder}: {', '.join(read['files'])}{more}"
    ranges = ", ".join(f"{read['log']}/{p}@{first} to {last - 1}" for p, (first, last) in read["ranges"].items())
    sentence = (
        f"read {count_text(read['count'], 'record')}: {ranges}" if ranges else f"read no new records of {read['log']}"
    )
    number = len(read["records"])
    if read["note"]:
        return f"{sentence}. {read['note'].capitalize()}"
    if read["alike"]:
        key = ", ".join(f"{c}={shortened(json.dumps(v), _KEY_MAX)}" for c, v in read["alike"].items())
        return f"{sentence}. Those with {key} ({read['looked_at']:,} looked at):"
    return (
        f"{sentence}. The first {number:,}:" if 0 < number < read["count"] else f"{sentence}" + (":" if number else "")
    )


def _range(first: int, last: int, noun: str) -> str:
    if last - first == 1:
        return f"{noun} {first}"
    return f"{noun}s {first} to {last - 1}" if last > first else f"no new {noun}"


def _name(log: str) -> str:
    return log.partition(":")[2] or log


#: The words about a unit, by the kind of origin.
_TOLD: Mapping[str, Callable[[_Values], Iterator[str]]] = {"copy": _copy, "live": _live, "batch": _batch}
