"""The running application: work on Spark, and the processes that supervise it."""
