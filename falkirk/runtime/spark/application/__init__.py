"""The parts that an application has once: its logs in Kafka, and its batches with their releases."""
