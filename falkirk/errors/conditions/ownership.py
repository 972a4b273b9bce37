"""Conditions of `recovery/ownership`."""

from falkirk.errors import DefinitionError, HomeError, SparkError
from falkirk.errors.condition import Condition

HOME_COPIED = Condition(
    "HOME_COPIED",
    HomeError,
    "another process took over with a copy of this home: {by}.",
    hint="Only one copy may run, because both release the same results. Keep the newer one and delete this folder. To "
    "keep this one, stop the other for good, delete the file {mark_file!r} in this folder, and start again.",
)
LEFTOVER_ALIVE = Condition(
    "LEFTOVER_ALIVE",
    HomeError,
    "the former owner still runs: {former}.",
    hint="Kill it, because it may still write. Then start again.",
)
LEASE_INVALID = Condition(
    "LEASE_INVALID",
    DefinitionError,
    "a lease of {lease} s is not possible.",
    hint="Choose between {least_s:.0f} and {most_s:.0f} s.",
)
LEASE_LOST = Condition(
    "LEASE_LOST",
    HomeError,
    "the lease of {lasts_s:.0f} s was not renewed for {silent_s:.1f} s, so another process may take over.",
    hint="This process ends. Either the store did not answer, or this process stood still. Start it again.",
)
HOME_UNUSABLE = Condition(
    "HOME_UNUSABLE",
    HomeError,
    "the token for HTTP can't be read or written: {reason}.",
    hint="Remove the file, or set the token with http_token= or in {token_variable}.",
)
HOME_UNUSABLE_ADDRESS = Condition(
    "HOME_UNUSABLE",
    HomeError,
    "the address for requests can't be recorded in the home: {reason}.",
    hint="Check whether the disk is full, and the permissions of the home.",
)
HOME_UNUSABLE_DASHBOARD = Condition(
    "HOME_UNUSABLE",
    HomeError,
    "the token of the dashboard can't be written: {reason}.",
    hint="Remove the file, or check the permissions of the home.",
)
LEFTOVER_ALIVE_EXECUTORS = Condition(
    "LEFTOVER_ALIVE",
    HomeError,
    "executors of the former run still accept connections {waited_s:.0f} s after their driver died: "
    "{executors:listed}.",
    hint="Kill them on their machines, because a stopped process can't end itself and writes when it resumes. Then "
    "start again. If other processes use these addresses, remove {file} from the home.",
)
SESSION_LOST = Condition(
    "SESSION_LOST",
    SparkError,
    "executors of Spark application {application} may still write for its former run of this home.",
    hint="Stop this Spark session, and start again with a new one.",
    certainty="maybe",
)
HOME_DAMAGED = Condition(
    "HOME_DAMAGED",
    HomeError,
    "{file} can't be read, so the executors of the former run are unknown.",
    hint="Make sure that no executor of this application runs, remove the file, and start again.",
)
HOME_UNUSABLE_FOLDER = Condition(
    "HOME_UNUSABLE",
    HomeError,
    "the home can't be written: {reason}.",
    hint="Free disk space, or name a folder that this user may write, with home= or --home.",
)
LEFTOVER_ALIVE_PROCESSES = Condition(
    "LEFTOVER_ALIVE",
    HomeError,
    "{named} of a former run can't be killed.",
    hint="Kill it, then start again. Until it ends, it may write.",
)
HOME_VERSION = Condition(
    "HOME_VERSION",
    HomeError,
    "the home has format {found}, but this Falkirk knows {known}.",
    hint="Use the Falkirk that made the home, or a new home.",
)
HOME_OF_ANOTHER = Condition(
    "HOME_OF_ANOTHER",
    HomeError,
    "this is the home of application {found!r}, not of {expected!r}.",
    hint="Give each application its own home.",
)
HOME_STORE_CHANGED = Condition(
    "HOME_STORE_CHANGED",
    HomeError,
    "this home's decisions are in a {found}, but the application names {named}.",
    hint="Name the same store= as before, or begin with a new home.",
)
HOME_STORE_CHANGED_DATA = Condition(
    "HOME_STORE_CHANGED",
    HomeError,
    "the data of the home with this folder are in {found}, but the application names {named}.",
    hint="Name the former place, or choose another folder with --home.",
)
HOME_STORE_CHANGED_DATABASE = Condition(
    "HOME_STORE_CHANGED",
    HomeError,
    "the decisions of this home are in another database: its data have the identity {found}, not {expected}.",
    hint="Name the database with which this home began (store=), or another place for a new home.",
)
HOME_DAMAGED_NO_IDENTITY = Condition(
    "HOME_DAMAGED",
    HomeError,
    "decisions.db exists, but falkirk.json is missing.",
    hint="Restore falkirk.json from a backup, or use a new home.",
)
HOME_DAMAGED_IDENTITY = Condition(
    "HOME_DAMAGED",
    HomeError,
    "falkirk.json can't be read.",
    hint="Restore it from a backup, or use a new home.",
)
HOME_DAMAGED_PROCESSES = Condition(
    "HOME_DAMAGED",
    HomeError,
    "processes.json can't be read, so the processes of a former run are unknown.",
    hint="Make sure that no process of this application runs, remove the file, and start again.",
)
REQUEST_UNANSWERED = Condition(
    "REQUEST_UNANSWERED",
    HomeError,
    "the application did not answer within {timeout_s:.0f} s.",
    hint="It may still carry out the request. Repeat the command to wait for the answer: it rolls back only once.",
)
REQUEST_REFUSED = Condition(
    "REQUEST_REFUSED",
    HomeError,
    "the application did not roll back: {reason}",
)
