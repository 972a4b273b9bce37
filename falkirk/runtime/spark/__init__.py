"""Runs live regions and batches on Spark, and implements the ports through which the protocol uses them."""
