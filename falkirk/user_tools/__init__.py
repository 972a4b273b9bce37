"""Tools that users call: commands, checks of results and of determinism, dead letters, the test kit."""
