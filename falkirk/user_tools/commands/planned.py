"""Planned: the regions of an application as its file declares them now, for commands that compute steps again."""

from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import SparkSession

from falkirk.declare.application import Application
from falkirk.plan.plan import Plan
from falkirk.plan.planner import plan_application
from falkirk.plan.region import Region, RegionLogs
from falkirk.plan.schemas import with_schemas
from falkirk.recovery.ownership.folder import Home


@dataclass(frozen=True, kw_only=True)
class PlannedRegions:
    """Args: app: with the topics of its patterns."""

    app: Application
    home: Home
    session: SparkSession

    @cached_property
    def plan(self) -> Plan:
        """The plan of the application."""
        return plan_application(with_schemas(self.app, self.home.path), self.session, self.home.identity)

    def region(self, logs: RegionLogs) -> Region | None:
        """Return the planned region; None: the application has run with another one."""
        found = next((r for r in self.plan.regions if r.name == logs.name), None)
        if found is None or replace(found.logs(), steps=(), where=None) != replace(logs, steps=(), where=None):
            return None
        return found
