"""Batches: a DataFrame job for each complete epoch of their input, and the log of their results."""
