"""Conditions of `runtime/spark`."""

from falkirk.errors import DefinitionError, HomeError, InternalError, LogError, SparkError
from falkirk.errors.condition import Condition

FOREIGN_WRITER = Condition(
    "FOREIGN_WRITER",
    LogError,
    "the record at offset {offset} of partition {partition} of {topic!r} has {reason}.",
    hint="If this home was restored from a copy, restore a copy that is as new as its sinks. Otherwise somebody "
    "forged that record: ignore it with `falkirk disown FILE TOPIC`.",
)
EPOCH_OUT_IN_PART = Condition(
    "EPOCH_OUT_IN_PART",
    HomeError,
    "epoch {epoch} of batch {processor!r} was interrupted when some of its results were published. Since then the "
    "batch, its sink or a Python value that it reads has changed, so the remaining results would not fit the "
    "published ones.",
    hint="Run the former version until that epoch is complete, or roll back (falkirk rollback --force).",
)
SESSION_LOST_DIED = Condition(
    "SESSION_LOST",
    SparkError,
    "Spark's JVM has died.",
    certainty="maybe",
)
SESSION_LOST_MEMORY_EPOCH = Condition(
    "SESSION_LOST",
    SparkError,
    "Spark ran out of memory in epoch {epoch} of batch {region!r}.",
    hint="Falkirk restarts the Spark application. If this repeats, raise spark.driver.memory.",
    certainty="maybe",
)
FUNCTION_FAILED = Condition(
    "FUNCTION_FAILED",
    SparkError,
    "a Python function of batch {processor!r} failed on a row of epoch {epoch}: {poison}",
    hint='Correct the function and run again, or set poison="dead-letter" to make such rows dead letters.',
)
FUNCTION_FAILED_LIVE = Condition(
    "FUNCTION_FAILED",
    SparkError,
    "a Python function of region {region!r} failed on a record: {poison}",
    hint='Correct the function and run again, or set poison="dead-letter" to make such records dead letters.',
)
PYTHON_UNSUITABLE = Condition(
    "PYTHON_UNSUITABLE",
    SparkError,
    "Python can't run a function of region {region!r}: {reason}.",
    hint="Give each executor the driver's version of Python, with pyspark, pyarrow and what the function imports; "
    "PYSPARK_PYTHON names the command there, and --py-files takes your own modules.",
)
REPORT_LOST = Condition(
    "REPORT_LOST",
    SparkError,
    "a task of an iteration has ended, and its list of files did not arrive ({task}).",
    hint="Falkirk computes the epoch again; you need not do anything.",
    certainty="maybe",
)
NUMBER_TOO_LARGE = Condition(
    "NUMBER_TOO_LARGE",
    SparkError,
    "in epoch {epoch} of {processor!r} there is {too_many}: a row, or a sum.",
    hint="Use distinct() or fewer rounds: a loop that counts paths grows without limit if there is a cycle.",
)
FOLDER_MISSING = Condition(
    "FOLDER_MISSING",
    LogError,
    "the folder that {source!r} reads does not exist.",
    hint="Make {folder}, or correct its name.",
)
FOLDER_MISSING_UNLISTED = Condition(
    "FOLDER_MISSING",
    LogError,
    "the folder that {source!r} reads can't be listed: {reason}.",
    hint="Make or mount {folder}, and give this user the right to list it.",
)
FILE_NAME_INVALID = Condition(
    "FILE_NAME_INVALID",
    LogError,
    "Spark can't read files in {file!a}.",
    hint="Rename the folder: use printable characters without {strange}.",
)
FILE_UNKNOWN_UNREAD = Condition(
    "FILE_UNKNOWN",
    DefinitionError,
    "{source!r} has not read a file {file!r}.",
    hint="Name a file that a status or an error names, as SOURCE/FILE.",
)
INPUT_CHANGED = Condition(
    "INPUT_CHANGED",
    LogError,
    "file {file!r} of {source!r} was changed after Falkirk had found it complete.",
    hint="Write a file under a name that begins with '_' or '.', and rename it when it is complete. Restore this one "
    "unchanged ({size} bytes, touch -d @{changed_at_s:.9f}). {or_else}",
)
INPUT_CHANGED_PERMISSION = Condition(
    "INPUT_CHANGED",
    LogError,
    "file {file!r} of {source!r} is still needed, but Falkirk's user may not read it.",
    hint="Give Falkirk's user the permission to read it. {or_else}",
)
INPUT_EXPIRED_FILE = Condition(
    "INPUT_EXPIRED",
    LogError,
    "file {file!r} of {source!r} is still needed, but can't be found: {reason}.",
    hint="Restore it unchanged, with the time of its last change. {or_else}",
)
EPOCHS_NOT_KEPT = Condition(
    "EPOCHS_NOT_KEPT",
    HomeError,
    "epochs of {upstream!r} that {name!r} has not read went straight to a topic, without a log.",
    hint="Begin with a new home: these epochs were computed while nothing read them.",
)
EPOCH_OPEN = Condition(
    "EPOCH_OPEN",
    InternalError,
    "epoch {epoch} is read before it is complete.",
)
HOME_DAMAGED_BATCH = Condition(
    "HOME_DAMAGED",
    HomeError,
    "batch {batch!r} has epochs but no record of decisions.",
    hint="Restore decisions.db from a backup, or use a new home.",
)
WRITER_STILL_RUNNING = Condition(
    "WRITER_STILL_RUNNING",
    SparkError,
    "a job of batch {batch!r} still writes.",
    hint="Falkirk restarts the Spark application to end this job.",
    certainty="maybe",
)
HOME_DAMAGED_STATE = Condition(
    "HOME_DAMAGED",
    HomeError,
    "the state of batch {batch!r} after epoch {number} is missing.",
    hint="Restore the home from a backup, or use a new one.",
)
SESSION_LOST_STATE = Condition(
    "SESSION_LOST",
    SparkError,
    "epoch {number} of batch {region!r} failed, and the state before it was not saved. Computed again, it may "
    "differ. ({reason})",
    hint="Falkirk restarts the Spark application, which resumes from the last saved epoch.",
    certainty="maybe",
)
INPUT_CHANGED_UNREADABLE = Condition(
    "INPUT_CHANGED",
    LogError,
    "file {file!r} of {source!r} was read once, and can't be read any more: {reason}.",
    hint="Restore it unchanged. If you can't: roll {name!r} back to a saved epoch (`falkirk rollback`) and leave the "
    "file out (`falkirk disown`).",
)
WRITER_STILL_RUNNING_TASK = Condition(
    "WRITER_STILL_RUNNING",
    SparkError,
    "a task of a stopped region still writes to Kafka.",
    hint="Falkirk restarts the Spark application, which ends the task.",
    certainty="maybe",
)
GATE_CONTENDED = Condition(
    "GATE_CONTENDED",
    InternalError,
    "other processes keep starting region {region!r}, probably in copies of this home.",
    hint="Stop all of them but one.",
)
CHECKPOINT_DAMAGED = Condition(
    "CHECKPOINT_DAMAGED",
    SparkError,
    "batch {batch} is committed but its offsets can't be read.",
    hint="Restore the checkpoint from a backup, or begin with a new home.",
)
SESSION_LOST_ROLLBACK = Condition(
    "SESSION_LOST",
    SparkError,
    "region {region!r} has to roll back, and executors on a cluster may still write for it.",
    hint="Falkirk restarts the Spark application, and waits until these executors have ended.",
    certainty="maybe",
)
SESSION_LOST_RELEASE = Condition(
    "SESSION_LOST",
    SparkError,
    "a job that wrote to {topic!r} failed, and executors on a cluster may still write for it.",
    hint="Falkirk restarts the Spark application, and waits until these executors have ended. With transactional "
    "sinks (`transactional=True`), it would not have to.",
    certainty="maybe",
)
QUERY_ENDED = Condition(
    "QUERY_ENDED",
    LogError,
    "the query of {region!r} ended.",
)
QUERY_NOT_STARTED = Condition(
    "QUERY_NOT_STARTED",
    SparkError,
    "Spark can't start region {region!r}: {reason}.",
)
SINK_UNSETTLED_ARRIVING = Condition(
    "SINK_UNSETTLED",
    LogError,
    "records keep arriving in {topic!r}, but this home has no writer left. The record at offset {offset} of "
    "partition {partition} is or has {reason}.",
    hint="Stop that writer, or revoke its right to write to the topic. Falkirk tries again.",
)
SINK_UNSETTLED_TRANSACTION = Condition(
    "SINK_UNSETTLED",
    LogError,
    "another writer's transaction has been open since offset {position} of partition {partition} of {topic!r}, so "
    "Falkirk can't read the published results after it.",
    hint="Stop that writer, or wait until its transaction times out. An output topic has one writer. Falkirk tries "
    "again.",
)
BROKER_AWAY_REPLICAS_LAG = Condition(
    "BROKER_AWAY",
    LogError,
    "leaders of {topic!r} may hold records that their followers lack, after the end of partition {places}.",
    hint="Start all brokers, and check that at least min.insync.replicas of each partition are in sync.",
    certainty="maybe",
)
SINK_TRUNCATED = Condition(
    "SINK_TRUNCATED",
    LogError,
    "partition {partition} of {topic!r} ends at {end}, but ended at {position} before: Kafka lost records that it "
    "had acknowledged.",
    hint="Find out if the broker was restored or an unclean leader elected. Begin with a new home and a new output "
    "topic.",
)
SINK_EXPIRED = Condition(
    "SINK_EXPIRED",
    LogError,
    "records of {topic!r} published after the checkpoint have expired, so a replay can't be compared with them.",
    hint="Begin with a new home. Set a retention that exceeds the checkpoint interval and any downtime.",
)
SINK_AHEAD = Condition(
    "SINK_AHEAD",
    HomeError,
    "{sink!r} has records of incarnation {seen} of {region!r}, but this home only knows incarnations up to "
    "{there}: it is an older copy.",
    hint="Restore a copy of the home that is as new as its sinks, or begin with a new home and new output topics.",
)
APPLICATION_CHANGED = Condition(
    "APPLICATION_CHANGED",
    HomeError,
    "region {region!r} is new to this home, but the home has already written to {written!r}.",
    hint="Restore the former names of the region and of its sink, or begin with a new home and a new sink.",
)
APPLICATION_CHANGED_PROGRAM = Condition(
    "APPLICATION_CHANGED",
    HomeError,
    "the steps that compute the state of batch {region!r} have changed. {count} epochs after the last checkpoint "
    "({checkpoint}) are complete. The new steps would compute another state than the one that belongs to their "
    "results.",
    hint="Undo the change, and let the application run until the state is saved ({when}). If you can't: roll back "
    "(`falkirk rollback --to {region}@{checkpoint}`), or begin with a new home and new sinks.",
)
HOME_VERSION_STATE = Condition(
    "HOME_VERSION",
    HomeError,
    "an earlier version of Falkirk made the state of {kind} {name!r}, in a form that this version can't read.",
    hint="Use the version of Falkirk that made the home, or begin with a new home and new sinks.",
)
APPLICATION_CHANGED_PARTS = Condition(
    "APPLICATION_CHANGED",
    HomeError,
    "region {region!r} no longer fits its checkpoint: {what}.",
    hint="{advice}",
)
HOME_DAMAGED_REGION = Condition(
    "HOME_DAMAGED",
    HomeError,
    "region {region!r} has a checkpoint, but the store has no record of it.",
    hint="Restore decisions.db from a backup, or use a new home.",
)
PARTITIONS_CHANGED = Condition(
    "PARTITIONS_CHANGED",
    LogError,
    "topic {topic!r} has {now} partitions, but had {before} when this home was made: records of a key would move "
    "to another channel.",
    hint="Begin with a new home and a new output topic.",
)
STAMP_SHAPE = Condition(
    "STAMP_SHAPE",
    InternalError,
    "the output has a stamp with {sub} sub-indexes, but {depth} were expected.",
)
RELEASE_FAILED = Condition(
    "RELEASE_FAILED",
    SparkError,
    "the results that wait could not be read for the terminal: {reason}.",
    certainty="definitely",
)
RELEASE_FAILED_COPY = Condition(
    "RELEASE_FAILED",
    SparkError,
    "results in {held!r} could not be copied to {topic!r}: {reason}.",
    hint="Falkirk retries, and copies what the sink does not have yet.",
    certainty="maybe",
)
FOLDER_DAMAGED = Condition(
    "FOLDER_DAMAGED",
    HomeError,
    "Falkirk's note in this folder can't be read: {why}.",
    hint="Restore the file from a backup, or give the sink a new folder. Check who else may write to it.",
)
FOLDER_OF_ANOTHER = Condition(
    "FOLDER_OF_ANOTHER",
    HomeError,
    "another home wrote this folder.",
    hint="Give each sink its own folder.",
)
RELEASE_FAILED_OWN = Condition(
    "RELEASE_FAILED",
    SparkError,
    "sink {sink!r} ({address}) does not accept results: {reason}.",
    hint="Falkirk tries again.",
    certainty="maybe",
)
SINK_BEHIND = Condition(
    "SINK_BEHIND",
    HomeError,
    "sink {sink!r} has only the epochs before {kept} of {epochs!r}, but all before {released} were released to it: "
    "it is an older copy, or was emptied.",
    hint="Start again: the home sends the epochs that it still keeps. If it no longer keeps them, restore a newer copy "
    "of the sink, or begin with a new home. `history=` sets how many epochs a home keeps.",
)
SINK_AHEAD_EPOCHS = Condition(
    "SINK_AHEAD",
    HomeError,
    "sink {sink!r} has epochs before {seen} of {epochs!r}, but this home has only those before {there}: it is an "
    "older copy.",
    hint="Restore a copy of the home that is as new as its sinks, or begin with a new home and sinks.",
)
RELEASE_FAILED_STOP = Condition(
    "RELEASE_FAILED",
    SparkError,
    "a stop interrupted {what}.",
    certainty="maybe",
)
RELEASE_FAILED_TARGET = Condition(
    "RELEASE_FAILED",
    SparkError,
    "the results that wait could not be written to {topic!r}: {reason}.",
    hint="Falkirk retries, and writes only the results that are not there yet.",
    certainty="maybe",
)
PARTITIONS_CHANGED_SINK = Condition(
    "PARTITIONS_CHANGED",
    LogError,
    "topic {topic!r} has {now} partitions, but had {before} at the start. Rows of a partly published epoch would "
    "move to another partition.",
    hint="Begin with a new home and a new output topic.",
)
EXPRESSION_FAILED = Condition(
    "EXPRESSION_FAILED",
    DefinitionError,
    "an expression of region {region!r} fails on a record: {failed}",
    hint="Make it return null instead (try_cast, try_divide, try_element_at, …), and run again.",
)
QUERY_NOT_STARTED_SPARK = Condition(
    "QUERY_NOT_STARTED",
    SparkError,
    "Spark does not run region {region!r}: {refused}",
)
TOPIC_MISSING_DELETED = Condition(
    "TOPIC_MISSING",
    LogError,
    "{topics:listed} was deleted while region {region!r} ran.",
    hint="Create it again, and begin with a new home: its records are lost.",
)
