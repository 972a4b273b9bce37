"""Causes: recognizes the causes of Spark's errors by their texts."""

import re

from falkirk.errors.conditions.platform import DATA_AWAY, DATA_UNUSABLE

#: In Spark's ANSI mode, its default, these values fail the task, and would fail it again after each restart.
FAILED_EXPRESSION = re.compile(
    r"\[(CAST_INVALID_INPUT|CONVERSION_INVALID_INPUT|CAST_OVERFLOW|DIVIDE_BY_ZERO|INTERVAL_DIVIDED_BY_ZERO|"
    r"REMAINDER_BY_ZERO|(?:BINARY_|INTERVAL_)?ARITHMETIC_OVERFLOW|DATETIME_OVERFLOW|DATETIME_FIELD_OUT_OF_BOUNDS|"
    r"INVALID_ARRAY_INDEX\w*|INVALID_INDEX\w*|NUMERIC_VALUE_OUT_OF_RANGE\w*|"
    r"CANNOT_PARSE_(?:DECIMAL|INTERVAL|TIME|TIMESTAMP)|MALFORMED_CHARACTER_CODING)[^\n]{0,200}"
)
#: A server of Spark's streaming shuffle received bytes that no task of Spark sends. They end the server's task.
_STRAY = re.compile(
    r"\bat org\.apache\.spark\.(?:network\.util\.TransportFrameDecoder\.decodeNext|"
    r"network\.shuffle\.streaming\.StreamingShuffleMessage\.decode|"
    r"shuffle\.streaming\.StreamingShuffleServerHandler\.receive)\("
)

#: A task of Spark's streaming shuffle could not send to another one.
_LOST_CONNECTION = re.compile(r"executor [^\s)]+\): io\.netty\.channel\.StacklessClosedChannelException")

#: The text of `RegistryAway.java`. A plan that Spark prints does not contain it.
_REGISTRY_AWAY = re.compile(r"FALKIRK_REGISTRY_AWAY: ([^\n]{0,300})")
#: An error of Hadoop's client of object stores, or of the AWS SDK under it; not those of a missing or changed object.
_OBJECTS_AWAY = re.compile(
    r"\b(?:org\.apache\.hadoop\.fs\.s3a|software\.amazon\.awssdk)\.(?:\w+\.)*"
    r"(?!NoSuchKey|RangeNotSatisfiableEOF|RemoteFileChanged)\w+Exception: ([^\n]{0,300})"
)
#: An error of Hadoop's client of HDFS: no connection with a namenode or datanode, or a server that can't do it now.
_HDFS_AWAY = re.compile(
    r"\bjava\.(?:net|io)\.\w+Exception: "
    r"((?:Call From |End of File Exception between |DestHost:destPort |Failed on local exception)[^\n]{0,300})"
    r"|\borg\.apache\.hadoop\.(?:hdfs|ipc)\.(?:\w+\.)*"
    r"(?:BlockMissing|CannotObtainBlockLength|Retriable|SafeMode|Standby)Exception\)?: ([^\n]{0,300})"
    r"|\bjava\.io\.IOException\)?: ((?:All datanodes \[|Failed to replace a bad datanode|"
    r"Unable to (?:close file because the last block|create new block)|"
    r"File [^\n]{1,200} could only be written to \d+ of the )[^\n]{0,300})"
)
#: A task of an iteration could not fetch or upload a file. Its error reaches the driver as text.
_TASK_AWAY, _TASK_UNUSABLE = (
    re.compile(
        rf"\bfalkirk\.errors\.StoreError: {re.escape(said.message.partition('{')[0])}([^\n]{{0,300}}?)\.(?= \(|\n|$)"
    )
    for said in (DATA_AWAY, DATA_UNUSABLE)
)
#: The object store has answered, and a repetition gets the same answer. 408 and 429 ask for a repetition.
_REQUEST_REFUSED = re.compile(r"\(Service: \w+, Status Code: (?!408|429)[34]\d\d\b")
#: No access, no credentials, no such bucket, a bucket of another region, an unknown HDFS, or missing jars.
_OBJECTS_UNUSABLE = (
    re.compile(
        r"\borg\.apache\.hadoop\.security\.(?:AccessControlException\)?|authorize\.AuthorizationException\)?): "
        r"([^\n]{0,300})"
    ),
    re.compile(r"\bjava\.lang\.IllegalArgumentException: (java\.net\.UnknownHostException: [^\n]{0,300})"),
    re.compile(
        r"\borg\.apache\.hadoop\.fs\.s3a\.(?:\w+\.)*(?:AWSRedirect|AWSUnsupportedFeature|CredentialInitialization|"
        r"InstantiationIO|NoAuthWithAWS|NoAwsCredentials|UnknownStore)Exception: ([^\n]{0,300})"
    ),
    _TASK_UNUSABLE,
    re.compile(r"\bsoftware\.amazon\.awssdk\.(?:\w+\.)*NoSuchBucketException: ([^\n]{0,300})"),
    re.compile(
        r"\bsoftware\.amazon\.awssdk\.[\w.]+Exception: "
        r"([^\n]{0,200}\(Service: \w+, Status Code: 40[13]\b[^\n]{0,99})"
    ),
    re.compile(
        r"\bjava\.lang\.(?:ClassNotFoundException|NoClassDefFoundError): "
        r"([^\n]{0,99}(?:fs[./]s3a|amazon[./]awssdk)[^\n]{0,99})"
    ),
)


