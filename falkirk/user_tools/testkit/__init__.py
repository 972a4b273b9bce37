"""The test kit: runs an application in the memory of a test, and can cut it off between any two writes.

The planner, the recovery protocol, the store, the logs of epochs and the user's steps are those of a real run. The kit
replaces the broker, Spark's live queries, the clock and the sinks. `falkirk.testing` is its public face.
"""
