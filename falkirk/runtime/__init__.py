"""The runtime: what runs on Spark, for live regions and batches, and the ports through which the protocol uses it."""
