"""Functions: a table of Spark's operations and their behaviour on a replay, with a reason for each row.

The names are those of Catalyst's expression and plan classes, because every spelling (functions, SQL text, operators)
becomes one of them. Spark's own flag, `deterministic`, is false for `rand`, `uuid` and few others. It is true for
`first`, `collect_list`, `current_timestamp`, Python functions and sums of doubles. Functions that are not in the table
count as non-deterministic.
"""

from dataclasses import dataclass
from enum import Enum


class Nature(Enum):
    """The behaviour of an operation on a replay."""

    PURE = "its result depends only on its arguments"
    COMMUTATIVE = "an aggregate that gives the same result for any order of rows"
    FLOATING = "an aggregate that adds; the order of floating-point numbers decides the last bits"
    ORDERED = "an aggregate that depends on the order of rows"
    SET = "a relation of sets of rows, which have no order"
    RANKED = "a relation that depends on the order of its rows, which is not fixed"
    DIFFERENT = "it differs each time"
    PLACED = "it depends on the machine, the session or the partitioning"
    FOREIGN = "code that Spark can't inspect"
    OUTSIDE = "it reads data from outside the application, which may have changed"
    UNKNOWN = "it is not in the table"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionEntry:
    """A row of the table.

    Args: names: the names of Catalyst's classes. reason: the reason, as a sentence. instead: an alternative for users.
    """

    nature: Nature
    names: str
    reason: str
    instead: str = ""


#: Stands for an operation: the user's function gives different steps each time it is called.
ITSELF = "Itself"
#: A live lookup: the number of the newest epoch, and the rows of that epoch.
NEWEST_EPOCH, VIEW_ROWS = "NewestEpoch", "ViewRows"
#: A timer by the clock fires.
CLOCK_TIMER = "ClockTimer"
#: Spark's `Deduplicate` by some of the columns. By all columns it gives a set.
ONE_OF_SEVERAL = "DeduplicateBySome"
#: Operations that only types reveal, see `typed`.
ONE_SPELLING, OVERFLOWING = "OneSpelling", "Overflowing"
#: A cast of a word for the present, and other constants that depend on the day, see `clocks`. Rows that Python made,
#: see `escapes`.
PRESENT, DATED, ROWS_OF_PYTHON = "Present", "Dated", "RowsOfPython"
#: Operations whose dependent columns are unknown.
UNTRACEABLE = frozenset({ITSELF, DATED, CLOCK_TIMER})
_DRAW = "generate the value where the records are produced, and send it as data"
_CLOCK = "use the record's timestamp, or a time that its producer wrote"
_ASSERT = "declare it with fk.deterministic, if equal input always gives equal results"
_ORDER = "sort first, or use an aggregate that does not depend on the order of rows"
_LEDGER = "read it with a source or another processor, which records the rows"

