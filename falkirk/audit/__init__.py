"""The audit: runs each step that is assumed deterministic twice on a sample of its input, and compares the results."""

from falkirk.audit.findings import Finding, Outcome, audit

__all__ = ["Finding", "Outcome", "audit"]
