"""Events: persons, auctions and bids, in the proportions of Nexmark. The same seed gives the same events."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

SCHEMAS = {
    "person": "id INT NOT NULL, name STRING, city STRING, state STRING, at TIMESTAMP",
    "auction": "id LONG NOT NULL, item STRING, reserve LONG, at TIMESTAMP, expires TIMESTAMP, seller INT, category INT",
    "bid": "auction LONG NOT NULL, bidder INT, price LONG, channel STRING, at TIMESTAMP",
}
#: The columns by which producers partition the topics.
KEYS = {"person": "id", "auction": "id", "bid": "auction"}
#: Of each 50 events, as in Nexmark: one person, three auctions, and 46 bids.
PERSONS, AUCTIONS, ROUND = 1, 3, 50
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_STATES = ("OR", "ID", "CA", "WA", "AZ", "WY")
_CITIES = ("Portland", "Boise", "Palo Alto", "Seattle", "Phoenix", "Cheyenne", "Bend", "Redmond")
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")


@dataclass(frozen=True, slots=True)
class Event:
    """An event: its topic and its row."""

    topic: str
    row: dict[str, Any]


def events(
    count: int, *, seed: int = 1, begin: datetime = BEGIN, apart: timedelta = timedelta(milliseconds=20)
) -> Iterator[Event]:
    """Yield events in the order of their times.

    A tenth of the bids is for the newest auction, which makes it hot. An auction is open for 2 to 20 seconds.

    Args: begin: the time of the first event. apart: the time between two events.
    """
    draw, persons, auctions = random.Random(seed), 0, 0
    for number in range(count):
        at = begin + number * apart
        place = number % ROUND
        if place < PERSONS:
            row = {
                "id": persons,
                "name": f"person {persons}",
                "city": draw.choice(_CITIES),
                "state": draw.choice(_STATES),
            }
            persons += 1
            yield Event("person", {**row, "at": at})
        elif place < PERSONS + AUCTIONS:
            row = {
                "id": auctions, "item": f"item {draw.randrange(1_000)}", "reserve": draw.randrange(100, 10_000),
                "at": at, "expires": at + timedelta(seconds=draw.uniform(2, 20)),
                "seller": draw.randrange(max(0, persons - 20), persons), "category": draw.randrange(10, 15),
            }  # fmt: skip
            auctions += 1
            yield Event("auction", row)
        else:
            newest = auctions - 1
            auction = newest if draw.random() < 0.1 else draw.randrange(max(0, newest - 50), auctions)
            row = {
                "auction": auction, "bidder": draw.randrange(max(0, persons - 20), persons),
                "price": draw.randrange(100, 2_000_000), "channel": draw.choice(_CHANNELS), "at": at,
            }  # fmt: skip
            yield Event("bid", row)


def closing(at: datetime, partition: int = 0) -> Iterator[Event]:
    """Yield an event for a partition of each topic, so late that it closes all windows before it."""
    key = 10**6 + partition  # of this partition alone
    yield Event("person", {"id": key, "name": "last", "city": "", "state": "", "at": at})
    fixed = {"item": "", "reserve": 1, "at": at, "expires": at, "seller": key, "category": 1}
    yield Event("auction", {"id": key, **fixed})
    yield Event("bid", {"auction": key, "bidder": key, "price": 1, "channel": "", "at": at})
