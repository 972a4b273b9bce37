"""Operators of batches that PySpark has not: Python functions that keep a state, joins of streams, windows."""
