"""Conditions of `runtime/supervision`."""

from falkirk.errors import DefinitionError, InternalError, MachineError, SparkError
from falkirk.errors.condition import Condition

EPOCH_KEEPS_FAILING = Condition(
    "EPOCH_KEEPS_FAILING",
    SparkError,
    "an epoch of batch {region!r} fails repeatedly: {reason}",
    hint="See the host's log for details, correct the cause, and start again: the home is intact.",
)
SESSION_LOST_GONE = Condition(
    "SESSION_LOST",
    SparkError,
    "Spark's JVM has ended.",
    certainty="maybe",
)
HOST_SILENT = Condition(
    "HOST_SILENT",
    InternalError,
    "the host ended without a reason.",
)
HOST_KEEPS_FAILING = Condition(
    "HOST_KEEPS_FAILING",
    SparkError,
    "the Spark application failed {fruitless} times in a row without a checkpoint: {reason}.",
    hint="Read the reason in this log, correct the cause, and run again. The home is intact.",
)
REGION_KEEPS_FAILING = Condition(
    "REGION_KEEPS_FAILING",
    SparkError,
    "{region!r} failed {failures} times without a checkpoint in between: {reason}",
    hint="See the host's log for details, correct the cause, and run again. The home is intact.",
)
REGION_KEEPS_FAILING_LOSSES = Condition(
    "REGION_KEEPS_FAILING",
    SparkError,
    "{region!r} has input and made no progress in {losses} Spark applications in a row, all of which ended because "
    "executors died: {reason}",
    hint="Probably a value of its input kills them. See the executors' logs for details, correct the cause, and run "
    "again. The home is intact.",
)
ADDRESS_TAKEN = Condition(
    "ADDRESS_TAKEN",
    MachineError,
    "requests can't be accepted at {host}:{port}: {reason}.",
    hint="Set another address with http=, or use port 0 for any free port.",
)
ADDRESS_TAKEN_METRICS = Condition(
    "ADDRESS_TAKEN",
    MachineError,
    "metrics can't be served at {host}:{port}: {reason}.",
    hint="Name another port with --metrics, or stop the process that uses this one.",
)
ADDRESS_TAKEN_DASHBOARD = Condition(
    "ADDRESS_TAKEN",
    MachineError,
    "the dashboard can't be served at {host}:{port}: {reason}.",
    hint="Name another port with --dashboard, or port 0 for any free one.",
)
SESSION_LOST_GO_BACK = Condition(
    "SESSION_LOST",
    SparkError,
    "a rollback was requested, and executors on a cluster may still write.",
    hint="Falkirk restarts the Spark application, which rolls back before it starts anything.",
    certainty="maybe",
)
SESSION_LOST_MEMORY = Condition(
    "SESSION_LOST",
    SparkError,
    "Spark ran out of memory: {reason}",
    certainty="maybe",
)
HOST_FAILED = Condition(
    "HOST_FAILED",
    SparkError,
    "{name}: {reason}",
)
GATEWAY_MISSING = Condition(
    "GATEWAY_MISSING",
    DefinitionError,
    "{next!r} accepts requests over HTTP, which needs a coordinator; none runs here.",
    hint="Run the application with `falkirk run`.",
)
ONCE_UNSUITABLE = Condition(
    "ONCE_UNSUITABLE",
    DefinitionError,
    "source {source!r} takes requests over HTTP, and a run with --once ends without waiting for any.",
    hint="Run the application without --once.",
)
WAIT_UNSUITABLE = Condition(
    "WAIT_UNSUITABLE",
    DefinitionError,
    "under spark-submit, an application can't wait for another process and take over.",
    hint="Run it with `falkirk run --wait`, or without wait=True.",
)
HOST_FAILED_THREAD = Condition(
    "HOST_FAILED",
    SparkError,
    "{name}: {reason}.",
    certainty="maybe",
)
