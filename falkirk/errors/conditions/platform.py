"""Conditions of `platform`."""

from falkirk.errors import HomeError, InternalError, MachineError, StoreError
from falkirk.errors.condition import Condition

HOME_IN_USE = Condition(
    "HOME_IN_USE",
    HomeError,
    "another process runs this application{holder}.",
    hint="Stop it first, or give this application its own home.",
)
HOME_IN_USE_HERE = Condition(
    "HOME_IN_USE",
    HomeError,
    "this process already runs this application.",
    hint="Stop its query first (`query.stop()`), or give this application its own home.",
)
FOLDER_NOT_OURS = Condition(
    "FOLDER_NOT_OURS",
    MachineError,
    "{path} belongs to user {owner}, but this is user {user}: another user could change its content.",
    hint="Run as the owner, change the owner to this user (chown -R), or choose another path.",
)
DATA_AWAY = Condition(
    "DATA_AWAY",
    StoreError,
    "the object store with the data of this home does not answer: {reason}.",
    hint="Is it running, and reachable from here? Falkirk resumes once it answers.",
    certainty="maybe",
)
DATA_UNUSABLE = Condition(
    "DATA_UNUSABLE",
    StoreError,
    "the object store can't be used, and no wait mends that: {reason}.",
    hint="Does the bucket exist, do the credentials or the user of an HDFS allow this, and does Spark have the jars? "
    "docs/how-to/object-store.md has the rights.",
)
DATA_UNKNOWN = Condition(
    "DATA_UNKNOWN",
    InternalError,
    "rows are read from a folder of which this process knows neither a manifest nor a finished job.",
    hint="Please report this, with the traceback.",
)
DATA_NOT_LOCAL = Condition(
    "DATA_NOT_LOCAL",
    InternalError,
    "{what} needs the data of the home on a local disk.",
    hint="Please report this, with the traceback.",
)
