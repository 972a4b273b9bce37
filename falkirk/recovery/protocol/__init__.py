"""The recovery protocol, over ports: it recovers, releases, collects and rolls back, and knows no Spark or Kafka."""
