"""Epochs: regions that run a DataFrame job for each complete epoch of what they read, and keep what it sends."""
