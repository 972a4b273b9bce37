"""Conditions of topics that are written by epochs (`runtime/spark/sinks/epoch_topic`)."""

from falkirk.errors import HomeError
from falkirk.errors.condition import Condition

NOTES_LOST = Condition(
    "NOTES_LOST",
    HomeError,
    "{notes} was deleted, or created again, or its records were deleted. It had the notes of the epochs that {topic} "
    "has, so nobody knows which ones are missing there.",
    hint="Begin with a new home and a new output topic.",
)
TOPIC_OF_ANOTHER = Condition(
    "TOPIC_OF_ANOTHER",
    HomeError,
    "another home or sink has written {topic}: its notes are in {notes}.",
    hint="Use a new topic. If this one may get results twice and nobody else writes it, delete those notes.",
)
TOPIC_UNFIT = Condition(
    "TOPIC_UNFIT",
    HomeError,
    "{topic} is compacted, and its sink has no key. Kafka takes no record without a key there.",
    hint="Write fk.EpochTopic(…, key=…) with a new home, or set the topic's cleanup.policy to delete.",
)
TOPIC_REPLACED_EPOCHS = Condition(
    "TOPIC_REPLACED",
    HomeError,
    "{topic} was deleted, or deleted and created again. It no longer has the epochs below {epoch}.",
    hint="Begin with a new home and a new output topic.",
)
PARTITIONS_CHANGED_EPOCHS = Condition(
    "PARTITIONS_CHANGED",
    HomeError,
    "{topic} has {now} partitions, but had {before} when its last epoch was sent. Results of a key would go to another "
    "partition.",
    hint="Begin with a new home and a new output topic.",
)
