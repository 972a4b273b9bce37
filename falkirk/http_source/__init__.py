"""Push sources: clients post requests over HTTP, and wait for the answer or for the publication of all results."""
