"""The theory, pure: no Spark, no clock, no input or output. It should read like the papers."""
