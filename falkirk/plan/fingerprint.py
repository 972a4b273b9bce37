"""Fingerprint: describes as text the properties on which a region's checkpoint depends. Each start compares them."""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from falkirk.declare.endpoints import Kafka
from falkirk.declare.grouped import LatestValue
from falkirk.declare.keys import key_columns
from falkirk.declare.nodes import (
    NEWEST_ROW,
    UNIONS,
    Node,
    Step,
    all_steps_of,
    functions_of,
    is_ordered,
    is_right_first,
    root_of,
    steps_of,
)
from falkirk.errors import DefinitionError
from falkirk.plan.published import form, partitioned_by
from falkirk.steps.dataframes.names import STAMP
from falkirk.steps.live import stamped as frames
from falkirk.steps.live.joins import PLACES
from falkirk.steps.live.stamped import Frame
from falkirk.steps.static_analysis import udfs
from falkirk.steps.static_analysis.code import function_digest
from falkirk.steps.static_analysis.lineage import Lineage
from falkirk.steps.static_analysis.structure import digest
from falkirk.steps.static_analysis.udfs import CALL, KnownUdf

#: Settings of the session on which the results of the same steps depend, by their names in a fingerprint.
_SETTINGS = {"time zone": "spark.sql.session.timeZone", "ANSI mode": "spark.sql.ansi.enabled"}
#: The default language of the JVM, on which the case of letters depends. Falkirk pins it in its JVMs.
LANGUAGE = "language of the JVM"
#: The kind of a step `stateful` with timers.
WITH_TIMERS = "stateful with timers"
#: The kind of a step `stateful` that gets the records of a key by their times.
IN_ORDER = "stateful in order"
#: How the text of several keyed steps begins.
_CHAIN = "chain of "
KEYED_STEP, PARTITIONED_BY, WRITTEN_AS = "keyed step", "partitioned by", "written as"
#: The form of the state of a `groupBy` alone. Versions before 2026-11-30 kept the record with the greatest stamp.
LAST_RECORD = ", and the last record"
#: A digest of the formulas on which a region's state, and several results of one record, depend.
DECIDED_BY = "decided by"
#: The texts of all steps. They may change between two starts; the change is reported.
STEPS = "steps"
#: The part with the logs that a region or a batch reads.
READS = "reads"
#: The parts that homes of earlier versions have not recorded.
NOT_ALWAYS_RECORDED = frozenset({*_SETTINGS, LANGUAGE, PARTITIONED_BY, WRITTEN_AS, DECIDED_BY, STEPS})
#: Steps whose results, and all values before them, influence more than one later result.
DECIDING = frozenset({
    "agg", "count", "dropDuplicates", "windows", "timedJoin", "explode", "map_rows", "stateful", NEWEST_ROW,
})  # fmt: skip
#: Steps with a state per key.
KEYED = frozenset({"agg", "count", "dropDuplicates", "windows", "timedJoin", "stateful", NEWEST_ROW})

#: The place in the user's program that Spark notes in an argument of a UDF, with the address of an object.
_ORIGIN = re.compile(
    r",?Origin\((?:None,|Some\([^()]*\),){7}(?:None|Some\(\[L[\w.]+;@[0-9a-f]+\)),"
    r"(?:None|Some\(\((?:[^()]|\([^()]*\))*\)\)),None\)"
)
_LAMBDA = re.compile(r"(\w+_\d+|\((?:\w+_\d+(?:, )?)+\)) -> ")

#: A call of `isin` with literal values: quoted strings with escapes, and other values without quotes.
_VALUE = re.compile(r"'(?:[^'\\]|\\.)*'|[^\s,()']+")
_IN = re.compile(rf"\bin\(((?:[^()]|\([^()]*\))*?)((?:, (?:{_VALUE.pattern}))+)\)")
_SEPARATOR = ", "

#: Functions for which PySpark generates a new seed at each call unless the user gives one. The number is that of the
#: arguments of a call with a seed.
_SEEDED = {"rand": 1, "randn": 1, "random": 1, "uuid": 1, "shuffle": 2, "randstr": 2, "uniform": 3}
_DRAWN = re.compile(r"-?\d{10,}")


