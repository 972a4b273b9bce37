"""The theory as pure functions and values: no Spark, no clock, no input or output. It follows the papers closely."""
