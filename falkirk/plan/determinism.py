"""Determinism: which of Spark's operations give the same result on every replay, by allow-list.

What is not on the list may come out differently: exactly-once results behind it are held back until they can't be
taken back any more, and an at-most-once sink behind it is refused. The names are
those of Catalyst's expression and plan classes, because that is where every spelling (functions, SQL text,
operators) ends up. Aggregates are listed when they are deterministic for a *fixed order* of a key's records, which
a live region ensures.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from pyspark.sql import DataFrame

_STRUCTURE = """
Aggregate AggregateExpression Alias AttributeReference CreateNamedStruct CreateArray CreateMap Filter Generate
GetArrayItem GetArrayStructFields GetMapValue GetStructField ElementAt LambdaFunction Literal LogicalRDD LocalRelation
NamedLambdaVariable OuterReference Project StreamingRelationV2 SubqueryAlias UnresolvedNamedLambdaVariable
"""
_LOGIC = """
And AtLeastNNonNulls CaseWhen Cast Coalesce EqualNullSafe EqualTo GreaterThan GreaterThanOrEqual Greatest If In
InSet IsNaN IsNotNull IsNull Least LessThan LessThanOrEqual NaNvl Not Nvl NullIf Or RuntimeReplaceable
Between CommonExpressionDef CommonExpressionRef EqualNull KnownNotNull KnownNullable Nvl2 NullIfResult NullIfZero
TryEval TypeOf With ZeroIfNull
"""
_NUMBERS = """
Abs Add BitwiseAnd BitwiseCount BitwiseNot BitwiseOr BitwiseXor BRound CheckOverflow Ceil Divide Exp Floor
IntegralDivide Log Log10 Log2 Multiply Pmod Pow Remainder Round ShiftLeft ShiftRight Signum Sqrt Subtract UnaryMinus
UnaryPositive Crc32 Md5 Murmur3Hash Sha1 Sha2 XxHash64 Hex Unhex Conv
Acos Acosh Asin Asinh Atan Atan2 Atanh Bin BitwiseGet Cbrt Cos Cosh Cot Csc EulerNumber Expm1 Factorial Hypot Log1p
Logarithm Pi Rint Sec ShiftRightUnsigned Sin Sinh Tan Tanh ToCharacter ToDegrees ToNumber ToRadians TryAdd TryDivide
TryMod TryMultiply TrySubtract TryToNumber WidthBucket
"""
_TEXT = """
Ascii Base64 BitLength Chr Concat ConcatWs Contains EndsWith FormatNumber FormatString InitCap Left Length Like LikeAll
Lower OctetLength Overlay RegExpExtract RegExpExtractAll RegExpReplace RLike Right Reverse SoundEx StartsWith
StringInstr StringLocate StringLPad StringRepeat StringReplace StringRPad StringSplit StringSplitSQL StringToMap
StringTranslate StringTrim StringTrimLeft StringTrimRight Substring SubstringIndex UnBase64 Upper Encode Decode
ParseUrl Levenshtein JsonToStructs StructsToJson GetJsonObject JsonTuple LengthOfJsonArray Invoke StaticInvoke
AvroDataToCatalyst CatalystDataToAvro FromAvro ToAvro
Collation CsvToStructs Elt FindInSet ILike IsValidUTF8 IsVariantNull JsonObjectKeys Luhncheck MakeValidUTF8 Mask
ParseJson Quote RegExpCount RegExpInStr RegExpSubStr SchemaOfJson Sentences SplitPart StringDecode StringSpace
StringTrimBoth StructsToCsv ToBinary ToVariantObject TryToBinary UrlDecode UrlEncode VariantGet XmlToStructs
"""
_COLLECTIONS = """
ArrayAppend ArrayCompact ArrayContains ArrayDistinct ArrayExcept ArrayExists ArrayFilter ArrayForAll ArrayIntersect
ArrayJoin ArrayMax ArrayMin ArrayPosition ArrayPrepend ArrayRemove ArrayRepeat ArraySize ArraySort ArrayTransform
ArrayUnion ArrayAggregate ArraysOverlap ArraysZip Cardinality Flatten MapConcat MapEntries MapFilter MapFromArrays
MapFromEntries MapKeys MapValues Sequence Size Slice SortArray TransformKeys TransformValues ZipWith Explode
PosExplode TryElementAt ArrayInsert Get MapContainsKey MapZipWith
"""
_TIME = """
AddMonths DateAdd DateDiff DateFormatClass DateSub DayOfMonth DayOfWeek DayOfYear FromUnixTime Hour LastDay MakeDate
MakeTimestamp MicrosToTimestamp MillisToTimestamp Minute Month MonthsBetween NextDay ParseToDate ParseToTimestamp
Quarter Second SecondsToTimestamp TimestampAdd TimestampDiff ToUnixTimestamp TruncDate TruncTimestamp UnixMicros
UnixMillis UnixSeconds UnixTimestamp WeekDay WeekOfYear Year
ConvertTimezone DateAddInterval DateAddYMInterval DateFromUnixDate DayName Extract ExtractANSIIntervalDays
FromUTCTimestamp MakeDTInterval MakeInterval MakeYMInterval MonthName PreciseTimestampConversion SubtractDates
SubtractTimestamps TimestampAddInterval TimestampAddYMInterval ToUTCTimestamp UnixDate
"""
_AGGREGATES = """
AnyValue Average BitAndAgg BitOrAgg BitXorAgg BoolAnd BoolOr Corr Count CountIf CovPopulation CovSample First
HyperLogLogPlusPlus Kurtosis Last Max MaxBy Min MinBy Skewness StddevPop StddevSamp Sum TryAverage TrySum VariancePop
VarianceSamp
"""
DETERMINISTIC = frozenset(" ".join((_STRUCTURE, _LOGIC, _NUMBERS, _TEXT, _COLLECTIONS, _TIME, _AGGREGATES)).split())

#: A batch's rows come in no fixed order, and go out in none: what depends on the order may differ, what regards its
#: input as a set does not.
_OF_SETS = "Distinct Except Intersect Join Range Sort SortOrder SubqueryAlias Union"
_OF_ORDER = """
AnyValue First Last MaxBy MinBy Corr CovPopulation CovSample Kurtosis Skewness StddevPop StddevSamp VariancePop
VarianceSamp
"""
_OF_ORDER_IN_FLOATS = ("Average", "Sum", "TryAverage", "TrySum")


def undetermined_in_batch(data: DataFrame) -> tuple[str, ...]:
    """Return the operations in a batch's analysed plan of which no replay is known to give the same rows."""
    found = set(operations(data))
    doubtful = found - DETERMINISTIC - set(_OF_SETS.split()) | found & set(_OF_ORDER.split())
    plan = json.loads(data._jdf.queryExecution().analyzed().toJSON())
    return tuple(sorted(doubtful | set(_of_floats(plan))))