def fingerprint(
    reads: Sequence[str],
    output: Kafka,
    released_to: Kafka | None,
    dead_letters: str,
    node: Node,
    frame: Frame,
    state_partitions: int,
    *,
    keys: tuple[object, ...],
    began: dict[int, str],
    decided: str,
    shards: Sequence[str],
    called: Sequence[KnownUdf],
    keeps_tracebacks: bool,
) -> dict[str, str]:
    """Return the properties that must stay the same, by name.

    Args: reads: the topics that the region reads. released_to: the sink's topic, if `output` is a held log.
        dead_letters: the dead-letter topic. node: its last step. frame: the frame after it. keys: the keys of the sink
        or hop. began: the names of the columns that the region reads, by Catalyst's identity. decided: the formulas on
        which its state depends. shards: the columns that choose the state partition of a chain. called: the UDFs of its
        steps. keeps_tracebacks: bad records have tracebacks in its state, since UDFs come before it.
    """
    decided = with_functions(decided, node, called)
    keyed = [step for step in steps_of(node) if step.operation in KEYED]
    shape = ", ".join(f.simpleString() for f in frame.data.schema.fields if f.name == STAMP)
    return {
        READS: ", ".join(reads),
        "writes": output.topic,
        **({} if released_to is None else {"releases to": released_to.topic}),
        "dead letters": dead_letters,
        "stamp": shape,
        KEYED_STEP: _states_of(keyed, shards) + (" after UDFs" if keeps_tracebacks else ""),
        "state partitions": str(state_partitions) if keyed else "none",
        DECIDED_BY: digest(decided) if decided else "each record by itself",
        STEPS: steps_text(node) or "none",
        PARTITIONED_BY: _channel(frame, keys, began, called),
        WRITTEN_AS: form(output),
        **of_session(frame.data.sparkSession),
    }


def _since_union(node: Node) -> tuple[Step, ...]:
    """Return the steps that lead to a node, from the last union on, whose text has those before it."""
    steps = steps_of(node)
    unions = [place for place, step in enumerate(steps) if step.operation in UNIONS]
    return steps[unions[-1] :] if unions else steps


def steps_text(node: Node) -> str:
    """Return the steps that lead to a node as text."""
    return "; ".join(map(text_of, _since_union(node)))


def _channel(frame: Frame, keys: tuple[object, ...], began: dict[int, str], called: Sequence[KnownUdf]) -> str:
    """Return the expressions that decide the channel of a result, with the UDFs if any of these decides it."""
    text = partitioned_by(frame, keys, began)
    if not called or not keys:
        return text
    lineage = Lineage.of(frame.data.select(*[frames.key_column(key) for key in keys]))
    is_computed = CALL in lineage.operations(lineage.output, rows=False)
    return "; ".join([text, *map(_udf_text, called)]) if is_computed else text


def of_session(session: SparkSession) -> dict[str, str]:
    """Return the settings of a session that must stay the same."""
    jvm: Any = session._jvm
    settings = {name: str(session.conf.get(setting)) for name, setting in _SETTINGS.items()}
    return {**settings, LANGUAGE: str(jvm.java.util.Locale.getDefault().getLanguage())}


def places_of_keyed_step(parts: Mapping[str, str]) -> int:
    """Return how many sub-indexes each stamp has from keyed steps. All others are from `explode`.

    Args: parts: a fingerprint.
    """
    text = parts.get(KEYED_STEP, "")
    kinds = text.removeprefix(_CHAIN).partition(": ")[0].split(", ") if text.startswith(_CHAIN) else [
        text.partition("(")[0]
    ]  # fmt: skip
    places = {"windows": 1, "join": PLACES, "timedJoin": PLACES, "stateful": 1, IN_ORDER: 1, WITH_TIMERS: 2}
    return sum(places.get(kind, 0) for kind in kinds)


def text_of(step: Step) -> str:
    """Return a step as text, without the seeds and numbers that PySpark generates."""
    if step.operation == "timedJoin":
        other, join = step.arguments
        theirs = "; ".join([root_of(other.node).name, *map(text_of, steps_of(other.node))])
        return with_sorted_lists(f"join({_without_numbers(str(join))}; with {theirs})")
    if step.operation in UNIONS:
        sides = [_side(step.parent), _side(step.arguments[0].node)]
        more = [_render(each) for each in step.arguments[1:]]
        sides = [*reversed(sides)] if is_right_first(step) and not more else sides
        return f"{step.operation}({', '.join([' with '.join(sides), *more])})"
    if step.operation in ("map_rows", "stateful"):
        functions = [function_text(function) for function in functions_of(step)]
        others = [f"{name} {value}" for name, value in step.arguments[1].items() if name != "timeout"]
        return f"{step.operation}({', '.join([*functions, *others])})"
    return with_sorted_lists(step.operation + _without_numbers(_render(step.arguments)))