def registry_away(error: BaseException) -> str | None:
    """Return why a schema registry has not given a schema for a record; None: that is not the cause of the error."""
    found = _REGISTRY_AWAY.search(with_causes(error))
    return None if found is None else found[1]


def objects_away(error: BaseException) -> str | None:
    """Return why an object store has not answered a request of a task's; None: that is not the cause of the error.

    The client has repeated the request before.
    """
    text = with_causes(error)
    found = _OBJECTS_AWAY.search(text) or _TASK_AWAY.search(text) or _HDFS_AWAY.search(text)
    if found is None or _REQUEST_REFUSED.search(text) or objects_unusable(error) is not None:
        return None
    return str(next(filter(None, found.groups()))).strip()


def objects_unusable(error: BaseException) -> str | None:
    """Return why an object store will refuse all requests of tasks; None: that is not the cause of the error."""
    text = with_causes(error)
    return next((found[1].strip() for cause in _OBJECTS_UNUSABLE if (found := cause.search(text))), None)


def is_stray(error: Exception) -> bool:
    """Return whether a query ended because a stranger connected to a port of Spark's streaming shuffle.

    Those ports are open to all interfaces and ask for no secret, with any settings.
    """
    return _STRAY.search(with_causes(error)) is not None


def is_lost_connection(error: Exception) -> bool:
    """Return whether a task failed because another task of its query, which has ended, closed their connection.

    Spark reports the failure that arrives first, and ends the other task before that one can report its own.
    """
    return _LOST_CONNECTION.search(with_causes(error)) is not None


def is_failed_expression(error: BaseException) -> bool:
    """Return whether an expression failed on a value."""
    return FAILED_EXPRESSION.search(with_causes(error)) is not None


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the JVM ran out of memory."""
    return "java.lang.OutOfMemoryError" in with_causes(error)


def with_causes(error: BaseException) -> str:
    """Return Spark's texts of an error and of its causes, with their stack traces.

    PySpark keeps the cause of a query's error in a separate field. The text and the stack trace of the error do not
    name it.
    """
    chain, each = [f"{error}\n{getattr(error, '_stackTrace', '')}"], getattr(error, "_cause", None)
    while each is not None:
        chain.append(f"Caused by: {getattr(each, '_stackTrace', '') or each}")
        each = getattr(each, "_cause", None)
    return "\n".join(chain)
