"""This machine: Java, JVM dependencies, the Spark session, a local broker for trials, and the doctor."""
