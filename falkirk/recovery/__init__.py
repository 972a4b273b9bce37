"""Recovery: the protocol, the store of its decisions, and the owner of a home."""
