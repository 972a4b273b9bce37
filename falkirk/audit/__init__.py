"""The audit: runs what is said to be deterministic twice on a sample of its input, and compares."""

from falkirk.audit.findings import Finding, Outcome, audit

__all__ = ["Finding", "Outcome", "audit"]
