"""Kafka topics as logs: connections, reading ranges of records, headers, signatures and topic administration."""
