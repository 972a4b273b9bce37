"""Regions: how each kind of region runs on Spark."""
