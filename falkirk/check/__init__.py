"""The checker: judges a run only from what went in and what came out.

It shares no code with the mechanism that it judges and ignores its stamps and headers. Start at
`check_keyed`.
"""

from falkirk.check.keyed import check_keyed, check_stateless
from falkirk.check.model import (
    Aggregate,
    AggregateModel,
    Count,
    DistinctModel,
    Latest,
    Max,
    Min,
    Model,
    StatelessModel,
    Sum,
)
from falkirk.check.render import render, to_json
from falkirk.check.run import Input, Output, Place
from falkirk.check.topics import Record, decode_json, decode_key, outputs_of, read_topic
from falkirk.check.verdict import Anomaly, Counts, Guarantee, Kind, Undecided, Verdict

__all__ = [
    "Aggregate",
    "AggregateModel",
    "Anomaly",
    "Count",
    "Counts",
    "DistinctModel",
    "Guarantee",
    "Input",
    "Kind",
    "Latest",
    "Max",
    "Min",
    "Model",
    "Output",
    "Place",
    "Record",
    "StatelessModel",
    "Sum",
    "Undecided",
    "Verdict",
    "check_keyed",
    "check_stateless",
    "decode_json",
    "decode_key",
    "outputs_of",
    "read_topic",
    "render",
    "to_json",
]
