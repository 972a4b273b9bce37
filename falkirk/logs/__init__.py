"""Kafka as the logs: how to reach it, what its topics hold, and what has been released to them."""
