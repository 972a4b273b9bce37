"""The audit: runs each step that is assumed deterministic twice on a sample of its input, and compares the results."""

from falkirk.user_tools.determinism_check.findings import AuditFinding, AuditOutcome, audit

__all__ = ["AuditFinding", "AuditOutcome", "audit"]
