"""Declarations: the declarations of a user's application, as values. Nothing here runs anything or needs Spark."""
