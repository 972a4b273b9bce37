"""Push sources: clients post requests over HTTP, and get their answer once the results of the request are published."""
