"""The application that `test_live_thrice_joined.py` kills. BARRIER=greatest compares greatest stamps, not sets."""

import os

import falkirk as fk
from tests import thrice_joined as model
from tests.chaos.wrong_barrier import compare_greatest_stamps

app = fk.App("thrice")
for name in model.DELAYS_S:
    app.source(name, fk.Kafka(os.environ[name.upper()], schema=model.SCHEMA))
app.add_processor(
    "seen", model.body(*model.KINDS[0]), reads=(*model.DELAYS_S,), policy=fk.Lazy("5 seconds"), engine="live"
)
app.sink("seen", "seen", fk.Kafka(os.environ["SEEN"]))

if os.environ.get("BARRIER") == "greatest":
    compare_greatest_stamps()
