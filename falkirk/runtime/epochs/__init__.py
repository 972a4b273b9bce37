"""Batches: a DataFrame job for each complete epoch of what they read, and the log of what they send."""
