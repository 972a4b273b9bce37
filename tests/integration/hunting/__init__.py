"""A standing hunt: drawn pipelines that are said to come out the same are run twice, and have to."""
