"""Peers: Apache Flink, Kafka Streams and plain Spark, measured beside Falkirk (`python -m benchmarks peers`)."""
