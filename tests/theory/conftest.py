"""Property tests here are judged by what they find, not by the clock: the machine may be busy with other tests."""

from hypothesis import settings

settings.register_profile("falkirk", deadline=None, print_blob=True)
settings.load_profile("falkirk")
