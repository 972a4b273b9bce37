"""Tests of the Java module: its build, and its own unit tests."""
