"""The application that `test_live_thrice_joined.py` kills. BARRIER=greatest compares greatest stamps, not sets."""

import os
from dataclasses import replace

import falkirk as fk
from falkirk.runtime.spark.outputs import Outputs
from falkirk.runtime.spark.rows import Barrier
from tests import thrice_joined as model

app = fk.App("thrice")
for name in model.DELAYS_S:
    app.source(name, fk.Kafka(os.environ[name.upper()], schema=model.SCHEMA))
app.add_processor(
    "seen", model.body(*model.KINDS[0]), reads=(*model.DELAYS_S,), policy=fk.Lazy("5 seconds"), engine="live"
)
app.sink("seen", "seen", fk.Kafka(os.environ["SEEN"]))

if os.environ.get("BARRIER") == "greatest":
    right_barrier = Outputs.barrier

    def wrong_barrier(self: Outputs, *arguments: object) -> Barrier:
        found = right_barrier(self, *arguments)  # type: ignore[arg-type]
        return replace(found, unsafe_main=None, unsafe_dead=None)

    Outputs.barrier = wrong_barrier  # type: ignore[method-assign,assignment]
