"""Names: Falkirk's own columns in frames."""

#: The stamp of a record; the reason why a record is bad, with the raw record.
STAMP, BAD = "__falkirk_stamp", "__falkirk_bad"
#: The timestamp that a record has in Kafka; its event time in microseconds; the time of its partition, see event_time.
ARRIVED, TIME, GREATEST = "__falkirk_arrived", "__falkirk_time", "__falkirk_greatest"
#: How old a record is, or a state: the time of the newest record and its partition, and the watermark.
AGE = "__falkirk_age"
#: When the timer of a state fires, in microseconds.
TIMER = "__falkirk_timer"
#: The epoch of each view that a record reads.
VIEWS = "__falkirk_views"
#: The places of the records that a row was made of, while `falkirk why` computes it again.
ORIGINS = "__falkirk_origins"
#: A text that does not fit a schema, beside the columns of that schema.
CORRUPT = "__falkirk_corrupt"
#: Marks the failure of a task if the topic was not partitioned as declared.
CO_PARTITIONING = "FALKIRK_CO_PARTITIONING"
OUR_COLUMNS = (STAMP, BAD, ARRIVED, TIME, GREATEST, VIEWS)
#: The prefix of the names of all these columns.
PREFIX = "__falkirk"


def quoted(name: str) -> str:
    """Return a column's name as SQL reads it."""
    return "`" + name.replace("`", "``") + "`"
