"""Tests of metrics: the answers to Prometheus and probes, from a status."""
