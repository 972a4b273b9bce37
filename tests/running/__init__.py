"""Plugins of this suite: they end processes with the run, measure time, and compare folders with their budgets."""
