"""Infers from Spark's analysed plan and Python's code, before a step runs, whether it is deterministic, and why."""
