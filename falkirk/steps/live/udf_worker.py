"""UDF worker: calls the user-defined functions (UDFs) of a step for a row of a live region, as Spark's worker does.

Spark has two kinds of UDFs with one row at a time. Plain ones get pickled values, and Arrow ones get the values of an
Arrow table. The conversions of both are PySpark's own, so a live region computes the values of micro-batches. A request
and an answer have both kinds side by side: PythonUdfs.java writes and reads them.
"""

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.serializers import CPickleSerializer
from pyspark.sql import types as T
from pyspark.sql.conversion import ArrowTableToRowsConversion, LocalDataToArrowConversion
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.util import fail_on_stopiteration

from falkirk.steps.dataframes.user_function import TEXT_MAX, is_exact, reason_of, traceback_text
from falkirk.steps.live.row_codec import RowCodec

_Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Udf:
    """A call in a step.

    Args: commands: pickled functions with their types, as Spark has them. Each gets the result of the one before.
        places: of its arguments among those of its kind. names: of the arguments, "" for those without one.
    """

    commands: tuple[bytes, ...]
    places: tuple[int, ...]
    names: tuple[str, ...]


@dataclass(kw_only=True)
class UdfCalls:
    """Calls the UDFs of a step for each request. Its functions are loaded when it is unpickled.

    Args: plain, arrow: the calls of each kind. given, results: the arguments and results of the Arrow kind.
        settings: Spark's settings, see `SETTINGS`.
    """

    plain: tuple[Udf, ...]
    arrow: tuple[Udf, ...]
    given: T.StructType
    results: T.StructType
    settings: Mapping[str, bool]
    _ready: "_Ready | None" = field(default=None, init=False, repr=False)

    def __call__(self, request: bytes) -> bytes:
        """Return the answer to a request: the results, or what the dead letter of the row says."""
        ready = self._ready
        assert ready is not None, "a worker has unpickled it"
        try:
            return ready.answer(request)
        except Exception:
            text = traceback_text()
            failure = {"reason": reason_of(text), "traceback": text[-TEXT_MAX:]}
            return ready.answers.encode({"plain": None, "arrow": None, **failure})

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_ready": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._ready = _Ready.of(self)


#: Spark's settings on which conversions depend, by our names, with their defaults.
SETTINGS = {
    "binary_as_bytes": ("spark.sql.execution.pyspark.binaryAsBytes", "true"),
    "is_safe": ("spark.sql.execution.pandas.convertToArrowArraySafely", "false"),
    "int_to_decimal": ("spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled", "false"),
}


@dataclass(kw_only=True)
class _Ready:
    """The parts of `UdfCalls` that can't be pickled."""

    requests: RowCodec
    answers: RowCodec
    plain: list[tuple[Callable[..., Any], tuple[int, ...]]]
    arrow: list[tuple[str, Callable[..., Any], tuple[int, ...]]]
    inward: list[_Convert | None]
    names: list[str]
    pickles: Any = field(default_factory=CPickleSerializer)

    @classmethod
    def of(cls, calls: UdfCalls) -> "_Ready":
        request = T.StructType([T.StructField("plain", T.BinaryType()), T.StructField("arrow", calls.given)])
        answer = T.StructType([
            T.StructField("plain", T.BinaryType()), T.StructField("arrow", calls.results),
            T.StructField("reason", T.StringType()), T.StructField("traceback", T.StringType()),
        ])  # fmt: skip
        as_bytes = calls.settings["binary_as_bytes"]
        return cls(
            requests=RowCodec(request),
            answers=RowCodec(answer),
            plain=[(_plain(udf), udf.places) for udf in calls.plain],
            arrow=[
                (kind.name, _through_arrow(udf, kind.dataType, calls.settings), udf.places)
                for udf, kind in zip(calls.arrow, calls.results.fields, strict=True)
            ],
            inward=[
                ArrowTableToRowsConversion._create_converter(
                    kind.dataType, none_on_identity=True, binary_as_bytes=as_bytes
                )
                for kind in calls.given.fields
            ],
            names=calls.given.names,
        )

    def answer(self, request: bytes) -> bytes:
        """Return the answer to a request. Raises: any error of a function or of a conversion."""
        row = self.requests.decode(request)
        pickled = None
        if self.plain:
            (given,) = self.pickles.loads(row["plain"])
            pickled = self.pickles.dumps(tuple(call(*[given[i] for i in places]) for call, places in self.plain))
        values = [
            value if convert is None else convert(value)
            for convert, value in zip(self.inward, [row["arrow"][name] for name in self.names], strict=True)
        ]
        results = {name: call(*[values[i] for i in places]) for name, call, places in self.arrow}
        return self.answers.encode({"plain": pickled, "arrow": results, "reason": None, "traceback": None})


def _loaded(udf: Udf) -> tuple[Callable[..., Any], T.DataType]:
    """Return the function of a call, and the type of its result."""
    functions = [pickle.loads(command) for command in udf.commands]
    named = [name for name in udf.names if name]
    first = len(udf.names) - len(named)

    def called(*given: Any) -> Any:
        result = functions[0][0](*given[:first], **dict(zip(named, given[first:], strict=True)))
        for function, _ in functions[1:]:
            result = function(result)
        return result

    return fail_on_stopiteration(called), functions[-1][1]


def _plain(udf: Udf) -> Callable[..., Any]:
    function, kind = _loaded(udf)
    if not kind.needConversion():
        return function
    return lambda *given: kind.toInternal(function(*given))


def _through_arrow(udf: Udf, kind: T.DataType, settings: Mapping[str, bool]) -> Callable[..., Any]:
    """Return a function whose result is the value that Spark would get through Arrow."""
    function, returns = _loaded(udf)
    arrow = to_arrow_type(returns, timezone="UTC")
    convert: _Convert | None = LocalDataToArrowConversion._create_converter(
        returns, none_on_identity=True, int_to_decimal_coercion_enabled=settings["int_to_decimal"]
    )
    exact = is_exact(kind)

    def called(*given: Any) -> Any:
        value = function(*given)
        value = value if convert is None else convert(value)
        if value is None or (exact is not None and exact(value)):
            return value
        try:
            found = pa.array([value], type=arrow)
        except pa.ArrowInvalid:
            found = pa.array([value]).cast(target_type=arrow, safe=settings["is_safe"])
        return found.to_pylist()[0]

    return called
