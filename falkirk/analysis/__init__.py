"""What is known of a step before it runs, by Spark's analysed plan and Python's code: is it deterministic, and why."""
