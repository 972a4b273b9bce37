"""The keyed counts of counts.py, of which `FENCED` names the fenced ones; `yes` fences all.

`IDS` puts another prefix before the transactional ids. With `MACHINE` the processes of a former owner can't be seen.
"""

import os

from falkirk.plan import planner
from falkirk.plan.region import Region
from falkirk.runtime import lanes
from falkirk.system import processes
from tests.chaos.apps.counts import app

FENCED = os.environ.get("FENCED", "").split()
app.fenced = FENCED == ["yes"]
if not app.fenced:
    planner.Region = lambda **given: Region(**given | {"fenced": given["name"] in FENCED})
lanes.COMMIT_MS = int(os.environ.get("COMMIT_MS", lanes.COMMIT_MS))
if os.environ.get("MACHINE"):
    processes.machine = lambda: os.environ["MACHINE"]
if os.environ.get("IDS"):
    prefix, gate = lanes._prefix, lanes._gate
    lanes._prefix = lambda place, region: os.environ["IDS"] + prefix(place, region)
    lanes._gate = lambda place, region: os.environ["IDS"] + gate(place, region)
