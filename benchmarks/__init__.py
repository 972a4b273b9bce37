"""Bench: measures the cost and the effects of Falkirk, side by side with the same work without it."""
