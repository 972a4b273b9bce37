"""Operators of batches that PySpark does not have: Python functions with state, joins of streams, and windows."""
