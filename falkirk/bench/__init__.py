"""Benches: what Falkirk costs and gives, measured in one run against the same work without it."""
