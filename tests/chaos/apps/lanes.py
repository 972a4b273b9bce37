"""The keyed counts of counts.py, of which `FENCED` names the fenced ones; `yes` fences all.

The region that `SINGLE` names has one query, even if its processor asks for twins.
`IDS` puts another prefix before the transactional ids. With `MACHINE` the processes of a former owner can't be seen.
"""

import os
from dataclasses import replace

from falkirk.plan import planner
from falkirk.plan.region import Region
from falkirk.platform import processes
from falkirk.runtime.spark import lanes
from tests.chaos.apps.counts import app

FENCED = os.environ.get("FENCED", "").split()
app.transactional = FENCED == ["yes"]
SINGLE = os.environ.get("SINGLE", "")


def _region(**given):
    policy = replace(given["policy"], twins=False) if given["name"] == SINGLE else given["policy"]
    return Region(**given | {"transactional": given["name"] in FENCED, "policy": policy})


if not app.transactional:
    planner.Region = _region
lanes.COMMIT_MS = int(os.environ.get("COMMIT_MS", lanes.COMMIT_MS))
if os.environ.get("MACHINE"):
    processes.machine = lambda: os.environ["MACHINE"]
if os.environ.get("IDS"):
    prefix, gate = lanes._prefix, lanes._gate
    lanes._prefix = lambda place, region: os.environ["IDS"] + prefix(place, region)
    lanes._gate = lambda place, region: os.environ["IDS"] + gate(place, region)
