"""Live regions: Real-time Mode queries from one log to another."""
