"""Removes Hypothesis' deadlines from these property tests: the machine may be busy with other tests."""

from hypothesis import settings

settings.register_profile("falkirk", deadline=None, print_blob=True)
settings.load_profile("falkirk")
