"""Declarations: what a user says of an application, as values. Nothing here runs anything or needs Spark."""