TABLE = (
    FunctionEntry(
        nature=Nature.PURE,
        names="""
        Aggregate AggregateExpression Alias AttributeReference CreateNamedStruct CreateArray CreateMap Filter Generate
        GetArrayItem GetArrayStructFields GetMapValue GetStructField ElementAt LambdaFunction Literal
        NamedArgumentExpression NamedLambdaVariable OuterReference Project StreamingRelationV2 SubqueryAlias
        UnresolvedNamedLambdaVariable
        CurrentRow$ DropField Grouping GroupingID SpecifiedWindowFrame UnboundedFollowing$ UnboundedPreceding$
        SQLScalarFunction UpdateFields WindowSpecDefinition WithField
        """
        + VIEW_ROWS,
        reason="it says what goes where, row by row",
    ),
    FunctionEntry(
        nature=Nature.PURE,
        names="""
        And AtLeastNNonNulls CaseWhen Cast Coalesce EqualNullSafe EqualTo GreaterThan GreaterThanOrEqual Greatest If In
        InSet IsNaN IsNotNull IsNull Least LessThan LessThanOrEqual NaNvl Not Nvl NullIf Or RuntimeReplaceable
        Between CommonExpressionDef CommonExpressionRef EqualNull KnownNotNull KnownNullable Nvl2 NullIfResult
        NullIfZero TryEval TypeOf With ZeroIfNull
        AssertTrue BinaryPredicate RaiseError
        """,
        reason="it compares or chooses among its arguments",
    ),
    FunctionEntry(
        nature=Nature.PURE,
        names="""
        Abs Add BitwiseAnd BitwiseCount BitwiseNot BitwiseOr BitwiseXor BRound CheckOverflow Ceil Divide Exp Floor
        IntegralDivide Log Log10 Log2 Multiply Pmod Pow Remainder Round ShiftLeft ShiftRight Signum Sqrt Subtract
        UnaryMinus UnaryPositive Crc32 Md5 Murmur3Hash Sha1 Sha2 XxHash64 Hex Unhex Conv
        Acos Acosh Asin Asinh Atan Atan2 Atanh Bin BitwiseGet Cbrt Cos Cosh Cot Csc EulerNumber Expm1 Factorial Hypot
        Log1p Logarithm Pi Rint Sec ShiftRightUnsigned Sin Sinh Tan Tanh ToCharacter ToDegrees ToNumber ToRadians
        TryAdd TryDivide TryMod TryMultiply TrySubtract TryToNumber WidthBucket
        AesDecrypt BitmapBitPosition BitmapBucketNumber BitmapCount Hmac RoundCeil RoundFloor TryAesDecrypt
        VectorCosineSimilarity VectorInnerProduct VectorL2Distance VectorNorm VectorNormalize
        HllSketchEstimate HllUnion ThetaDifference ThetaIntersection ThetaSketchEstimate ThetaUnion
        KllSketchGetNBigint KllSketchGetNDouble KllSketchGetNFloat KllSketchGetQuantileBigint
        KllSketchGetQuantileDouble KllSketchGetQuantileFloat KllSketchGetRankBigint KllSketchGetRankDouble
        KllSketchGetRankFloat KllSketchToStringBigint KllSketchToStringDouble KllSketchToStringFloat
        """,
        reason="arithmetic, the same on every machine that runs one JVM's StrictMath or integers",
    ),
    FunctionEntry(
        nature=Nature.PURE,
        names="""
        Ascii Base64 BitLength Chr Concat ConcatWs Contains EndsWith FormatNumber FormatString InitCap Left Length Like
        LikeAll Lower OctetLength Overlay RegExpExtract RegExpExtractAll RegExpReplace RLike Right Reverse SoundEx
        StartsWith StringInstr StringLocate StringLPad StringRepeat StringReplace StringRPad StringSplit StringSplitSQL
        StringToMap StringTranslate StringTrim StringTrimLeft StringTrimRight Substring SubstringIndex UnBase64 Upper
        Encode Decode ParseUrl Levenshtein JsonToStructs StructsToJson GetJsonObject JsonTuple LengthOfJsonArray
        AvroDataToCatalyst CatalystDataToAvro FromAvro ToAvro
        Collation CsvToStructs Elt FindInSet ILike IsValidUTF8 IsVariantNull JsonObjectKeys Luhncheck MakeValidUTF8
        Mask ParseJson Quote RegExpCount RegExpInStr RegExpSubStr SchemaOfJson Sentences SplitPart StringDecode
        StringSpace StringTrimBoth StructsToCsv ToBinary ToVariantObject TryToBinary UrlDecode UrlEncode VariantGet
        XmlToStructs
        Base32 BinaryPad CatalystDataToProtobuf Collate FromProtobuf IsValidVariant JaroWinkler LikeAny NotLikeAll
        NotLikeAny ProtobufDataToCatalyst ResolvedCollation SchemaOfAvro SchemaOfCsv SchemaOfVariant SchemaOfXml
        ST_AsBinary ST_GeogFromWKB ST_GeomFromWKB ST_SetSrid ST_Srid StructsToXml ToProtobuf TryParseUrl TryUrlDecode
        TryValidateUTF8 UnBase32 ValidateUTF8 VariantArrayAppend VariantDelete VariantInsert VariantSet
        VariantStripNulls XPathBoolean XPathDouble XPathFloat XPathInt XPathList XPathLong XPathShort XPathString
        """,
        reason="text and its formats: a function of its bytes and of constant options",
    ),
    FunctionEntry(
        nature=Nature.PURE,
        names="""
        ArrayAppend ArrayCompact ArrayContains ArrayDistinct ArrayExcept ArrayExists ArrayFilter ArrayForAll
        ArrayIntersect ArrayJoin ArrayMax ArrayMin ArrayPosition ArrayPrepend ArrayRemove ArrayRepeat ArraySize
        ArraySort ArrayTransform ArrayUnion ArrayAggregate ArraysOverlap ArraysZip Cardinality Flatten MapConcat
        MapEntries MapFilter MapFromArrays MapFromEntries MapKeys MapValues Sequence Size Slice SortArray TransformKeys
        TransformValues ZipWith Explode PosExplode TryElementAt ArrayInsert Get MapContainsKey MapZipWith
        Inline Stack VariantExplode
        """,
        reason="a collection within one row, whose order is part of its value",
    ),
    FunctionEntry(
        nature=Nature.PURE,
        names="""
        AddMonths DateAdd DateDiff DateFormatClass DateSub DayOfMonth DayOfWeek DayOfYear FromUnixTime Hour LastDay
        MakeDate MakeTimestamp MicrosToTimestamp MillisToTimestamp Minute Month MonthsBetween NextDay ParseToDate
        ParseToTimestamp Quarter Second SecondsToTimestamp TimestampAdd TimestampDiff ToUnixTimestamp TruncDate
        TruncTimestamp UnixMicros UnixMillis UnixSeconds UnixTimestamp WeekDay WeekOfYear Year
        ConvertTimezone DateAddInterval DateAddYMInterval DateFromUnixDate DayName Extract ExtractANSIIntervalDays
        FromUTCTimestamp MakeDTInterval MakeInterval MakeYMInterval MonthName PreciseTimestampConversion SubtractDates
        SubtractTimestamps TimestampAddInterval TimestampAddYMInterval ToUTCTimestamp UnixDate TimeWindow WindowTime
        DatetimeSub DivideDTInterval DivideInterval DivideYMInterval MakeTime MakeTimestampFromDateTime
        MultiplyDTInterval MultiplyInterval MultiplyYMInterval NanosToTimestamp SecondWithFraction SessionWindow
        HoursOfTime MinutesOfTime SecondsOfTime SecondsOfTimeWithFraction
        TimeBucket TimeDiff TimeFromMicros TimeFromMillis TimeFromSeconds TimeToMicros TimeToMillis TimeToSeconds
        TimeTrunc ToTime TryMakeInterval TryMakeTimestamp TryMakeTimestampFromDateTime UnixNanos
        """,
        reason="times that are given to it; the session's time zone is recorded with the plan",
    ),
    FunctionEntry(
        nature=Nature.COMMUTATIVE,
        names="""
        BitAndAgg BitOrAgg BitXorAgg BoolAnd BoolOr Count CountIf HyperLogLogPlusPlus Max Min
        BitmapAndAgg BitmapConstructAgg BitmapOrAgg PivotFirst RegrCount
        """,
        reason="its state after some rows is a function of which they were",
    ),
    FunctionEntry(
        nature=Nature.FLOATING,
        names="Average Sum TryAverage TrySum",
        reason="the order of rows decides the last bits of a sum of floating-point numbers",
        instead="cast to DECIMAL first",
    ),
    FunctionEntry(
        nature=Nature.ORDERED,
        names="AnyValue First Last MaxBy MaxMinByK MinBy",
        reason="the result depends on which row comes first, at least among equal rows",
        instead=_ORDER,
    ),
    # A live step merges a key's state with each record's own list, in this order (docs/determinism.md).
    FunctionEntry(
        nature=Nature.ORDERED,
        names="CollectList ListAgg",
        reason="the collected values have the order in which rows arrive",
        instead="sort the values, array_sort(collect_list(…)), and declare the function with fk.deterministic",
    ),
    FunctionEntry(
        nature=Nature.ORDERED,
        names="""
        Corr CovPopulation CovSample Kurtosis Skewness StddevPop StddevSamp VariancePop VarianceSamp RegrSlope
        RegrIntercept RegrR2 RegrSXY RegrAvgX RegrAvgY RegrSXX RegrSYY VectorAvg VectorSum
        """,
        reason="the order of rows decides the last bits of a floating-point number",
        instead="compute it from sums of decimals",
    ),
    FunctionEntry(
        nature=Nature.ORDERED,
        names=ONE_SPELLING,
        reason="equal values have several spellings (0.0 and -0.0, strings with a collation, NULL intervals), and the "
        "result has the spelling of the first one",
        instead="group by or compare one spelling: a decimal, d + 0.0D, lower(…), collate(…, 'UTF8_BINARY')",
    ),
    FunctionEntry(
        nature=Nature.ORDERED,
        names=OVERFLOWING,
        reason="a sum that overflows at any row is NULL, and the order of rows decides whether it does",
        instead="add decimals of up to 28 digits",
    ),
    FunctionEntry(
        nature=Nature.RANKED,
        names="""
        CollectSet Mode ApproximatePercentile HistogramNumeric ApproxTopK CountMinSketchAgg
        KllSketchAggBigint ThetaSketchAgg HllSketchAgg HllUnionAgg
        ApproxTopKAccumulate ApproxTopKCombine CollectUnion KllMergeAggBigint KllMergeAggDouble KllMergeAggFloat
        KllSketchAggDouble KllSketchAggFloat ThetaIntersectionAgg ThetaUnionAgg
        """,
        reason="the collected values have the order in which rows or partitions arrive",
        instead="sort the values, array_sort(collect_list(…)), and declare the function with fk.deterministic",
    ),
    FunctionEntry(
        nature=Nature.COMMUTATIVE,
        names="Percentile PercentileCont PercentileDisc Median",
        reason="it sorts what it has gathered",
    ),
    FunctionEntry(
        nature=Nature.SET,
        names="""
        Distinct Except Intersect Join Range Sort SortOrder Union Deduplicate Repartition RepartitionByExpression
        RebalancePartitions ResolvedHint EventTimeWatermark View Subquery ScalarSubquery Exists ListQuery InSubquery
        WithCTE CTERelationDef CTERelationRef Expand Pivot Unpivot
        CollectMetrics LateralJoin LateralSubquery OneRowRelation PipeOperator SQLFunctionNode UnionLoop UnionLoopRef
        """,
        reason="its result, as a set, is a function of its inputs as sets",
    ),
    FunctionEntry(
        nature=Nature.RANKED,
        names="""
        GlobalLimit LocalLimit Limit Offset Tail Sample Window WindowExpression RowNumber Rank DenseRank NTile Lead Lag
        NthValue CumeDist PercentRank CounterDiff
        """
        + ONE_OF_SEVERAL,
        reason="the order of rows with equal sort keys decides which rows it selects, or their numbers",
        instead="sort by a unique column, and declare the function with fk.deterministic",
    ),
    FunctionEntry(
        nature=Nature.DIFFERENT,
        names="Rand Randn Uniform RandStr Uuid Shuffle UuidV7",
        reason="its values are random",
        instead=_DRAW,
    ),
    FunctionEntry(
        nature=Nature.DIFFERENT,
        names="KllSketchMergeBigint KllSketchMergeDouble KllSketchMergeFloat",
        reason="it omits a random half of the values",
    ),
    FunctionEntry(
        nature=Nature.DIFFERENT,
        names="AesEncrypt",
        reason="its initialization vector (IV) is random, unless one is given",
        instead="encrypt where the records are produced; with an IV or mode ECB, declare it with fk.deterministic",
    ),
    FunctionEntry(
        nature=Nature.DIFFERENT,
        names="""
        CurrentTimestamp CurrentDate LocalTimestamp Now CurrentTime CurrentTimeZone CurrentBatchTimestamp
        """
        + f"{PRESENT} {DATED}",
        reason="it reads the clock",
        instead=_CLOCK,
    ),
    FunctionEntry(
        nature=Nature.DIFFERENT,
        names=NEWEST_EPOCH,
        reason="a lookup reads the newest results of a batch, and a replay may find newer ones",
        instead="read the view in a batch (fk.Eager()), which records the number of the epoch first",
    ),
    FunctionEntry(
        nature=Nature.DIFFERENT,
        names=CLOCK_TIMER,
        reason="a replay reads the same times of the clock, but perhaps between other records",
        instead="use a timer by event time, withWatermark() instead of withClock(), if records keep coming",
    ),
    FunctionEntry(
        nature=Nature.DIFFERENT,
        names=ITSELF,
        reason="two calls describe different steps: the function uses a clock, random values or a counter in Python",
        instead="use Spark's functions, which Falkirk can inspect",
    ),
    FunctionEntry(
        nature=Nature.PLACED,
        names="""
        MonotonicallyIncreasingID SparkPartitionID InputFileName InputFileBlockStart InputFileBlockLength
        SparkVersion CurrentUser CurrentDatabase CurrentCatalog CurrentPath Version
        """,
        reason="the result depends on the partitioning, the machine or the session",
        instead="use the record's partition and offset (fk.Stamped)",
    ),
    FunctionEntry(
        nature=Nature.FOREIGN,
        names="""
        PythonUDF PythonUDAF PythonUDTF ScalaUDF ScalaAggregator TypedAggregateExpression MapInArrow MapInPandas
        PythonMapInArrow FlatMapGroupsInPandas FlatMapGroupsInArrow FlatMapCoGroupsInPandas FlatMapCoGroupsInArrow
        ArrowEvalPython BatchEvalPython MapPartitions MapElements MapGroups CoGroup HiveSimpleUDF HiveGenericUDF
        Invoke StaticInvoke ApplyFunctionExpression V2Aggregator
        HiveUDAFFunction CallMethodViaReflection TryReflect ScriptTransformation
        """
        + ROWS_OF_PYTHON,
        reason="neither Spark nor Falkirk can inspect this code",
        instead=_ASSERT,
    ),
    FunctionEntry(
        nature=Nature.OUTSIDE,
        names="""
        LogicalRelation DataSourceV2Relation DataSourceV2ScanRelation HiveTableRelation UnresolvedRelation
        StreamingRelation StreamingDataSourceV2Relation
        """,
        reason="the application does not record these rows, and a replay may read other rows",
        instead=_LEDGER,
    ),
    FunctionEntry(
        nature=Nature.OUTSIDE,
        names="LogicalRDD LocalRelation",
        reason="its rows were computed earlier, and the plan does not say how",
        instead="compute the rows in the function, from its inputs",
    ),
)  # fmt: skip

