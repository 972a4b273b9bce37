"""The processes of a running application: the coordinator, the host with the Spark session, and the HTTP gateway."""
