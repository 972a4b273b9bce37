"""Sinks: topics, tables, folders and the console, to which epochs and held results are published."""
