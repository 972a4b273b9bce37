"""Conditions of homes in object stores."""

from falkirk.errors import DefinitionError
from falkirk.errors.condition import Condition

HOME_PLACE_INVALID = Condition(
    "HOME_PLACE_INVALID",
    DefinitionError,
    "{home!r} can't be the home of this application.",
    hint="Name a folder, or in fk.App a place in an object store, such as home='s3a://bucket/shop', or in an HDFS: "
    "home='hdfs://namenode:8020/shop'. --home and home= of a run take only folders.",
)
HOME_NEEDS_DATABASE = Condition(
    "HOME_NEEDS_DATABASE",
    DefinitionError,
    "the home {home} is no folder of this machine, so its decisions can't be in a file.",
    hint="Name a PostgreSQL database: fk.App(store='postgresql://user:password@host/database').",
)
HOME_REFUSES_CLUSTER = Condition(
    "HOME_REFUSES_CLUSTER",
    DefinitionError,
    "{region} is a live region, the home {home} is in an HDFS, and Spark runs on a cluster. Executors can't write the "
    "states of live regions into an HDFS.",
    hint="Run the application on one machine (a local master), or keep its home in an object store.",
)
