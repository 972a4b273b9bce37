"""Conditions of `plan`."""

from falkirk.errors import DefinitionError, GuaranteeError, HomeError, LogError, SparkError
from falkirk.errors.condition import Condition

STATE_APART = Condition(
    "STATE_APART",
    GuaranteeError,
    "batch {processor!r} returns a result and a state, and {operations:listed} may differ between the two.",
    hint="Return one DataFrame that is both, or leave this operation out.",
)
POLICY_MISPLACED_LAZY = Condition(
    "POLICY_MISPLACED",
    DefinitionError,
    "batch {processor!r} keeps nothing that fk.Lazy() could save.",
    hint="Use fk.LogSends() or fk.FullHistory(), or give it state=.",
)
BATCH_INVALID = Condition(
    "BATCH_INVALID",
    DefinitionError,
    "batch {processor!r} does not run: {reason}",
    hint="{advice}",
)
BATCH_INVALID_RESULT = Condition(
    "BATCH_INVALID",
    DefinitionError,
    "batch {processor!r} returns {name} as {what}.",
    hint="Return a DataFrame, or with state= a DataFrame or (result, state).",
)
VIEW_HAS_NO_EPOCHS = Condition(
    "VIEW_HAS_NO_EPOCHS",
    DefinitionError,
    "{reader!r} reads a view of {upstream!r}, which has neither epochs nor a record per key.",
    hint="Make {upstream!r} a batch, or group it by a key and keep the key's columns.",
)
VIEW_OF_CHANGES = Condition(
    "VIEW_OF_CHANGES",
    DefinitionError,
    "{reader!r} reads the newest epoch of {upstream!r}, which sends only changes.",
    hint='Let {upstream!r} send its whole result: @app.iterate(…, sends="all").',
)
ITERATION_INVALID_CHANGES = Condition(
    "ITERATION_INVALID",
    DefinitionError,
    "iteration {reader!r} reads changes, but {upstream!r} sends its whole result.",
    hint='Let {upstream!r} send changes: leave out sends="all".',
)
ENGINE_UNSUITABLE = Condition(
    "ENGINE_UNSUITABLE",
    DefinitionError,
    "{processor!r} can't run live: {found}.",
    hint='Leave out engine=, or write engine="micro-batch".',
)
JOIN_UNDETERMINED = Condition(
    "JOIN_UNDETERMINED",
    DefinitionError,
    "the join in {processor!r} can't run live: {reason}.",
    hint="Compute such values in a processor that reads the join, and leave delivery= out. Or write "
    'engine="micro-batch".',
)
WATERMARK_UNUSED = Condition(
    "WATERMARK_UNUSED",
    DefinitionError,
    "no step of {processor!r} uses the event time of withWatermark().",
    hint='Write dropDuplicates(["id"]), groupBy(F.window("at", "10 minutes"), "id") or a join after it, '
    "or leave it out.",
)
EXPIRY_UNSUITABLE = Condition(
    "EXPIRY_UNSUITABLE",
    DefinitionError,
    "stateful({option}=) of {processor!r} needs all records of a key in one partition of a source, and {reason}.",
    hint="Read one source whose key= names columns of the state's key, and keep these columns unchanged. Or leave "
    "{option}= out.",
)
ENGINE_UNSUITABLE_GROUP = Condition(
    "ENGINE_UNSUITABLE",
    DefinitionError,
    "{processor!r} runs in micro-batches, because {reason}; its groupBy() only runs live.",
    hint="Move groupBy() to a separate live processor that this one reads, or use stateful().",
)
POLICY_MISPLACED_LIVE = Condition(
    "POLICY_MISPLACED",
    DefinitionError,
    "{processor!r} runs in micro-batches, because {reason}; {policy!r} is for live ones.",
    hint="Leave the policy out: Falkirk records each micro-batch before it publishes the results.",
)
STATE_UNSAVED = Condition(
    "STATE_UNSAVED",
    GuaranteeError,
    "{processor!r} has the policy fk.Acknowledged and a `groupBy`. That policy saves no state, so the state would "
    "be lost after a failure.",
    hint="Move groupBy() to another processor under fk.Lazy() that reads this one.",
)
TWINS_REFUSED = Condition(
    "TWINS_REFUSED",
    DefinitionError,
    "{name!r} can't have twins: {reason}.",
    hint="Leave out twins=True.",
)
SINK_MISSING = Condition(
    "SINK_MISSING",
    DefinitionError,
    "application {app!r} has no sink.",
    hint='Declare one: app.sink("name", processor, fk.Kafka("topic")).',
)
NAME_TAKEN_REGION = Condition(
    "NAME_TAKEN",
    DefinitionError,
    "{name!r} is the name of a batch and also of a live region, from a sink or a hop.",
    hint="Give the sink another name.",
)
CYCLE = Condition(
    "CYCLE",
    DefinitionError,
    "processor {processor!r} reads its own output.",
    hint="Let it read a source, or a processor that does not depend on it.",
)
UNKNOWN_UPSTREAM = Condition(
    "UNKNOWN_UPSTREAM",
    DefinitionError,
    "there is no source or processor named {upstream!r}.",
    hint="There are: {known}.",
)
UNSUPPORTED_METHOD = Condition(
    "UNSUPPORTED_METHOD",
    DefinitionError,
    "live processor {processor!r} reads {reads} streams.",
    hint="Let it read one stream, or return the join() of two. A batch (@app.batch(…), @app.stream(fk.Eager())) can "
    "read more.",
)
NOT_A_STREAM_PROCESSOR = Condition(
    "NOT_A_STREAM",
    DefinitionError,
    "processor {processor!r} returned {name}, not a stream made from its input.",
    hint="Return the transformed stream.",
)
NAME_TAKEN_LOG = Condition(
    "NAME_TAKEN",
    DefinitionError,
    "{name!r} is the name of an internal log.",
    hint="Give it another name.",
)
COLUMN_MISSING_ALL = Condition(
    "COLUMN_MISSING",
    DefinitionError,
    "no column is left to write for {name!r}.",
    hint="Keep at least one column.",
)
SINK_NEEDS_BATCH = Condition(
    "SINK_NEEDS_BATCH",
    DefinitionError,
    "sink {sink!r} is not a topic, and a live processor writes only topics.",
    hint="Add a processor under @app.batch() or @app.stream(fk.Eager()) that reads this one, and write that.",
)
PRINTED_AGAIN = Condition(
    "PRINTED_AGAIN",
    GuaranteeError,
    "sink {sink!r} is the terminal. An epoch may be printed again after a failure, so it can't be {delivery}.",
    hint='Add delivery="repeated".',
)
DERIVATIVES_APART = Condition(
    "DERIVATIVES_APART",
    GuaranteeError,
    "hop {hop} is between sink {sink!r} and a step that makes several records of one. A failure could skip some of "
    "them, so the sink can't be at-most-once.",
    hint="Key the source by the grouping column, so that no hop is needed, or use exactly-once.",
)
UNDETERMINED_OPERATION = Condition(
    "UNDETERMINED_OPERATION",
    GuaranteeError,
    "{operations:listed} in {processor!r} may differ on replay, so sink {sink!r} can't be at-most-once.",
    hint="Compute the value upstream and send it as data, or use exactly-once, which publishes results after a "
    'checkpoint, or delivery="repeated".',
)
DATABASE_UNKNOWN_URL = Condition(
    "DATABASE_UNKNOWN",
    DefinitionError,
    "the URL of table {table!r} can't be read.",
    hint="Write postgresql://user:password@host/database, with the special characters of a password as %xx.",
)
STEP_INVALID_STREAM = Condition(
    "STEP_INVALID",
    DefinitionError,
    "{operation}(): {what}.",
    hint="{advice}",
)
GENERATOR_IN_SELECT = Condition(
    "GENERATOR_IN_SELECT",
    DefinitionError,
    "{operation}() makes several records of one, which need sub-indexes.",
    hint="Use stream.explode(column, name).",
)
TOPICS_READ_LIVE = Condition(
    "TOPICS_READ_LIVE",
    DefinitionError,
    "the sink can't be at-most-once, because one live region reads several topics: {topics:listed}.",
    hint="Leave out delivery=, or declare a sink for each topic.",
)
PATTERN_UNMATCHED = Condition(
    "PATTERN_UNMATCHED",
    LogError,
    "no topic matches the pattern {pattern!r} of source {source!r}. This user sees {count} topics of the broker. A "
    "topic that the application writes, and one of dead letters, of Falkirk or of Kafka itself never matches.",
    hint="Create a topic that the whole pattern matches, give this user the right to describe it, or correct the "
    "pattern.",
)
PATTERN_MISPLACED_TIME = Condition(
    "PATTERN_MISPLACED",
    DefinitionError,
    "batch {processor!r} divides epochs by event time, and reads source {source!r}, which has a pattern. A topic that "
    "appears later would have rows of times whose epochs are over.",
    hint="Name the topics in a list, or leave out by=.",
)
PATTERN_MISPLACED_SINK = Condition(
    "PATTERN_MISPLACED",
    DefinitionError,
    "sink {sink!r} reads source {source!r} directly, which has a pattern. Such a copy runs live, and the topics of a "
    "live region can't grow.",
    hint="Put a function with @app.stream() between them that returns its stream, or name the topics in a list.",
)
FILES_READ_LIVE = Condition(
    "FILES_READ_LIVE",
    DefinitionError,
    "{upstream!r} is a folder of files, and a live processor or sink reads it.",
    hint="Let a batch, or a processor under @app.stream(fk.Eager()), read it.",
)
VIEW_HAS_NO_EPOCHS_FILES = Condition(
    "VIEW_HAS_NO_EPOCHS",
    DefinitionError,
    "{reader!r} reads a view of {upstream!r}, which is a folder of files and has no epochs.",
    hint="Let a batch with state= read {upstream!r}, and read a view of that batch.",
)
CUT_INVALID_FILES = Condition(
    "CUT_INVALID",
    DefinitionError,
    "{reader!r} has rows=, but the number of rows in the files of {upstream!r} is unknown before they are read.",
    hint='Write @app.batch(every="1 minute"), or @app.stream(fk.Eager()) for a run as soon as there is a file.',
)
ACKNOWLEDGED_UNDONE = Condition(
    "ACKNOWLEDGED_UNDONE",
    GuaranteeError,
    "{name!r} leads to sink {sink!r}, which skips waiting input after a failure: a client could get the "
    "confirmation of a request that was skipped.",
    hint='Give that sink delivery="exactly-once" or "repeated".',
)
ID_INVALID = Condition(
    "ID_INVALID",
    DefinitionError,
    "the requests of {http!r} have no STRING column {id!r}.",
    hint='Write fk.Http("/queries", schema="id STRING NOT NULL, word STRING", id="id").',
)
TYPE_UNSUITABLE_REQUEST = Condition(
    "TYPE_UNSUITABLE",
    DefinitionError,
    "the type {type} is not possible in requests to {http!r}.",
    hint="Declare a STRING, and convert it in a processor.",
)
ANSWERS_INVALID = Condition(
    "ANSWERS_INVALID",
    DefinitionError,
    "answers={answers!r} is not a sink in which the clients of {source!r} could find their answers.",
    hint="Name a sink to which the source leads: an fk.Kafka whose key is the column with the request's id.",
)
SOURCE_UNREAD = Condition(
    "SOURCE_UNREAD",
    DefinitionError,
    "no processor with a sink reads {source!r}, so its clients would never get a response.",
    hint="Let a processor with a sink read the source.",
)
REGION_UNKNOWN = Condition(
    "REGION_UNKNOWN",
    DefinitionError,
    "there is no region or processor named {region!r}.",
    hint="The regions and processors are {names}.",
)
HOME_DAMAGED_SHAPE = Condition(
    "HOME_DAMAGED",
    HomeError,
    "shape.json can't be read.",
    hint="Start the application: that writes the file again.",
)
SINK_UNKNOWN = Condition(
    "SINK_UNKNOWN",
    DefinitionError,
    "application {application!r} has no sink {output!r}.",
    hint="Name one of its sinks: {outputs:listed}.",
)
SLOTS_MISSING = Condition(
    "SLOTS_MISSING",
    SparkError,
    "the live regions need {needed} core slots at once, but the Spark application has {available}.",
    hint="Give it at least {total}: more cores, or local[{total}] on one machine (more slots than CPU cores are fine).",
)
TOPIC_SHARED = Condition(
    "TOPIC_SHARED",
    DefinitionError,
    "dead-letter topic {topic!r} has another use.",
    hint="Give each sink its own dead-letter topic.",
)
SINK_COMPACTED = Condition(
    "SINK_COMPACTED",
    LogError,
    "output topic {topic!r} is compacted, so Kafka would delete the stamps of published results.",
    hint="Set its cleanup.policy to delete. For a compacted topic, write fk.EpochTopic(…) instead.",
)
INPUT_COMPACTED = Condition(
    "INPUT_COMPACTED",
    LogError,
    "topic {topic!r} is compacted, so a replay would miss records that were read before.",
    hint="Set its cleanup.policy to delete, or copy it to a topic that is not compacted.",
)
INPUT_EXPIRES = Condition(
    "INPUT_EXPIRES",
    LogError,
    "topic {topic!r} keeps records for {retention_s:g} s, but their effects are saved only every {interval_s:g} s: "
    "a replay would miss records that were read before.",
    hint="Set a retention.ms that exceeds this interval and any downtime, or save more often.",
)
FOLDER_SHARED = Condition(
    "FOLDER_SHARED",
    DefinitionError,
    "sink {sink!r} writes the folder that source {reader!r} reads.",
    hint="Let processors read each other by name instead, or give each a separate folder.",
)
SINK_SHARED = Condition(
    "SINK_SHARED",
    DefinitionError,
    "sinks {other!r} and {sink!r} have the same address, {address!r}.",
    hint="Give each sink a separate place, because a place records the epochs of one sink.",
)
TOPIC_SHARED_SINKS = Condition(
    "TOPIC_SHARED",
    DefinitionError,
    "sinks {name!r} and {sink!r} write the same topic.",
    hint="Give each sink its own topic, because recovery reads the topic's tail and expects one writer.",
)
TOPIC_SHARED_CLUSTER = Condition(
    "TOPIC_SHARED",
    DefinitionError,
    "sink {sink!r} writes {topic}. The application also reads or writes this topic otherwise, by another address of "
    "the same cluster.",
    hint="Give the sink its own topic, which no source and no pattern of a source names.",
)
TOPIC_SHARED_BY_SOURCE = Condition(
    "TOPIC_SHARED",
    DefinitionError,
    "a source names the cluster {cluster}, which is the application's own, and another part of the application reads "
    "or writes the same topic {topic!r}.",
    hint="Leave out kafka= at this source, and let processors read each other by name.",
)
TOPIC_SHARED_SOURCE = Condition(
    "TOPIC_SHARED",
    DefinitionError,
    "source {source!r} reads a topic that sink {name!r} writes.",
    hint="Let processors read each other by name instead.",
)
RANGE_NOT_THERE_INPUT = Condition(
    "RANGE_NOT_THERE",
    LogError,
    "partition {partition} of topic {topic!r} ends at {end}, but was read up to {needed}.",
    hint="Check whether the topic was deleted and created again. Begin with a new home.",
)
INPUT_EXPIRED = Condition(
    "INPUT_EXPIRED",
    LogError,
    "records of {topic!r} that are still needed have been deleted.",
    hint="Begin with a new home. Set a retention that exceeds the time between checkpoints or epochs, and any "
    "downtime.",
)
