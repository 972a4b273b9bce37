"""Conditions of `recovery/decision_store`."""

from falkirk.errors import InternalError, StoreError
from falkirk.errors.condition import Condition

STORE_URL_INVALID = Condition(
    "STORE_URL_INVALID",
    StoreError,
    "the store's URL is invalid: {reason}.",
    hint="Write sqlite:///path/decisions.db, or postgresql://user:password@host/database, with the special characters "
    "of a password as %xx.",
)
DECISION_CONTRADICTED = Condition(
    "DECISION_CONTRADICTED",
    StoreError,
    "{what} is already recorded with another value: {known_shown:.200}, not {asked_shown:.200}.",
    hint="Find out if two coordinators run for this home, and stop one of them.",
)
STORE_DRIVER_MISSING = Condition(
    "STORE_DRIVER_MISSING",
    StoreError,
    "the driver of the store's database is not installed: {reason}.",
    hint="Install it: {command}",
)
DECISION_CONTRADICTED_KEY = Condition(
    "DECISION_CONTRADICTED",
    StoreError,
    "the store already has another value under the same key: {reason}.",
    hint="Find out if two coordinators run for this home, and stop one of them.",
)
HOME_TAKEN_OVER = Condition(
    "HOME_TAKEN_OVER",
    StoreError,
    "this process has generation {generation} of the home, but generation {present} ({holder}) took over.",
    hint="This process ends. To run the application here, stop the other one first, then start this one again.",
)
STORE_FELL_BACK = Condition(
    "STORE_FELL_BACK",
    StoreError,
    "the store is an older copy of itself: it lacks at least {lost} writes that it had confirmed to this process.",
    hint="Restore its newest copy, and start again. Replicas of the database must be synchronous. A start compares the "
    "store with the sinks, and refuses it if they have later results.",
)
STORE_REPLACED = Condition(
    "STORE_REPLACED",
    StoreError,
    "the file of the store is not the one that this process has opened: it was {how}.",
    hint="Stop the application before you replace or delete the file. Then start it again.",
)
STORE_LOG_FOREIGN = Condition(
    "STORE_LOG_FOREIGN",
    StoreError,
    "the file of the store was replaced, and {log} is the write-ahead log of the former file.",
    hint="SQLite would mix both. To use the present file, delete {log} and the file whose name ends with -shm instead. "
    "To use the former one, restore it together with its log.",
)
RANGE_MALFORMED = Condition(
    "RANGE_MALFORMED",
    InternalError,
    "invalid range: {topic!r} {partition} [{first}, {last_exclusive}).",
)
RELEASE_BACKWARDS = Condition(
    "RELEASE_BACKWARDS",
    InternalError,
    "{sink!r} has released {topic!r}, partition {partition}, up to {known}, not {asked}.",
)
STORE_VERSION = Condition(
    "STORE_VERSION",
    StoreError,
    "the store has version {found}, but this Falkirk reads versions up to {expected}.",
    hint="Use the Falkirk that wrote the store, or a new home.",
)
STORE_WITHOUT_IDENTITY = Condition(
    "STORE_WITHOUT_IDENTITY",
    InternalError,
    "a store in PostgreSQL needs a home's identity: {identity}.",
)
RECOVERY_UNFINISHED = Condition(
    "RECOVERY_UNFINISHED",
    StoreError,
    "recovery {recovery} is in progress, and must be finished first.",
    hint="Find out if two coordinators run for this home, and stop one of them.",
)
RECOVERY_BACKWARDS = Condition(
    "RECOVERY_BACKWARDS",
    InternalError,
    "recovery {recovery} is {known}, and can't become {asked}.",
)
REQUEST_NOT_TAKEN = Condition(
    "REQUEST_NOT_TAKEN",
    StoreError,
    "request {request} is {found}, so it can't be answered.",
    hint="Another coordinator has started since it was taken: send the request again.",
)