_BY_NAME = {name: entry for entry in TABLE for name in entry.names.split()}
_NOT_LISTED = FunctionEntry(
    nature=Nature.UNKNOWN, names="", reason="Falkirk's table of functions lacks it", instead=_ASSERT
)

#: The names that users know, if they are not Catalyst's names in lower case with underscores.
_SPOKEN = {
    ITSELF: "the function itself",
    CLOCK_TIMER: "a timer by the clock",
    NEWEST_EPOCH: "lookup()", VIEW_ROWS: "lookup()",
    ONE_OF_SEVERAL: "dropDuplicates() by some of the columns",
    ONE_SPELLING: "one of several equal values", OVERFLOWING: "a sum that may overflow",
    PRESENT: "a word for the current time ('now', 'today')", DATED: "a constant that may depend on the current date",
    "LogicalRDD": "a DataFrame from outside the function", "LocalRelation": "a DataFrame from outside the function",
    "Invoke": "a function of a catalog", "StaticInvoke": "a function of a catalog",
    "ApplyFunctionExpression": "a function of a catalog", "V2Aggregator": "a function of a catalog",
    ROWS_OF_PYTHON: "rows computed in Python",
    "PythonUDF": "a Python function", "MapInArrow": "a Python function", "MapInPandas": "a Python function",
    "PythonMapInArrow": "a Python function", "FlatMapGroupsInPandas": "a Python function", "ScalaUDF": "a JVM function",
    "LogicalRelation": "a table or file read in it", "DataSourceV2Relation": "a table or file read in it",
    "MonotonicallyIncreasingID": "monotonically_increasing_id()", "SparkPartitionID": "spark_partition_id()",
    "RandStr": "randstr()", "UuidV7": "uuid_v7()", "NTile": "ntile()",
    "GlobalLimit": "limit()", "LocalLimit": "limit()",
}  # fmt: skip


