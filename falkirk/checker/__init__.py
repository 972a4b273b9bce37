"""The checker: judges a run only from its inputs and outputs.

It shares no code with the mechanism that it judges, and ignores stamps and headers. Start at `check_keyed`.
"""

from falkirk.checker.compacted import compare_compacted
from falkirk.checker.content import content_of, group_key
from falkirk.checker.described import Described, check_described
from falkirk.checker.epochs import Comparison, Due, EpochFault, Fault, Forgotten, FoundRow, compare_rows
from falkirk.checker.epochs_verdict import EpochsVerdict, Judged, epochs_to_json, render_epochs
from falkirk.checker.keyed import check_keyed, check_rules, check_stateless
from falkirk.checker.latest import compare_latest
from falkirk.checker.model import (
    AggregateFunction,
    AggregateModel,
    Count,
    DistinctModel,
    Latest,
    LookupModel,
    Max,
    Min,
    Model,
    StatelessModel,
    Sum,
)
from falkirk.checker.render import render, render_rules, rules_to_json, to_json
from falkirk.checker.rows import Reading
from falkirk.checker.rules import Increasing, NoGaps, Rule, Transitions, Unique
from falkirk.checker.run import InputRow, OutputRow, RowPlace, Values
from falkirk.checker.spill import Space
from falkirk.checker.topics import TopicRecord, decode_json, decode_key, outputs_of, read_topic
from falkirk.checker.types import read_typed, types_of
from falkirk.checker.unseen import bounds_now, is_compacted, moved, refuse_unseen
from falkirk.checker.verdict import (
    Anomaly,
    Consistency,
    Counts,
    Guarantee,
    Kind,
    PlaceRead,
    RuleVerdict,
    Undecided,
    Verdict,
)

__all__ = [
    "AggregateFunction",
    "AggregateModel",
    "Anomaly",
    "Comparison",
    "Consistency",
    "Count",
    "Counts",
    "Described",
    "DistinctModel",
    "Due",
    "EpochFault",
    "EpochsVerdict",
    "Fault",
    "Forgotten",
    "FoundRow",
    "Guarantee",
    "Increasing",
    "InputRow",
    "Judged",
    "Kind",
    "Latest",
    "LookupModel",
    "Max",
    "Min",
    "Model",
    "NoGaps",
    "OutputRow",
    "PlaceRead",
    "Reading",
    "RowPlace",
    "Rule",
    "RuleVerdict",
    "Space",
    "StatelessModel",
    "Sum",
    "TopicRecord",
    "Transitions",
    "Undecided",
    "Unique",
    "Values",
    "Verdict",
    "bounds_now",
    "check_described",
    "check_keyed",
    "check_rules",
    "check_stateless",
    "compare_compacted",
    "compare_latest",
    "compare_rows",
    "content_of",
    "decode_json",
    "decode_key",
    "epochs_to_json",
    "group_key",
    "is_compacted",
    "moved",
    "outputs_of",
    "read_topic",
    "read_typed",
    "refuse_unseen",
    "render",
    "render_epochs",
    "render_rules",
    "rules_to_json",
    "to_json",
    "types_of",
]
