"""This machine: Java, JVM dependencies, the Spark session, a broker to try things out, and the doctor."""
