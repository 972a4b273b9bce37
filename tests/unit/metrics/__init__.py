"""Tests of metrics: what Prometheus and probes get of a status."""
