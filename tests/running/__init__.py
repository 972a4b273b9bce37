"""Plugins of this suite: processes end with the run, time is measured, folders have budgets."""