def entry_of(operation: str) -> FunctionEntry:
    """Return the row of the table for one of Catalyst's classes, or the row for unknown ones."""
    return _BY_NAME.get(operation, _NOT_LISTED)


def names_of(*natures: Nature) -> frozenset[str]:
    """Return the names of Catalyst's classes whose rows of the table have one of these natures."""
    return frozenset(name for name, entry in _BY_NAME.items() if entry.nature in natures)


def operation_name(operation: str) -> str:
    """Return the name of an operation for users: `rand()`, `current_timestamp()`, "a Python function"."""
    if operation in _SPOKEN:
        return _SPOKEN[operation]
    words = "".join(f"_{c.lower()}" if c.isupper() else c for c in operation).strip("_")
    return f"{words}()"


#: In a live region, a key's rows arrive in the order of their stamps, so aggregates may depend on this order.
SAME_LIVE = frozenset({Nature.PURE, Nature.COMMUTATIVE, Nature.FLOATING, Nature.ORDERED})
#: A batch's rows have no fixed order, neither as input nor as results. `typed` checks sums more closely.
SAME_IN_BATCH = frozenset({Nature.PURE, Nature.COMMUTATIVE, Nature.FLOATING, Nature.SET})
AGGREGATES = frozenset({Nature.COMMUTATIVE, Nature.FLOATING, Nature.ORDERED, Nature.RANKED})
#: Operations that may differ because of the order of rows, including those of which nothing is known.
ORDER_MATTERS = frozenset(
    {Nature.FLOATING, Nature.ORDERED, Nature.RANKED, Nature.PLACED, Nature.FOREIGN, Nature.UNKNOWN}
)
#: Aggregates whose result stays the same if a row is added again, and names that are no aggregates.
IDEMPOTENT = frozenset(
    {
        "AnyValue", "BitAndAgg", "BitOrAgg", "BitmapAndAgg", "BitmapConstructAgg", "BitmapOrAgg", "BoolAnd", "BoolOr",
        "CollectSet", "First", "HyperLogLogPlusPlus", "Max", "MaxBy", "Min", "MinBy", "PivotFirst",
        ONE_SPELLING, OVERFLOWING,
    }
)  # fmt: skip
