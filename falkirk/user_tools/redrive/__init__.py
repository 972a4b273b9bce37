"""Redrive: sends dead letters to their original topics again, each exactly once, even after failures."""
