"""Conditions of `spark_setup`."""

from falkirk.errors import DefinitionError, MachineError, SparkError
from falkirk.errors.condition import Condition

ARCHIVE_NOT_MADE_PARTLY = Condition(
    "ARCHIVE_NOT_MADE",
    MachineError,
    "The JVM saved no class archive for {missing}.",
    hint="Falkirk works without it, but starts more slowly. If this Java lacks its default class archive, run `java "
    "-Xshare:dump` to create it.",
)
BROKER_NOT_STARTED = Condition(
    "BROKER_NOT_STARTED",
    MachineError,
    "the local broker {what}: {last_words}",
    hint="Read the log. `falkirk kafka stop` stops a broker that hangs. Delete its folder to start without data.",
)
BROKER_NOT_STARTED_FORMAT = Condition(
    "BROKER_NOT_STARTED",
    MachineError,
    "the local broker's data folder could not be created: {last_words}",
    hint="Check that the disk has space, that the folder is yours, and that Kafka knows the settings.",
)
CACHE_NOT_WRITTEN = Condition(
    "CACHE_NOT_WRITTEN",
    MachineError,
    "Falkirk can't write to its cache: {reason}.",
    hint="Make the folder writable, or set FALKIRK_CACHE to another folder.",
)
DEPENDENCIES_ALTERED = Condition(
    "DEPENDENCIES_ALTERED",
    MachineError,
    "JVM dependencies are not the files that this version of Falkirk was tested with: {jars:listed}.",
    hint="{advice}",
)
DEPENDENCIES_UNRESOLVED = Condition(
    "DEPENDENCIES_UNRESOLVED",
    MachineError,
    "the JVM dependencies could not be downloaded: {reason}.",
    hint="Check the network, or set FALKIRK_IVY_SETTINGS to the Ivy settings file of a mirror.",
)
DEPENDENCIES_UNRESOLVED_PARTLY = Condition(
    "DEPENDENCIES_UNRESOLVED",
    MachineError,
    "after the download of the JVM dependencies, these are missing: {lines:listed}.",
    hint="Check whether the Ivy settings in FALKIRK_IVY_SETTINGS exclude them.",
)
JAVA_MISSING = Condition(
    "JAVA_MISSING",
    MachineError,
    "Java was not found on this machine.",
    hint="Install Java {version_min} or newer (Debian: apt install openjdk-{version_min}-jre-headless), or set "
    "JAVA_HOME.",
)
JAVA_TOO_OLD = Condition(
    "JAVA_TOO_OLD",
    MachineError,
    "Java {found} is too old, Spark needs {version_min} or newer.",
    hint="Install Java {version_min} or newer (Debian: apt install openjdk-{version_min}-jre-headless), or set "
    "JAVA_HOME.",
)
MASTER_REFUSED = Condition(
    "MASTER_REFUSED",
    SparkError,
    "the master {master} refuses the connection of this driver: {reason}.",
    hint="Its machines need the secret in {file}, and the settings of docs/how-to/security.md, in their "
    "spark-defaults.conf.",
)
MODULE_NOT_COMPILED = Condition(
    "MODULE_NOT_COMPILED",
    MachineError,
    "the sources of the Java module are missing.",
    hint="Install Falkirk again.",
)
SECRET_FILE_INVALID = Condition(
    "SECRET_FILE_INVALID",
    MachineError,
    "{option} {path} can't be used: {reason}.",
    hint="{advice}",
)
SECURE_CONTRADICTED = Condition(
    "SECURE_CONTRADICTED",
    DefinitionError,
    "the Spark setting {name} is {found}, but --secure needs {wanted}.",
    hint="Leave the setting out, or set all of the protection yourself, without --secure.",
)
SECURE_CONTRADICTED_SECRET = Condition(
    "SECURE_CONTRADICTED",
    DefinitionError,
    "the Spark setting {name} must not be set with --secure, which gives Spark the secret.",
    hint="Leave the setting out.",
)
SECURE_UNSUITABLE = Condition(
    "SECURE_UNSUITABLE",
    DefinitionError,
    "--secure {value} can't be used with the master {master}: {reason}.",
    hint="{advice}",
)
SESSION_SETTINGS_MISSING = Condition(
    "SESSION_SETTINGS_MISSING",
    SparkError,
    "the active Spark session can't run live regions: {lacks}.",
    hint="{advice}",
)
SESSION_SETTINGS_MISSING_TOKENS = Condition(
    "SESSION_SETTINGS_MISSING",
    SparkError,
    "executors may not fetch tokens from {url}: {name} does not list it.",
    hint="Start the application with --conf {name}={option}{url}.",
)
SPARK_OPTION_INVALID = Condition(
    "SPARK_OPTION_INVALID",
    DefinitionError,
    "{option} can't be used: {reason}.",
    hint="{advice}",
)