def _of_floats(node: Any) -> Iterator[str]:
    """Yield the aggregates that add floating-point numbers: the last bits of a sum depend on its order."""
    if isinstance(node, dict):
        for value in node.values():
            yield from _of_floats(value)
    elif isinstance(node, list):
        # An expression is the list of its nodes, each before its children.
        plain = [n if isinstance(n, dict) else {} for n in node]
        floats = [n.get("dataType") in ("double", "float") for n in plain]
        for i, each in enumerate(plain):
            name = str(each.get("class", "")).rpartition(".")[2]
            if name in _OF_ORDER_IN_FLOATS and i + 1 < len(plain):
                known = "dataType" in plain[i + 1]
                if floats[i + 1] if known else any(floats[i + 1 :]):
                    yield name
        for value in node:
            yield from _of_floats(value)


def operations(data: DataFrame) -> Counter[str]:
    """Count the expressions and operators in a DataFrame's analysed plan, by simple class name."""
    plan = json.loads(data._jdf.queryExecution().analyzed().toJSON())
    return Counter(_names(plan))


def undetermined(had: Collection[str], has: Collection[str]) -> tuple[str, ...]:
    """Return those of the operations in `has`, and not in `had`, of which no replay is known to give the same."""
    return tuple(sorted(set(has) - set(had) - DETERMINISTIC))


def _names(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        name = node.get("class")
        if isinstance(name, str):
            yield name.rpartition(".")[2]
        for value in node.values():
            yield from _names(value)
    elif isinstance(node, list):
        for value in node:
            yield from _names(value)
