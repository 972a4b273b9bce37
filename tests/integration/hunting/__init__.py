"""A search for wrong inferences: runs random pipelines that are inferred deterministic twice, and compares results."""
