"""Demo: runs an application on real text, kills it with -9, and judges all its results at the end."""