def _side(node: Node) -> str:
    """Return the steps of one side of a union as text, with the name of what they read."""
    steps = _since_union(node)
    begins = () if steps and steps[0].operation in UNIONS else (root_of(node).name,)
    return "; ".join([*begins, *map(text_of, steps)])


def _states_of(keyed: Sequence[Step], shards: Sequence[str]) -> str:
    """Return the text of the keyed steps of a region. That of several begins with their kinds.

    Args: shards: the columns that choose the state partition, if there are several. The source's `key=` decides them.
    """
    texts = "; ".join(map(_state_of, keyed)) or "none"
    if keyed[1:]:
        return f"{_CHAIN}{', '.join(map(keyed_step_kind, keyed))}: {texts}, in partitions by {', '.join(shards)}"
    return texts + LAST_RECORD if keyed and keyed[0].operation in ("agg", "count") else texts


def _state_of(step: Step) -> str:
    """Return the text of a keyed step. The function of `stateful` may change where its results may."""
    if step.operation != "stateful":
        return text_of(step)
    options = step.arguments[1]
    expiry = f", expires {options['expiry']}" if "expiry" in options else ""
    timers = f", timers by {options['timers']}" if "timers" in options else ""
    order = f", {options['order']}" if "order" in options else ""
    key = ", ".join(key_columns(options["key"]))
    included = ", key in results" if "include_key" in options else ""
    return f"{keyed_step_kind(step)}(key {key}, state {options['state']}{expiry}{timers}{order}{included})"


def keyed_step_kind(step: Step) -> str:
    """Return the kind of a keyed step: its operation, and whether it has timers or an order."""
    if is_ordered(step):
        return IN_ORDER
    return WITH_TIMERS if step.operation == "stateful" and "timers" in step.arguments[1] else step.operation


@functools.lru_cache(maxsize=256)
def function_text(function: Any) -> str:
    """Return the name of a user's function with a digest of what it does, if there is one."""
    name = str(getattr(function, "__name__", type(function).__name__))
    try:
        return f"{name} {function_digest(function)[:16]}"
    except DefinitionError:  # it uses a value that can't be compared
        return name


def _udf_text(udf: KnownUdf) -> str:
    return function_text(udf.function) if udf.function is not None else udf.name


def with_functions(text: str, node: Node, called: Sequence[KnownUdf]) -> str:
    """Return formulas on which results depend, with the functions of Python that they may call.

    Args: text: may be empty. node: the last step. called: the UDFs of all steps.
    """
    of_rows = [function_text(function) for step in all_steps_of(node) for function in functions_of(step)]
    return "; ".join([text, *of_rows, *map(_udf_text, called)]) if text or of_rows else text


def with_sorted_lists(text: str) -> str:
    """Return the text of steps with the values of each `isin` sorted, because a set's order differs per process."""
    return _IN.sub(lambda found: "in(" + _SEPARATOR.join([found[1], *sorted(_VALUE.findall(found[2]))]) + ")", text)


def _render(value: Any) -> str:
    if isinstance(value, dict):
        return _render([*value.items()])
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(_render, value)) + ")"
    text = str(value._jc.toString()) if hasattr(value, "_jc") else str(value)
    text = _ORIGIN.sub("", text)
    known = udfs.of_values(value) if hasattr(value, "_jc") else ()
    if known:
        text += f" with {', '.join(_udf_text(each) for each in known)}"
    column = value.column if isinstance(value, LatestValue) else value
    if hasattr(column, "_jc") and any(f"{name}(" in text for name in _SEEDED):
        for seed in _seeds(column._jc.node()):
            text = re.sub(rf"(?<![\w.]){seed}L?(?=\))", "seed", text)
    return text


def _seeds(node: Any) -> Iterator[str]:
    """Yield the generated seeds of functions in a column. Only a function's last argument can be one."""
    parts = [node.children().apply(i) for i in range(node.children().size())]
    if node.getClass().getSimpleName() == "UnresolvedFunction" and _SEEDED.get(node.functionName()) == len(parts):
        seed = parts[-1]
        if seed.getClass().getSimpleName() == "Literal" and _DRAWN.fullmatch(str(seed.value())):
            yield str(seed.value())
    for part in parts:
        yield from _seeds(part)


def _without_numbers(text: str) -> str:
    """Return the text with lambdas' parameters numbered from 0, because PySpark numbers them across a whole process."""
    names: dict[str, str] = {}
    for parameters in _LAMBDA.findall(text):
        for name in re.findall(r"\w+", parameters):
            names.setdefault(name, f"λ{len(names)}")
    return re.sub(r"\w+", lambda word: names.get(word[0], word[0]), text)
