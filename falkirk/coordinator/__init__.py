"""The coordinator: the home, the decisions, and the processes that run an application."""
